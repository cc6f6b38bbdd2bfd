//! Log of a scenario's calls.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::measure::lateness::Lateness;
use crate::measure::playback::AnswerPlayback;
use crate::transport::webrtc::RtpReport;

/// Most distinct errors that are listed; further ones are counted together.
const MAX_ERRORS: usize = 50;

/// An answered turn.
#[derive(Debug, Clone)]
pub struct TurnLog {
    /// Index of the caller.
    pub call: usize,
    /// True end of the caller's speech, from the beginning of the scenario.
    pub speech_end: Duration,
    /// End of speech to the commit of the turn, if the commit is known.
    pub endpointing: Option<Duration>,
    /// TTFP: commit to the first packet above -45 dBFS, if the commit is known.
    pub ttfp: Option<Duration>,
    /// True end of speech to the first sound above -45 dBFS.
    pub to_sound: Duration,
    /// First voiced sample of a barge-in to silence.
    pub barge_in: Option<Duration>,
    /// Playback of the answer.
    pub answer: AnswerPlayback,
    /// True if the transcript is right; `None` if the right answer is unknown.
    pub correct: Option<bool>,
}

/// A finished call.
#[derive(Debug, Clone)]
pub struct CallLog {
    /// Start of dialling, from the beginning of the scenario.
    pub began: Duration,
    /// Dialling to the open line; `None` if it never opened.
    pub setup: Option<Duration>,
    /// End of the call, from the beginning of the scenario.
    pub ended: Duration,
    /// RTP and RTCP statistics, over WebRTC.
    pub rtp: Option<RtpReport>,
}

/// A sample of processor and memory use.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceSample {
    /// Time from the beginning of the scenario.
    pub at: Duration,
    /// Number of calls in progress.
    pub calls: usize,
    /// Server cores used since the previous sample.
    pub server_cores: Option<f64>,
    /// Resident memory of the server, in bytes.
    pub server_memory: Option<u64>,
    /// Generator cores used since the previous sample.
    pub own_cores: f64,
    /// Cores that other processes of the machine used; 0 if the server is elsewhere.
    pub other_cores: f64,
    /// Cores that the hypervisor gave to its other guests.
    pub stolen_cores: f64,
}

/// Log of one scenario.
#[derive(Debug, Clone, Default)]
pub struct ScenarioLog {
    /// Answered turns of all calls.
    pub turns: Vec<TurnLog>,
    /// Finished calls, in order of their ends.
    pub calls: Vec<CallLog>,
    /// Number of calls in progress.
    pub active: usize,
    /// Number of errors by text.
    pub errors: BTreeMap<String, u64>,
    /// Lateness of our own frames.
    pub lateness: Lateness,
    /// Resource samples, one per second.
    pub samples: Vec<ResourceSample>,
    /// Underruns counted by the server, if it has the metric.
    pub server_underruns: Option<f64>,
    /// Share of time that the server's engine spent in ticks, if it has the metric.
    pub server_ticks: Option<f64>,
    /// Mean time that a task waited for the server's runtime, in seconds, if it has the metric.
    pub server_runtime_delay: Option<f64>,
    /// Mean duration of each stage in seconds, measured by the server, in the order in which a turn passes them.
    pub server_stages: Vec<(String, f64)>,
}

impl ScenarioLog {
    /// Counts an error.
    pub fn error(&mut self, error: impl Into<String>) {
        let error = error.into();
        let known = self.errors.contains_key(&error) || self.errors.len() < MAX_ERRORS;
        *self.errors.entry(if known { error } else { "other errors".to_owned() }).or_default() += 1;
    }

    /// Returns the number of errors.
    pub fn error_count(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Returns one duration per turn, sorted; turns without it are skipped.
    pub fn sorted(&self, of: impl Fn(&TurnLog) -> Option<Duration>) -> Vec<Duration> {
        let mut values: Vec<Duration> = self.turns.iter().filter_map(of).collect();
        values.sort();
        values
    }

    /// Returns the share of answers with an audible gap, 0 to 1.
    pub fn gap_share(&self) -> f64 {
        let heard = self.turns.iter().filter(|turn| !turn.answer.gaps.is_empty()).count();
        heard as f64 / self.turns.len().max(1) as f64
    }
}
