//! Reads the body of an answer, an event stream or JSON, without I/O.

use crate::decoder::AnswerDecoder;
use crate::event::ChatEvent;
use crate::failure::{BoundedPart, ChatFailure};
use crate::limits::Limits;
use crate::quote::Quoter;
use crate::response::{BodyKind, sniff};
use crate::sse::{SseOverflow, SseParser};

/// White space that may stand before an answer, in bytes.
const MAX_BLANK: usize = 4 << 10;

/// Body so far.
#[derive(Debug)]
enum BodyState {
    /// Its kind is not known: the white space that has come.
    Blank(Vec<u8>),
    Events(Box<SseParser>),
    /// The JSON that has come.
    Json(Vec<u8>),
}

/// Reader of one answer.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    limits: Limits,
    decoder: AnswerDecoder,
    state: BodyState,
    /// Bytes of the body.
    bytes: usize,
}

impl AnswerReader {
    /// Creates a reader. `quoter` shortens the server's messages.
    pub fn new(limits: &Limits, quoter: Quoter) -> Self {
        Self {
            limits: limits.clone(),
            decoder: AnswerDecoder::new(limits, quoter),
            state: BodyState::Blank(Vec::new()),
            bytes: 0,
        }
    }

    /// True if nothing more is needed of the body.
    pub fn is_done(&self) -> bool {
        self.decoder.is_done()
    }

    /// True if the answer is complete, though its usage may follow.
    pub fn is_finished(&self) -> bool {
        self.decoder.is_finished()
    }

    /// Reads the next bytes of the body. Events from before a failure are added too.
    pub fn push(&mut self, data: &[u8], out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        self.bytes = self.bytes.saturating_add(data.len());
        if self.bytes > self.limits.body {
            return Err(ChatFailure::TooLarge { part: BoundedPart::Body, limit: self.limits.body });
        }
        match &mut self.state {
            BodyState::Events(parser) => Self::push_events(parser, &mut self.decoder, &self.limits, data, out),
            BodyState::Json(json) => {
                if json.len() + data.len() > self.limits.json {
                    return Err(ChatFailure::TooLarge { part: BoundedPart::Json, limit: self.limits.json });
                }
                json.extend_from_slice(data);
                Ok(())
            }
            BodyState::Blank(blank) => {
                blank.extend_from_slice(data);
                let kind = match sniff(blank) {
                    Some(kind) => kind,
                    None if blank.len() < MAX_BLANK => return Ok(()),
                    None => BodyKind::Events,
                };
                let begin = std::mem::take(blank);
                self.bytes -= begin.len();
                self.state = match kind {
                    BodyKind::Html => return Err(ChatFailure::Html),
                    BodyKind::Json => BodyState::Json(Vec::new()),
                    BodyKind::Events => {
                        BodyState::Events(Box::new(SseParser::new(self.limits.line, self.limits.event)))
                    }
                };
                self.push(&begin, out)
            }
        }
    }

