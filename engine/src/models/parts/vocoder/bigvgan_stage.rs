//! The vocoder as a stage: mel frames to samples, a window at a time.
//!
//! A window is decoded once all frames that its samples depend on have arrived. Its samples have the same bits as in
//! one decode of the whole response, for any window.

use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, RowSpec, SpecLayout};

use super::bigvgan::{BigVgan, BigVganSections};
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::stage::{BatchEntry, EdgeKind, RowKind, Stage, StageItem};

/// Name of the stage.
const STAGE: &str = "bigvgan";
/// Most pieces of one slot in a step.
const MAX_PIECES: usize = 12;

/// The vocoder with its pieces, as a stage.
pub struct BigVganPart<O: Ops> {
    /// Layers with loaded weights.
    pub bigvgan: BigVgan<O>,
    /// Mel frames whose samples form one piece: those of a code.
    pub piece: usize,
    /// Duration of a piece.
    pub duration: Duration,
    /// Most pieces of a response.
    pub most_pieces: usize,
}

impl<O: Device> StagePart<O> for BigVganPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    /// A response's mel frames, and the context of a window.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let (before, after) = self.bigvgan.context();
        let frames = self.most_pieces * self.piece + before + after;
        SlotBytes { position: 0, fixed: frames * self.bigvgan.config().mel_dim * size_of::<f32>() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(StreamStage::new(STAGE, at.ops, *self, at.slots.total()))
    }
}

/// Mel frames of a response.
#[derive(Default)]
pub struct MelStream {
    /// Frames from `first` on: those that a later window needs.
    mel: Vec<f32>,
    first: usize,
    /// Frames of the response so far, and those whose samples were launched.
    frames: usize,
    given: usize,
}

/// Frames of a stream in a step.
pub struct MelWindow {
    mel: Vec<f32>,
    /// Context frames before the wanted ones, wanted frames, and all frames.
    before: usize,
    wanted: usize,
    frames: usize,
}

impl<O: Ops> BigVganPart<O> {
    /// Frames of the next window without context: whole pieces whose context has arrived.
    fn ready(&self, stream: &MelStream, ended: bool) -> usize {
        let context = if ended { 0 } else { self.bigvgan.context().1 };
        let ready = stream.frames.saturating_sub(stream.given + context) / self.piece;
        ready.min(MAX_PIECES) * self.piece
    }
}

impl<O: Device> StreamModel<O> for BigVganPart<O> {
    type Stream = MelStream;
    type Piece = MelWindow;
    type Sections = BigVganSections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Latents, EdgeKind::Samples);
    const ROWS: RowKind = RowKind::Window;
    const MAX_ROWS: usize = 1;
    const MAX_ITEMS: usize = MAX_PIECES;

    fn append(&self, stream: &mut MelStream, item: StageItem) -> Result<(), SessionError> {
        if let StageItem::Latents { rows, count } = item {
            stream.mel.extend_from_slice(&rows);
            stream.frames += count;
        }
        Ok(())
    }

    fn ready_rows(&self, stream: &MelStream, ended: bool) -> usize {
        usize::from(self.ready(stream, ended) > 0)
    }

    fn is_empty(&self, stream: &MelStream) -> bool {
        stream.given == stream.frames
    }

    fn buffered_audio(&self, stream: &MelStream) -> Duration {
        let pieces = (stream.frames - stream.given) / self.piece;
        self.duration * u32::try_from(pieces).unwrap_or(u32::MAX).min(10_000)
    }

    fn take(&self, stream: &mut MelStream, _: BatchEntry, ended: bool) -> Option<MelWindow> {
        let ((before, after), width) = (self.bigvgan.context(), self.bigvgan.config().mel_dim);
        let wanted = self.ready(stream, ended);
        if wanted == 0 {
            return None;
        }
        let from = stream.given.saturating_sub(before);
        let to = stream.frames.min(stream.given + wanted + after);
        let mel = stream.mel[(from - stream.first) * width..(to - stream.first) * width].to_vec();
        let window = MelWindow { mel, before: stream.given - from, wanted, frames: to - from };
        stream.given += wanted;
        // Drop frames that no later window needs.
        let kept = stream.given.saturating_sub(before).max(stream.first);
        stream.mel.drain(..(kept - stream.first) * width);
        stream.first = kept;
        Some(window)
    }

    fn size(&self, window: &MelWindow) -> (usize, usize) {
        (window.frames, window.frames * self.bigvgan.config().samples_per_frame())
    }

    /// No window is empty, so there are at most as many windows as rows.
    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> BigVganSections {
        self.bigvgan.layout(layout, rows, rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &BigVganSections, windows: &[MelWindow]) {
        let mel: Vec<f32> = windows.iter().flat_map(|window| window.mel.iter().copied()).collect();
        let frames: Vec<usize> = windows.iter().map(|window| window.frames).collect();
        self.bigvgan.fill(spec, sections, &mel, &frames);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &BigVganSections) -> O::T {
        self.bigvgan.forward(ops, spec, sections)
    }

    fn items(&self, _: &mut MelStream, window: MelWindow, numbers: &[f32]) -> Option<Vec<StageItem>> {
        let frame = self.bigvgan.config().samples_per_frame();
        let samples = &numbers[window.before * frame..(window.before + window.wanted) * frame];
        let pieces = samples.chunks(self.piece * frame).map(|piece| StageItem::Samples(piece.to_vec()));
        samples.iter().all(|sample| sample.is_finite()).then(|| pieces.collect())
    }
}
