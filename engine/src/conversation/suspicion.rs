//! An answer begun on the suspicion that the caller's turn is over, before that is certain.
//!
//! What was heard so far stands in the history as an item of its own, while the sound itself stays open: taking the
//! answer back removes both items and goes on listening where it stopped. Encoded windows belong to both, so nothing
//! closed is encoded twice.

use std::time::Instant;

use repartee_engine_api::{InsertAt, ItemId, Respond, ResponseId, SessionError};

use super::{Conversation, Knowledge};
use crate::hearing::{Hearing, Owner};
use crate::stage::Message;

/// See the module's description.
pub struct Suspicion<T> {
    /// The user item.
    pub item: ItemId,
    /// The answer.
    pub response: ResponseId,
    /// The assistant item.
    pub answer_item: ItemId,
    /// The sound up to here, still open.
    pub hearing: Hearing<T>,
    /// What came since.
    pub held: Vec<f32>,
    /// Since when nothing is decided.
    pub since: Instant,
}

impl<T> Conversation<T> {
    pub(super) fn speculate(
        &mut self,
        item: ItemId,
        answer: Respond,
        model: &mut Knowledge<'_, T>,
    ) -> Result<(), SessionError> {
        if self.suspicion.is_some() || self.active.is_some() || !self.rounds.is_empty() {
            return Err(SessionError::Busy("an answer of the conversation is being made or waits"));
        }
        if answer.out_of_band || answer.input.is_some() {
            return Err(SessionError::bad("answer.input", "set", "what was heard is what is answered"));
        }
        let hearing = self.hearing.take().ok_or(SessionError::NothingToCommit)?;
        let heard = Message::UserAudio(hearing.encoded.clone());
        if let Err(error) = self.history.insert(item, InsertAt::End, heard) {
            self.hearing = Some(hearing);
            return Err(error);
        }
        let (response, answer_item) = (answer.response, answer.item);
        if let Err(error) = self.ask(answer, model) {
            self.history.remove(item);
            self.hearing = Some(hearing);
            return Err(error);
        }
        hearing.end_here(item, &mut self.pending);
        let held = Vec::new();
        self.suspicion = Some(Suspicion { item, response, answer_item, hearing, held, since: model.now });
        self.changed = true;
        Ok(())
    }

    pub(super) fn confirm(&mut self, response: ResponseId, model: &Knowledge<'_, T>) -> Result<(), SessionError> {
        let Some(suspicion) = self.suspicion.take_if(|suspicion| suspicion.response == response) else {
            return Ok(());
        };
        for window in self.pending.iter_mut().filter(|window| window.owner == Owner::Open) {
            window.owner = Owner::Item(suspicion.item);
        }
        self.changed = true;
        if suspicion.held.is_empty() { Ok(()) } else { self.hear(&suspicion.held, model) }
    }

    /// Takes an undecided answer back, whichever it is. Returns the lane on which it has to be stopped.
    pub(super) fn take_back(&mut self) -> Option<usize> {
        let Suspicion { item, response, answer_item, mut hearing, held, .. } = self.suspicion.take()?;
        self.withdraw(|request| request.response == response);
        self.history.remove(item);
        self.history.remove(answer_item);
        self.pending.retain(|window| window.owner != Owner::Item(item));
        hearing.push(&held, &mut self.pending);
        self.hearing = Some(hearing);
        self.changed = true;
        let active = self.active.as_ref().is_some_and(|active| active.request.response == response);
        active.then_some(self.lane)
    }
}
