//! Reasoning text within generated text: its tokens are no part of the answer.
//!
//! What is left after it reaches the caller, the voice and the history alike.

use repartee_spoken::{ReasoningError, ReasoningFilter};

use crate::elements::{Element, ElementValue};
use crate::model::ReasoningTokens;
use crate::text::{TextStream, Tokenizer};

/// Positions at the end of a prompt in which its last mark is looked for.
const MAX_TAIL: usize = 32;

/// Filter of the tokens of one response. The answer's tokens do not depend on how a mark is spelt.
#[derive(Debug)]
pub struct ReasoningReader {
    tokenizer: Tokenizer,
    tokens: ReasoningTokens,
    text: TextStream,
    filter: ReasoningFilter,
    /// Tokens of which it is not certain yet that they belong to the answer.
    held: Vec<u32>,
    /// Their text, and what of it belongs to the answer.
    written: String,
    visible: String,
}

impl ReasoningReader {
    /// Creates a filter for the response to `prompt`, which may end with the opening mark.
    ///
    /// # Errors
    ///
    /// If a mark is empty or too long.
    pub fn new(tokens: &ReasoningTokens, tokenizer: &Tokenizer, prompt: &[Element]) -> Result<Self, ReasoningError> {
        let mut filter = ReasoningFilter::new(tokens.marks.clone())?;
        if ends_with_mark(prompt, tokens, tokenizer) {
            filter = filter.inside();
        }
        Ok(Self {
            text: tokenizer.stream(),
            tokenizer: tokenizer.clone(),
            tokens: tokens.clone(),
            filter,
            held: Vec::new(),
            written: String::new(),
            visible: String::new(),
        })
    }

    /// Takes a generated token; returns the tokens of the answer that are certain now.
    pub fn push(&mut self, id: u32) -> Vec<u32> {
        let ReasoningTokens { marks, open, close } = &self.tokens;
        // A mark that is a special token has no text.
        let piece = match Some(id) {
            mark if mark == *open => marks.open.clone(),
            mark if mark == *close => marks.close.clone(),
            _ => self.text.push(id).unwrap_or_default(),
        };
        self.written.push_str(&piece);
        self.visible.push_str(&self.filter.push(&piece));
        self.held.push(id);
        if self.filter.is_inside() {
            // Nothing of it comes out but the text before the mark.
            return self.encoded();
        }
        if self.filter.holds_back() { Vec::new() } else { self.release() }
    }

    /// Ends the response; returns the rest of the answer's tokens.
    pub fn finish(&mut self) -> Vec<u32> {
        if self.filter.is_inside() {
            return Vec::new();
        }
        self.visible.push_str(&self.filter.finish());
        self.release()
    }

    /// Takes the held tokens, which are certain now: as they are if all of their text is visible.
    fn release(&mut self) -> Vec<u32> {
        if self.written != self.visible {
            return self.encoded();
        }
        self.written.clear();
        self.visible.clear();
        std::mem::take(&mut self.held)
    }

    /// Takes the tokens of the visible text, and drops the held ones.
    fn encoded(&mut self) -> Vec<u32> {
        self.held.clear();
        self.written.clear();
        let visible = std::mem::take(&mut self.visible);
        // What the vocabulary has decoded it can encode.
        if visible.is_empty() { Vec::new() } else { self.tokenizer.encode(&visible).unwrap_or_default() }
    }
}

/// True if the last thing in a prompt but white space is the opening mark.
pub(super) fn ends_with_mark(prompt: &[Element], tokens: &ReasoningTokens, tokenizer: &Tokenizer) -> bool {
    let mut tail = Vec::new();
    for element in prompt.iter().rev().take(MAX_TAIL) {
        let ElementValue::Token(id) = element.value else { break };
        if Some(id) == tokens.open {
            return tokenizer.decode(&tail).trim().is_empty();
        }
        tail.insert(0, id);
    }
    tokenizer.decode(&tail).trim_end().ends_with(tokens.marks.open.as_str())
}

#[cfg(test)]
mod tests {
    use repartee_engine_api::Role;
    use repartee_spoken::ReasoningMarks;

    use super::*;

    fn tokens() -> ReasoningTokens {
        ReasoningTokens { marks: ReasoningMarks::default(), open: None, close: None }
    }

    fn prompt(tokenizer: &Tokenizer, text: &str) -> Vec<Element> {
        tokenizer.encode(text).unwrap().into_iter().map(|id| Element::token(Role::Assistant, id)).collect()
    }

    /// Answers of a response of single bytes: after each byte, and after the end.
    fn answers(prompt_text: &str, text: &str) -> (String, String) {
        let tokenizer = Tokenizer::of_bytes().unwrap();
        let mut reader = ReasoningReader::new(&tokens(), &tokenizer, &prompt(&tokenizer, prompt_text)).unwrap();
        let ids: Vec<u32> = tokenizer.encode(text).unwrap().into_iter().flat_map(|id| reader.push(id)).collect();
        (tokenizer.decode(&ids), tokenizer.decode(&reader.finish()))
    }

    #[test]
    fn the_answer_is_what_is_not_reasoning() {
        let told = |text: &str, rest: &str| (text.to_owned(), rest.to_owned());
        assert_eq!(answers("", "<think>Hm, 2 < 3.</think>\n\nTwo."), told("Two.", ""));
        assert_eq!(answers("", "So <think>hm</think>two"), told("So two", ""));
        assert_eq!(answers("", "A <b> c < d <thi"), told("A <b> c < d ", "<thi"));
        assert_eq!(answers("", "never <think>closed </thi"), told("never ", ""));
        assert_eq!(answers("", "naïve <think>ï</think>ü"), told("naïve ü", ""));
    }

    #[test]
    fn a_prompt_may_open_the_reasoning() {
        let told = |text: &str| (text.to_owned(), String::new());
        assert_eq!(answers("assistant\n<think>\n", "Hm.</think>\n\nTwo."), told("Two."));
        assert_eq!(answers("assistant\n<think>\n\n</think>\n\n", "Two."), told("Two."));
        assert_eq!(answers("<think> said the user. assistant\n", "Two."), told("Two."));
    }

    #[test]
    fn marks_without_text_count_by_their_ids() {
        // As if `{` and `}` were special tokens.
        let tokenizer = Tokenizer::of_bytes().unwrap();
        let tokens = ReasoningTokens { open: Some(u32::from(b'{')), close: Some(u32::from(b'}')), ..tokens() };
        for (prompt_text, text) in [("", "{Hm.}\nTwo."), ("assistant\n{\n", "Hm.}Two.")] {
            let mut reader = ReasoningReader::new(&tokens, &tokenizer, &prompt(&tokenizer, prompt_text)).unwrap();
            let ids: Vec<u32> = text.bytes().flat_map(|byte| reader.push(u32::from(byte))).collect();
            assert_eq!(tokenizer.decode(&ids), "Two.");
        }
    }

    #[test]
    fn tokens_of_the_answer_stay_as_they_are() {
        let tokenizer = Tokenizer::of_bytes().unwrap();
        let mut reader = ReasoningReader::new(&tokens(), &tokenizer, &[]).unwrap();
        // Bytes that are no text stay too.
        let ids = [0xC3, 0xFF, u32::from(b'a'), 0xE2];
        let given: Vec<u32> = ids.into_iter().flat_map(|id| reader.push(id)).collect();
        assert_eq!([given, reader.finish()].concat(), ids);
    }
}