    fn push_events(
        parser: &mut SseParser,
        decoder: &mut AnswerDecoder,
        limits: &Limits,
        data: &[u8],
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ChatFailure> {
        let mut events = Vec::new();
        let parsed = parser.push(data, &mut events);
        for event in &events {
            decoder.event(event, out)?;
        }
        // What follows the end of the answer is nobody's.
        if decoder.is_done() { Ok(()) } else { parsed.map_err(|overflow| too_large(overflow, limits)) }
    }

    /// Reads the end of the body. `has_length` is true if the end cannot be a broken connection.
    pub fn end(&mut self, has_length: bool, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        match std::mem::replace(&mut self.state, BodyState::Blank(Vec::new())) {
            BodyState::Blank(_) => Err(ChatFailure::Empty),
            BodyState::Json(json) => self.decoder.whole(&String::from_utf8_lossy(&json), out),
            BodyState::Events(parser) => {
                let finished = self.decoder.is_finished();
                let rest = match parser.finish() {
                    Ok(Some(event)) => self.decoder.event(&event, out),
                    Ok(None) => Ok(()),
                    Err(overflow) => Err(too_large(overflow, &self.limits)),
                };
                if finished {
                    return Ok(());
                }
                rest?;
                if self.decoder.is_finished() || has_length {
                    Ok(())
                } else {
                    Err(ChatFailure::Torn { reason: "the connection closed".to_owned() })
                }
            }
        }
    }

    /// Ends the answer: adds calls, reason and usage.
    pub fn finish(&mut self, out: &mut Vec<ChatEvent>) -> Result<(), ChatFailure> {
        if !self.decoder.has_choices() {
            return Err(ChatFailure::Empty);
        }
        self.decoder.finish(out)
    }
}

fn too_large(overflow: SseOverflow, limits: &Limits) -> ChatFailure {
    match overflow {
        SseOverflow::Line => ChatFailure::TooLarge { part: BoundedPart::Line, limit: limits.line },
        SseOverflow::Event => ChatFailure::TooLarge { part: BoundedPart::Event, limit: limits.event },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads a body in pieces, to its end.
    fn read(pieces: &[&[u8]], has_length: bool) -> Result<Vec<ChatEvent>, ChatFailure> {
        let mut reader = AnswerReader::new(&Limits::default(), Quoter::default());
        let mut out = Vec::new();
        for piece in pieces {
            reader.push(piece, &mut out)?;
        }
        reader.end(has_length, &mut out)?;
        reader.finish(&mut out)?;
        Ok(out)
    }

    fn text(text: &str) -> ChatEvent {
        ChatEvent::Text(text.to_owned())
    }

    const CHUNK: &str = "data: {\"choices\": [{\"delta\": {\"content\": \"Hi\"}}]}\n\n";
    const LAST: &str = "data: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\n";

    #[test]
    fn last_event_needs_no_empty_line() {
        let body = format!("{CHUNK}data: {{\"choices\": [{{\"delta\": {{\"content\": \"!\"}}}}]}}");
        assert_eq!(read(&[body.as_bytes()], true), Ok(vec![text("Hi"), text("!")]));
        let body = format!("{CHUNK}data: [DONE]");
        assert_eq!(read(&[body.as_bytes()], false), Ok(vec![text("Hi")]));
    }

    #[test]
    fn end_without_length_needs_a_mark() {
        assert_eq!(read(&[CHUNK.as_bytes()], true), Ok(vec![text("Hi")]));
        assert!(matches!(read(&[CHUNK.as_bytes()], false), Err(ChatFailure::Torn { .. })));
        assert_eq!(read(&[CHUNK.as_bytes(), LAST.as_bytes()], false).unwrap().len(), 2);
    }

    #[test]
    fn half_event_after_the_answer_is_ignored() {
        let body = format!("{CHUNK}{LAST}data: {{\"usa");
        assert_eq!(read(&[body.as_bytes()], true).unwrap().len(), 2);
        let body = format!("{CHUNK}data: {{\"cho");
        assert!(matches!(read(&[body.as_bytes()], true), Err(ChatFailure::IncompleteJson { .. })));
    }

    #[test]
    fn answers_without_choices_are_empty() {
        for body in ["", " \n\n", ": comment\n\n", "data: [DONE]\n\n", "data: {\"choices\": []}\n\n", "rubbish"] {
            assert_eq!(read(&[body.as_bytes()], true), Err(ChatFailure::Empty), "{body:?}");
        }
        assert_eq!(read(&[" ".repeat(MAX_BLANK + 10).as_bytes()], true), Err(ChatFailure::Empty));
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_answer(cuts in prop::collection::vec(0_usize..1_000, 0..20), blank in 0_usize..3) {
            let body = [
                "\n".repeat(blank).as_str(),
                CHUNK,
                ": keep-alive\r\n\r\n",
                "data: {\"choices\": [{\"delta\": {\"tool_calls\": [{\"index\": 0, \"id\": \"a\", ",
                "\"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}}]}\r\n\r\n",
                "data: {\"choices\": [{\"delta\": {\"content\": \"\u{20ac}\"}}]}\r\r",
                LAST,
                "data: {\"choices\": [], \"usage\": {\"prompt_tokens\": 1}}\n\ndata: [DONE]\n\n",
            ]
            .concat();
            let bytes = body.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut start = 0;
            let pieces: Vec<&[u8]> = cuts.iter().map(|end| &bytes[std::mem::replace(&mut start, *end)..*end]).collect();
            let whole = read(&[bytes], true);
            prop_assert_eq!(whole.as_ref().map(Vec::len), Ok(7));
            prop_assert_eq!(read(&pieces, true), whole);
        }

        #[test]
        fn arbitrary_bytes_end_in_events_or_failure(
            parts in prop::collection::vec(
                prop_oneof![
                    prop::sample::select(vec![
                        "data: ", "\n\n", "[DONE]", "{\"choices\": [{\"delta\": {", "\"content\": \"a\"", "}}]}", "{", "<", "[",
                        "\"tool_calls\": [{\"index\": 7, \"function\": {\"name\": \"f\"}}]", "\"finish_reason\": \"stop\"", ",",
                        "\"usage\": {\"prompt_tokens\": -1}", "event: error\n", "\"error\": {\"code\": 1e999}",
                    ])
                    .prop_map(|text| text.as_bytes().to_vec()),
                    prop::collection::vec(any::<u8>(), 0..8),
                ],
                0..24,
            ),
            has_length in any::<bool>(),
        ) {
            let limits = Limits { line: 200, event: 300, json: 300, body: 1_000, text: 20, tool_calls: 2, ..Limits::default() };
            let mut reader = AnswerReader::new(&limits, Quoter::default());
            let mut out = Vec::new();
            let read = parts.iter().try_for_each(|part| reader.push(part, &mut out));
            let read = read.and_then(|()| reader.end(has_length, &mut out)).and_then(|()| reader.finish(&mut out));
            let text: usize = out.iter().map(|event| if let ChatEvent::Text(text) = event { text.len() } else { 0 }).sum();
            prop_assert!(text <= limits.text);
            prop_assert!(read.is_err() || reader.decoder.has_choices());
        }
    }
}
