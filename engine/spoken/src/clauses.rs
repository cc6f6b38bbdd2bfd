//! Clauses: spoken text in parts that a voice speaks one after another, for a voice that cannot stream text in.

use std::collections::VecDeque;
use std::ops::Range;

use crate::characters::{closes, is_pause, is_unspaced, opens};
use crate::piece::SpokenPiece;

/// Maximum length of a clause in bytes, beyond which it is cut between any two pieces.
const MAX_CLAUSE: usize = 2_048;

/// Words that begin a clause.
const CONJUNCTIONS: [&str; 16] = [
    "and", "but", "or", "so", "because", "although", "though", "while", "whereas", "which", "who", "if", "when",
    "unless", "until", "where",
];

/// Abbreviations of other languages: a full stop behind them ends no sentence.
const ABBREVIATIONS: [&str; 24] = [
    "abs", "art", "av", "bd", "bzw", "ca", "dhr", "dr", "evtl", "ggf", "hr", "inkl", "jh", "mlle", "mme", "mw", "nr",
    "prof", "sr", "sra", "srta", "st", "str", "tel",
];

/// Bounds of a clause, in spoken words. Two characters of a script without spaces count as a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordBounds {
    /// Number of words from which a clause ends at its next punctuation.
    pub min: usize,
    /// Number of words after which a clause ends behind a word.
    pub max: usize,
}

/// Bounds of the clauses of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClauseBounds {
    /// First clause: a short one, so that the voice begins soon.
    pub first: WordBounds,
    /// Later clauses: longer ones, so that the voice knows where it is going.
    pub later: WordBounds,
}

impl Default for ClauseBounds {
    fn default() -> Self {
        Self { first: WordBounds { min: 3, max: 10 }, later: WordBounds { min: 8, max: 30 } }
    }
}

/// Part of a spoken text that a voice speaks at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clause {
    /// Spoken text, without white space around it; not empty.
    pub text: String,
    /// Bytes of the spoken text.
    pub spoken: Range<usize>,
    /// Bytes of the written text that its pieces stand for, and what is silent between them.
    pub written: Range<usize>,
}

/// Piece that belongs to the next clause.
#[derive(Debug, Clone)]
struct HeldPiece {
    piece: SpokenPiece,
    /// Offset in the spoken text.
    spoken: usize,
    /// Number of words, in halves.
    halves: usize,
    /// True if it begins inside a quotation.
    quoted: bool,
    /// True if a clause may end behind it for its punctuation.
    ends: bool,
}

/// Marks of quotations that are open.
#[derive(Debug, Default)]
struct Quotation {
    depth: u32,
    /// True inside of straight quotation marks.
    straight: bool,
    /// True inside of a quotation that „ opened, which “ closes.
    low: bool,
}

impl Quotation {
    fn is_open(&self) -> bool {
        self.depth > 0 || self.straight
    }

    fn take(&mut self, text: &str) {
        let mut begins = true;
        for character in text.trim_start().chars() {
            match character {
                '"' => self.straight = begins && !self.straight,
                '“' if self.low => {
                    self.low = false;
                    self.depth = self.depth.saturating_sub(1);
                }
                '„' | '“' | '«' | '「' | '『' => {
                    self.low |= character == '„';
                    self.depth = self.depth.saturating_add(1);
                }
                '”' | '»' | '」' | '』' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            begins &= opens(character);
        }
    }
}

/// Cuts spoken text into clauses. The clauses do not depend on how the written text was split, unless `flush` is called.
///
/// - A clause ends behind punctuation once it has the minimum of words, and before a conjunction once it is halfway to the
///   maximum. A clause that reaches the maximum ends behind its last punctuation, or behind its last word.
/// - No clause ends inside a piece, or between pieces that belong together: a number with its unit, a date, an address, a name
///   with initials.
/// - No clause ends inside a quotation, unless the quotation alone is longer than the maximum.
#[derive(Debug)]
pub struct ClauseSplitter {
    bounds: ClauseBounds,
    held: VecDeque<HeldPiece>,
    quotation: Quotation,
    /// Number of words of the held pieces, in halves, and their length in bytes.
    halves: usize,
    length: usize,
    /// Length of the spoken text so far, in bytes.
    spoken: usize,
    /// True once a clause came out.
    begun: bool,
}

impl Default for ClauseSplitter {
    fn default() -> Self {
        Self::new(ClauseBounds::default())
    }
}

impl ClauseSplitter {
    /// Begins a text.
    pub fn new(bounds: ClauseBounds) -> Self {
        Self {
            bounds,
            held: VecDeque::new(),
            quotation: Quotation::default(),
            halves: 0,
            length: 0,
            spoken: 0,
            begun: false,
        }
    }

