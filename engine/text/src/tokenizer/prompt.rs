//! Encoding of a rendered prompt: marks become special tokens, everything else is text.

use super::error::EncodeError;
use super::text_tokenizer::TextTokenizer;
use crate::template::{Prompt, Segment};

/// Part of an encoded prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPiece {
    /// Index of the message whose content it is; `None` for the template's text, and for contents that were encoded
    /// with it.
    pub message: Option<usize>,
    /// Token ids, in order; of a special token a single one.
    pub ids: Vec<u32>,
}

impl TextTokenizer {
    /// Encodes a prompt. Text between two marks is encoded at once, as the reference does, with two exceptions:
    /// contents whose ids `known` has (of the message's index and the content's text) stand as these ids, so that a
    /// model's own words keep the ids that it generated. `known` is not asked if the first word of a text gets a space.
    ///
    /// # Errors
    ///
    /// If the vocabulary cannot encode a text, or lacks a mark.
    pub fn encode_prompt(
        &self,
        prompt: &Prompt,
        known: &dyn Fn(usize, &str) -> Option<Vec<u32>>,
    ) -> Result<Vec<EncodedPiece>, EncodeError> {
        let mut pieces = Vec::new();
        let mut run = String::new();
        let mut start = true;
        let mut strips = false;
        let flush = |run: &mut String, start: bool, pieces: &mut Vec<EncodedPiece>| -> Result<(), EncodeError> {
            if !run.is_empty() {
                pieces.push(EncodedPiece { message: None, ids: self.encode_part(run, start)? });
                run.clear();
            }
            Ok(())
        };
        for segment in &prompt.segments {
            if let Segment::Special(text) = segment {
                let mark = self.mark(text).ok_or_else(|| EncodeError(format!("there is no token `{text}`")))?;
                if mark.takes_before {
                    run.truncate(run.trim_end().len());
                }
                flush(&mut run, start, &mut pieces)?;
                pieces.push(EncodedPiece { message: None, ids: vec![mark.id] });
                (start, strips) = (!self.starts_once(), mark.takes_after);
                continue;
            }
            let mut text = segment.text();
            if strips {
                text = text.trim_start();
                strips = text.is_empty();
            }
            if let Segment::Content { message, text: whole } = segment
                && text == whole
                && !self.adds_prefix()
                && let Some(ids) = known(*message, whole)
            {
                flush(&mut run, start, &mut pieces)?;
                pieces.push(EncodedPiece { message: Some(*message), ids });
                start = false;
                continue;
            }
            run.push_str(text);
        }
        flush(&mut run, start, &mut pieces)?;
        Ok(pieces)
    }
}
