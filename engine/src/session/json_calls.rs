//! Tool calls written as JSON in the text of a response, without marks: `{"name": .., "arguments": {..}}`, in a code fence
//! or not, alone or in a list. Coding models write these, though their template asks for marks.
//!
//! Text is passed on at once. What may still become a call is held back, at most [`MOST_HELD`] bytes of it.

use serde_json::Value;

/// Longest text that is held back, in bytes.
pub const MOST_HELD: usize = 16 << 10;
/// Opens and closes code.
const FENCE: &str = "```";
/// Longest word behind a fence, such as `json`.
const LONGEST_WORD: usize = 16;
/// Possible first keys of a call.
const KEYS: [&str; 5] = ["name", "arguments", "parameters", "type", "function"];

/// Reader of the calls in one response.
#[derive(Debug)]
pub struct JsonCallReader {
    /// Tools that the request offers; a call of another name is text.
    names: Vec<String>,
    /// Text that may still become a call.
    held: String,
    /// Set between a call and the text after it: what closes its list and its fence is left out.
    closing: Option<Closing>,
}

/// Ends of a call, which are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closing {
    /// White space, and what separates and ends the entries of a list.
    Entry,
    /// The same, and a fence.
    Fence,
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum TextPart {
    /// Text that is no call.
    Text(String),
    /// A complete call.
    Call {
        /// Name of the tool.
        name: String,
        /// Arguments as JSON.
        arguments: String,
    },
}

/// Beginning of a text.
enum Beginning {
    /// That many bytes are no call.
    Text(usize),
    /// It may become a call.
    Open,
    /// It is a call of that many bytes.
    Call(usize, Value, Closing),
}

impl JsonCallReader {
    /// Creates a reader of calls of these tools; without tools everything is text.
    pub fn new(names: Vec<String>) -> Self {
        Self { names, held: String::new(), closing: None }
    }

    /// Forgets the text so far, for the same response from its beginning.
    pub fn restart(&mut self) {
        (self.held, self.closing) = (String::new(), None);
    }

    /// True if the last text may be a call, or was one.
    pub fn is_in_call(&self) -> bool {
        self.closing.is_some() || !self.held.is_empty()
    }

    /// Takes the next piece of text; returns the parts that it makes certain.
    pub fn read(&mut self, piece: &str) -> Vec<TextPart> {
        if self.names.is_empty() {
            return vec![TextPart::Text(piece.to_owned())];
        }
        self.held.push_str(piece);
        let mut parts = Vec::new();
        loop {
            if self.held.is_empty() || !self.close() {
                return parts;
            }
            match beginning(&self.held) {
                Beginning::Open if self.held.len() <= MOST_HELD => return parts,
                Beginning::Open => self.give(self.held.len(), &mut parts),
                Beginning::Text(length) => self.give(length, &mut parts),
                Beginning::Call(length, value, closing) => match self.call(&value) {
                    Some(call) => {
                        self.held.drain(..length);
                        parts.push(call);
                        self.closing = Some(closing);
                    }
                    None => self.give(length, &mut parts),
                },
            }
        }
    }

    /// Leaves out what closes a call; true if text follows.
    fn close(&mut self) -> bool {
        while let Some(closing) = self.closing {
            let rest = self.held.trim_start_matches(|c: char| c.is_whitespace() || [',', ']'].contains(&c));
            let rest = match (closing, rest.strip_prefix(FENCE)) {
                (Closing::Fence, Some(rest)) => {
                    self.closing = Some(Closing::Entry);
                    rest
                }
                (Closing::Fence, None) if FENCE.starts_with(rest) => rest,
                _ => {
                    self.closing = (self.closing).filter(|_| rest.is_empty());
                    rest
                }
            };
            self.held = rest.to_owned();
            if self.closing == Some(closing) {
                return false;
            }
        }
        !self.held.is_empty()
    }

    /// Ends the text: what is held back is text.
    pub fn finish(&mut self) -> Option<TextPart> {
        let rest = std::mem::take(&mut self.held);
        if self.closing.take().is_some() {
            return None;
        }
        (!rest.is_empty()).then_some(TextPart::Text(rest))
    }

