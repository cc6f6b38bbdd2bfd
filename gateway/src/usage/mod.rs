//! Usage of the server by key, model and day, kept over a restart.
//!
//! | file | contents |
//! |---|---|
//! | this file | [`UsageTotals`], and [`UsageCounters`] of a running key |
//! | [`ledger`] | the days: sums by day and key |
//! | [`mod@file`] | the file of the ledger |
//!
//! No clock: the day is a parameter.

pub mod file;
pub mod ledger;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use repartee_engine_api::EngineUsage;
use serde::{Deserialize, Serialize};

/// Number of [`UsageTotals`]' fields.
const FIELDS: usize = 8;

/// Sums of a key's use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UsageTotals {
    /// Responses, transcripts and texts read aloud, the cancelled ones too.
    pub requests: u64,
    /// Text tokens of prompts, those in the cache too.
    pub input_text_tokens: u64,
    /// Audio tokens of prompts, those in the cache too.
    pub input_audio_tokens: u64,
    /// Prompt tokens that were in the cache.
    pub input_cached_tokens: u64,
    /// Generated text tokens.
    pub output_text_tokens: u64,
    /// Generated codec frames.
    pub output_audio_tokens: u64,
    /// Input sound, in microseconds.
    pub input_sound_us: u64,
    /// Generated sound, in microseconds.
    pub output_sound_us: u64,
}

impl UsageTotals {
    fn fields(self) -> [u64; FIELDS] {
        [
            self.requests,
            self.input_text_tokens,
            self.input_audio_tokens,
            self.input_cached_tokens,
            self.output_text_tokens,
            self.output_audio_tokens,
            self.input_sound_us,
            self.output_sound_us,
        ]
    }

    fn of(fields: [u64; FIELDS]) -> Self {
        let [
            requests,
            input_text_tokens,
            input_audio_tokens,
            input_cached_tokens,
            output_text_tokens,
            output_audio_tokens,
            input_sound_us,
            output_sound_us,
        ] = fields;
        Self {
            requests,
            input_text_tokens,
            input_audio_tokens,
            input_cached_tokens,
            output_text_tokens,
            output_audio_tokens,
            input_sound_us,
            output_sound_us,
        }
    }

    /// Usage of one response.
    pub fn of_response(usage: &EngineUsage) -> Self {
        Self {
            requests: 1,
            input_text_tokens: usage.input_text_tokens.into(),
            input_audio_tokens: usage.input_audio_tokens.into(),
            input_cached_tokens: usage.cached_tokens.into(),
            output_text_tokens: usage.output_text_tokens.into(),
            output_audio_tokens: usage.output_audio_frames.into(),
            ..Self::default()
        }
    }

    /// Adds each sum of `other`, up to the largest number.
    pub fn add(&mut self, other: Self) {
        let mut sums = self.fields();
        sums.iter_mut().zip(other.fields()).for_each(|(sum, more)| *sum = sum.saturating_add(more));
        *self = Self::of(sums);
    }

    fn since(self, before: Self) -> Self {
        let mut rest = self.fields();
        rest.iter_mut().zip(before.fields()).for_each(|(now, before)| *now = now.saturating_sub(before));
        Self::of(rest)
    }
}

/// Usage of a key since the start, counted from all threads.
#[derive(Debug, Default)]
pub struct UsageCounters {
    counts: [AtomicU64; FIELDS],
    /// Usage that [`Self::take`] has returned.
    taken: Mutex<UsageTotals>,
}

impl UsageCounters {
    /// Adds the sums of a response, or of a piece of sound.
    pub fn add(&self, usage: UsageTotals) {
        for (count, more) in self.counts.iter().zip(usage.fields()).filter(|(_, more)| *more > 0) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    /// Usage since the start.
    pub fn totals(&self) -> UsageTotals {
        UsageTotals::of(std::array::from_fn(|at| self.counts[at].load(Ordering::Relaxed)))
    }

    /// Returns the usage since the last call.
    pub fn take(&self) -> UsageTotals {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.totals();
        now.since(std::mem::replace(&mut *taken, now))
    }
}

/// Microseconds of a duration.
pub fn whole_us(sound: Duration) -> u64 {
    u64::try_from(sound.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_taken_once() {
        let counters = UsageCounters::default();
        let usage =
            EngineUsage { input_text_tokens: 5, cached_tokens: 2, output_audio_frames: 9, ..EngineUsage::default() };
        counters.add(UsageTotals::of_response(&usage));
        counters.add(UsageTotals { output_sound_us: 720, ..UsageTotals::default() });
        let expected = UsageTotals {
            requests: 1,
            input_text_tokens: 5,
            input_cached_tokens: 2,
            output_audio_tokens: 9,
            output_sound_us: 720,
            ..UsageTotals::default()
        };
        assert_eq!(counters.take(), expected);
        assert_eq!(counters.take(), UsageTotals::default());
        counters.add(UsageTotals { requests: 2, ..UsageTotals::default() });
        assert_eq!(counters.take(), UsageTotals { requests: 2, ..UsageTotals::default() });
        assert_eq!(counters.totals(), UsageTotals { requests: 3, ..expected }, "the metrics count on");
    }
}
