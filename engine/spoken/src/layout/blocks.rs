//! Blocks: the meaning of a line, and the pause at its end.

use std::ops::Range;

use super::fence::{self, Fence};
use super::item::{LayoutItem, Pause};
use super::line_start::{BlockStart, LineStart};
use super::output::LayoutOutput;
use super::state::{HeldText, ParserState};

/// Number of characters from which a line of a paragraph is taken for a wrapped one: the pause at its end is none.
const LONG_LINE: usize = 50;
/// Maximum length of the words behind a fence, in bytes.
pub const MAX_INFO: usize = 64;

/// Line break whose pause depends on the next line.
#[derive(Debug, Clone)]
struct LineBreak {
    written: Range<usize>,
    /// Pause if the paragraph goes on.
    pause: Option<Pause>,
}

/// State of the parser within a line and between lines.
#[derive(Debug, Default)]
pub struct LineBlocks {
    /// Items found so far.
    pub output: LayoutOutput,
    /// Number of characters of this line.
    pub length: usize,
    /// True for a row of a table.
    pub row: bool,
    /// True where the text of an item begins.
    pub item: bool,
    /// Number of brackets that are open.
    pub open_brackets: u32,
    heading: bool,
    /// True in a block quote, and in the line before.
    quoted: bool,
    was_quoted: bool,
    line_break: Option<LineBreak>,
    /// Fence that closes a block of text for people.
    prose: Option<(char, usize)>,
}

impl LineBlocks {
    /// Begins a block with these marks; returns the state behind them.
    pub fn begin(&mut self, block: BlockStart, marks: Range<usize>) -> ParserState {
        match block {
            BlockStart::Text => self.begin_text(false),
            BlockStart::Literal(text) => {
                self.begin_text(false);
                self.output.literal(&text, marks.start);
            }
            BlockStart::Silent => {
                self.begin_text(false);
                self.output.silent(marks);
            }
            BlockStart::CodeSpan(count) => {
                self.begin_text(false);
                self.output.backticks(count, marks.start);
            }
            // The line break follows, and ends a line without text.
            BlockStart::Blank => self.break_line(true),
            BlockStart::Heading => {
                self.begin_text(true);
                self.output.silent(marks);
                self.heading = true;
            }
            BlockStart::Row => {
                self.begin_text(true);
                self.output.items.push(LayoutItem::Pause { pause: Pause::Cell, written: marks });
                self.row = true;
            }
            BlockStart::Fence { mark, count } => {
                return ParserState::Info { mark, count, held: HeldText::new(marks.end) };
            }
            BlockStart::Rule | BlockStart::Item | BlockStart::Number { .. } | BlockStart::Quote => {
                self.begin_lines(block, marks);
                return ParserState::LineStart(LineStart::default());
            }
        }
        ParserState::Text
    }

    /// Begins a block whose marks the beginning of a line follows.
    fn begin_lines(&mut self, block: BlockStart, marks: Range<usize>) {
        if block != BlockStart::Quote || !self.was_quoted {
            self.break_line(true);
        }
        self.item |= matches!(block, BlockStart::Item | BlockStart::Number { .. });
        self.quoted |= block == BlockStart::Quote;
        match block {
            BlockStart::Number { digits, mark } => {
                self.output.items.push(LayoutItem::ListNumber { digits, mark, written: marks });
            }
            _ => self.output.silent(marks),
        }
    }

    /// Begins the block behind the line of a fence, whose words are held; the line ends at offset `end`.
    pub fn begin_fence(&mut self, mark: char, count: usize, held: &HeldText, end: usize) -> ParserState {
        self.break_line(true);
        let closes = |open: &mut (char, usize)| open.0 == mark && count >= open.1 && held.text.trim().is_empty();
        let closed = self.prose.take_if(closes).is_some();
        let prose = fence::is_prose(&held.text);
        let fence = Fence::new(mark, count, self.quoted);
        if !closed && prose {
            self.prose = Some((mark, count));
        }
        if !closed && !prose {
            self.output.items.push(LayoutItem::CodeBlock { written: held.start - count..end });
        }
        self.output.items.push(LayoutItem::Line);
        self.begin_line();
        if closed || prose { ParserState::LineStart(LineStart::default()) } else { ParserState::Fence(fence) }
    }

    /// Begins a code span of `count` backticks, with the text held behind them.
    pub fn begin_code_span(&mut self, count: usize, held: &HeldText) -> ParserState {
        self.begin_text(false);
        self.output.backticks(count, held.start - count);
        self.output.literal(&held.text, held.start);
        ParserState::Text
    }

    /// Begins the text of a line; `block` is true if it is a block of its own.
    fn begin_text(&mut self, block: bool) {
        self.break_line(block || self.item);
    }

    /// Decides on the pause of the line break before: the end of a sentence, or that of a line in a paragraph.
    fn break_line(&mut self, sentence: bool) {
        if let Some(LineBreak { written, pause }) = self.line_break.take() {
            let pause = if sentence { Some(Pause::Sentence) } else { pause };
            self.output.items.extend(pause.map(|pause| LayoutItem::Pause { pause, written }));
        }
    }

    /// Ends the line at its line break; returns the state behind it.
    pub fn end(&mut self, written: Range<usize>) -> ParserState {
        self.output.items.push(LayoutItem::Line);
        if self.output.has_text {
            let short = self.output.spaces >= 2 || self.length < LONG_LINE;
            let pause = match self.heading || self.row {
                true => Some(Pause::Sentence),
                false => short.then_some(Pause::Comma),
            };
            self.line_break = Some(LineBreak { written, pause });
        }
        self.begin_line();
        ParserState::LineStart(LineStart::default())
    }

    /// Begins a line.
    pub fn begin_line(&mut self) {
        (self.output.spaces, self.output.code, self.output.has_text) = (0, 0, false);
        (self.length, self.open_brackets) = (0, 0);
        (self.heading, self.row, self.item) = (false, false, false);
        self.was_quoted = std::mem::take(&mut self.quoted);
    }
}