    /// Moves text to the parts.
    fn give(&mut self, length: usize, parts: &mut Vec<TextPart>) {
        let text: String = self.held.drain(..length).collect();
        match parts.last_mut() {
            Some(TextPart::Text(last)) => last.push_str(&text),
            _ => parts.push(TextPart::Text(text)),
        }
    }

    /// Call of an object, if it names a tool that is offered.
    fn call(&self, value: &Value) -> Option<TextPart> {
        // The form of a chat completion has name and arguments one level deeper.
        let call = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
        let name = call.get("name").and_then(Value::as_str)?;
        if !self.names.iter().any(|known| known == name) {
            return None;
        }
        let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
            None | Some(Value::Null) => "{}".to_owned(),
            Some(Value::String(text)) => text.clone(),
            Some(arguments) => arguments.to_string(),
        };
        Some(TextPart::Call { name: name.to_owned(), arguments })
    }
}

/// Looks at the beginning of a text that is not empty.
fn beginning(text: &str) -> Beginning {
    match text.find(['{', '[', '`']) {
        None => return Beginning::Text(text.len()),
        Some(0) => {}
        Some(at) => return Beginning::Text(at),
    }
    let (mut at, mut closing) = (0, Closing::Entry);
    if text.starts_with('`') {
        let ticks = text.len() - text.trim_start_matches('`').len();
        if ticks == text.len() && ticks <= FENCE.len() {
            return Beginning::Open;
        }
        if ticks != FENCE.len() {
            return Beginning::Text(ticks);
        }
        let word = text[ticks..].find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len() - ticks);
        if word > LONGEST_WORD {
            return Beginning::Text(ticks);
        }
        (at, closing) = (ticks + word, Closing::Fence);
    }
    at = past_white_space(text, at);
    if text[at..].starts_with('[') {
        at = past_white_space(text, at + 1);
    }
    if at == text.len() {
        return Beginning::Open;
    }
    if !text[at..].starts_with('{') {
        return Beginning::Text(at);
    }
    let key = past_white_space(text, at + 1);
    let could_be = match text[key..].strip_prefix('"') {
        Some(key) => KEYS.iter().any(|known| match key.split_once('"') {
            Some((whole, _)) => whole == *known,
            None => known.starts_with(key),
        }),
        None => key == text.len(),
    };
    if !could_be {
        return Beginning::Text(at + 1);
    }
    let mut values = serde_json::Deserializer::from_str(&text[at..]).into_iter::<Value>();
    match values.next() {
        Some(Ok(value)) => Beginning::Call(at + values.byte_offset(), value, closing),
        Some(Err(error)) if error.is_eof() => Beginning::Open,
        Some(Err(_)) | None => Beginning::Text(at + 1),
    }
}

