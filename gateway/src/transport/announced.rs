//! Recording of a telephone call by its transport: a tone first, then both sides.

use std::collections::VecDeque;
use std::time::Instant;

use repartee_media::opus::FRAME;

use crate::call::TransportEvent;
use crate::recording::call_recorder::{CallRecorder, tone};
use crate::recording::message::Side;

/// Recording of one call, or none.
#[derive(Debug, Default)]
pub struct AnnouncedRecording {
    recorder: Option<CallRecorder>,
    /// Frames of the tone that are not sent.
    tone: VecDeque<Vec<f32>>,
}

impl AnnouncedRecording {
    /// Announces a recording by a tone in frames of 20 ms at `rate`.
    pub fn new(recorder: CallRecorder, rate: u32) -> Self {
        let samples = (u128::from(rate) * FRAME.as_millis() / 1_000) as usize;
        let tone = tone(rate).chunks_exact(samples.max(1)).map(<[f32]>::to_vec).collect();
        Self { recorder: Some(recorder), tone }
    }

    /// True while the tone is not sent: nothing else is.
    pub fn is_announcing(&self) -> bool {
        !self.tone.is_empty()
    }

    /// Takes the tone's next frame, which is heard from `at` on. Behind the last one the recording begins.
    pub fn announce(&mut self, at: Instant) -> Option<Vec<f32>> {
        let frame = self.tone.pop_front()?;
        if let Some(recorder) = self.recorder.as_mut().filter(|_| self.tone.is_empty()) {
            recorder.begin(at + FRAME);
        }
        Some(frame)
    }

    /// Keeps a frame of the model, which is sent at `now`.
    pub fn sent(&self, now: Instant, samples: &[f32], rate: u32) {
        if let Some(recorder) = &self.recorder {
            recorder.keep(Side::Answers, now, samples, rate);
        }
    }

    /// Keeps sound of the caller in an event, which comes at `now`.
    pub fn heard(&self, now: Instant, event: &TransportEvent) {
        if let (Some(recorder), TransportEvent::Audio { samples, rate }) = (&self.recorder, event) {
            recorder.keep(Side::Caller, now, samples, *rate);
        }
    }
}
