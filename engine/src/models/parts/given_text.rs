//! Given text: a text that the model speaks instead of its own. It may stream in.

use std::collections::VecDeque;

use super::autoregressive::SampleOutcome;
use crate::elements::{Element, ElementValue};

/// The given text of one response.
#[derive(Debug, Default)]
pub struct GivenText {
    /// Tokens not yet passed to the next stage.
    ids: VecDeque<u32>,
    /// True once no more tokens come.
    ended: bool,
    /// True if the response waits for the next token.
    waiting: bool,
}

impl GivenText {
    /// Appends the tokens among `elements`.
    pub fn push<'a>(&mut self, elements: impl IntoIterator<Item = &'a Element>) {
        self.ids.extend(elements.into_iter().filter_map(|element| match element.value {
            ElementValue::Token(id) => Some(id),
            ElementValue::Audio { .. } | ElementValue::Codes(_) => None,
        }));
    }

    /// Marks the text as complete.
    pub fn end(&mut self) {
        self.ended = true;
    }

    /// Takes the next token in place of a sampled one: `Stop` at the end of the text, `Pending` if the next token is
    /// not known yet.
    pub fn next(&mut self) -> SampleOutcome<u32> {
        let next = self.ids.pop_front();
        self.waiting = next.is_none() && !self.ended;
        match next {
            Some(id) => SampleOutcome::Piece(id),
            None if self.ended => SampleOutcome::Stop,
            None => SampleOutcome::Pending,
        }
    }

    /// Takes the next token for a response that waits; `None` if it does not wait or nothing new has come.
    pub fn resumed(&mut self) -> Option<SampleOutcome<u32>> {
        (self.waiting && (self.ended || !self.ids.is_empty())).then(|| self.next())
    }
}
