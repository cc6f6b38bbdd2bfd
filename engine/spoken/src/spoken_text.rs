//! Spoken text of a written text that streams in.

use std::collections::VecDeque;
use std::ops::Range;

use crate::characters::{closes, is_pause, is_unspaced, verdict};
use crate::language::{LanguageJudge, SpokenLanguage};
use crate::layout::{Layout, LayoutItem, Pause};
use crate::numbers;
use crate::piece::SpokenPiece;
use crate::rules::{self, PreviousWord, RuleOutcome, SpokenWord, TokenWindow};
use crate::token::{Token, TokenBuilder, TokenItem, TokenKind};

/// Options of spoken text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpokenOptions {
    /// Language of the text.
    pub language: SpokenLanguage,
    /// Spoken in place of a block of code within English text; nothing if empty.
    pub code_block: String,
}

impl Default for SpokenOptions {
    fn default() -> Self {
        Self { language: SpokenLanguage::Detected, code_block: "Code omitted.".to_owned() }
    }
}

/// Conjunctions behind which a line may end without a pause.
const CONJUNCTIONS: [&str; 3] = ["and", "or", "but"];

/// End of the spoken text so far.
#[derive(Debug, Default)]
struct SpokenEnd {
    /// True once there is spoken text.
    begun: bool,
    /// True if it ends with a mark of a pause or with a conjunction: a pause adds no mark.
    pauses: bool,
    /// True if its last character is of a script without spaces.
    unspaced: bool,
}

/// Makes written text speakable. The pieces do not depend on how the text is split: a piece is passed on once nothing that
/// follows can change it.
#[derive(Debug)]
pub struct SpokenText {
    options: SpokenOptions,
    layout: Layout,
    tokens: TokenBuilder,
    judge: LanguageJudge,
    /// Tokens that wait for what follows; at most a few.
    queue: VecDeque<Token>,
    previous: PreviousWord,
    /// Pause of a comma before the next word.
    comma: Option<Range<usize>>,
    end: SpokenEnd,
}

impl Default for SpokenText {
    fn default() -> Self {
        Self::new(SpokenOptions::default())
    }
}

impl SpokenText {
    /// Begins a text.
    pub fn new(options: SpokenOptions) -> Self {
        Self {
            layout: Layout::default(),
            tokens: TokenBuilder::default(),
            judge: LanguageJudge::new(options.language),
            queue: VecDeque::new(),
            previous: PreviousWord::default(),
            comma: None,
            end: SpokenEnd::default(),
            options,
        }
    }

    /// Adds written text; returns the pieces that are certain now.
    pub fn push(&mut self, written: &str) -> Vec<SpokenPiece> {
        let (mut pieces, mut tokens, mut items) = (Vec::new(), Vec::new(), Vec::new());
        for character in written.chars() {
            items.extend(self.layout.push(character));
            self.take(&mut items, &mut tokens, &mut pieces);
        }
        pieces
    }

    /// Ends the text; returns the rest of its pieces. Afterwards a new text begins, at position zero.
    pub fn finish(&mut self) -> Vec<SpokenPiece> {
        let (mut pieces, mut tokens) = (Vec::new(), Vec::new());
        let mut items = self.layout.finish();
        self.take(&mut items, &mut tokens, &mut pieces);
        self.tokens.finish(&mut tokens);
        self.take(&mut items, &mut tokens, &mut pieces);
        self.speak(true, &mut pieces);
        *self = Self::new(std::mem::take(&mut self.options));
        pieces
    }

    fn take(&mut self, items: &mut Vec<LayoutItem>, tokens: &mut Vec<TokenItem>, pieces: &mut Vec<SpokenPiece>) {
        for item in items.drain(..) {
            self.tokens.push(item, tokens);
        }
        for item in tokens.drain(..) {
            match item {
                TokenItem::Token(token) => {
                    self.queue.push_back(token);
                    self.speak(false, pieces);
                }
                TokenItem::Pause(pause, written) => {
                    self.speak(true, pieces);
                    self.pause(pause, written, pieces);
                }
            }
        }
    }

    /// Passes on the tokens that are certain; all of them if a pause has `ended` them.
    fn speak(&mut self, ended: bool, pieces: &mut Vec<SpokenPiece>) {
        while !self.queue.is_empty() {
            let words = match self.outcome(ended) {
                RuleOutcome::Wait => return,
                RuleOutcome::Spoken(words) => words,
                RuleOutcome::None => Vec::new(),
            };
            let count = words.len().max(1);
            let mut words = words.into_iter();
            for _ in 0..count {
                let Some(token) = self.queue.pop_front() else { return };
                let word = words.next().unwrap_or_else(|| SpokenWord::new(token.text.as_str()));
                self.emit(token, word, pieces);
            }
        }
    }

