//! Parser of the layout: one character in, items out. It holds back what the next characters may still change, at most a few
//! hundred bytes.

use super::blocks::{LineBlocks, MAX_INFO};
use super::bracket::{self, BracketContent};
use super::item::{LayoutItem, Pause};
use super::line_start::{BlockStart, LineStart};
use super::link_target::{LinkTarget, TargetStep};
use super::run::{self, RunMeaning};
use super::state::{HeldText, ParserState};
use super::tag::{self, TagMeaning};

/// Maximum length of the name of a reference, in bytes.
const MAX_NAME: usize = 64;

/// Parser of the layout of a text that streams in. The items do not depend on how the text is split.
#[derive(Debug)]
pub struct Layout {
    /// Offset of the next character in the written text.
    at: usize,
    state: ParserState,
    /// Character before the next one in this line.
    previous: Option<char>,
    lines: LineBlocks,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            at: 0,
            state: ParserState::LineStart(LineStart::default()),
            previous: None,
            lines: LineBlocks::default(),
        }
    }
}

impl Layout {
    /// Takes the next character; returns the items that are certain now.
    pub fn push(&mut self, character: char) -> std::vec::Drain<'_, LayoutItem> {
        // Every turn but the last leaves a state of held text.
        while !self.take(character) {}
        self.at += character.len_utf8();
        if character == '\n' {
            self.previous = None;
        } else {
            self.previous = Some(character);
            self.lines.length += 1;
        }
        self.lines.output.items.drain(..)
    }

    /// Ends the text; returns the last items.
    pub fn finish(&mut self) -> Vec<LayoutItem> {
        match std::mem::replace(&mut self.state, ParserState::Text) {
            ParserState::LineStart(mut line) => {
                // A line break at the end of the text adds no pause.
                let block = line.take(None, self.at).filter(|block| *block != BlockStart::Blank);
                if let Some(block) = block {
                    self.state = self.lines.begin(block, line.start()..self.at);
                }
            }
            ParserState::Run { mark, count, start, before } => self.end_run(mark, count, start, before, None),
            ParserState::Exclamation(start) => self.lines.output.text('!', start..start + 1),
            ParserState::Bracket(held) | ParserState::Name(held) => self.lines.output.release_bracket(&held),
            ParserState::Tag(held) => self.lines.output.release('<', &held),
            ParserState::Reference(held) => self.lines.output.release('&', &held),
            ParserState::Target(target) => self.lines.output.literal(&target.held, target.start),
            ParserState::Escape(start) => self.lines.output.text('\\', start..start + 1),
            ParserState::Text
            | ParserState::Backticks { .. }
            | ParserState::AfterBracket(_)
            | ParserState::Info { .. }
            | ParserState::Fence(_) => {}
        }
        std::mem::take(&mut self.lines.output.items)
    }

    /// Returns true if the character was taken; otherwise the state has changed, and the character follows it.
    fn take(&mut self, next: char) -> bool {
        let end = self.at + next.len_utf8();
        match std::mem::replace(&mut self.state, ParserState::Text) {
            ParserState::Text => {
                self.take_text(next);
                true
            }
            ParserState::LineStart(mut line) => match line.take(Some(next), self.at) {
                None => {
                    self.state = ParserState::LineStart(line);
                    true
                }
                Some(block) => {
                    self.state = self.lines.begin(block, line.start()..self.at);
                    false
                }
            },
            ParserState::Run { mark, count, start, before } if next == mark => {
                self.state = ParserState::Run { mark, count: count + 1, start, before };
                true
            }
            ParserState::Run { mark, count, start, before } => {
                self.end_run(mark, count, start, before, Some(next));
                false
            }
            ParserState::Backticks { count, start } if next == '`' => {
                self.state = ParserState::Backticks { count: count + 1, start };
                true
            }
            ParserState::Backticks { count, start } => {
                self.lines.output.backticks(count, start);
                false
            }
            ParserState::Exclamation(start) => {
                if next == '[' {
                    self.lines.output.silent(start..start + 1);
                } else {
                    self.lines.output.text('!', start..start + 1);
                }
                false
            }
            ParserState::Escape(start) => {
                if next.is_ascii_punctuation() {
                    self.lines.output.text(next, start..end);
                    return true;
                }
                if next == '\n' {
                    self.lines.output.silent(start..start + 1);
                    self.lines.output.spaces = 2;
                } else {
                    self.lines.output.text('\\', start..start + 1);
                }
                false
            }
            ParserState::Bracket(held) => self.take_bracket(held, next),
            ParserState::AfterBracket(note) => self.take_after_bracket(note, next),
            ParserState::Target(mut target) => match target.take(next) {
                TargetStep::More => {
                    self.state = ParserState::Target(target);
                    true
                }
                TargetStep::Done => {
                    // The line break that ends a long target is not a part of it.
                    let taken = next != '\n';
                    self.lines.output.silent(target.start..if taken { end } else { self.at });
                    taken
                }
                TargetStep::Failed => {
                    self.lines.output.literal(&target.held, target.start);
                    false
                }
            },
            ParserState::Name(mut held) => match next {
                ']' => {
                    self.lines.output.silent(held.start..end);
                    true
                }
                _ if "\n[".contains(next) || held.text.len() > MAX_NAME => {
                    self.lines.output.release_bracket(&held);
                    false
                }
                _ => {
                    held.text.push(next);
                    self.state = ParserState::Name(held);
                    true
                }
            },
            ParserState::Tag(held) => self.take_tag(held, next),
            ParserState::Reference(mut held) => match next {
                ';' => {
                    match tag::reference(&held.text) {
                        Some(character) => self.lines.output.text(character, held.start..end),
                        None => {
                            self.lines.output.release('&', &held);
                            self.lines.output.text(';', self.at..end);
                        }
                    }
                    true
                }
                '#' | '0'..='9' | 'a'..='z' | 'A'..='Z' if held.text.len() < tag::MAX_REFERENCE => {
                    held.text.push(next);
                    self.state = ParserState::Reference(held);
                    true
                }
                _ => {
                    self.lines.output.release('&', &held);
                    false
                }
            },
            ParserState::Info { mark, count, held } => self.take_info(mark, count, held, next),
            ParserState::Fence(mut fence) => {
                self.state = match fence.ends_with(next) {
                    true => ParserState::LineStart(LineStart::default()),
                    false => ParserState::Fence(fence),
                };
                if next == '\n' {
                    self.lines.begin_line();
                }
                true
            }
        }
    }

    fn take_text(&mut self, next: char) {
        let (at, end) = (self.at, self.at + next.len_utf8());
        if next == '\n' {
            self.state = self.lines.end(at..end);
            return;
        }
        if next.is_whitespace() {
            self.lines.output.spaces += 1;
            self.lines.output.items.push(LayoutItem::Space);
            return;
        }
        match next {
            '`' => self.state = ParserState::Backticks { count: 1, start: at },
            _ if self.lines.output.code > 0 => self.lines.output.text(next, at..end),
            '*' | '_' | '~' | '=' => {
                self.state = ParserState::Run { mark: next, count: 1, start: at, before: self.previous };
            }
            '\\' => self.state = ParserState::Escape(at),
            '!' => self.state = ParserState::Exclamation(at),
            '[' => self.state = ParserState::Bracket(HeldText::new(at)),
            ']' => {
                self.lines.output.silent(at..end);
                if self.lines.open_brackets > 0 {
                    self.lines.open_brackets -= 1;
                    self.state = ParserState::AfterBracket(false);
                }
            }
            '<' => self.state = ParserState::Tag(HeldText::new(at)),
            '&' => self.state = ParserState::Reference(HeldText::new(at)),
            '|' if self.lines.row || self.previous.is_none_or(char::is_whitespace) => {
                self.lines.output.items.push(LayoutItem::Pause { pause: Pause::Cell, written: at..end });
            }
            _ => self.lines.output.text(next, at..end),
        }
    }

    fn take_bracket(&mut self, mut held: HeldText, next: char) -> bool {
        let end = self.at + next.len_utf8();
        if next == ']' {
            let content = bracket::content(&held.text, self.lines.item && !self.lines.output.has_text);
            // The colon behind a source at the beginning of a line is a mark of it.
            let note = content == BracketContent::Source && !self.lines.output.has_text;
            match content {
                BracketContent::TaskBox(done) => {
                    self.lines.output.items.push(LayoutItem::TaskBox { done, written: held.start..end });
                    self.lines.output.has_text = true;
                }
                BracketContent::Source => self.lines.output.silent(held.start..end),
                BracketContent::Text => {
                    self.lines.output.release_bracket(&held);
                    self.lines.output.silent(self.at..end);
                }
            }
            self.state = ParserState::AfterBracket(note);
            return true;
        }
        held.text.push(next);
        if bracket::may_be_source(&held.text) {
            self.state = ParserState::Bracket(held);
            return true;
        }
        held.text.pop();
        self.lines.open_brackets = self.lines.open_brackets.saturating_add(1);
        self.lines.output.release_bracket(&held);
        false
    }

    fn take_after_bracket(&mut self, note: bool, next: char) -> bool {
        match next {
            '(' => self.state = ParserState::Target(LinkTarget::new(self.at)),
            '[' => self.state = ParserState::Name(HeldText::new(self.at)),
            ':' if note => self.lines.output.silent(self.at..self.at + 1),
            _ => return false,
        }
        true
    }

    fn take_tag(&mut self, mut held: HeldText, next: char) -> bool {
        let end = self.at + next.len_utf8();
        if next == '>' && !held.text.is_empty() {
            match tag::meaning(&held.text) {
                TagMeaning::Silent => self.lines.output.silent(held.start..end),
                TagMeaning::Pause(pause) => {
                    self.lines.output.items.push(LayoutItem::Pause { pause, written: held.start..end });
                }
                TagMeaning::Address => {
                    self.lines.output.silent(held.start..held.start + 1);
                    self.lines.output.literal(&held.text, held.start + 1);
                    self.lines.output.silent(self.at..end);
                }
                TagMeaning::Text => {
                    self.lines.output.release('<', &held);
                    self.lines.output.text('>', self.at..end);
                }
            }
            return true;
        }
        held.text.push(next);
        if next != '\n' && next != '<' && tag::may_go_on(&held.text) {
            self.state = ParserState::Tag(held);
            return true;
        }
        held.text.pop();
        self.lines.output.release('<', &held);
        false
    }

    fn take_info(&mut self, mark: char, count: usize, mut held: HeldText, next: char) -> bool {
        if next == '\n' {
            self.state = self.lines.begin_fence(mark, count, &held, self.at);
            return true;
        }
        if mark == '`' && (next == '`' || held.text.len() > MAX_INFO) {
            self.state = self.lines.begin_code_span(count, &held);
            return false;
        }
        if held.text.len() <= MAX_INFO {
            held.text.push(next);
        }
        self.state = ParserState::Info { mark, count, held };
        true
    }

    fn end_run(&mut self, mark: char, count: usize, start: usize, before: Option<char>, behind: Option<char>) {
        match run::meaning(mark, count, before, behind) {
            RunMeaning::Silent => self.lines.output.silent(start..start + count),
            // The first character stands for all.
            RunMeaning::Text(character, 1) => self.lines.output.text(character, start..start + count),
            RunMeaning::Text(character, times) => {
                self.lines.output.literal(&character.to_string().repeat(times), start);
                self.lines.output.silent(start + times..start + count);
            }
        }
    }
}
