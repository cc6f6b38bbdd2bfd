//! A given text in the place of the thinker's own: what the talker is to read aloud. It may stream in.

use std::collections::VecDeque;

use crate::elements::{Element, Value};
use crate::models::parts::autoregressive::Sampled;

/// The given text of one response.
#[derive(Debug, Default)]
pub struct Dictation {
    /// Tokens that the talker has not got.
    ids: VecDeque<u32>,
    /// Whether no more come.
    ended: bool,
    /// Whether the response waits for the next one.
    waits: bool,
}

impl Dictation {
    /// Takes more of the text.
    pub fn push(&mut self, elements: &[Element]) {
        self.ids.extend(elements.iter().filter_map(|element| match element.value {
            Value::Token(id) => Some(id),
            Value::Audio { .. } | Value::Codes(_) => None,
        }));
    }

    /// Ends the text.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// What stands in the place of the next token.
    pub fn next(&mut self) -> Sampled<u32> {
        let next = self.ids.pop_front();
        self.waits = next.is_none() && !self.ended;
        match next {
            Some(id) => Sampled::Piece(id),
            None if self.ended => Sampled::Stop,
            None => Sampled::Pending,
        }
    }

    /// The same for a response that waited, once there is something.
    pub fn resumed(&mut self) -> Option<Sampled<u32>> {
        (self.waits && (self.ended || !self.ids.is_empty())).then(|| self.next())
    }
}
