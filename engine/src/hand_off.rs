//! Edges between stages: they decide when the output of one stage reaches the next.
//!
//! Prompts pass at once. A response passes chunk by chunk (`async_chunk`), or whole once the stage has finished
//! (`full_payload`). The end is an item of its own: no piece passes twice, even if the last one filled a chunk.

use serde::{Deserialize, Serialize};

use crate::stage::StageItem;

/// Hand-off mode between stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandOff {
    /// Passes output chunk by chunk.
    #[default]
    AsyncChunk,
    /// Passes everything at once when the stage has finished.
    FullPayload,
}

/// Chunk sizes in pieces: tokens, pieces of text, codec frames, or runs of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkSizes {
    /// Size of a response's first chunk.
    pub initial: usize,
    /// Size of every later chunk.
    pub steady: usize,
}

/// Edge between two stages. It buffers items for each slot.
#[derive(Debug)]
pub struct Edge {
    mode: HandOff,
    chunks: ChunkSizes,
    slots: Vec<Slot>,
}

#[derive(Debug, Default)]
struct Slot {
    held: Vec<StageItem>,
    /// True once the response's first chunk has passed.
    begun: bool,
}

impl Edge {
    /// Creates an edge for `slots` slots.
    pub fn new(mode: HandOff, chunks: ChunkSizes, slots: usize) -> Self {
        Self { mode, chunks, slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// Takes an item; returns the items that pass now, in order.
    pub fn pass(&mut self, slot: usize, item: StageItem) -> Vec<StageItem> {
        let slot = &mut self.slots[slot];
        match item {
            StageItem::Token(_)
            | StageItem::Row { .. }
            | StageItem::Text { .. }
            | StageItem::Codes(_)
            | StageItem::Latents { .. } => {
                slot.held.push(item);
                let chunk = if slot.begun { self.chunks.steady } else { self.chunks.initial };
                if self.mode == HandOff::FullPayload || slot.held.len() < chunk {
                    return Vec::new();
                }
                slot.begun = true;
                std::mem::take(&mut slot.held)
            }
            // Nothing may follow for long, so buffered items pass now.
            StageItem::TextPause | StageItem::Clause(_) => {
                slot.held.push(item);
                if self.mode == HandOff::FullPayload { Vec::new() } else { std::mem::take(&mut slot.held) }
            }
            StageItem::End(_) => {
                let mut all = std::mem::take(slot).held;
                all.push(item);
                all
            }
            StageItem::Begin(_) | StageItem::Abort | StageItem::Fail(_) => {
                *slot = Slot::default();
                vec![item]
            }
            StageItem::Prompt { .. }
            | StageItem::Streamed(_)
            | StageItem::StreamedEnd(_)
            | StageItem::StreamedPause
            | StageItem::Rewind { .. }
            | StageItem::Context { .. }
            | StageItem::Call { .. }
            | StageItem::Usage(_)
            | StageItem::Progress
            | StageItem::Lead(_)
            | StageItem::Samples(_) => vec![item],
        }
    }

    /// Discards a slot's buffered items.
    pub fn free(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    /// Number of buffered items of a slot.
    pub fn held(&self, slot: usize) -> usize {
        self.slots[slot].held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::StageEnd;

    /// Returns the chunk sizes for `pieces` pieces and an end; the last entry is the chunk with the end.
    fn sizes(mode: HandOff, chunks: ChunkSizes, pieces: u32) -> Vec<usize> {
        let mut edge: Edge = Edge::new(mode, chunks, 1);
        let mut sizes = Vec::new();
        for id in 0..pieces {
            let out = edge.pass(0, StageItem::Token(id));
            if !out.is_empty() {
                sizes.push(out.len());
            }
        }
        let out = edge.pass(0, StageItem::End(StageEnd::Stop));
        assert!(matches!(out.last(), Some(StageItem::End(StageEnd::Stop))));
        assert_eq!(edge.held(0), 0);
        sizes.push(out.len() - 1);
        sizes
    }

    #[test]
    fn end_on_a_chunk_boundary_has_no_pieces() {
        let chunks = ChunkSizes { initial: 4, steady: 25 };
        for k in 0..3 {
            let handed = sizes(HandOff::AsyncChunk, chunks, 4 + 25 * k);
            assert_eq!(handed.last(), Some(&0), "at initial + {k} chunks");
            assert_eq!(handed.iter().sum::<usize>(), 4 + 25 * k as usize);
        }
        assert_eq!(sizes(HandOff::AsyncChunk, chunks, 30), [4, 25, 1]);
        assert_eq!(sizes(HandOff::AsyncChunk, ChunkSizes { initial: 1, steady: 1 }, 3), [1, 1, 1, 0]);
    }

    #[test]
    fn a_pause_passes_what_is_held_back() {
        for (mode, passed) in [(HandOff::AsyncChunk, 2), (HandOff::FullPayload, 0)] {
            let mut edge: Edge = Edge::new(mode, ChunkSizes { initial: 9, steady: 9 }, 1);
            assert!(edge.pass(0, StageItem::Token(1)).is_empty());
            let out = edge.pass(0, StageItem::TextPause);
            assert_eq!(out.len(), passed, "{mode:?}");
            let rest = edge.pass(0, StageItem::End(StageEnd::Stop));
            let all: Vec<StageItem> = out.into_iter().chain(rest).collect();
            assert!(matches!(all[..], [StageItem::Token(1), StageItem::TextPause, StageItem::End(_)]), "{all:?}");
        }
    }

    #[test]
    fn full_payload_passes_once() {
        assert_eq!(sizes(HandOff::FullPayload, ChunkSizes { initial: 1, steady: 1 }, 30), [30]);
        assert_eq!(sizes(HandOff::FullPayload, ChunkSizes { initial: 1, steady: 1 }, 0), [0]);
    }

    #[test]
    fn an_aborted_response_leaves_nothing_behind() {
        let mut edge: Edge = Edge::new(HandOff::FullPayload, ChunkSizes { initial: 1, steady: 1 }, 1);
        assert!(edge.pass(0, StageItem::Token(1)).is_empty());
        assert!(matches!(edge.pass(0, StageItem::Abort)[..], [StageItem::Abort]));
        assert!(edge.pass(0, StageItem::Token(2)).is_empty());
        assert!(matches!(edge.pass(0, StageItem::End(StageEnd::Stop))[..], [StageItem::Token(2), StageItem::End(_)]));
    }
}
