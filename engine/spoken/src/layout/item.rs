//! Output of the layout.

use std::ops::Range;

/// Pause between two words, which no sign of the text stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Pause of a comma: the end of a short line.
    Comma,
    /// Pause of a comma at the border of a cell.
    Cell,
    /// Pause of a sentence: the end of a paragraph, a heading, an item or a row.
    Sentence,
}

/// Item of text without layout, with the bytes of the written text that it stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LayoutItem {
    /// Character of the text; `code` is true in a code span.
    Text { character: char, written: Range<usize>, code: bool },
    /// Mark of layout, silent. It belongs to the word that it touches.
    Silent { written: Range<usize> },
    /// White space within a line.
    Space,
    /// Pause, with the marks or the line break that it stands for.
    Pause { pause: Pause, written: Range<usize> },
    /// Number of an item of a list, without its mark.
    ListNumber { digits: String, mark: char, written: Range<usize> },
    /// Box of a task; `done` is true if it is checked.
    TaskBox { done: bool, written: Range<usize> },
    /// Block of code, at its first line.
    CodeBlock { written: Range<usize> },
    /// Beginning of a line of text.
    Line,
}
