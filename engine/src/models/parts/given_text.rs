//! A given text in the place of a model's own: what is to be read aloud. It may stream in.

use std::collections::VecDeque;

use super::autoregressive::SampleOutcome;
use crate::elements::{Element, ElementValue};

/// The given text of one response.
#[derive(Debug, Default)]
pub struct GivenText {
    /// Tokens that the next stage has not got.
    ids: VecDeque<u32>,
    /// Whether no more come.
    ended: bool,
    /// Whether the response waits for the next one.
    waits: bool,
}

impl GivenText {
    /// Takes more of the text.
    pub fn push<'a>(&mut self, elements: impl IntoIterator<Item = &'a Element>) {
        self.ids.extend(elements.into_iter().filter_map(|element| match element.value {
            ElementValue::Token(id) => Some(id),
            ElementValue::Audio { .. } | ElementValue::Codes(_) => None,
        }));
    }

    /// Ends the text.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Tokens that can be taken now.
    pub fn available(&self) -> usize {
        self.ids.len()
    }

    /// Whether no more come than are known.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// What stands in the place of the next token.
    pub fn next(&mut self) -> SampleOutcome<u32> {
        let next = self.ids.pop_front();
        self.waits = next.is_none() && !self.ended;
        match next {
            Some(id) => SampleOutcome::Piece(id),
            None if self.ended => SampleOutcome::Stop,
            None => SampleOutcome::Pending,
        }
    }

    /// The same for a response that waited, once there is something.
    pub fn resumed(&mut self) -> Option<SampleOutcome<u32>> {
        (self.waits && (self.ended || !self.ids.is_empty())).then(|| self.next())
    }
}
