//! Places in the text of a form.

use super::node::NodeId;
use super::number::NumberText;
use super::span::Span;
use super::string::Letter;

/// Frame of a value that is in no container.
pub const ROOT: u32 = u32::MAX;

/// An array or an object that is not closed.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    /// Schema of the container.
    pub node: NodeId,
    /// The container around it.
    pub parent: u32,
    /// Containers within each other, this one included.
    pub levels: u16,
    /// Entries of an array so far.
    pub count: u32,
    /// Bit set of the properties of an object so far.
    pub seen: u128,
    /// Fewest bytes of the text after the entry that is being written.
    pub rest: u32,
}

/// A place in the text of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FormState {
    /// Index of the innermost container; [`ROOT`] for none.
    pub frame: u32,
    /// Place within it.
    pub at: At,
}

/// Place within a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Before a literal that stands before the value.
    Before(u32),
    /// Within one of the texts that tell the value.
    Choice(Span),
    /// Before a value.
    Value {
        /// Its schema.
        node: NodeId,
        /// True if a space may stand before it.
        space: bool,
    },
    /// Within one of a list of texts.
    Texts {
        /// The list.
        node: NodeId,
        /// Texts that begin so.
        span: Span,
    },
    /// Within a string.
    Text(StringText),
    /// Within a number.
    Number {
        /// Its schema.
        node: NodeId,
        /// Its text so far.
        text: NumberText,
    },
    /// After the bracket that opens the container.
    Opened,
    /// Before a name, after a comma.
    Next {
        /// True if a space may stand before it.
        space: bool,
    },
    /// Within a declared name.
    Name(Span),
    /// Before the colon after a name that is not declared.
    Colon,
    /// After an entry.
    Done,
    /// Before a literal that stands after the value.
    After(u32),
}

/// A string that is not closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StringText {
    /// Place within a letter.
    pub letter: Letter,
    /// Letters that are still needed.
    pub least: u32,
    /// Letters that may still come; `u32::MAX` for any number.
    pub most: u32,
    /// True for a name of an object.
    pub is_name: bool,
}
