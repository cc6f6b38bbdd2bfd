//! The edge between two stages: when what one made of an answer is handed to the next.
//!
//! Prompts pass at once. Of an answer, `async_chunk` hands over chunk by chunk, and `full_payload` everything once the
//! stage has finished. The end is a mark of its own: it never carries a piece again, also when the last piece filled a
//! chunk.

use serde::{Deserialize, Serialize};

use crate::stage::Item;

/// How stages hand over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandOff {
    /// Chunk by chunk.
    #[default]
    AsyncChunk,
    /// All at once, when the stage has finished.
    FullPayload,
}

/// Pieces (text tokens, codec frames) that make a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// The first chunk of an answer.
    pub initial: usize,
    /// Every later one.
    pub steady: usize,
}

/// See the module's description.
#[derive(Debug)]
pub struct Edge<T> {
    mode: HandOff,
    chunks: Chunks,
    lanes: Vec<Lane<T>>,
}

#[derive(Debug)]
struct Lane<T> {
    held: Vec<Item<T>>,
    /// Whether the answer's first chunk is over.
    begun: bool,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        Self { held: Vec::new(), begun: false }
    }
}

impl<T> Edge<T> {
    /// An edge for so many lanes.
    pub fn new(mode: HandOff, chunks: Chunks, lanes: usize) -> Self {
        Self { mode, chunks, lanes: (0..lanes).map(|_| Lane::default()).collect() }
    }

    /// Takes an item; what is to be handed over now, in order.
    pub fn pass(&mut self, lane: usize, item: Item<T>) -> Vec<Item<T>> {
        let lane = &mut self.lanes[lane];
        match item {
            Item::Token(_) | Item::Frame(_) => {
                lane.held.push(item);
                let chunk = if lane.begun { self.chunks.steady } else { self.chunks.initial };
                if self.mode == HandOff::FullPayload || lane.held.len() < chunk {
                    return Vec::new();
                }
                lane.begun = true;
                std::mem::take(&mut lane.held)
            }
            Item::End(_) => {
                let mut all = std::mem::take(lane).held;
                all.push(item);
                all
            }
            Item::Begin(_) | Item::Abort | Item::Fail(_) => {
                *lane = Lane::default();
                vec![item]
            }
            Item::Prompt { .. } | Item::Rewind { .. } | Item::Context { .. } | Item::Samples(_) => vec![item],
        }
    }

    /// Forgets what is held.
    pub fn free(&mut self, lane: usize) {
        self.lanes[lane] = Lane::default();
    }

    /// Pieces that are held.
    pub fn held(&self, lane: usize) -> usize {
        self.lanes[lane].held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::End;

    /// The sizes of what is handed over for `pieces` pieces and an end; the last entry is the hand-over with the end.
    fn sizes(mode: HandOff, chunks: Chunks, pieces: u32) -> Vec<usize> {
        let mut edge: Edge<()> = Edge::new(mode, chunks, 1);
        let mut sizes = Vec::new();
        for id in 0..pieces {
            let out = edge.pass(0, Item::Token(id));
            if !out.is_empty() {
                sizes.push(out.len());
            }
        }
        let out = edge.pass(0, Item::End(End::Stop));
        assert!(matches!(out.last(), Some(Item::End(End::Stop))));
        assert_eq!(edge.held(0), 0);
        sizes.push(out.len() - 1);
        sizes
    }

    #[test]
    fn a_finish_on_a_chunk_boundary_is_a_mark_without_pieces() {
        let chunks = Chunks { initial: 4, steady: 25 };
        for k in 0..3 {
            let handed = sizes(HandOff::AsyncChunk, chunks, 4 + 25 * k);
            assert_eq!(handed.last(), Some(&0), "at initial + {k} chunks");
            assert_eq!(handed.iter().sum::<usize>(), 4 + 25 * k as usize);
        }
        assert_eq!(sizes(HandOff::AsyncChunk, chunks, 30), [4, 25, 1]);
        assert_eq!(sizes(HandOff::AsyncChunk, Chunks { initial: 1, steady: 1 }, 3), [1, 1, 1, 0]);
    }

    #[test]
    fn full_payload_hands_over_once() {
        assert_eq!(sizes(HandOff::FullPayload, Chunks { initial: 1, steady: 1 }, 30), [30]);
        assert_eq!(sizes(HandOff::FullPayload, Chunks { initial: 1, steady: 1 }, 0), [0]);
    }

    #[test]
    fn an_aborted_answer_leaves_nothing_for_the_next() {
        let mut edge: Edge<()> = Edge::new(HandOff::FullPayload, Chunks { initial: 1, steady: 1 }, 1);
        assert!(edge.pass(0, Item::Token(1)).is_empty());
        assert!(matches!(edge.pass(0, Item::Abort)[..], [Item::Abort]));
        assert!(edge.pass(0, Item::Token(2)).is_empty());
        assert!(matches!(edge.pass(0, Item::End(End::Stop))[..], [Item::Token(2), Item::End(_)]));
    }
}
