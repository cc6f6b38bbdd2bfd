//! Beginning of a line: recognises headings, items, quotes, rows, rules and fences before the text of the line.

/// Block that a line begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlockStart {
    /// Nothing stands before the text.
    Text,
    /// The characters so far are text.
    Literal(String),
    /// The characters so far are marks of emphasis: silent, and text follows.
    Silent,
    /// Line break: the line is blank.
    Blank,
    /// One to six number signs and white space.
    Heading,
    /// Mark of an item; the beginning of a line follows.
    Item,
    /// Number of an item; the beginning of a line follows.
    Number { digits: String, mark: char },
    /// Mark of a quote; the beginning of a line follows.
    Quote,
    /// Row of a table.
    Row,
    /// Rule, or the underline of a heading; the beginning of a line follows.
    Rule,
    /// So many backticks of a code span.
    CodeSpan(usize),
    /// Fence of a block of code, of so many marks.
    Fence { mark: char, count: usize },
}

/// Maximum number of digits before the mark of an item.
const MAX_DIGITS: usize = 3;

/// Recogniser of the beginning of a line.
#[derive(Debug, Clone, Default)]
pub struct LineStart {
    /// First character that is no white space, its number of repetitions, and its offset in the written text.
    mark: Option<char>,
    count: usize,
    start: usize,
    /// Digits of a number, and the mark behind them.
    digits: String,
    closed: Option<char>,
}

impl LineStart {
    /// Offset of the first character in the written text.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Takes the next character, at offset `at`; `None` stands for the end of the text. Returns `None` if the character
    /// was taken, and else the block; the character then follows it.
    pub fn take(&mut self, next: Option<char>, at: usize) -> Option<BlockStart> {
        let next = next.unwrap_or('\n');
        match self.mark {
            None => self.begin(next, at),
            Some('0'..='9') => self.number(next),
            Some(mark) if mark == next => {
                self.count += 1;
                None
            }
            Some(mark) => Some(self.run(mark, next)),
        }
    }

    fn begin(&mut self, first: char, at: usize) -> Option<BlockStart> {
        match first {
            '\n' => Some(BlockStart::Blank),
            '0'..='9' => {
                (self.mark, self.start) = (Some(first), at);
                self.digits.push(first);
                None
            }
            '#' | '>' | '-' | '*' | '+' | '=' | '_' | '|' | '`' | '~' | '•' | '◦' | '▪' | '‣' | '–' => {
                (self.mark, self.count, self.start) = (Some(first), 1, at);
                None
            }
            _ if first.is_whitespace() => None,
            _ => Some(BlockStart::Text),
        }
    }

    fn number(&mut self, next: char) -> Option<BlockStart> {
        match (next, self.closed) {
            ('0'..='9', None) if self.digits.len() < MAX_DIGITS => self.digits.push(next),
            ('.' | ')', None) => self.closed = Some(next),
            // The digit is a key: a variation selector and the keycap follow.
            ('\u{FE0F}' | crate::characters::KEYCAP, None) if self.digits.len() == 1 => {
                return Some(BlockStart::Number { digits: std::mem::take(&mut self.digits), mark: '.' });
            }
            (_, Some(mark)) if next.is_whitespace() => {
                return Some(BlockStart::Number { digits: std::mem::take(&mut self.digits), mark });
            }
            (_, mark) => {
                self.digits.extend(mark);
                return Some(BlockStart::Literal(std::mem::take(&mut self.digits)));
            }
        }
        None
    }

    /// Decides on a run of one mark, by the character behind it.
    fn run(&self, mark: char, next: char) -> BlockStart {
        let (space, count) = (next.is_whitespace(), self.count);
        let ends = next == '\n';
        // A run is text only where it is short.
        let literal = || BlockStart::Literal(mark.to_string().repeat(count));
        match mark {
            '#' if space && count <= 6 => BlockStart::Heading,
            '#' if count <= 6 => literal(),
            '>' if count == 1 && (next.is_ascii_digit() || next == '=') => literal(),
            '>' => BlockStart::Quote,
            '|' => BlockStart::Row,
            '`' | '~' if count >= 3 => BlockStart::Fence { mark, count },
            '`' => BlockStart::CodeSpan(count),
            '~' if count == 1 => literal(),
            '•' | '◦' | '▪' | '‣' => BlockStart::Item,
            '–' if count == 1 && space => BlockStart::Item,
            '-' | '*' | '+' if count == 1 && space => BlockStart::Item,
            '-' if count == 1 || (count == 2 && !ends) => literal(),
            '–' | '+' if count <= 2 => literal(),
            '=' if count == 1 => literal(),
            _ if space => BlockStart::Rule,
            _ => BlockStart::Silent,
        }
    }
}
