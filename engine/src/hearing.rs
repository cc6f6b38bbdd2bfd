//! Sound that a caller is still speaking: cut into log-mel windows as it comes, each encoded once when it closes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::audio::log_mel::{LogMel, LogMelStream, MelWindow};
use crate::session::ItemId;
use crate::stage::AudioRows;

/// An item whose end has not come.
pub struct Hearing<T> {
    stream: LogMelStream,
    /// Windows closed so far.
    closed: usize,
    /// Those of them that were encoded, in order.
    pub encoded: Vec<Arc<AudioRows<T>>>,
}

/// A closed window that waits for the encoder.
pub struct PendingWindow {
    /// The item that it belongs to; `None` for the one being spoken.
    pub item: Option<ItemId>,
    /// The log-mel frames.
    pub mel: MelWindow,
    /// Windows of the same item before it.
    pub index: usize,
}

impl<T> Hearing<T> {
    /// Nothing heard yet.
    pub fn new(log_mel: &Arc<LogMel>) -> Self {
        Self { stream: log_mel.stream(), closed: 0, encoded: Vec::new() }
    }

    /// Samples heard so far.
    pub fn samples(&self) -> usize {
        self.stream.samples()
    }

    /// Takes a slice; the windows that it closes go to `pending`.
    pub fn push(&mut self, samples: &[f32], pending: &mut VecDeque<PendingWindow>) {
        let mut windows = Vec::new();
        self.stream.push(samples, &mut windows);
        for mel in windows {
            pending.push_back(PendingWindow { item: None, mel, index: self.closed });
            self.closed += 1;
        }
    }

    /// Ends the item under the name `item`: its last window goes to `pending`, and those that wait there get its name.
    /// Returns what is encoded already.
    pub fn finish(self, item: ItemId, pending: &mut VecDeque<PendingWindow>) -> Vec<Arc<AudioRows<T>>> {
        for window in pending.iter_mut().filter(|window| window.item.is_none()) {
            window.item = Some(item);
        }
        if let Some(mel) = self.stream.finish() {
            pending.push_back(PendingWindow { item: Some(item), mel, index: self.closed });
        }
        self.encoded
    }
}
