//! Best path through a text by the scores of its pieces, as SentencePiece's unigram model has it: in its precision and
//! with its ties.

use super::pieces::{PieceKind, Pieces};

/// Distance of an unknown character's score from the lowest one.
const UNKNOWN_PENALTY: f32 = 10.0;

/// Scores and texts of a vocabulary, indexed for the search.
#[derive(Debug)]
pub struct Unigram {
    /// Nodes of a trie over bytes; the root is the first. The children of a node are sorted by byte.
    nodes: Vec<Node>,
    lowest: f32,
    highest: f32,
}

#[derive(Debug, Default)]
struct Node {
    children: Vec<(u8, u32)>,
    id: Option<u32>,
}

/// Best way to end at a place of the text.
#[derive(Clone, Copy)]
struct Step {
    from: usize,
    id: Option<u32>,
    score: f32,
}

impl Unigram {
    /// Indexes a vocabulary.
    pub fn new(pieces: &Pieces) -> Self {
        let mut made = Self { nodes: vec![Node::default()], lowest: f32::MAX, highest: f32::MIN_POSITIVE };
        for (id, piece) in pieces.iter() {
            if piece.kind == PieceKind::Normal {
                made.lowest = made.lowest.min(piece.score);
                made.highest = made.highest.max(piece.score);
            }
            if pieces.of_text(&piece.text) == Some(id) && piece.kind != PieceKind::Unused {
                made.insert(&piece.text, id);
            }
        }
        made
    }

    fn insert(&mut self, text: &str, id: u32) {
        let mut node = 0;
        for byte in text.bytes() {
            let found = self.nodes[node].children.binary_search_by_key(&byte, |(byte, _)| *byte);
            node = match found {
                Ok(at) => self.nodes[node].children[at].1 as usize,
                Err(at) => {
                    let new = self.nodes.len();
                    self.nodes.push(Node::default());
                    self.nodes[node].children.insert(at, (byte, new as u32));
                    new
                }
            };
        }
        self.nodes[node].id = Some(id);
    }

    /// Encodes a normalised text; appends its ids.
    pub fn encode(&self, pieces: &Pieces, text: &str, ids: &mut Vec<u32>) {
        let mut best: Vec<Option<Step>> = vec![None; text.len() + 1];
        for (from, c) in text.char_indices() {
            let before = best[from].map_or(0.0, |step| step.score);
            let mut offer = |to: usize, id: Option<u32>, score: f32| {
                let score = score + before;
                if best[to].is_none_or(|step| score > step.score) {
                    best[to] = Some(Step { from, id, score });
                }
            };
            let mut single = false;
            let mut node = &self.nodes[0];
            for (at, byte) in text.bytes().enumerate().skip(from) {
                let Ok(child) = node.children.binary_search_by_key(&byte, |(byte, _)| *byte) else { break };
                node = &self.nodes[node.children[child].1 as usize];
                let Some(piece) = node.id.and_then(|id| pieces.get(id)) else { continue };
                let length = at + 1 - from;
                let score = if piece.kind == PieceKind::UserDefined {
                    // Better than any other path.
                    (f64::from(length as f32 * self.highest) - 0.1) as f32
                } else {
                    piece.score
                };
                offer(at + 1, node.id, score);
                single |= length == c.len_utf8();
            }
            if !single {
                offer(from + c.len_utf8(), None, self.lowest - UNKNOWN_PENALTY);
            }
        }
        let mut steps = Vec::new();
        let mut to = text.len();
        while let Some(step) = best[to].filter(|_| to > 0) {
            steps.push((step.from, to, step.id));
            to = step.from;
        }
        for (from, to, id) in steps.into_iter().rev() {
            match id {
                Some(id) => ids.push(id),
                None => pieces.push_unknown(&text[from..to], ids),
            }
        }
    }
}
