//! Code2wav as a stage: codec frames to samples.
//!
//! State is carried from frame to frame. For comparison a stage can decode with left context instead: it decodes each
//! chunk together with the few frames before it and discards their samples.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{ReadBack, RowSpec, SpecLayout, StepKey, StepOps, StreamRows};

use super::code2wav::{Code2Wav, Code2WavState, MAX_FRAMES};
use crate::config::EngineConfig;
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::slot_streams::SlotStreams;
use crate::stage::{BatchEntry, EdgeKind, Outbox, RowKind, RunnableRows, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "code2wav";

/// Setting of the stage: decode each chunk again with this number of frames before it, without carried state; for
/// comparison.
const LEFT_CONTEXT: &str = "left_context";

/// Code2wav with the duration of a frame, as a stage.
pub struct Code2WavPart<O: StepOps> {
    code2wav: Code2Wav<O>,
    frame: Duration,
    left_context: Option<usize>,
    settings: &'static [&'static str],
}

impl<O: StepOps> Code2WavPart<O> {
    /// Wraps a decoder of frames of duration `frame`, which carries state.
    pub fn new(code2wav: Code2Wav<O>, frame: Duration) -> Self {
        Self { code2wav, frame, left_context: None, settings: &[] }
    }

    /// Lets `settings` choose left context instead of carried state.
    #[must_use]
    pub fn with_left_context(self, settings: &EngineConfig) -> Self {
        let left_context = settings.stage_option(STAGE, LEFT_CONTEXT);
        Self { left_context, settings: &[LEFT_CONTEXT], ..self }
    }
}

impl<O: Device> StagePart<O> for Code2WavPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn settings(&self) -> &'static [&'static str] {
        self.settings
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let frames = MAX_FRAMES + self.left_context.unwrap_or(0);
        SlotBytes { position: 0, fixed: self.code2wav.slot_bytes(frames) }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(Code2WavStage::new(at.ops, self.code2wav, at.slots.total(), self.frame, self.left_context))
    }
}

/// Code2wav with the streams of all slots.
pub struct Code2WavStage<O: StepOps> {
    ops: O,
    code2wav: Code2Wav<O>,
    state: Code2WavState<O>,
    streams: SlotStreams<Stream>,
    codebooks: usize,
    codebook_size: usize,
    samples_per_frame: usize,
    /// Duration of a frame.
    frame: Duration,
    /// Frames decoded again before each chunk, instead of carried state.
    left_context: Option<usize>,
    launched: Option<Launched<O::Ticket>>,
    spec: RowSpec,
    back: ReadBack,
}

/// A step that the device computes.
struct Launched<T> {
    ticket: T,
    chunks: Vec<Chunk>,
}

/// Frames of a slot in a step.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    rows: StreamRows,
    /// Frames that are not left context.
    wanted: usize,
    /// Wanted frames that are lead frames, whose samples are discarded.
    leading: usize,
    /// Epoch of the slot at launch. If it differs at collection, the samples are dropped.
    epoch: u64,
}

#[derive(Default)]
struct Stream {
    /// The last frames decoded, at most the left context.
    before: VecDeque<Vec<u32>>,
    frames: VecDeque<Vec<u32>>,
    /// Lead frames of the stream, whose samples are discarded.
    leading: usize,
    /// Frames decoded so far.
    decoded: usize,
    end: Option<StageEnd>,
}

impl Stream {
    /// Number of waiting lead frames.
    fn leads(&self) -> usize {
        self.leading.saturating_sub(self.decoded).min(self.frames.len())
    }
}

impl<O: StepOps> Code2WavStage<O> {
    /// Creates the stage for `slots` streams of frames of duration `frame`. With `left_context` no state is carried.
    pub fn new(ops: O, code2wav: Code2Wav<O>, slots: usize, frame: Duration, left_context: Option<usize>) -> Self {
        let config = code2wav.config();
        Self {
            codebooks: config.num_quantizers,
            codebook_size: config.codebook_size,
            samples_per_frame: config.samples_per_frame(),
            state: code2wav.state_for(&ops, slots, MAX_FRAMES + left_context.unwrap_or(0)),
            left_context,
            streams: SlotStreams::new(slots),
            ops,
            code2wav,
            frame,
            launched: None,
            spec: RowSpec::default(),
            back: ReadBack::default(),
        }
    }

    /// Launches the decoding of frames, padded to `rows`.
    fn decode(&mut self, codes: &[Vec<u32>], chunks: &[StreamRows], rows: usize) -> O::Ticket {
        let Self { ops, code2wav, state, spec, .. } = self;
        let mut layout = SpecLayout::default();
        let sections = code2wav.layout(state, &mut layout, rows);
        layout.clear_spec(spec);
        code2wav.fill(spec, &sections, state, codes, chunks);
        let key = StepKey { stage: STAGE, rows, variant: 0 };
        ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(code2wav.forward(ops, (spec, &sections), state));
        })
    }
}

