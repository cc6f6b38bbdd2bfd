//! Text that streams into a response, pending or being generated.

use std::time::Instant;

use repartee_engine_api::{ResponseId, SessionError};

use super::streamed_text::StreamedText;
use super::{ModelContext, Session};
use crate::elements::Element;

impl Session {
    fn streamed(&mut self, response: ResponseId) -> Option<&mut StreamedText> {
        let out_of_band = self.out_of_band.iter_mut();
        let (waiting, active): (Vec<_>, Vec<_>) =
            out_of_band.map(|other| (other.waiting.as_mut(), other.active.as_mut())).unzip();
        let pending = self.pending_responses.iter_mut().chain(waiting.into_iter().flatten());
        let mut pending = pending.filter(|pending| pending.request.response == response);
        if let Some(pending) = pending.next() {
            return pending.streamed.as_mut();
        }
        let active = self.active.iter_mut().chain(active.into_iter().flatten());
        let mut active = active.filter(|active| active.request.response == response);
        active.next()?.streamed.as_mut()
    }

    /// Appends text to a response that takes it. Unknown and finished responses are ignored.
    pub(super) fn stream_text(&mut self, response: ResponseId, text: &str, now: Instant) -> Result<(), SessionError> {
        let Some(streamed) = self.streamed(response) else { return Ok(()) };
        streamed.since = now;
        streamed.push(text)
    }

    /// Ends a response's text.
    pub(super) fn end_text(&mut self, response: ResponseId) -> Result<(), SessionError> {
        self.streamed(response).map_or(Ok(()), StreamedText::end)
    }

    /// Takes the undelivered positions of the response in `slot`; the flag is true if nothing follows them.
    pub fn take_streamed(&mut self, slot: usize, model: &ModelContext<'_>) -> Option<(Vec<Element>, bool)> {
        self.active_on(slot)?.streamed.as_mut()?.take(model)
    }
}
