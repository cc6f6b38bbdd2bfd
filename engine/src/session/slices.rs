//! Input audio answered slice by slice: slice 0, response 0, slice 1, response 1, all in one history.

use std::collections::VecDeque;

use repartee_engine_api::{InsertAt, Respond, SessionError, SlicePolicy};

use super::{MAX_AUDIO_S, ModelContext, Session};

/// Shortest slice, in ms.
const MIN_SLICE_MS: usize = 80;
/// Slices encoded ahead of the active response; later ones wait as samples.
const AHEAD: usize = 1;

/// Input audio cut into slices.
pub struct Slices {
    /// Samples of a slice.
    samples: usize,
    /// The parameters of slice 0's response.
    respond: Respond,
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

    /// Whether no audio waits.
    pub fn is_empty(&self) -> bool {
        self.open.is_empty() && self.ready.is_empty()
    }

    /// Appends audio; at most `limit` samples may wait.
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

    /// Discards the audio that waits.
    pub fn clear(&mut self) {
        self.open.clear();
        self.ready.clear();
    }
}

impl<T> Session<T> {
    pub(super) fn set_policy(&mut self, policy: SlicePolicy, model: &ModelContext<'_, T>) -> Result<(), SessionError> {
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
                Some(Slices { samples, respond: *respond, taken: 0, ready: VecDeque::new(), open: Vec::new() })
            }
        };
        Ok(())
    }

    /// Requests responses for the next slices, a bounded number ahead of the active one.
    pub fn read_slices(&mut self, model: &mut ModelContext<'_, T>) {
        while self.pending_responses.len() < AHEAD + usize::from(self.active.is_none())
            && let Some(slices) = &mut self.slices
            && let Some(samples) = slices.ready.pop_front()
        {
            let (number, respond) = (slices.taken, slices.respond.clone());
            slices.taken += 1;
            let (item, response) = (respond.item + 2 * number, respond.response + number);
            let inserted = self.insert_audio(item, InsertAt::End, &samples, model);
            let requested =
                inserted.and_then(|()| self.respond(Respond { item: item + 1, response, ..respond }, model));
            if let Err(error) = requested {
                self.fail(Some(response), error);
            }
        }
    }
}
