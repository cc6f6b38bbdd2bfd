//! Input audio cut into slices of equal length.

use std::collections::VecDeque;

use repartee_engine_api::{ItemId, Respond, SessionError};

use super::limits::MAX_AUDIO_S;

/// Input audio cut into slices.
pub struct Slices {
    /// Number of samples of a slice.
    samples: usize,
    /// Response parameters of slice 0.
    respond: Respond,
    /// Number of slices taken so far.
    taken: u64,
    /// Complete slices that wait.
    ready: VecDeque<Vec<f32>>,
    /// Slice that is being filled.
    open: Vec<f32>,
    /// Number of samples in all waiting slices.
    waiting: usize,
}

impl Slices {
    /// Creates an empty queue of slices of `samples` samples, answered as in `respond`.
    pub fn new(samples: usize, respond: Respond) -> Self {
        Self { samples, respond, taken: 0, ready: VecDeque::new(), open: Vec::new(), waiting: 0 }
    }

    /// True if no audio waits.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ready.is_empty()
    }

    /// Appends audio; at most `limit` samples may wait. Each sample is copied once.
    pub fn push(&mut self, mut samples: &[f32], limit: usize) -> Result<(), SessionError> {
        if self.waiting + samples.len() > limit {
            return Err(SessionError::AudioTooLong { limit_s: MAX_AUDIO_S });
        }
        self.waiting += samples.len();
        while !samples.is_empty() {
            let (taken, rest) = samples.split_at(samples.len().min(self.samples - self.open.len()));
            self.open.extend_from_slice(taken);
            samples = rest;
            if self.open.len() == self.samples {
                self.end()?;
            }
        }
        Ok(())
    }

    /// Ends the open slice.
    pub fn end(&mut self) -> Result<(), SessionError> {
        if self.open.is_empty() {
            return Err(SessionError::NothingToCommit);
        }
        self.ready.push_back(std::mem::take(&mut self.open));
        Ok(())
    }

    /// Takes the next complete slice: its samples, its user item and the parameters of its response.
    pub fn next(&mut self) -> Option<(Vec<f32>, ItemId, Respond)> {
        let samples = self.ready.pop_front()?;
        let (number, respond) = (self.taken, self.respond.clone());
        self.taken += 1;
        self.waiting -= samples.len();
        let (item, response) = (respond.item + 2 * number, respond.response + number);
        Some((samples, item, Respond { item: item + 1, response, ..respond }))
    }

    /// Discards all waiting audio.
    pub fn clear(&mut self) {
        self.open.clear();
        self.ready.clear();
        self.waiting = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(samples: usize) -> Slices {
        Slices::new(samples, Respond::new(0, 1))
    }

    #[test]
    fn any_split_of_audio_gives_equal_slices() {
        let audio: Vec<f32> = (0..1000).map(|i| i as f32).collect();
        for size in [1, 7, 64, 100, 333, 1000] {
            let mut slices = slices(64);
            for piece in audio.chunks(size) {
                slices.push(piece, 1000).unwrap();
            }
            let expected: Vec<&[f32]> = audio.chunks(64).collect();
            let (whole, open) = expected.split_at(1000 / 64);
            assert_eq!(slices.ready, whole, "pieces of {size}");
            assert_eq!(slices.open, open[0], "pieces of {size}");
        }
    }

    #[test]
    fn slices_hold_only_their_samples() {
        let mut slices = slices(80);
        slices.push(&vec![0.0; 80_000], 80_000).unwrap();
        assert_eq!(slices.ready.len(), 1000);
        // A slice cut off a longer buffer would keep the whole capacity, and the rest would be copied once more.
        let room: usize = slices.ready.iter().map(Vec::capacity).sum();
        assert!(room <= 2 * 80_000, "{room} samples");
        assert!(slices.push(&[0.0], 80_000).is_err(), "the limit holds");
        slices.clear();
        assert!(slices.push(&[0.0; 79], 79).is_ok(), "nothing waits any more");
    }
}
