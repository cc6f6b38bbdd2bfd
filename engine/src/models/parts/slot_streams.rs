//! Streams of all slots in a stage that collects its steps later than it launches them.

use std::ops::{Index, IndexMut};

/// One stream for each slot. A launch records the stream's epoch; results of a stream that was reset since belong to no
/// stream.
pub struct SlotStreams<S> {
    streams: Vec<S>,
    /// Number of resets of each slot's stream.
    epochs: Vec<u64>,
}

impl<S: Default> SlotStreams<S> {
    /// Creates a default stream for each of `slots` slots.
    pub fn new(slots: usize) -> Self {
        Self { streams: (0..slots).map(|_| S::default()).collect(), epochs: vec![0; slots] }
    }

    /// Drops a slot's stream and begins a new one.
    pub fn reset(&mut self, slot: usize) {
        self.epochs[slot] += 1;
        self.streams[slot] = S::default();
    }

    /// Epoch of a slot's stream.
    pub fn epoch(&self, slot: usize) -> u64 {
        self.epochs[slot]
    }

    /// True if a slot's stream is still the one of `epoch`.
    pub fn is_current(&self, slot: usize, epoch: u64) -> bool {
        self.epochs[slot] == epoch
    }

    /// Number of slots.
    pub fn slots(&self) -> usize {
        self.streams.len()
    }
}

impl<S> Index<usize> for SlotStreams<S> {
    type Output = S;

    fn index(&self, slot: usize) -> &S {
        &self.streams[slot]
    }
}

impl<S> IndexMut<usize> for SlotStreams<S> {
    fn index_mut(&mut self, slot: usize) -> &mut S {
        &mut self.streams[slot]
    }
}
