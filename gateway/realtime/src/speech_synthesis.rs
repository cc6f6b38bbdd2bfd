//! Responses that speak given text while the client streams it (`repartee.text.*`).

use std::time::Instant;

use repartee_engine_api::Command;
use repartee_protocol::speech_synthesis::{TextAppend, TextAppendDone};
use repartee_protocol::{ErrorBody, ErrorKind};

use super::RealtimeSession;
use super::given_text::GivenText;
use super::response::ActiveResponse;

impl RealtimeSession {
    pub(super) fn append_text(&mut self, append: TextAppend, now: Instant) -> Result<(), ErrorBody> {
        let TextAppend { response_id, text } = append;
        let Some((response, held)) = self.reader(response_id.as_deref()) else { return self.no_reader() };
        let engine_id = response.engine_id;
        let Some(reading) = &mut response.given_text else { return Ok(()) };
        if let Err(problem) = reading.append(text.len(), now) {
            return refuse(problem);
        }
        let command = Command::StreamText { response: engine_id, text };
        match held {
            Some(held) => held.push(command),
            None => self.command(command),
        }
        Ok(())
    }

    pub(super) fn end_text(&mut self, done: &TextAppendDone) -> Result<(), ErrorBody> {
        let Some((response, held)) = self.reader(done.response_id.as_deref()) else { return self.no_reader() };
        let engine_id = response.engine_id;
        let ended = response.given_text.as_mut().is_some_and(GivenText::end);
        let command = Command::EndText { response: engine_id };
        match held {
            _ if ended => {}
            Some(held) => held.push(command),
            None => self.command(command),
        }
        Ok(())
    }

    /// Ends the given texts whose deadline has passed.
    pub(super) fn end_stalled_texts(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for response in &mut self.responses {
            if response.text_deadline().is_some_and(|deadline| deadline <= now)
                && let Some(reading) = &mut response.given_text
            {
                reading.end();
                ended.push(response.engine_id);
            }
        }
        for response in ended {
            self.command(Command::EndText { response });
        }
    }

    /// Finds the response with this id that takes given text, or the last one requested; for a queued response, also its unsent
    /// commands.
    fn reader(&mut self, id: Option<&str>) -> Option<(&mut ActiveResponse, Option<&mut Vec<Command>>)> {
        let queued = self.queued.iter_mut().rev().map(|waiting| (&mut waiting.response, Some(&mut waiting.text)));
        let active = self.responses.iter_mut().rev().map(|response| (response, None));
        queued.chain(active).find(|(response, _)| {
            response.given_text.is_some() && response.stopping.is_none() && id.is_none_or(|id| id == response.id)
        })
    }

    /// Result for text without a response. Not an error if a response took text earlier: it may have ended meanwhile.
    fn no_reader(&self) -> Result<(), ErrorBody> {
        if self.had_given_text {
            return Ok(());
        }
        refuse("no response takes given text: create one by `response.create` with `\"repartee\": {\"reads\": true}`")
    }
}

fn refuse(message: &str) -> Result<(), ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("text"))
}
