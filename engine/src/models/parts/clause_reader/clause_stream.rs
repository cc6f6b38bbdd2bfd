//! Tokens of a written text in, clauses of spoken text out.

use repartee_spoken::{Clause, ClauseBounds, ClauseSplitter, PlainText, SpokenOptions, SpokenPiece, SpokenText};

use crate::text::{TextStream, Tokenizer};

/// Words of the text.
#[derive(Debug)]
enum ReadWords {
    /// As they are spoken.
    Spoken(Box<SpokenText>),
    /// As they are written.
    Plain(PlainText),
}

impl ReadWords {
    fn push(&mut self, written: &str) -> Vec<SpokenPiece> {
        match self {
            Self::Spoken(text) => text.push(written),
            Self::Plain(text) => text.push(written),
        }
    }

    fn finish(&mut self) -> Vec<SpokenPiece> {
        match self {
            Self::Spoken(text) => text.finish(),
            Self::Plain(text) => text.finish(),
        }
    }
}

/// Cuts a text that arrives token by token into clauses.
#[derive(Debug)]
pub(super) struct ClauseStream {
    tokenizer: Tokenizer,
    text: TextStream,
    words: ReadWords,
    clauses: ClauseSplitter,
}

impl ClauseStream {
    /// Begins a text; `None` speaks it as it is written.
    pub fn new(tokenizer: &Tokenizer, options: Option<&SpokenOptions>, bounds: ClauseBounds) -> Self {
        let words = match options {
            Some(options) => ReadWords::Spoken(Box::new(SpokenText::new(options.clone()))),
            None => ReadWords::Plain(PlainText::default()),
        };
        Self { text: tokenizer.stream(), tokenizer: tokenizer.clone(), words, clauses: ClauseSplitter::new(bounds) }
    }

    /// Takes the next token; returns the clauses that are complete now.
    pub fn push(&mut self, id: u32) -> Vec<String> {
        let pieces = self.text.push(id).map(|text| self.words.push(&text)).unwrap_or_default();
        self.cut(pieces)
    }

    /// Ends the text; returns the rest of its clauses. Afterwards a new text begins.
    pub fn finish(&mut self) -> Vec<String> {
        let held = std::mem::replace(&mut self.text, self.tokenizer.stream()).finish();
        let mut pieces = held.map(|text| self.words.push(&text)).unwrap_or_default();
        pieces.extend(self.words.finish());
        let mut clauses = self.cut(pieces);
        clauses.extend(self.clauses.finish().and_then(audible));
        clauses
    }

    fn cut(&mut self, pieces: Vec<SpokenPiece>) -> Vec<String> {
        pieces.into_iter().flat_map(|piece| self.clauses.push(piece)).filter_map(audible).collect()
    }
}

/// Text of a clause; `None` if nothing in it has a sound.
fn audible(clause: Clause) -> Option<String> {
    clause.text.contains(char::is_alphanumeric).then_some(clause.text)
}
