//! Fenced block of code: silent until its closing fence.

/// Languages of a fence whose block is text for people.
const PROSE: [&str; 7] = ["text", "txt", "plaintext", "plain", "markdown", "md", "email"];

/// True if the block behind a fence with these words is text for people.
pub fn is_prose(info: &str) -> bool {
    let language = info.split_whitespace().next().unwrap_or_default();
    PROSE.iter().any(|prose| language.eq_ignore_ascii_case(prose))
}

/// State within a line of the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FenceLine {
    /// So many marks of a fence, behind white space.
    Marks(usize),
    /// White space behind a fence.
    Closing,
    /// Code.
    Code,
}

/// Block of code.
#[derive(Debug, Clone)]
pub struct Fence {
    mark: char,
    count: usize,
    quoted: bool,
    line: FenceLine,
}

impl Fence {
    /// Begins behind the line of an opening fence of `count` marks; `quoted` is true in a block quote.
    pub fn new(mark: char, count: usize, quoted: bool) -> Self {
        Self { mark, count, quoted, line: FenceLine::Marks(0) }
    }

    /// Takes the next character; returns true if it is the line break behind the closing fence.
    pub fn ends_with(&mut self, next: char) -> bool {
        let blank = next.is_whitespace() || (next == '>' && self.quoted);
        self.line = match self.line {
            FenceLine::Marks(count) if next == '\n' && count >= self.count => return true,
            FenceLine::Closing if next == '\n' => return true,
            _ if next == '\n' => FenceLine::Marks(0),
            FenceLine::Marks(count) if next == self.mark => FenceLine::Marks(count + 1),
            FenceLine::Marks(0) if blank => FenceLine::Marks(0),
            FenceLine::Marks(count) if next.is_whitespace() && count >= self.count => FenceLine::Closing,
            FenceLine::Closing if next.is_whitespace() => FenceLine::Closing,
            _ => FenceLine::Code,
        };
        false
    }
}
