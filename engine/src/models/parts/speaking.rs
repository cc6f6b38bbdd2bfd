//! A spoken response's text: one utterance, or several where tool calls interrupt it.

use std::collections::VecDeque;

use crate::stage::{End, ResponseParams};

/// What the talker keeps of a spoken response.
pub struct Speaking {
    /// Its parameters.
    pub params: ResponseParams,
    /// The utterance that is spoken, and the ones after it; empty before the first token.
    pub utterances: VecDeque<Utterance>,
    /// How the text ended, once it has.
    pub complete: Option<End>,
    /// How the speech of the first utterance ended, if the text goes on or a later one may come.
    pub over: Option<End>,
    /// Whether an earlier utterance ended at a limit.
    cut: bool,
    /// Whether the row after the last frame waits for its text part.
    pub waits: bool,
}

/// Text that is spoken in one go: a whole response's, but where a tool call interrupts it.
pub struct Utterance {
    /// Text tokens so far.
    pub tokens: Vec<u32>,
    /// Whether no more come.
    pub ended: bool,
}

impl Speaking {
    /// Nothing is said yet.
    pub fn new(params: ResponseParams) -> Self {
        Self { params, utterances: VecDeque::new(), complete: None, over: None, cut: false, waits: false }
    }

    /// Takes the next token; whether an utterance begins with it.
    pub fn token(&mut self, id: u32) -> bool {
        let begins = match self.utterances.back_mut() {
            Some(last) if !last.ended => {
                // What is said after the speech has ended is not heard.
                if self.over.is_none() {
                    last.tokens.push(id);
                }
                return false;
            }
            Some(_) => self.over.take().is_some_and(|end| {
                self.cut |= end == End::Length;
                self.utterances.pop_front();
                true
            }),
            None => true,
        };
        self.utterances.push_back(Utterance { tokens: vec![id], ended: false });
        begins
    }

    /// Ends the last utterance's text.
    pub fn end_text(&mut self) {
        if let Some(last) = self.utterances.back_mut() {
            last.ended = true;
        }
    }

    /// Ends the first utterance and gives the first token of the next one, if there is one already.
    pub fn next(&mut self, end: End) -> Option<u32> {
        let next = *self.utterances.get(1)?.tokens.first()?;
        self.utterances.pop_front();
        self.cut |= end == End::Length;
        Some(next)
    }

    /// How the response ended whose last utterance ended so.
    pub fn end(&self, speech: End) -> Option<End> {
        let text = self.complete?;
        Some(if self.cut || text == End::Length { End::Length } else { speech })
    }
}
