//! Speculation: a response begun before the caller's turn has surely ended; `begin`, then `commit` or `abort`.
//!
//! The open input audio stands in the history as an item while its stream stays open. Abort removes the user item and
//! the assistant item and continues the stream. Both share closed windows, so none is encoded twice.

use repartee_engine_api::{InsertAt, ItemId, Respond, ResponseId, SessionError};

use super::state::Speculation;
use super::{ModelContext, Session};
use crate::audio_input::WindowTarget;

impl Session {
    pub(super) fn begin_speculation(
        &mut self,
        item: ItemId,
        request: Respond,
        model: &mut ModelContext<'_>,
    ) -> Result<(), SessionError> {
        if self.speculation.is_some() || self.active.is_some() || !self.pending_responses.is_empty() {
            return Err(SessionError::Busy("an in-band response is active or waits"));
        }
        if request.out_of_band || request.input.is_some() || request.streamed {
            return Err(SessionError::bad("respond.input", "set", "unset: the open audio is the input"));
        }
        let audio_input = self.audio_input.take().ok_or(SessionError::NothingToCommit)?;
        if self.history.contains(item) {
            self.audio_input = Some(audio_input);
            return Err(SessionError::DuplicateItem(item));
        }
        let message = self.end_audio(item, audio_input.encoded.clone(), model);
        if let Err(error) = self.history.insert(item, InsertAt::End, message) {
            self.recognitions.reopen(item, &[]);
            self.audio_input = Some(audio_input);
            return Err(error);
        }
        let (response, response_item) = (request.response, request.item);
        if let Err(error) = self.respond(request, model) {
            self.history.remove(item);
            self.recognitions.reopen(item, &[]);
            self.audio_input = Some(audio_input);
            return Err(error);
        }
        audio_input.end_copy(item, &mut self.pending_windows);
        let held = Vec::new();
        self.speculation = Some(Speculation { item, response, response_item, audio_input, held, since: model.now });
        self.changed = true;
        Ok(())
    }

    pub(super) fn commit_speculation(
        &mut self,
        response: ResponseId,
        model: &ModelContext<'_>,
    ) -> Result<(), SessionError> {
        let Some(speculation) = self.speculation.take_if(|speculation| speculation.response == response) else {
            return Ok(());
        };
        for window in self.pending_windows.iter_mut().filter(|window| window.target == WindowTarget::Open) {
            window.target = WindowTarget::Item(speculation.item);
        }
        self.changed = true;
        self.finish_hearing(WindowTarget::Item(speculation.item), model);
        if speculation.held.is_empty() { Ok(()) } else { self.append(&speculation.held, model) }
    }

    /// Aborts the speculation, if any. Returns the slot of a response that the stages must abort.
    pub(super) fn abort_speculation(&mut self) -> Option<usize> {
        let Speculation { item, response, response_item, mut audio_input, held, .. } = self.speculation.take()?;
        self.withdraw(|request| request.response == response);
        self.history.remove(item);
        self.history.remove(response_item);
        self.recognitions.reopen(item, &held);
        self.drop_audio(item);
        audio_input.push(&held, &mut self.pending_windows);
        self.audio_input = Some(audio_input);
        self.changed = true;
        let active = self.active.as_ref().is_some_and(|active| active.request.response == response);
        active.then_some(self.slot)
    }
}