impl<O: Device> Stage for Code2WavStage<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        let leads = matches!(item, StageItem::Lead(_));
        let state = &mut self.streams[slot];
        match item {
            StageItem::Begin(_) | StageItem::Abort => {
                self.streams.reset(slot);
                out.push((slot, item));
            }
            // A code out of range would read another codebook's entry.
            StageItem::Lead(frame) | StageItem::Codes(frame) => {
                state.leading += usize::from(leads);
                if frame.len() == self.codebooks && frame.iter().all(|&code| (code as usize) < self.codebook_size) {
                    state.frames.push_back(frame);
                } else {
                    let message = format!("codes {frame:?} are outside of the codebooks");
                    out.push((slot, StageItem::Fail(SessionError::Internal { stage: "talker", message })));
                }
            }
            StageItem::End(end) if state.frames.is_empty() => out.push((slot, StageItem::End(end))),
            StageItem::End(end) => state.end = Some(end),
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(self.streams[slot].frames.len(), RowKind::Window)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let heard = self.streams[slot].frames.len() - self.streams[slot].leads();
        self.frame * u32::try_from(heard).unwrap_or(u32::MAX).min(1000)
    }

    fn max_rows(&self) -> usize {
        MAX_FRAMES
    }

    fn max_items(&self) -> usize {
        MAX_FRAMES
    }

    fn launch(&mut self, work: &[BatchEntry], _: &mut Outbox) {
        self.launched = None;
        let mut codes: Vec<Vec<u32>> = vec![Vec::new(); self.codebooks];
        let mut chunks = Vec::with_capacity(work.len());
        for &BatchEntry { slot, rows } in work {
            let epoch = self.streams.epoch(slot);
            let state = &mut self.streams[slot];
            let leading = state.leads().min(rows);
            let before = state.before.len();
            state.before.extend(state.frames.drain(..rows));
            for frame in &state.before {
                for (codes, &code) in codes.iter_mut().zip(frame) {
                    codes.push(code);
                }
            }
            // With left context each chunk is a stream of its own.
            let position = if self.left_context.is_some() { 0 } else { state.decoded };
            state.decoded += rows;
            let stream = StreamRows { slot, position, rows: before + rows };
            chunks.push(Chunk { rows: stream, wanted: rows, leading, epoch });
            let kept = self.left_context.unwrap_or(0);
            state.before.drain(..state.before.len().saturating_sub(kept));
        }
        let streams: Vec<StreamRows> = chunks.iter().map(|chunk| chunk.rows).collect();
        let rows = self.ops.bucket(streams.iter().map(|stream| stream.rows).sum());
        let ticket = self.decode(&codes, &streams, rows);
        self.launched = Some(Launched { ticket, chunks });
    }

    fn collect(&mut self, out: &mut Outbox) {
        let Some(Launched { ticket, chunks }) = self.launched.take() else { return };
        self.ops.collect(ticket, &mut self.back);
        let mut rest = &self.back.numbers[..];
        for Chunk { rows: chunk, wanted, leading, epoch } in chunks {
            let (mine, after) = rest.split_at(chunk.rows * self.samples_per_frame);
            rest = after;
            if !self.streams.is_current(chunk.slot, epoch) {
                continue;
            }
            let mine = &mine[self.code2wav.valid_samples(chunk)];
            // Frames of the left context come first; their samples were already sent.
            let mine = &mine[mine.len().saturating_sub(wanted * self.samples_per_frame)..];
            // This ignores look-ahead: the family that has lead frames has none.
            let mine = &mine[(leading * self.samples_per_frame).min(mine.len())..];
            let wanted = wanted - leading;
            if mine.iter().any(|sample| !sample.is_finite()) {
                out.push((chunk.slot, StageItem::Fail(SessionError::NotFinite { stage: STAGE })));
                continue;
            }
            // Only the first frame of a stream is short.
            let short = (wanted * self.samples_per_frame).saturating_sub(mine.len());
            let (first, others) =
                mine.split_at((self.samples_per_frame - short.min(self.samples_per_frame)).min(mine.len()));
            if wanted > 0 {
                out.push((chunk.slot, StageItem::Samples(first.to_vec())));
            }
            out.extend(
                others.chunks(self.samples_per_frame).map(|frame| (chunk.slot, StageItem::Samples(frame.to_vec()))),
            );
            let state = &mut self.streams[chunk.slot];
            if state.frames.is_empty()
                && let Some(end) = state.end.take()
            {
                out.push((chunk.slot, StageItem::End(end)));
            }
        }
    }

    /// Launches each bucket of decode steps once, with padding only.
    fn prepare(&mut self) {
        if self.ops.eager_steps().is_none() {
            return;
        }
        let most = self.ops.bucket(self.streams.slots());
        let codes = vec![Vec::new(); self.codebooks];
        let mut rows = 0;
        while rows < most {
            rows = self.ops.bucket(rows + 1);
            let ticket = self.decode(&codes, &[], rows);
            self.ops.collect(ticket, &mut self.back);
        }
    }

    fn eager_steps(&self) -> Option<u64> {
        self.ops.eager_steps()
    }

    fn free(&mut self, slot: usize) {
        self.streams.reset(slot);
    }
}
