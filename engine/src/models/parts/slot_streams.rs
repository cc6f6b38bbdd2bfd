//! The streams of all slots in a stage whose steps are collected later than they are launched.

use std::ops::{Index, IndexMut};

/// One stream a slot. What is collected of a stream that was given up after the launch belongs to no stream any more, so each launch notes
/// the stream's epoch.
pub struct SlotStreams<S> {
    streams: Vec<S>,
    /// For each slot, how often its stream was given up.
    epochs: Vec<u64>,
}

impl<S: Default> SlotStreams<S> {
    /// For `slots` slots.
    pub fn new(slots: usize) -> Self {
        Self { streams: (0..slots).map(|_| S::default()).collect(), epochs: vec![0; slots] }
    }

    /// Gives up a slot's stream; a new one begins.
    pub fn reset(&mut self, slot: usize) {
        self.epochs[slot] += 1;
        self.streams[slot] = S::default();
    }

    /// The epoch of a slot's stream.
    pub fn epoch(&self, slot: usize) -> u64 {
        self.epochs[slot]
    }

    /// Whether a slot's stream is still the one of `epoch`.
    pub fn is_current(&self, slot: usize, epoch: u64) -> bool {
        self.epochs[slot] == epoch
    }

    /// Slots.
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
