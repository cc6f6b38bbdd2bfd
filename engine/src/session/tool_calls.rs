//! Streaming parser of tool calls in generated text: `MARK {"name": .., "arguments": {..}} MARK`.
//!
//! Text between the marks is not spoken. The name is reported once the arguments begin, the arguments piece by piece.
//! Calls without marks are read, too, whole: see [`json_calls`](super::json_calls).

use repartee_engine_api::{Event, ResponseId};
use serde::Deserialize;

use super::json_calls::{JsonCallReader, TextPart};
use crate::model::ToolCallTokens;

/// Kind of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// Text that is spoken.
    Spoken,
    /// A tool call: its opening mark or its text.
    ToolCall,
    /// Closing mark of a tool call.
    ToolCallEnd,
}

/// Parser of the tool calls of one response.
#[derive(Debug)]
pub struct ToolCallReader {
    /// Delimiters of a call, if the model has them.
    tokens: Option<ToolCallTokens>,
    within: bool,
    /// Text of the call that was not reported yet.
    text: String,
    state: State,
    /// Calls outside of marks.
    json: JsonCallReader,
    /// Number of calls reported so far.
    calls: u32,
}

/// Parser state within a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The arguments have not begun.
    Head,
    /// Within the arguments: number of open braces, true within a string, true if the next character is escaped.
    Arguments { depth: u32, string: bool, escaped: bool },
    /// The arguments are complete.
    Tail,
}

/// A complete call.
#[derive(Deserialize)]
struct Call {
    name: String,
    #[serde(default)]
    arguments: serde_json::Value,
}

impl ToolCallReader {
    /// Creates a parser for a model with these marks, and a request that offers tools of these names.
    pub fn new(marks: Option<&ToolCallTokens>, names: Vec<String>) -> Self {
        let json = JsonCallReader::new(names);
        Self { tokens: marks.cloned(), within: false, text: String::new(), state: State::Head, json, calls: 0 }
    }

    /// Forgets the calls so far, for the same response from its beginning.
    pub fn restart(&mut self) {
        self.json.restart();
        (self.within, self.text, self.state, self.calls) = (false, String::new(), State::Head, 0);
    }

    /// True if the last text outside of marks may be a call, or was one.
    pub fn is_in_unmarked_call(&self) -> bool {
        self.json.is_in_call()
    }

    /// Events of parts of the text outside of marks.
    fn unmarked(&mut self, response: ResponseId, parts: impl IntoIterator<Item = TextPart>) -> Vec<Event> {
        let mut events = Vec::new();
        for part in parts {
            match part {
                TextPart::Text(text) => events.push(Event::Text { response, text }),
                TextPart::Call { name, arguments } => {
                    let call = self.calls;
                    self.calls += 1;
                    events.push(Event::ToolCall { response, call, name });
                    events.push(Event::ToolArguments { response, call, arguments });
                }
            }
        }
        events
    }

    /// Takes the next token; returns its kind.
    pub fn token(&mut self, id: u32) -> TokenKind {
        let Some(ToolCallTokens { open: (open, _), close: (close, _) }) = self.tokens else { return TokenKind::Spoken };
        if id == open {
            self.within = true;
            return TokenKind::ToolCall;
        }
        if !self.within {
            return TokenKind::Spoken;
        }
        if id == close {
            self.within = false;
            return TokenKind::ToolCallEnd;
        }
        TokenKind::ToolCall
    }

    /// Kind of a token that is no mark.
    pub fn mode(&self) -> TokenKind {
        if self.within { TokenKind::ToolCall } else { TokenKind::Spoken }
    }

    /// Counts a call that came whole, without tokens; returns its index.
    pub fn count_call(&mut self) -> u32 {
        self.calls += 1;
        self.calls - 1
    }

    /// Takes a piece of text that came with a token of this kind; returns its events.
    pub fn read(&mut self, response: ResponseId, kind: TokenKind, piece: Option<String>) -> Vec<Event> {
        if kind == TokenKind::Spoken {
            let parts = piece.map(|text| self.json.read(&text)).unwrap_or_default();
            return self.unmarked(response, parts);
        }
        let before = self.json.finish();
        let mut events = self.unmarked(response, before);
        // Marks have text if the tokenizer does not list them as special.
        let piece = piece.unwrap_or_default();
        let text = match &self.tokens {
            Some(ToolCallTokens { open: (_, open), close: (_, close) }) => {
                piece.trim_start_matches(&open[..]).trim_end_matches(&close[..])
            }
            None => &piece,
        };
        self.text.push_str(text);
        self.advance(response, &mut events);
        if kind == TokenKind::ToolCallEnd {
            events.extend(self.finish_call(response));
        }
        events
    }

    /// Ends the response: what is held back is text, and an open call ends.
    pub fn finish(&mut self, response: ResponseId) -> Vec<Event> {
        let rest = self.json.finish();
        let mut events = self.unmarked(response, rest);
        events.extend(self.finish_call(response));
        events
    }

    fn advance(&mut self, response: ResponseId, events: &mut Vec<Event>) {
        if self.state == State::Head
            && let Some((name, rest)) = head(&self.text)
        {
            self.text = rest;
            self.state = State::Arguments { depth: 0, string: false, escaped: false };
            events.push(Event::ToolCall { response, call: self.calls, name });
        }
        if let State::Arguments { mut depth, mut string, mut escaped } = self.state {
            let mut end = self.text.len();
            let mut over = false;
            for (at, c) in self.text.char_indices() {
                match c {
                    _ if escaped => escaped = false,
                    '\\' if string => escaped = true,
                    '"' => string = !string,
                    '{' | '[' if !string => depth += 1,
                    '}' | ']' if !string => {
                        depth = depth.saturating_sub(1);
                        if depth == 0 {
                            (end, over) = (at + c.len_utf8(), true);
                            break;
                        }
                    }
                    _ => {}
                }
            }
            let arguments: String = self.text.drain(..end).collect();
            self.state = if over { State::Tail } else { State::Arguments { depth, string, escaped } };
            if !arguments.is_empty() {
                events.push(Event::ToolArguments { response, call: self.calls, arguments });
            }
        }
    }

