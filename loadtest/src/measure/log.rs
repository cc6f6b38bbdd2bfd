//! What happened in a scenario's calls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::transport::webrtc::RtpReport;
use crate::measure::lateness::Lateness;
use crate::measure::playback::AnswerPlayback;

/// Different errors that are listed; what follows counts together.
const MAX_ERRORS: usize = 50;

/// An answered turn. Times count from the beginning of the scenario, durations as named.
#[derive(Debug, Clone)]
pub struct TurnLog {
    /// The call's number.
    pub call: usize,
    /// The true end of the caller's speech.
    pub speech_end: Duration,
    /// From there to the commit of the turn, if that is known.
    pub endpointing: Option<Duration>,
    /// TTFP: commit to the first packet above -45 dBFS, if the commit is known.
    pub ttfp: Option<Duration>,
    /// The true end of speech to the first sound above -45 dBFS.
    pub to_sound: Duration,
    /// From the first voiced sample of a barge-in to silence.
    pub barge_in: Option<Duration>,
    /// The answer as it was heard.
    pub answer: AnswerPlayback,
    /// Whether its words were right, if anybody knows.
    pub correct: Option<bool>,
}

/// A call that is over.
#[derive(Debug, Clone)]
pub struct CallLog {
    /// When it was dialled, from the beginning of the scenario.
    pub began: Duration,
    /// From dialling to the open line, if it came to that.
    pub setup: Option<Duration>,
    /// When it ended, from the beginning of the scenario.
    pub ended: Duration,
    /// What RTP and RTCP say, over WebRTC.
    pub rtp: Option<RtpReport>,
}

/// Use of the processor and of memory at one moment.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceSample {
    /// From the beginning of the scenario.
    pub at: Duration,
    /// Calls in progress.
    pub calls: usize,
    /// Cores that the server used since the sample before.
    pub server_cores: Option<f64>,
    /// The server's resident memory, in bytes.
    pub server_memory: Option<u64>,
    /// Cores that the generator used since the sample before.
    pub own_cores: f64,
}

/// Everything of one scenario.
#[derive(Debug, Clone, Default)]
pub struct ScenarioLog {
    /// Answered turns.
    pub turns: Vec<TurnLog>,
    /// Calls.
    pub calls: Vec<CallLog>,
    /// Calls in progress.
    pub active: usize,
    /// What went wrong, and how often.
    pub errors: BTreeMap<String, u64>,
    /// How late our own frames left.
    pub lateness: Lateness,
    /// One sample a second.
    pub samples: Vec<ResourceSample>,
    /// Underruns by the server's own count, if it has one.
    pub server_underruns: Option<f64>,
    /// Mean of each stage by the server's own count, in seconds, in the order in which a turn passes them.
    pub server_stages: Vec<(String, f64)>,
}

impl ScenarioLog {
    /// Counts an error.
    pub fn error(&mut self, error: impl Into<String>) {
        let error = error.into();
        let known = self.errors.contains_key(&error) || self.errors.len() < MAX_ERRORS;
        *self.errors.entry(if known { error } else { "other errors".to_owned() }).or_default() += 1;
    }

    /// Errors of all kinds.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// A duration of each turn, in order of size.
    pub fn sorted(&self, of: impl Fn(&TurnLog) -> Option<Duration>) -> Vec<Duration> {
        let mut values: Vec<Duration> = self.turns.iter().filter_map(of).collect();
        values.sort();
        values
    }

    /// Share of answers in which the caller heard a gap, 0 to 1.
    pub fn gap_share(&self) -> f64 {
        let heard = self.turns.iter().filter(|turn| !turn.answer.gaps.is_empty()).count();
        heard as f64 / self.turns.len().max(1) as f64
    }
}
