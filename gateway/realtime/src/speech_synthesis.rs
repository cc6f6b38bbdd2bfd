//! Responses that speak given text while the client streams it (`repartee.text.*`).

use std::time::{Duration, Instant};

use repartee_engine_api::Command;
use repartee_protocol::speech_synthesis::{TextAppend, TextAppendDone};
use repartee_protocol::{ErrorBody, ErrorKind};

use super::RealtimeSession;
use super::response::ActiveResponse;

/// Maximum length of the given text of one response, in bytes.
pub(super) const MAX_TEXT: usize = 64 << 10;
/// Time without new text after which the text ends, so that a response does not wait forever.
pub(super) const TEXT_TIMEOUT: Duration = Duration::from_secs(30);

/// Given text of a response: its length so far and its state.
#[derive(Debug)]
pub(super) struct GivenText {
    bytes: usize,
    ended: bool,
    /// Time of the last append.
    since: Instant,
}

impl GivenText {
    /// Creates an empty text that starts at `now`.
    pub fn new(now: Instant) -> Self {
        Self { bytes: 0, ended: false, since: now }
    }
}

/// Time at which the text of a response ends without further client events; `None` if it has ended.
pub(super) fn deadline(response: &ActiveResponse) -> Option<Instant> {
    let reading = response.given_text.as_ref().filter(|reading| !reading.ended)?;
    response.stopping.is_none().then_some(reading.since + TEXT_TIMEOUT)
}

impl RealtimeSession {
    pub(super) fn append_text(&mut self, append: TextAppend, now: Instant) -> Result<(), ErrorBody> {
        let TextAppend { response_id, text } = append;
        let Some((response, held)) = self.reader(response_id.as_deref()) else { return self.no_reader() };
        let engine_id = response.engine_id;
        let Some(reading) = &mut response.given_text else { return Ok(()) };
        if reading.ended {
            return refuse("the text of this response has ended");
        }
        if reading.bytes + text.len() > MAX_TEXT {
            return refuse("a response takes at most 64 KiB of text: end this text, and create another response");
        }
        reading.bytes += text.len();
        reading.since = now;
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
        let ended = response.given_text.as_mut().is_some_and(|reading| std::mem::replace(&mut reading.ended, true));
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
            if deadline(response).is_some_and(|deadline| deadline <= now)
                && let Some(reading) = &mut response.given_text
            {
                reading.ended = true;
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
