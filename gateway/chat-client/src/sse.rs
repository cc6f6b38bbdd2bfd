//! Server-sent events, parsed as the HTML standard says ("Interpreting an event stream"), from bytes split anywhere.

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SseEvent {
    /// Value of the last field `event`; empty if there is none.
    pub name: String,
    /// Values of the fields `data`, a line break between them.
    pub data: String,
}

/// Error of an event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SseOverflow {
    /// A line is longer than the limit.
    Line,
    /// The data of an event are longer than the limit.
    Event,
}

/// Parser of one event stream. Fields other than `event` and `data` are ignored.
#[derive(Debug)]
pub(crate) struct SseParser {
    max_line: usize,
    max_event: usize,
    /// Bytes of the unfinished line.
    line: Vec<u8>,
    /// The previous line ended with a CR; a LF after it belongs to it.
    after_cr: bool,
    /// No line has ended yet; the first one may begin with a byte order mark.
    first_line: bool,
    name: String,
    /// Data of the unfinished event, with a line break after each field.
    data: String,
}

impl SseParser {
    /// Creates a parser. `max_line` and `max_event` are bytes.
    pub fn new(max_line: usize, max_event: usize) -> Self {
        Self {
            max_line,
            max_event,
            line: Vec::new(),
            after_cr: false,
            first_line: true,
            name: String::new(),
            data: String::new(),
        }
    }

