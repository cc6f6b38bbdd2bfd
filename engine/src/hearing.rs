//! Sound that a caller is still speaking: cut into log-mel windows as it comes, each encoded once when it closes.

use std::collections::VecDeque;
use std::sync::Arc;

use repartee_engine_api::ItemId;

use crate::audio::log_mel::{LogMel, LogMelStream, MelWindow};
use crate::stage::AudioRows;

/// An item whose end has not come.
#[derive(Debug)]
pub struct Hearing<T> {
    stream: LogMelStream,
    /// Windows closed so far.
    closed: usize,
    /// Those of them that were encoded, in order.
    pub encoded: Vec<Arc<AudioRows<T>>>,
}

/// What a window is a part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The item being spoken.
    Open,
    /// An item of the history.
    Item(ItemId),
    /// A sound that was handed over with one answer, by a number of the engine's.
    Input(u64),
}

/// A closed window that waits for the encoder.
#[derive(Debug)]
pub struct PendingWindow {
    /// What it is a part of.
    pub owner: Owner,
    /// The log-mel frames.
    pub mel: MelWindow,
    /// Windows of the same sound before it.
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
            pending.push_back(PendingWindow { owner: Owner::Open, mel, index: self.closed });
            self.closed += 1;
        }
    }

    /// Ends the sound as `owner`: its last window goes to `pending`, and those that wait there get its name.
    /// Returns what is encoded already.
    pub fn finish(self, owner: Owner, pending: &mut VecDeque<PendingWindow>) -> Vec<Arc<AudioRows<T>>> {
        for window in pending.iter_mut().filter(|window| window.owner == Owner::Open) {
            window.owner = owner;
        }
        if let Some(mel) = self.stream.finish() {
            pending.push_back(PendingWindow { owner, mel, index: self.closed });
        }
        self.encoded
    }

    /// The last window as if the sound ended here goes to `pending` as a part of `item`; the sound goes on.
    pub fn end_here(&self, item: ItemId, pending: &mut VecDeque<PendingWindow>) {
        if let Some(mel) = self.stream.clone().finish() {
            pending.push_back(PendingWindow { owner: Owner::Item(item), mel, index: self.closed });
        }
    }
}

/// The windows of a whole sound.
pub fn windows(log_mel: &Arc<LogMel>, samples: &[f32], owner: Owner, pending: &mut VecDeque<PendingWindow>) {
    let mut closed = Vec::new();
    let mut stream = log_mel.stream();
    stream.push(samples, &mut closed);
    closed.extend(stream.finish());
    pending.extend(closed.into_iter().enumerate().map(|(index, mel)| PendingWindow { owner, mel, index }));
}
