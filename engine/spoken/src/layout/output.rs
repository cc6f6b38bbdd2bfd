//! Output of the parser of the layout within a line.

use std::ops::Range;

use super::item::LayoutItem;
use super::state::HeldText;

/// Items that the parser has found, and its state within the line.
#[derive(Debug, Default)]
pub struct LayoutOutput {
    /// Items that were not passed on yet.
    pub items: Vec<LayoutItem>,
    /// True once the line has text.
    pub has_text: bool,
    /// Number of spaces at the end of the line so far.
    pub spaces: usize,
    /// Number of backticks that close the code span; zero outside of one.
    pub code: usize,
}

impl LayoutOutput {
    /// Passes on a character that stands for these bytes.
    pub fn text(&mut self, character: char, written: Range<usize>) {
        if character.is_whitespace() {
            self.items.push(LayoutItem::Space);
            return;
        }
        self.has_text = true;
        self.spaces = 0;
        self.items.push(LayoutItem::Text { character, written, code: self.code > 0 });
    }

    /// Passes on a silent mark.
    pub fn silent(&mut self, written: Range<usize>) {
        self.spaces = 0;
        if !written.is_empty() {
            self.items.push(LayoutItem::Silent { written });
        }
    }

    /// Passes on characters, from offset `start` on, as text.
    pub fn literal(&mut self, text: &str, start: usize) {
        for (at, character) in text.char_indices() {
            self.text(character, start + at..start + at + character.len_utf8());
        }
    }

    /// Passes on a mark and the text held behind it as text.
    pub fn release(&mut self, mark: char, held: &HeldText) {
        self.text(mark, held.start..held.start + 1);
        self.literal(&held.text, held.start + 1);
    }

    /// Passes on the text held behind a bracket as text; the bracket is silent.
    pub fn release_bracket(&mut self, held: &HeldText) {
        self.silent(held.start..held.start + 1);
        self.literal(&held.text, held.start + 1);
    }

    /// Passes on backticks: they begin or end a code span, or are a part of it.
    pub fn backticks(&mut self, count: usize, start: usize) {
        self.silent(start..start + count);
        if self.code == 0 {
            self.code = count;
        } else if self.code == count {
            self.code = 0;
        }
    }
}