    /// Ends the open call. A call that was not reported yet is reported whole if it parses, else as text.
    fn finish_call(&mut self, response: ResponseId) -> Vec<Event> {
        let text = std::mem::take(&mut self.text);
        let state = std::mem::replace(&mut self.state, State::Head);
        if state != State::Head {
            self.calls += 1;
            return Vec::new();
        }
        if text.trim().is_empty() {
            return Vec::new();
        }
        let Ok(Call { name, arguments }) = serde_json::from_str(&text) else {
            return vec![Event::Text { response, text }];
        };
        let call = self.calls;
        self.calls += 1;
        let arguments = if arguments.is_null() { "{}".to_owned() } else { arguments.to_string() };
        vec![Event::ToolCall { response, call, name }, Event::ToolArguments { response, call, arguments }]
    }
}

/// Splits `text` where the arguments, an object, begin: the name of the call, and the text from there on.
fn head(text: &str) -> Option<(String, String)> {
    let at = text.find("\"arguments\"")?;
    let rest = text[at + "\"arguments\"".len()..].trim_start().strip_prefix(':')?.trim_start();
    if !rest.starts_with('{') {
        return None;
    }
    let before = text[..at].trim_end().trim_end_matches(',');
    let call: Call = serde_json::from_str(&format!("{before}}}")).ok()?;
    Some((call.name, rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool_call_tokens() -> ToolCallTokens {
        ToolCallTokens { open: (1, "<call>".to_owned()), close: (2, "</call>".to_owned()) }
    }

    /// Reads a call whose text arrives in these pieces.
    fn read(pieces: &[&str]) -> Vec<Event> {
        let mut reader = ToolCallReader::new(Some(&tool_call_tokens()), Vec::new());
        assert_eq!(reader.token(1), TokenKind::ToolCall);
        let mut events = Vec::new();
        for piece in pieces {
            let kind = reader.token(9);
            assert_eq!(kind, TokenKind::ToolCall);
            events.extend(reader.read(5, kind, Some((*piece).to_owned())));
        }
        let kind = reader.token(2);
        events.extend(reader.read(5, kind, None));
        events
    }

    fn arguments(events: &[Event]) -> String {
        let part = |event: &Event| match event {
            Event::ToolArguments { arguments, .. } => arguments.clone(),
            _ => String::new(),
        };
        events.iter().map(part).collect()
    }

    #[test]
    fn any_split_of_a_call_gives_equal_events() {
        let text = "\n{\"name\": \"find\", \"arguments\": {\"a\": \"}\\\"{\", \"b\": [1, {\"c\": 2}]}}\n";
        for size in 1..text.len() {
            let pieces: Vec<&str> = text.as_bytes().chunks(size).map(|b| std::str::from_utf8(b).unwrap()).collect();
            let events = read(&pieces);
            assert_eq!(events[0], Event::ToolCall { response: 5, call: 0, name: "find".to_owned() });
            assert_eq!(arguments(&events), "{\"a\": \"}\\\"{\", \"b\": [1, {\"c\": 2}]}", "pieces of {size}");
        }
        let bytewise: Vec<&str> = text.as_bytes().chunks(1).map(|b| std::str::from_utf8(b).unwrap()).collect();
        assert!(read(&bytewise).len() > 10, "arguments come piece by piece");
    }

    #[test]
    fn arguments_before_the_name_come_at_the_end() {
        let events = read(&["{\"arguments\": {\"x\": 1}, ", "\"name\": \"late\"}"]);
        assert_eq!(events[0], Event::ToolCall { response: 5, call: 0, name: "late".to_owned() });
        assert_eq!(arguments(&events), "{\"x\":1}");
    }

    #[test]
    fn a_malformed_call_becomes_text() {
        assert_eq!(read(&["{oops"]), vec![Event::Text { response: 5, text: "{oops".to_owned() }]);
    }

    #[test]
    fn without_marks_all_text_is_spoken() {
        let mut reader = ToolCallReader::new(None, Vec::new());
        assert_eq!(reader.token(1), TokenKind::Spoken);
    }

    #[test]
    fn calls_with_and_without_marks_are_counted_together() {
        let mut reader = ToolCallReader::new(Some(&tool_call_tokens()), vec!["find".to_owned()]);
        let mut events = reader.read(5, TokenKind::Spoken, Some("{\"name\": \"find\"} Then ```".to_owned()));
        assert!(reader.is_in_unmarked_call());
        events.extend([1, 9].into_iter().flat_map(|id| {
            let kind = reader.token(id);
            reader.read(5, kind, Some(if id == 9 { "{\"name\": \"late\"}" } else { "" }.to_owned()))
        }));
        let kind = reader.token(2);
        events.extend(reader.read(5, kind, None));
        let call = |call, name: &str| Event::ToolCall { response: 5, call, name: name.to_owned() };
        let none = |call| Event::ToolArguments { response: 5, call, arguments: "{}".to_owned() };
        let text = |text: &str| Event::Text { response: 5, text: text.to_owned() };
        assert_eq!(events, [call(0, "find"), none(0), text("Then "), text("```"), call(1, "late"), none(1)]);
        assert!(!reader.is_in_unmarked_call());
    }
}
