//! Input audio of a session, open or complete, cut into windows by the model's front end; each window is encoded once,
//! when it closes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::ItemId;

use crate::elements::AudioRows;
use crate::model::{EncodingProgress, FrontEnd, FrontEndStream, InputWindow, WindowInput};

/// An audio item that is not committed yet.
pub struct AudioInput {
    stream: Box<dyn FrontEndStream>,
    /// Number of windows closed so far.
    closed: usize,
    /// Encoded windows, in order.
    pub encoded: Vec<Arc<AudioRows>>,
}

/// Owner of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowTarget {
    /// The open input audio.
    Open,
    /// An item of the history.
    Item(ItemId),
    /// Audio in a response's own input, by a number that the session assigns.
    Input(u64),
}

/// A closed window that waits for the encoder.
#[derive(Debug)]
pub struct PendingWindow {
    /// Owner of the window.
    pub target: WindowTarget,
    /// Frames of the window.
    pub window: InputWindow,
    /// Index of the window within its audio.
    pub index: usize,
    /// Duration of audio that the window stands for.
    pub sound: Duration,
    /// True if the audio came faster than real time; then it is encoded after all other audio.
    pub early: bool,
    /// Progress of the encoder, if it has begun.
    pub progress: EncodingProgress,
}

/// Start and end of an encoder's step.
#[derive(Debug, Clone, Copy)]
pub struct EncoderTimes {
    /// Time at which the step took its windows.
    pub began: Instant,
    /// Time at which their rows were complete.
    pub ended: Instant,
}

impl PendingWindow {
    /// Creates window `index` of `target`, not early.
    pub fn new(target: WindowTarget, window: InputWindow, index: usize) -> Self {
        Self { target, window, index, sound: Duration::ZERO, early: false, progress: EncodingProgress::default() }
    }

    /// The window as the encoder takes it.
    pub fn input(&self) -> WindowInput<'_> {
        WindowInput { data: &self.window.data, index: self.index }
    }
}

impl AudioInput {
    /// Creates empty input.
    pub fn new(front_end: &dyn FrontEnd) -> Self {
        Self { stream: front_end.stream(), closed: 0, encoded: Vec::new() }
    }

    /// Number of samples so far.
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

    /// Adds the last window, as if the audio ended here, to `pending` for `item`; the audio stays open.
    pub fn end_copy(&self, item: ItemId, pending: &mut VecDeque<PendingWindow>) {
        if let Some(window) = self.stream.fork().finish() {
            pending.push_back(PendingWindow::new(WindowTarget::Item(item), window, self.closed));
        }
    }
}

/// Front end before a recogniser: it counts samples and closes no window.
#[derive(Debug, Clone, Copy)]
pub struct SampleCounter {
    rate: u32,
    samples: usize,
}

impl SampleCounter {
    /// Creates a front end for samples at `rate` Hz.
    pub fn new(rate: u32) -> Self {
        Self { rate, samples: 0 }
    }
}

impl FrontEnd for SampleCounter {
    fn rate(&self) -> u32 {
        self.rate
    }

    fn stream(&self) -> Box<dyn FrontEndStream> {
        Box::new(Self::new(self.rate))
    }
}

impl FrontEndStream for SampleCounter {
    fn push(&mut self, samples: &[f32], _: &mut Vec<InputWindow>) {
        self.samples += samples.len();
    }

    fn finish(self: Box<Self>) -> Option<InputWindow> {
        None
    }

    fn samples(&self) -> usize {
        self.samples
    }

    fn fork(&self) -> Box<dyn FrontEndStream> {
        Box::new(*self)
    }
}

/// Complete audio that waits for the front end.
pub struct PendingAudio {
    /// Owner of the audio.
    pub target: WindowTarget,
    samples: Vec<f32>,
    at: usize,
    stream: Box<dyn FrontEndStream>,
    /// Number of windows so far.
    windows: usize,
}

impl PendingAudio {
    /// Creates pending audio of which nothing was read.
    pub fn new(stream: Box<dyn FrontEndStream>, samples: Vec<f32>, target: WindowTarget) -> Self {
        Self { target, samples, at: 0, stream, windows: 0 }
    }

    /// Passes at most `most` samples through the front end; the windows that they close go to `pending`. Returns the
    /// number of samples.
    pub fn read(&mut self, most: usize, pending: &mut VecDeque<PendingWindow>) -> usize {
        let end = (self.at + most).min(self.samples.len());
        let mut closed = Vec::new();
        self.stream.push(&self.samples[self.at..end], &mut closed);
        for window in closed {
            pending.push_back(PendingWindow::new(self.target, window, self.windows));
            self.windows += 1;
        }
        end - std::mem::replace(&mut self.at, end)
    }

    /// True if all samples were read.
    pub fn is_read(&self) -> bool {
        self.at == self.samples.len()
    }

    /// Ends the audio; its last window goes to `pending`.
    pub fn finish(self, pending: &mut VecDeque<PendingWindow>) {
        if let Some(window) = self.stream.finish() {
            pending.push_back(PendingWindow::new(self.target, window, self.windows));
        }
    }
}
