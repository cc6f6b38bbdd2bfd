//! Sound that is answered slice by slice: slice 0, answer 0, slice 1, answer 1, with memory across them.

use std::collections::VecDeque;

use repartee_engine_api::{InsertAt, Respond, SessionError, SlicePolicy};

use super::{Conversation, Knowledge, MAX_AUDIO_S};

/// Shortest slice, in ms.
const MIN_SLICE_MS: usize = 80;
/// Slices that are encoded ahead of the answer being made; the others wait as sound.
const AHEAD: usize = 1;

/// See the module's description.
pub struct Slices {
    /// Samples of a slice.
    samples: usize,
    answer: Respond,
    /// Slices taken so far.
    taken: u64,
    /// Complete slices.
    ready: VecDeque<Vec<f32>>,
    /// The slice that is being filled.
    open: Vec<f32>,
}

impl Slices {
    fn buffered(&self) -> usize {
        self.open.len() + self.ready.iter().map(Vec::len).sum::<usize>()
    }

    /// Whether sound waits to be read.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ready.is_empty()
    }

    /// Takes sound, at most `limit` samples of it unread.
    pub fn push(&mut self, samples: &[f32], limit: usize) -> Result<(), SessionError> {
        if self.buffered() + samples.len() > limit {
            return Err(SessionError::AudioTooLong { limit_s: MAX_AUDIO_S });
        }
        self.open.extend_from_slice(samples);
        while self.open.len() >= self.samples {
            let rest = self.open.split_off(self.samples);
            self.ready.push_back(std::mem::replace(&mut self.open, rest));
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

    /// Forgets what was not read yet.
    pub fn clear(&mut self) {
        self.open.clear();
        self.ready.clear();
    }
}

impl<T> Conversation<T> {
    pub(super) fn set_policy(&mut self, policy: SlicePolicy, model: &Knowledge<'_, T>) -> Result<(), SessionError> {
        let unread = self.slices.as_ref().is_some_and(|slices| !slices.is_empty());
        if self.hearing.is_some() || self.suspicion.is_some() || unread {
            return Err(SessionError::Busy("sound is open: commit or clear it first"));
        }
        self.slices = match policy {
            SlicePolicy::OnCommit => None,
            SlicePolicy::EachSlice { samples, answer } => {
                let rate = model.log_mel.config().sampling_rate as usize;
                let (least, most) = (rate * MIN_SLICE_MS / 1000, rate * MAX_AUDIO_S as usize);
                if !(least..=most).contains(&samples) {
                    return Err(SessionError::bad("samples", samples, format!("{least} to {most}")));
                }
                if answer.out_of_band || answer.input.is_some() {
                    return Err(SessionError::bad("answer.input", "set", "each slice is what is answered"));
                }
                Some(Slices { samples, answer: *answer, taken: 0, ready: VecDeque::new(), open: Vec::new() })
            }
        };
        Ok(())
    }

    /// Reads the next slices, as far as the answers before them have come.
    pub fn read_slices(&mut self, model: &mut Knowledge<'_, T>) {
        while self.rounds.len() < AHEAD + usize::from(self.active.is_none())
            && let Some(slices) = &mut self.slices
            && let Some(samples) = slices.ready.pop_front()
        {
            let (number, answer) = (slices.taken, slices.answer.clone());
            slices.taken += 1;
            let (item, response) = (answer.item + 2 * number, answer.response + number);
            let inserted = self.insert_audio(item, InsertAt::End, &samples, model);
            let asked = inserted.and_then(|()| self.ask(Respond { item: item + 1, response, ..answer }, model));
            if let Err(error) = asked {
                self.fail(Some(response), error);
            }
        }
    }
}
