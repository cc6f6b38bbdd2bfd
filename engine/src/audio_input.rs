//! The open input audio of a session, cut into windows by the model's front end; each window is encoded once, when it closes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::ItemId;

use crate::elements::AudioRows;
use crate::model::{FrontEnd, FrontEndStream, InputWindow};

/// An audio item that is not committed yet.
pub struct AudioInput {
    stream: Box<dyn FrontEndStream>,
    /// Windows closed so far.
    closed: usize,
    /// The encoded ones of them, in order.
    pub encoded: Vec<Arc<AudioRows>>,
}

/// What a window belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowTarget {
    /// The open input audio.
    Open,
    /// An item of the history.
    Item(ItemId),
    /// Audio of a response's own input, by a number that the session gives.
    Input(u64),
}

/// A closed window that waits for the encoder.
#[derive(Debug)]
pub struct PendingWindow {
    /// What it belongs to.
    pub target: WindowTarget,
    /// Its frames.
    pub window: InputWindow,
    /// Index of the window within its audio.
    pub index: usize,
    /// The sound that it stands for.
    pub sound: Duration,
    /// Whether that came faster than time passes: then it is encoded after everything that did not.
    pub early: bool,
}

impl PendingWindow {
    /// Window `index` of `target`, which came in time.
    pub fn new(target: WindowTarget, window: InputWindow, index: usize) -> Self {
        Self { target, window, index, sound: Duration::ZERO, early: false }
    }
}

impl AudioInput {
    /// Empty input.
    pub fn new(front_end: &dyn FrontEnd) -> Self {
        Self { stream: front_end.stream(), closed: 0, encoded: Vec::new() }
    }

    /// Samples so far.
    pub fn samples(&self) -> usize {
        self.stream.samples()
    }

    /// Appends a slice; the windows that it closes go to `pending`.
    pub fn push(&mut self, samples: &[f32], pending: &mut VecDeque<PendingWindow>) {
        let mut windows = Vec::new();
        self.stream.push(samples, &mut windows);
        for window in windows {
            pending.push_back(PendingWindow::new(WindowTarget::Open, window, self.closed));
            self.closed += 1;
        }
    }

    /// Ends the audio and assigns it to `target`, its windows in `pending` included; the last window goes to `pending`.
    /// Returns the windows that are encoded already.
    pub fn finish(self, target: WindowTarget, pending: &mut VecDeque<PendingWindow>) -> Vec<Arc<AudioRows>> {
        for window in pending.iter_mut().filter(|window| window.target == WindowTarget::Open) {
            window.target = target;
        }
        if let Some(window) = self.stream.finish() {
            pending.push_back(PendingWindow::new(target, window, self.closed));
        }
        self.encoded
    }

    /// Adds the last window, as if the audio ended here, to `pending` for `item`; the audio goes on.
    pub fn end_copy(&self, item: ItemId, pending: &mut VecDeque<PendingWindow>) {
        if let Some(window) = self.stream.fork().finish() {
            pending.push_back(PendingWindow::new(WindowTarget::Item(item), window, self.closed));
        }
    }
}
