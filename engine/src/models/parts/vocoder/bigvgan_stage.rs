//! The vocoder as a stage: mel frames to samples, a window at a time.
//!
//! A window is decoded once all frames that its samples depend on have arrived. Its samples have the same bits as in
//! one decode of the whole response, for any window.

use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, ReadBack, RowSpec, SpecLayout, StepKey};

use super::bigvgan::BigVgan;
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::slot_streams::SlotStreams;
use crate::stage::{BatchEntry, EdgeKind, Outbox, RowKind, RunnableRows, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "bigvgan";
/// Most pieces of one slot in a step.
const MAX_PIECES: usize = 12;

/// The vocoder with its pieces, as a stage.
pub struct BigVganPart<O: Ops> {
    /// Layers with loaded weights.
    pub bigvgan: BigVgan<O>,
    /// Mel frames whose samples form one piece.
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
        let frames = self.most_pieces * self.piece + self.bigvgan.context();
        SlotBytes { position: 0, fixed: frames * self.bigvgan.config().mel_dim * size_of::<f32>() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let Self { bigvgan, piece, duration, .. } = *self;
        Box::new(BigVganStage::new(at.ops, bigvgan, at.slots.total(), piece, duration))
    }
}

/// The vocoder with the streams of all slots.
pub struct BigVganStage<O: Ops> {
    ops: O,
    bigvgan: BigVgan<O>,
    streams: SlotStreams<Stream>,
    /// Mel frames whose samples form one piece: those of a code.
    piece: usize,
    /// Duration of a piece.
    duration: Duration,
    launched: Option<Launched<O::Ticket>>,
    spec: RowSpec,
    back: ReadBack,
}

/// A step that the device computes.
struct Launched<T> {
    ticket: T,
    windows: Vec<Window>,
}

/// Frames of a slot in a step.
#[derive(Debug, Clone, Copy)]
struct Window {
    slot: usize,
    /// Context frames before the wanted ones, wanted frames, and all frames.
    before: usize,
    wanted: usize,
    frames: usize,
    /// Epoch of the slot at launch. If it differs at collection, the samples are dropped.
    epoch: u64,
}

#[derive(Default)]
struct Stream {
    /// Frames from `first` on: those that a later window needs.
    mel: Vec<f32>,
    first: usize,
    /// Frames of the response so far, and those whose samples were emitted.
    frames: usize,
    given: usize,
    end: Option<StageEnd>,
}

impl<O: Ops> BigVganStage<O> {
    /// Creates the stage for `slots` streams. Samples of `piece` mel frames, of duration `duration`, form one piece.
    pub fn new(ops: O, bigvgan: BigVgan<O>, slots: usize, piece: usize, duration: Duration) -> Self {
        Self {
            ops,
            bigvgan,
            streams: SlotStreams::new(slots),
            piece,
            duration,
            launched: None,
            spec: RowSpec::default(),
            back: ReadBack::default(),
        }
    }

    /// Frames of the next window without context: whole pieces whose context has arrived.
    fn ready(&self, slot: usize) -> usize {
        let state = &self.streams[slot];
        let context = if state.end.is_some() { 0 } else { self.bigvgan.context() };
        let ready = state.frames.saturating_sub(state.given + context) / self.piece;
        ready.min(MAX_PIECES) * self.piece
    }
}

impl<O: Device> Stage for BigVganStage<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Latents
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Begin(_) | StageItem::Abort => {
                self.streams.reset(slot);
                out.push((slot, item));
            }
            StageItem::Latents { rows, count } => {
                let state = &mut self.streams[slot];
                state.mel.extend_from_slice(&rows);
                state.frames += count;
            }
            StageItem::End(end) if self.streams[slot].given == self.streams[slot].frames => {
                self.streams.reset(slot);
                out.push((slot, StageItem::End(end)));
            }
            StageItem::End(end) => self.streams[slot].end = Some(end),
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(usize::from(self.ready(slot) > 0), RowKind::Window)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let state = &self.streams[slot];
        let pieces = (state.frames - state.given) / self.piece;
        self.duration * u32::try_from(pieces).unwrap_or(u32::MAX).min(10_000)
    }

    fn max_rows(&self) -> usize {
        1
    }

    fn max_items(&self) -> usize {
        MAX_PIECES
    }

    fn launch(&mut self, work: &[BatchEntry], _: &mut Outbox) {
        self.launched = None;
        let (context, width) = (self.bigvgan.context(), self.bigvgan.config().mel_dim);
        let (mut mel, mut windows) = (Vec::new(), Vec::new());
        for &BatchEntry { slot, .. } in work {
            let (wanted, epoch) = (self.ready(slot), self.streams.epoch(slot));
            let state = &mut self.streams[slot];
            if wanted == 0 {
                continue;
            }
            let from = state.given.saturating_sub(context);
            let to = state.frames.min(state.given + wanted + context);
            mel.extend_from_slice(&state.mel[(from - state.first) * width..(to - state.first) * width]);
            let before = state.given - from;
            windows.push(Window { slot, before, wanted, frames: to - from, epoch });
            state.given += wanted;
            // Drop frames that no later window needs.
            let kept = state.given.saturating_sub(context).max(state.first);
            state.mel.drain(..(kept - state.first) * width);
            state.first = kept;
        }
        if windows.is_empty() {
            return;
        }
        let Self { ops, bigvgan, spec, .. } = self;
        let frames: Vec<usize> = windows.iter().map(|window| window.frames).collect();
        let rows = ops.bucket(frames.iter().sum());
        let mut layout = SpecLayout::default();
        // No window is empty, so there are at most as many windows as rows.
        let sections = bigvgan.layout(&mut layout, rows, rows);
        layout.clear_spec(spec);
        bigvgan.fill(spec, &sections, &mel, &frames);
        let ticket = ops.launch(StepKey { stage: STAGE, rows, variant: 0 }, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(bigvgan.forward(ops, spec, &sections));
        });
        self.launched = Some(Launched { ticket, windows });
    }

    fn collect(&mut self, out: &mut Outbox) {
        let Some(Launched { ticket, windows }) = self.launched.take() else { return };
        self.ops.collect(ticket, &mut self.back);
        let frame = self.bigvgan.config().samples_per_frame();
        let mut rest = &self.back.numbers[..];
        for Window { slot, before, wanted, frames, epoch } in windows {
            let (mine, after) = rest.split_at(frames * frame);
            rest = after;
            if !self.streams.is_current(slot, epoch) {
                continue;
            }
            let mine = &mine[before * frame..(before + wanted) * frame];
            if mine.iter().any(|sample| !sample.is_finite()) {
                out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: STAGE })));
                continue;
            }
            out.extend(mine.chunks(self.piece * frame).map(|piece| (slot, StageItem::Samples(piece.to_vec()))));
            let state = &mut self.streams[slot];
            if state.given == state.frames
                && let Some(end) = state.end.take()
            {
                self.streams[slot] = Stream::default();
                out.push((slot, StageItem::End(end)));
            }
        }
    }

    fn eager_steps(&self) -> Option<u64> {
        self.ops.eager_steps()
    }

    fn free(&mut self, slot: usize) {
        self.streams.reset(slot);
    }
}
