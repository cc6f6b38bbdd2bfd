//! Brackets that hold no text of a link: numbers of sources, footnotes, and boxes of tasks.

/// Content of a bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BracketContent {
    /// Text, perhaps of a link.
    Text,
    /// Number of a source or mark of a footnote: silent.
    Source,
    /// Box of a task; true if it is checked.
    TaskBox(bool),
}

/// Maximum length of a source in brackets, in bytes.
const MAX_SOURCE: usize = 16;

/// True if `content` may be the beginning of a source or of a box.
pub fn may_be_source(content: &str) -> bool {
    let note = content.starts_with('^');
    let fits = |c: char| match note {
        true => c == '^' || c == '-' || c.is_alphanumeric(),
        false => matches!(c, '0'..='9' | ',' | ' ' | '-' | '–' | 'x' | 'X'),
    };
    content.len() <= MAX_SOURCE && content.chars().all(fits)
}

/// Returns the meaning of the text between two brackets. `item` is true where an item of a list begins.
pub fn content(content: &str, item: bool) -> BracketContent {
    let numbers = || content.split([',', '-', '–']).map(str::trim);
    let is_number = |number: &str| (1..=3).contains(&number.len()) && number.bytes().all(|b| b.is_ascii_digit());
    match content {
        " " if item => BracketContent::TaskBox(false),
        "x" | "X" if item => BracketContent::TaskBox(true),
        _ if content.len() > 1 && content.starts_with('^') => BracketContent::Source,
        _ if numbers().all(is_number) => BracketContent::Source,
        _ => BracketContent::Text,
    }
}