    /// Returns the spoken form of the first tokens.
    fn outcome(&mut self, ended: bool) -> RuleOutcome {
        let tokens: &[Token] = self.queue.make_contiguous();
        let (Some(first), more) = (tokens.first(), tokens.len() > 1 || ended) else { return RuleOutcome::None };
        let line = tokens.iter().enumerate().take_while(|(index, token)| *index == 0 || !token.begins_line);
        let english = || self.judge.is_english(line.clone().map(|(_, token)| token.text.as_str()));
        let or_silent = |english: bool, text: &str| RuleOutcome::one(if english { text } else { "" });
        match first.kind {
            TokenKind::LongWord => RuleOutcome::None,
            TokenKind::CodeBlock => or_silent(english(), &self.options.code_block),
            _ if !more && (first.kind != TokenKind::Word || rules::needs_rule(first) && !first.text.is_empty()) => {
                RuleOutcome::Wait
            }
            TokenKind::TaskBox(done) => or_silent(english(), if done { "done:" } else { "to do:" }),
            TokenKind::ListNumber if english() => {
                RuleOutcome::one(numbers::integer(&first.text[..first.text.len() - 1]) + ".")
            }
            TokenKind::ListNumber => RuleOutcome::None,
            TokenKind::Word if is_border(first) => RuleOutcome::one(""),
            TokenKind::Word if first.text.is_empty() => {
                match first.picture.and_then(verdict).filter(|_| first.begins_cell) {
                    Some(_) if !more => RuleOutcome::Wait,
                    // The sign is all that the cell holds.
                    Some(yes) if tokens.len() == 1 => or_silent(english(), if yes { "yes" } else { "no" }),
                    _ => RuleOutcome::one(""),
                }
            }
            TokenKind::Word if rules::needs_rule(first) && english() => {
                rules::apply(&TokenWindow::new(tokens, ended, &self.previous))
            }
            TokenKind::Word => RuleOutcome::None,
        }
    }

    fn emit(&mut self, token: Token, word: SpokenWord, pieces: &mut Vec<SpokenPiece>) {
        self.judge.add(&token.text, token.begins_line);
        if !token.text.is_empty() {
            self.previous = PreviousWord::of(&token.text);
        }
        let SpokenWord { text, glued, joins_next } = word;
        let punctuation = !text.chars().any(char::is_alphanumeric);
        // A pause needs no second mark, and none before the first word.
        if text.is_empty() || (glued && punctuation && (self.end.pauses || !self.end.begun)) {
            return;
        }
        if let Some(written) = self.comma.take() {
            self.mark(false, written, pieces);
        }
        let unspaced = self.end.unspaced && text.starts_with(is_unspaced);
        let glued = glued || token.glued || unspaced || (punctuation && token.picture.is_some());
        let space = if glued || !self.end.begun { "" } else { " " };
        self.end = SpokenEnd {
            begun: true,
            pauses: text.trim_end_matches(closes).ends_with(is_pause) || CONJUNCTIONS.contains(&text.as_str()),
            unspaced: text.ends_with(is_unspaced),
        };
        pieces.push(SpokenPiece { text: format!("{space}{text}"), written: token.written, joins_next });
    }

    fn pause(&mut self, pause: Pause, written: Range<usize>, pieces: &mut Vec<SpokenPiece>) {
        if pause == Pause::Sentence {
            self.comma = None;
            self.previous = PreviousWord::default();
            self.mark(true, written, pieces);
        } else if self.comma.is_none() {
            self.comma = Some(written);
        }
    }

    /// Adds the mark of a pause, unless there is one.
    fn mark(&mut self, sentence: bool, written: Range<usize>, pieces: &mut Vec<SpokenPiece>) {
        if !self.end.begun || self.end.pauses {
            return;
        }
        self.end.pauses = true;
        let text = match (sentence, self.end.unspaced) {
            (true, false) => ".",
            (true, true) => "。",
            (false, false) => ",",
            (false, true) => "，",
        };
        pieces.push(SpokenPiece { text: text.to_owned(), written, joins_next: false });
    }
}

/// True for the rule below the heading of a table.
fn is_border(token: &Token) -> bool {
    let border = !token.text.is_empty() && token.text.chars().all(|c| matches!(c, '-' | ':' | '|'));
    border && (token.begins_cell || token.text.contains('|'))
}
