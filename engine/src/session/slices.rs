//! Input audio answered slice by slice: slice 0, response 0, slice 1, response 1, all in one history.

use std::collections::VecDeque;

use repartee_engine_api::{InsertAt, Respond, SessionError, SlicePolicy};

use super::{MAX_AUDIO_S, ModelContext, Session};

/// Shortest slice, in ms.
const MIN_SLICE_MS: usize = 80;
/// Number of slices encoded ahead of the active response; later ones wait as samples.
const AHEAD: usize = 1;

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

    /// Discards all waiting audio.
    pub fn clear(&mut self) {
        self.open.clear();
        self.ready.clear();
        self.waiting = 0;
    }
}

impl Session {
    pub(super) fn set_policy(&mut self, policy: SlicePolicy, model: &ModelContext<'_>) -> Result<(), SessionError> {
        let unread = self.slices.as_ref().is_some_and(|slices| !slices.is_empty());
        if self.audio_input.is_some() || self.speculation.is_some() || unread {
            return Err(SessionError::Busy("input audio is open: commit or clear it first"));
        }
        self.slices = match policy {
            SlicePolicy::OnCommit => None,
            SlicePolicy::EachSlice { samples, respond } => {
                let rate = model.front_end()?.rate() as usize;
                let (least, most) = (rate * MIN_SLICE_MS / 1000, rate * MAX_AUDIO_S as usize);
                if !(least..=most).contains(&samples) {
                    return Err(SessionError::bad("samples", samples, format!("{least} to {most}")));
                }
                if respond.out_of_band || respond.input.is_some() || respond.streamed {
                    return Err(SessionError::bad("respond.input", "set", "unset: each slice is its response's input"));
                }
                Some(Slices {
                    samples,
                    respond: *respond,
                    taken: 0,
                    ready: VecDeque::new(),
                    open: Vec::new(),
                    waiting: 0,
                })
            }
        };
        Ok(())
    }

    /// Requests responses to the next slices, a bounded number ahead of the active response.
    pub fn read_slices(&mut self, model: &mut ModelContext<'_>) {
        while self.pending_responses.len() < AHEAD + usize::from(self.active.is_none())
            && let Some(slices) = &mut self.slices
            && let Some(samples) = slices.ready.pop_front()
        {
            let (number, respond) = (slices.taken, slices.respond.clone());
            slices.taken += 1;
            slices.waiting -= samples.len();
            let (item, response) = (respond.item + 2 * number, respond.response + number);
            let inserted = self.insert_audio(item, InsertAt::End, samples, model);
            let requested =
                inserted.and_then(|()| self.respond(Respond { item: item + 1, response, ..respond }, model));
            if let Err(error) = requested {
                self.fail(Some(response), error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slices(samples: usize) -> Slices {
        Slices { samples, respond: Respond::new(0, 1), taken: 0, ready: VecDeque::new(), open: Vec::new(), waiting: 0 }
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
