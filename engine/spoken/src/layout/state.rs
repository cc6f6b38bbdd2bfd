//! States of the parser of the layout.

use super::fence::Fence;
use super::line_start::LineStart;
use super::link_target::LinkTarget;

/// Text that is held back until it is clear what it is.
#[derive(Debug, Clone, Default)]
pub struct HeldText {
    pub text: String,
    /// Offset in the written text.
    pub start: usize,
}

impl HeldText {
    /// Begins without text.
    pub fn new(start: usize) -> Self {
        Self { text: String::new(), start }
    }
}

/// State of the parser.
#[derive(Debug, Clone)]
pub enum ParserState {
    /// Before the text of a line.
    LineStart(LineStart),
    /// Within the text of a line.
    Text,
    /// Run of marks of emphasis, behind a character.
    Run { mark: char, count: usize, start: usize, before: Option<char> },
    /// Backticks of a code span.
    Backticks { count: usize, start: usize },
    /// Exclamation mark, perhaps of an image.
    Exclamation(usize),
    /// Behind a backslash at this offset.
    Escape(usize),
    /// Text behind an opening bracket.
    Bracket(HeldText),
    /// Behind a closing bracket; true behind a footnote.
    AfterBracket(bool),
    /// Target of a link.
    Target(LinkTarget),
    /// Name of a reference, behind its opening bracket.
    Name(HeldText),
    /// Text behind an opening angle bracket.
    Tag(HeldText),
    /// Text behind an ampersand.
    Reference(HeldText),
    /// Words behind an opening fence.
    Info { mark: char, count: usize, held: HeldText },
    /// Block of code.
    Fence(Fence),
}
