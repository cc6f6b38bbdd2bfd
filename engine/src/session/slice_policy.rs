//! Input audio answered slice by slice: slice 0, response 0, slice 1, response 1, all in one history.

use repartee_engine_api::{InsertAt, SessionError, SlicePolicy};

use super::limits::MAX_AUDIO_S;
use super::slices::Slices;
use super::{ModelContext, Session};

/// Shortest slice, in ms.
const MIN_SLICE_MS: usize = 80;
/// Number of slices encoded ahead of the active response; later ones wait as samples.
const AHEAD: usize = 1;

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
                if respond.audio && !model.audio_output {
                    return Err(SessionError::NoAudioOutput);
                }
                Some(Slices::new(samples, *respond))
            }
        };
        Ok(())
    }

    /// Requests responses to the next slices, a bounded number ahead of the active response.
    pub fn read_slices(&mut self, model: &mut ModelContext<'_>) {
        while self.pending_responses.len() < AHEAD + usize::from(self.active.is_none())
            && let Some(slices) = &mut self.slices
            && let Some((samples, item, respond)) = slices.next()
        {
            let response = respond.response;
            let inserted = self.insert_audio(item, InsertAt::End, samples, model);
            if let Err(error) = inserted.and_then(|()| self.respond(respond, model)) {
                self.fail(Some(response), error);
            }
        }
    }
}