    /// Adds the next piece; returns the clauses that are complete now.
    pub fn push(&mut self, piece: SpokenPiece) -> Vec<Clause> {
        let mut clauses = Vec::new();
        let spoken = self.spoken;
        self.spoken += piece.text.len();
        let halves = halves(&piece.text);
        if self.held.is_empty() && halves == 0 && self.begun {
            // A pause behind a clause that has ended.
            return clauses;
        }
        while halves > 0 && self.halves + halves > 2 * self.word_bounds().max {
            let Some(end) = self.end_at_maximum() else { break };
            clauses.extend(self.cut(end));
        }
        let bounds = self.word_bounds();
        if !self.quotation.is_open()
            && self.joined() == 0
            && CONJUNCTIONS.contains(&piece.text.trim())
            && self.halves >= bounds.min.max(bounds.max / 2) * 2
        {
            clauses.extend(self.cut(self.held.len()));
        }
        let quoted = self.quotation.is_open();
        self.quotation.take(&piece.text);
        let ends = !self.quotation.is_open() && !piece.joins_next && ends_clause(&piece.text);
        self.halves += halves;
        self.length += piece.text.len();
        self.held.push_back(HeldPiece { piece, spoken, halves, quoted, ends });
        if (ends && self.halves >= 2 * self.word_bounds().min) || self.length > MAX_CLAUSE {
            clauses.extend(self.cut(self.held.len()));
        }
        clauses
    }

    /// Ends the clause at what it has so far, and returns it; `None` if it has nothing that may stand alone. Pieces that belong
    /// to the next one stay, and so does a quotation that is not closed, unless nothing stands before it.
    pub fn flush(&mut self) -> Option<Clause> {
        let end = self.held.len() - self.joined();
        let before = if self.quotation.is_open() { self.quotation_start() } else { end };
        let end = if before == 0 { end } else { end.min(before) };
        self.cut(end)
    }

    /// Ends the text; returns its last clause. Afterwards a new text begins.
    pub fn finish(&mut self) -> Option<Clause> {
        let clause = self.cut(self.held.len());
        *self = Self::new(self.bounds);
        clause
    }

    fn word_bounds(&self) -> WordBounds {
        if self.begun { self.bounds.later } else { self.bounds.first }
    }

    /// Index of the piece that begins the open quotation, or of the first one that belongs together with it.
    fn quotation_start(&self) -> usize {
        let mut start = self.held.iter().rposition(|held| !held.quoted).unwrap_or(0);
        while start > 0 && self.held[start - 1].piece.joins_next {
            start -= 1;
        }
        start
    }

    /// Number of pieces at the end that belong to the next piece.
    fn joined(&self) -> usize {
        self.held.iter().rev().take_while(|held| held.piece.joins_next).count()
    }

    /// Number of pieces of a clause that has reached its maximum; `None` if none may stand alone.
    fn end_at_maximum(&mut self) -> Option<usize> {
        if let Some(last) = self.held.iter().rposition(|held| held.ends) {
            return Some(last + 1);
        }
        let end = self.held.len() - self.joined();
        if self.quotation.is_open() {
            let start = self.quotation_start();
            if start > 0 && start <= end {
                return Some(start);
            }
            // The quotation is too long to stay whole.
            self.quotation = Quotation::default();
        }
        (end > 0).then_some(end)
    }

    /// Takes the clause of the first `count` pieces.
    fn cut(&mut self, count: usize) -> Option<Clause> {
        let pieces: Vec<HeldPiece> = self.held.drain(..count).collect();
        self.halves -= pieces.iter().map(|held| held.halves).sum::<usize>();
        self.length -= pieces.iter().map(|held| held.piece.text.len()).sum::<usize>();
        let (first, last) = (pieces.first()?, pieces.last()?);
        let whole: String = pieces.iter().map(|held| held.piece.text.as_str()).collect();
        let text = whole.trim();
        let begin = first.spoken + whole.len() - whole.trim_start().len();
        let written = first.piece.written.start..last.piece.written.end;
        if text.is_empty() {
            return None;
        }
        self.begun = true;
        Some(Clause { text: text.to_owned(), spoken: begin..begin + text.len(), written })
    }
}

/// Number of words of a piece, in halves.
fn halves(text: &str) -> usize {
    let words = text.split_whitespace().filter(|word| word.contains(char::is_alphanumeric));
    words.map(|word| if word.starts_with(is_unspaced) { 1 } else { 2 }).sum()
}

/// True if a clause may end behind the piece for its punctuation.
fn ends_clause(text: &str) -> bool {
    let bare = text.trim_end_matches(closes);
    let word = bare.trim_end_matches(is_pause);
    let word = word.rsplit(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
    let stop = bare.ends_with('.') && !bare.ends_with("..");
    // Not the end of a sentence: an initial, a number, or an abbreviation of another language.
    let abbreviated = word.chars().count() == 1
        || word.ends_with(char::is_numeric)
        || ABBREVIATIONS.contains(&word.to_lowercase().as_str());
    bare.ends_with(is_pause) && !(stop && !word.is_empty() && abbreviated)
}
