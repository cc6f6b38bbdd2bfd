//! One turn's times, and the log of a call.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::playback_meter::PlaybackMeter;

/// Audio and events take different paths: the first packet of a speculation may arrive this long before the commit event.
const MAX_OVERTAKING: Duration = Duration::from_millis(40);

/// What is known of the turn in progress.
#[derive(Debug)]
pub struct Turn {
    /// When the last frame of the caller's speech left.
    pub speech_end: Option<Instant>,
    /// When the turn was committed: by us over the websocket, as the server tells over WebRTC.
    pub committed: Option<Instant>,
    /// Playback of the response.
    pub playback: PlaybackMeter,
}

impl Turn {
    /// A turn that has not begun.
    pub fn new(buffer: Duration) -> Self {
        Self { speech_end: None, committed: None, playback: PlaybackMeter::new(buffer) }
    }

    /// The turn's times, or why it does not count.
    pub fn finish(&self) -> Result<TurnTimes, &'static str> {
        let speech_end = self.speech_end.ok_or("the answer was over before the question")?;
        let committed = self.committed.ok_or("the turn was never committed")?;
        if committed < speech_end {
            return Err("the turn was cut off within the question");
        }
        let first_sound = self.playback.first_sound().ok_or("the answer has no sound")?;
        if first_sound + MAX_OVERTAKING < committed {
            return Err("the answer began before the turn was committed");
        }
        Ok(TurnTimes {
            from_commit: first_sound.saturating_duration_since(committed),
            from_speech_end: first_sound - speech_end,
            underruns: self.playback.underruns(),
        })
    }
}

/// The times of an answered turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnTimes {
    /// TTFP: commit to first audible packet.
    pub from_commit: Duration,
    /// End of the caller's last sample to first audible packet.
    pub from_speech_end: Duration,
    /// Underruns of the response.
    pub underruns: u64,
}

/// What happened in a call, or in many.
#[derive(Debug, Default)]
pub struct CallLog {
    /// From dialling to the open data channel, or to the configured session.
    pub setup: Vec<Duration>,
    /// Answered turns.
    pub turns: Vec<TurnTimes>,
    /// From the first voiced frame of a barge-in to the last audible packet of the response.
    pub barge_ins: Vec<Duration>,
    /// What went wrong, and how often.
    pub errors: BTreeMap<String, u64>,
    /// How late our own frames left: above some ms this machine is the limit, not the server.
    pub lateness: Vec<Duration>,
}

impl CallLog {
    /// Counts an error.
    pub fn error(&mut self, error: impl Into<String>) {
        *self.errors.entry(error.into()).or_default() += 1;
    }

    /// Adds a finished turn.
    pub fn turn(&mut self, turn: &Turn) {
        match turn.finish() {
            Ok(times) => self.turns.push(times),
            Err(error) => self.error(error),
        }
    }

    /// Adds another log.
    pub fn merge(&mut self, other: Self) {
        self.setup.extend(other.setup);
        self.turns.extend(other.turns);
        self.barge_ins.extend(other.barge_ins);
        self.lateness.extend(other.lateness);
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn times_begin_at_speech_end_and_commit() {
        let start = Instant::now();
        let mut turn = Turn::new(Duration::ZERO);
        (turn.speech_end, turn.committed) = (Some(start), Some(start + 500 * MS));
        turn.playback.push(&[0.1; 480], start + 620 * MS);
        let times = turn.finish().unwrap();
        assert_eq!((times.from_commit, times.from_speech_end, times.underruns), (120 * MS, 620 * MS, 0));
    }

    #[test]
    fn turns_that_measure_nothing_are_errors() {
        let start = Instant::now();
        let mut turn = Turn::new(Duration::ZERO);
        assert!(turn.finish().unwrap_err().contains("before the question"));
        turn.speech_end = Some(start);
        assert!(turn.finish().unwrap_err().contains("never committed"));
        turn.committed = Some(start - 10 * MS);
        assert!(turn.finish().unwrap_err().contains("cut off"));
        turn.committed = Some(start + 10 * MS);
        assert!(turn.finish().unwrap_err().contains("no sound"));
        turn.playback.push(&[0.1; 480], start);
        assert_eq!(turn.finish().unwrap().from_commit, Duration::ZERO, "overtaken");
        turn.committed = Some(start + 50 * MS);
        assert!(turn.finish().unwrap_err().contains("began before"));
    }

    #[test]
    fn logs_add_up() {
        let mut total = CallLog::default();
        for _ in 0..2 {
            let mut log = CallLog::default();
            log.error("refused");
            total.merge(log);
        }
        assert_eq!(total.errors["refused"], 2);
    }
}
