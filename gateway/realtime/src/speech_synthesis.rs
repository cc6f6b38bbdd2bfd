//! Responses that read a given text aloud while it streams in (`repartee.text.*`).

use std::time::{Duration, Instant};

use repartee_engine_api::Command;
use repartee_protocol::speech_synthesis::{TextAppend, TextAppendDone};
use repartee_protocol::{ErrorBody, ErrorKind};

use super::RealtimeSession;
use super::response::ActiveResponse;

/// The longest text that one response reads, in bytes.
pub(super) const MAX_TEXT: usize = 64 << 10;
/// A text of which nothing came for so long has ended: a response must not wait for ever.
pub(super) const TEXT_TIMEOUT: Duration = Duration::from_secs(30);

/// The text that a response reads, so far.
#[derive(Debug)]
pub(super) struct GivenText {
    bytes: usize,
    ended: bool,
    /// When some of it came last.
    since: Instant,
}

impl GivenText {
    /// A text that begins now.
    pub fn new(now: Instant) -> Self {
        Self { bytes: 0, ended: false, since: now }
    }
}

/// When the text of a response ends without a word from the client.
pub(super) fn deadline(response: &ActiveResponse) -> Option<Instant> {
    let reading = response.reading.as_ref().filter(|reading| !reading.ended)?;
    response.stopping.is_none().then_some(reading.since + TEXT_TIMEOUT)
}

impl RealtimeSession {
    pub(super) fn append_text(&mut self, append: TextAppend, now: Instant) -> Result<(), ErrorBody> {
        let TextAppend { response_id, text } = append;
        let Some((response, held)) = self.reader(response_id.as_deref()) else { return self.no_reader() };
        let engine_id = response.engine_id;
        let Some(reading) = &mut response.reading else { return Ok(()) };
        if reading.ended {
            return refuse("the text of this response has ended");
        }
        if reading.bytes + text.len() > MAX_TEXT {
            return refuse("a response reads at most 64 KiB: end this text, and ask for another response");
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
        let ended = response.reading.as_mut().is_some_and(|reading| std::mem::replace(&mut reading.ended, true));
        let command = Command::EndText { response: engine_id };
        match held {
            _ if ended => {}
            Some(held) => held.push(command),
            None => self.command(command),
        }
        Ok(())
    }

    /// Ends the texts that nothing was heard of for too long.
    pub(super) fn end_stalled_texts(&mut self, now: Instant) {
        let mut ended = Vec::new();
        for response in &mut self.responses {
            if deadline(response).is_some_and(|deadline| deadline <= now)
                && let Some(reading) = &mut response.reading
            {
                reading.ended = true;
                ended.push(response.engine_id);
            }
        }
        for response in ended {
            self.command(Command::EndText { response });
        }
    }

    /// The response of this id that reads a text, or the one that was asked for last; with the commands that it still waits to send.
    fn reader(&mut self, id: Option<&str>) -> Option<(&mut ActiveResponse, Option<&mut Vec<Command>>)> {
        let queued = self.queued.iter_mut().rev().map(|waiting| (&mut waiting.response, Some(&mut waiting.text)));
        let active = self.responses.iter_mut().rev().map(|response| (response, None));
        queued.chain(active).find(|(response, _)| {
            response.reading.is_some() && response.stopping.is_none() && id.is_none_or(|id| id == response.id)
        })
    }

    /// What to say of a text that nobody reads: nothing where its response may have ended in the meantime.
    fn no_reader(&self) -> Result<(), ErrorBody> {
        if self.had_given_text {
            return Ok(());
        }
        refuse("no response reads a text: ask for one by `response.create` with `\"repartee\": {\"reads\": true}`")
    }
}

fn refuse(message: &str) -> Result<(), ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param("text"))
}
