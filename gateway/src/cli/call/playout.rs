//! Sound of the answers, as a loudspeaker plays it: one frame after another, silence between answers.

use std::collections::VecDeque;

use super::connection::RATE;

/// Duration of a frame, in ms.
pub const FRAME_MS: usize = 20;
/// Bytes of a frame of 16 bits.
pub const FRAME_BYTES: usize = RATE as usize / 1_000 * FRAME_MS * 2;
/// Bytes that may wait, 20 minutes of sound. More is dropped.
const MOST_WAITING: usize = RATE as usize * 2 * 60 * 20;

/// Sound of one item.
#[derive(Debug)]
struct PlayedItem {
    id: String,
    bytes: Vec<u8>,
    played: usize,
}

impl PlayedItem {
    fn left(&self) -> usize {
        self.bytes.len() - self.played
    }
}

/// Queue of the answers' sound.
#[derive(Debug, Default)]
pub struct Playout {
    items: VecDeque<PlayedItem>,
}

impl Playout {
    /// Adds sound of an item.
    pub fn push(&mut self, item: &str, bytes: &[u8]) {
        if self.waiting() + bytes.len() > MOST_WAITING {
            return;
        }
        match self.items.back_mut().filter(|last| last.id == item) {
            Some(last) => last.bytes.extend(bytes),
            None => self.items.push_back(PlayedItem { id: item.to_owned(), bytes: bytes.to_vec(), played: 0 }),
        }
    }

    /// Returns the next frame, filled up with silence.
    pub fn frame(&mut self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        while frame.len() < FRAME_BYTES {
            // The last item stays, because more of it may come.
            while self.items.len() > 1 && self.items.front().is_some_and(|item| item.left() == 0) {
                self.items.pop_front();
            }
            let Some(item) = self.items.front_mut().filter(|item| item.left() > 0) else { break };
            let count = item.left().min(FRAME_BYTES - frame.len());
            frame.extend(&item.bytes[item.played..item.played + count]);
            item.played += count;
        }
        frame.resize(FRAME_BYTES, 0);
        frame
    }

    /// True if nothing waits to be played.
    pub fn is_empty(&self) -> bool {
        self.waiting() == 0
    }

    /// Drops what was not played; returns each item that was cut, with its heard ms.
    pub fn clear(&mut self) -> Vec<(String, usize)> {
        let cut = self.items.drain(..).filter(|item| item.left() > 0);
        cut.map(|item| (item.id, item.played / (RATE as usize / 1_000 * 2))).collect()
    }

    fn waiting(&self) -> usize {
        self.items.iter().map(PlayedItem::left).sum()
    }
}