/// Place of the first character from `at` on that is no white space.
fn past_white_space(text: &str, at: usize) -> usize {
    at + text[at..].len() - text[at..].trim_start().len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader() -> JsonCallReader {
        JsonCallReader::new(vec!["find".to_owned(), "set_colour".to_owned()])
    }

    /// Parts of a text that arrives in pieces, with neighbouring texts joined.
    fn parts<'a>(pieces: impl IntoIterator<Item = &'a str>) -> Vec<TextPart> {
        let mut reader = reader();
        let mut all: Vec<TextPart> = Vec::new();
        let mut found: Vec<TextPart> = pieces.into_iter().flat_map(|piece| reader.read(piece)).collect();
        found.extend(reader.finish());
        for part in found {
            match (all.last_mut(), part) {
                (Some(TextPart::Text(last)), TextPart::Text(text)) => last.push_str(&text),
                (_, part) => all.push(part),
            }
        }
        all
    }

    fn text(text: &str) -> TextPart {
        TextPart::Text(text.to_owned())
    }

    fn find(arguments: &str) -> TextPart {
        TextPart::Call { name: "find".to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn published_forms_are_calls() {
        for (written, expected) in [
            (r#"{"name": "find", "arguments": {"a": "}\"{"}}"#, vec![find(r#"{"a":"}\"{"}"#)]),
            ("```json\n{\"name\": \"find\", \"arguments\": {}}\n```", vec![find("{}")]),
            ("Sure.\n\n```\n{\"name\": \"find\"}\n```\n", vec![text("Sure.\n\n"), find("{}")]),
            (
                "```json\n{\"name\": \"find\"}\n```\n```json\n{\"name\": \"find\"}\n```\nDone.",
                vec![find("{}"), find("{}"), text("Done.")],
            ),
            // Llama 3.
            (r#"{"type": "function", "name": "find", "parameters": {"b": 2}}"#, vec![find(r#"{"b":2}"#)]),
            // Mistral, after its mark.
            (
                r#"[{"name": "find", "arguments": {"c": 1}}, {"name": "find", "arguments": {}}] So."#,
                vec![find(r#"{"c":1}"#), find("{}"), text("So.")],
            ),
            (r#"{"function": {"name": "find", "arguments": "{\"d\": 3}"}}"#, vec![find(r#"{"d": 3}"#)]),
        ] {
            assert_eq!(parts([written]), expected, "{written}");
            let letters: Vec<String> = written.chars().map(String::from).collect();
            assert_eq!(parts(letters.iter().map(String::as_str)), expected, "{written} by letters");
        }
    }

    #[test]
    fn other_text_stays_text() {
        for written in [
            r#"{"name": "other", "arguments": {}}"#,
            "A set {1, 2} and a list [a, b] and `code`.",
            "```python\nprint({})\n```",
            r#"{"named": "find"}"#,
            r#"{"name": "find", "arguments": {"#,
            r#"{"name": find}"#,
            "``` [ {",
        ] {
            assert_eq!(parts([written]), [text(written)], "{written}");
        }
    }

    #[test]
    fn text_before_a_call_is_given_at_once() {
        let mut reader = reader();
        assert_eq!(reader.read("Let me see. "), [text("Let me see. ")]);
        assert_eq!((reader.read("{\"na"), reader.is_in_call()), (Vec::new(), true));
        assert_eq!(reader.read("ture\": 1}"), [text("{\"nature\": 1}")], "no key of a call");
        assert!(!reader.is_in_call());
    }

    #[test]
    fn held_text_is_bounded() {
        let mut reader = reader();
        assert_eq!(reader.read("{\"name\": \"find\", \"arguments\": {\"a\": \""), []);
        let given: usize = (0..MOST_HELD)
            .flat_map(|_| reader.read("aa"))
            .map(|part| if let TextPart::Text(text) = part { text.len() } else { 0 })
            .sum();
        assert!(given > MOST_HELD && !reader.is_in_call());
    }

    #[test]
    fn without_tools_nothing_is_held() {
        let mut reader = JsonCallReader::new(Vec::new());
        assert_eq!(reader.read("{\"name\""), [text("{\"name\"")]);
    }

    proptest! {
        #[test]
        fn any_split_gives_equal_parts(
            words in proptest::collection::vec(
                prop_oneof![
                    Just("{\"name\": \"find\", \"arguments\": {\"a\": [1]}}"), Just("```json\n"), Just("```"), Just(" So, "),
                    Just("["), Just("{"), Just("\"name\""), Just("]"), Just("}"), Just("é\n"),
                ],
                0..8,
            ),
            cuts in proptest::collection::vec(0_usize..200, 0..6),
        ) {
            let written = words.concat();
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| written.is_char_boundary(*cut)).collect();
            cuts.sort_unstable();
            let mut from = 0;
            let mut pieces = Vec::new();
            for cut in cuts.into_iter().filter(|cut| *cut <= written.len()) {
                pieces.push(&written[from..cut]);
                from = cut;
            }
            pieces.push(&written[from..]);
            prop_assert_eq!(parts(pieces), parts([written.as_str()]));
        }
    }
}
