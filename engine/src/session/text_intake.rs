//! Tokenisation of a command's texts in pieces.

use std::collections::VecDeque;

use repartee_engine_api::{Command, SessionError};

use super::context::text_error;
use crate::text::TextEncoder;

/// Texts of a command with their ids.
pub type EncodedTexts = Vec<(String, Vec<u32>)>;

/// A command whose texts are being tokenised.
pub struct TextIntake {
    /// The command.
    pub(super) command: Command,
    /// Texts that are left; `at` bytes of the first one were read.
    texts: VecDeque<String>,
    at: usize,
    encoder: TextEncoder,
    ids: Vec<u32>,
    /// Ids of a text after which the rest of it is dropped.
    most: usize,
    /// Texts that are read.
    pub(super) done: EncodedTexts,
}

impl TextIntake {
    /// Creates an intake that has read nothing of `texts`. Of each it keeps about `most` ids.
    pub(super) fn new(command: Command, texts: Vec<String>, encoder: TextEncoder, most: usize) -> Self {
        Self { command, texts: texts.into(), at: 0, encoder, ids: Vec::new(), most, done: EncodedTexts::new() }
    }

    /// Reads at most `budget` bytes; returns true once all texts are read, and the bytes that are left.
    pub(super) fn advance(&mut self, mut budget: usize) -> Result<(bool, usize), SessionError> {
        while let Some(text) = self.texts.front() {
            let mut end = (self.at + budget).min(text.len());
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let piece = &text[self.at..end];
            if piece.is_empty() && end < text.len() {
                return Ok((false, budget));
            }
            self.ids.extend(self.encoder.push(piece).map_err(|error| text_error(&error))?);
            budget -= piece.len();
            self.at = end;
            let enough = self.ids.len() > self.most;
            if end < text.len() && !enough {
                return Ok((false, budget));
            }
            self.ids.extend(self.encoder.finish().map_err(|error| text_error(&error))?);
            let text = self.texts.pop_front().unwrap_or_default();
            self.done.push((text, std::mem::take(&mut self.ids)));
            self.at = 0;
        }
        Ok((true, budget))
    }
}