    /// Parses the next bytes and adds the events that they end.
    ///
    /// # Errors
    /// A line or an event is over its limit; the parser is then of no more use.
    pub fn push(&mut self, bytes: &[u8], events: &mut Vec<SseEvent>) -> Result<(), SseOverflow> {
        let mut rest = bytes;
        while let Some(first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let piece = &rest[..end.unwrap_or(rest.len())];
            if self.line.len() + piece.len() > self.max_line {
                return Err(SseOverflow::Line);
            }
            self.line.extend_from_slice(piece);
            let Some(end) = end else { break };
            self.end_line(events)?;
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    /// Returns the event that the end of the stream left unfinished. The standard discards it; servers that end a stream
    /// without an empty line mean it.
    ///
    /// # Errors
    /// The event is over its limit.
    pub fn finish(mut self) -> Result<Option<SseEvent>, SseOverflow> {
        let mut events = Vec::new();
        if !self.line.is_empty() {
            self.end_line(&mut events)?;
        }
        self.dispatch(&mut events);
        Ok(events.pop())
    }

    fn end_line(&mut self, events: &mut Vec<SseEvent>) -> Result<(), SseOverflow> {
        let line = std::mem::take(&mut self.line);
        let mut bytes = line.as_slice();
        if std::mem::take(&mut self.first_line) {
            bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
        }
        if bytes.is_empty() {
            self.dispatch(events);
        } else {
            let text = String::from_utf8_lossy(bytes);
            // A comment has an empty name.
            let (name, value) = text.split_once(':').unwrap_or((&*text, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "data" => {
                    if self.data.len() + value.len() >= self.max_event {
                        return Err(SseOverflow::Event);
                    }
                    self.data.push_str(value);
                    self.data.push('\n');
                }
                "event" => value.clone_into(&mut self.name),
                _ => {}
            }
        }
        // The memory serves the next line.
        self.line = line;
        self.line.clear();
        Ok(())
    }

    fn dispatch(&mut self, events: &mut Vec<SseEvent>) {
        let name = std::mem::take(&mut self.name);
        let mut data = std::mem::take(&mut self.data);
        if data.pop().is_some() {
            events.push(SseEvent { name, data });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROOMY: usize = 1 << 20;

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned() }
    }

    /// Parses pieces one after another; the last event is the one that `finish` returns.
    fn parse(pieces: &[&[u8]]) -> (Vec<SseEvent>, Option<SseEvent>) {
        let mut parser = SseParser::new(ROOMY, ROOMY);
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut events).unwrap();
        }
        (events, parser.finish().unwrap())
    }

    fn events(text: &str) -> Vec<SseEvent> {
        let (events, rest) = parse(&[text.as_bytes()]);
        assert_eq!(rest, None, "{text:?}");
        events
    }

    #[test]
    fn all_line_endings_end_lines() {
        for text in ["data: a\n\ndata: b\n\n", "data: a\r\rdata: b\r\r", "data: a\r\n\r\ndata: b\r\n\r\n"] {
            assert_eq!(events(text), [event("", "a"), event("", "b")], "{text:?}");
        }
        // CR LF is one end of a line, LF CR are two.
        assert_eq!(events("data: a\r\ndata: b\n\r"), [event("", "a\nb")]);
    }

    #[test]
    fn data_fields_join_with_line_breaks() {
        assert_eq!(events("data: a\ndata:b\ndata\ndata:  c\n\n"), [event("", "a\nb\n\n c")]);
        assert_eq!(events("data\n\n"), [event("", "")]);
    }

    #[test]
    fn comments_and_other_fields_are_ignored() {
        assert_eq!(events(": keep-alive\n\nid: 7\nretry: 10\nfoo\n\n:\ndata: a\n: b\n\n"), [event("", "a")]);
        assert_eq!(events(" data: a\nDATA: b\n\n"), []);
    }

    #[test]
    fn event_names_belong_to_one_event() {
        let text = "event: error\ndata: a\n\ndata: b\n\nevent: lost\n\ndata: c\n\n";
        assert_eq!(events(text), [event("error", "a"), event("", "b"), event("", "c")]);
    }

    #[test]
    fn byte_order_mark_counts_once() {
        assert_eq!(events("\u{feff}data: a\n\n"), [event("", "a")]);
        assert_eq!(events("\u{feff}\u{feff}data: a\n\n"), []);
        assert_eq!(events("\ndata: a\n\u{feff}data: b\n\n"), [event("", "a")]);
        assert_eq!(parse(&[b"\xef", b"\xbb", b"\xbfdata: a\n\n"]).0, [event("", "a")]);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        assert_eq!(parse(&[b"data: a\xffb\n\n"]).0, [event("", "a\u{fffd}b")]);
        assert_eq!(parse(&[b"data: \xe2\x82", b"\xac\n\n"]).0, [event("", "\u{20ac}")]);
    }

    #[test]
    fn unfinished_event_is_returned_at_the_end() {
        assert_eq!(parse(&[b"data: a\n\ndata: b"]), (vec![event("", "a")], Some(event("", "b"))));
        assert_eq!(parse(&[b"data: b\n"]), (vec![], Some(event("", "b"))));
        assert_eq!(parse(&[b": comment"]), (vec![], None));
    }

    #[test]
    fn long_lines_and_events_are_refused() {
        let mut parser = SseParser::new(10, 8);
        let mut events = Vec::new();
        assert_eq!(parser.push(b"data: abcd\n\n", &mut events), Ok(()));
        assert_eq!(parser.push(b": 34567890", &mut events), Ok(()));
        assert_eq!(parser.push(b"1", &mut events), Err(SseOverflow::Line));
        let mut parser = SseParser::new(10, 8);
        assert_eq!(parser.push(b"data: abc\ndata: ab\n", &mut events), Ok(()));
        assert_eq!(parser.push(b"data: \ndata: a\n", &mut events), Err(SseOverflow::Event));
        assert_eq!(events, [event("", "abcd")]);
    }

    /// The standard's algorithm over a whole text, line by line.
    fn reference(text: &str) -> Vec<SseEvent> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n").replace('\r', "\n");
        let complete = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let (mut found, mut name, mut data) = (Vec::new(), "", Vec::new());
        for line in complete.split_terminator('\n') {
            if line.is_empty() {
                if !data.is_empty() {
                    found.push(event(name, &data.join("\n")));
                }
                (name, data) = ("", Vec::new());
                continue;
            }
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "data" => data.push(value),
                "event" => name = value,
                _ => {}
            }
        }
        found
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same_events(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "data", "event", ":", " ", "\n", "\r", "\r\n", "a", "{\"b\": 1}", "\u{20ac}", "\u{feff}", "id", "\n\n",
                ]),
                0..40,
            ),
            cuts in prop::collection::vec(0_usize..200, 0..12),
        ) {
            let text = parts.concat();
            let bytes = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut start = 0;
            let pieces: Vec<&[u8]> = cuts.iter().map(|end| &bytes[std::mem::replace(&mut start, *end)..*end]).collect();
            let (found, rest) = parse(&pieces);
            prop_assert_eq!(&found, &reference(&text));
            prop_assert_eq!((found, rest), parse(&[bytes]));
        }
    }
}
