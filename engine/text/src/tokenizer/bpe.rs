//! Merging of neighbours by the score of the whole, as SentencePiece's BPE and llama.cpp's `llama` vocabularies do.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, HashMap};

use super::added::TokenFinder;
use super::pieces::{PieceKind, Pieces};

/// A stretch of the text that is one piece so far.
#[derive(Clone, Copy)]
struct Stretch {
    from: usize,
    /// Zero once it is merged into the one before.
    length: usize,
    before: Option<usize>,
    after: Option<usize>,
    /// True for a user-defined piece, which is never merged.
    frozen: bool,
}

/// Two neighbours that can be merged.
struct Merge {
    score: f32,
    left: usize,
    right: usize,
    length: usize,
}

impl Ord for Merge {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Merge {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Merge {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Merge {}

struct Merger<'a> {
    pieces: &'a Pieces,
    text: &'a str,
    stretches: Vec<Stretch>,
    merges: BinaryHeap<Merge>,
    /// Parts of unused pieces, by their texts.
    parts: HashMap<&'a str, (&'a str, &'a str)>,
}

/// Encodes a normalised text; appends its ids.
pub fn encode(pieces: &Pieces, user_defined: &TokenFinder, text: &str, ids: &mut Vec<u32>) {
    let mut stretches: Vec<Stretch> = Vec::with_capacity(text.len());
    let mut from = 0;
    while let Some(c) = text[from..].chars().next() {
        let found = user_defined.at(&text[from..]);
        let length = found.map_or(c.len_utf8(), |(length, _)| length);
        let at = stretches.len();
        stretches.push(Stretch {
            from,
            length,
            before: at.checked_sub(1),
            after: Some(at + 1),
            frozen: found.is_some(),
        });
        from += length;
    }
    let Some(last) = stretches.last_mut() else { return };
    last.after = None;
    let count = stretches.len();
    let mut merger = Merger { pieces, text, stretches, merges: BinaryHeap::new(), parts: HashMap::new() };
    for right in 1..count {
        merger.offer(Some(right - 1), Some(right));
    }
    merger.merge();
    let mut next = Some(0);
    while let Some(at) = next {
        let stretch = merger.stretches[at];
        merger.write(&text[stretch.from..stretch.from + stretch.length], ids);
        next = stretch.after;
    }
}

impl<'a> Merger<'a> {
    /// Offers two neighbours for merging, if a piece spells them together.
    fn offer(&mut self, left: Option<usize>, right: Option<usize>) {
        let (Some(left), Some(right)) = (left, right) else { return };
        let (a, b) = (self.stretches[left], self.stretches[right]);
        if a.frozen || b.frozen {
            return;
        }
        let (text, length) = (self.text, a.length + b.length);
        let whole = &text[a.from..a.from + length];
        let Some(id) = self.pieces.of_text(whole) else { return };
        let Some(piece) = self.pieces.get(id) else { return };
        self.merges.push(Merge { score: piece.score, left, right, length });
        if piece.kind == PieceKind::Unused {
            self.parts.insert(whole, (&text[a.from..a.from + a.length], &text[b.from..b.from + b.length]));
        }
    }

    fn merge(&mut self) {
        while let Some(Merge { left, right, length, .. }) = self.merges.pop() {
            let (a, b) = (self.stretches[left], self.stretches[right]);
            // One of them was merged with another since.
            if a.length == 0 || b.length == 0 || a.length + b.length != length {
                continue;
            }
            self.stretches[left].length = length;
            self.stretches[left].after = b.after;
            if let Some(after) = b.after {
                self.stretches[after].before = Some(left);
            }
            self.stretches[right].length = 0;
            self.offer(a.before, Some(left));
            self.offer(Some(left), b.after);
        }
    }

    /// Appends the ids of a stretch; an unused piece is spelt by its parts.
    fn write(&self, text: &'a str, ids: &mut Vec<u32>) {
        let mut open = vec![text];
        while let Some(text) = open.pop() {
            let id = self.pieces.of_text(text);
            let unused = id.and_then(|id| self.pieces.get(id)).is_some_and(|piece| piece.kind == PieceKind::Unused);
            match (id, self.parts.get(text)) {
                (Some(_), Some((left, right))) if unused => open.extend([*right, *left]),
                (Some(id), _) => ids.push(id),
                (None, _) => self.pieces.push_unknown(text, ids),
            }
        }
    }
}
