//! Recording of one call, as its transport sees it.

use std::f32::consts::TAU;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use repartee_media::pcm::to_i16;

use super::message::{Message, Piece, Side};

/// Duration and pitch of the tone that says that the call is recorded, in Hz.
const TONE: (Duration, f32) = (Duration::from_millis(500), 1_400.0);
/// Loudness of the tone, of 1.
const TONE_LEVEL: f32 = 0.3;

/// Returns the tone at `rate`.
pub fn tone(rate: u32) -> Vec<f32> {
    let (lasts, pitch) = TONE;
    let samples = (lasts.as_secs_f64() * f64::from(rate)) as usize;
    (0..samples).map(|number| TONE_LEVEL * (TAU * pitch * number as f32 / rate as f32).sin()).collect()
}

/// Recording of one call; it ends when dropped.
#[derive(Debug)]
pub struct CallRecorder {
    number: u64,
    id: String,
    sender: SyncSender<Message>,
    /// Begin of the recording, behind the tone.
    begun: Option<Instant>,
}

impl CallRecorder {
    pub(super) fn new(number: u64, id: String, sender: SyncSender<Message>) -> Self {
        Self { number, id, sender, begun: None }
    }

    /// Begins at `at`, the end of the tone. What comes before is not kept.
    pub fn begin(&mut self, at: Instant) {
        if self.begun.is_none() {
            self.begun = Some(at);
            self.send(Message::Begin(self.number, self.id.clone()));
        }
    }

    /// Keeps sound of a side that was heard or sent at `at`. It is lost if the thread is behind.
    pub fn keep(&self, side: Side, at: Instant, samples: &[f32], rate: u32) {
        let Some(begun) = self.begun.filter(|begun| *begun <= at) else { return };
        let samples = samples.iter().map(|sample| to_i16(*sample)).collect();
        let at = at.saturating_duration_since(begun);
        self.send(Message::Piece(Piece { call: self.number, side, at, rate, samples }));
    }

    fn send(&self, message: Message) {
        // A full queue is a disk that is behind: the call goes on, and its file gets silence there.
        let _ = self.sender.try_send(message);
    }
}

impl Drop for CallRecorder {
    fn drop(&mut self) {
        if self.begun.is_some() {
            self.send(Message::End(self.number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::*;

    #[test]
    fn nothing_is_kept_before_the_tone() {
        let (sender, messages) = sync_channel(4);
        let mut recorder = CallRecorder::new(7, "rtc_1".to_owned(), sender);
        let start = Instant::now();
        recorder.keep(Side::Caller, start, &[0.5; 160], 8_000);
        recorder.begin(start + Duration::from_millis(20));
        recorder.keep(Side::Caller, start, &[0.5; 160], 8_000);
        recorder.keep(Side::Answers, start + Duration::from_millis(60), &[0.5; 160], 8_000);
        drop(recorder);
        let kept: Vec<Message> = messages.try_iter().collect();
        let [Message::Begin(7, _), Message::Piece(piece), Message::End(7)] = &kept[..] else { panic!("{kept:?}") };
        assert_eq!((piece.side, piece.at, piece.samples.len()), (Side::Answers, Duration::from_millis(40), 160));
    }

    #[test]
    fn full_queue_never_waits() {
        let (sender, messages) = sync_channel(2);
        let mut recorder = CallRecorder::new(7, "rtc_1".to_owned(), sender);
        recorder.begin(Instant::now());
        for _ in 0..100 {
            recorder.keep(Side::Caller, Instant::now(), &[0.5; 160], 8_000);
        }
        assert_eq!(messages.try_iter().count(), 2);
    }
}
