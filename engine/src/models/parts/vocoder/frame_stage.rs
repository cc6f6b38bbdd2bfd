//! A vocoder of codec frames as a stage: codes to samples, with state carried from frame to frame.
//!
//! For comparison a stage can decode with left context instead: it decodes each chunk together with the few frames
//! before it and discards their samples.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, ReadBack, RowSpec, SpecLayout, StepKey, StreamRows};

use crate::config::EngineConfig;
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::slot_streams::SlotStreams;
use crate::stage::{BatchEntry, EdgeKind, Outbox, RowKind, RunnableRows, Stage, StageEnd, StageItem};

/// Most frames of one slot in one step.
pub const MAX_FRAMES: usize = 32;
/// Setting of the stage: decode each chunk again with this number of frames before it, without carried state; for
/// comparison.
const LEFT_CONTEXT: &str = "left_context";

/// A vocoder of codec frames. Each frame is decoded once, and any split of a stream gives the same samples.
pub trait FrameVocoder<O: Ops>: Send {
    /// State of all slots on the device.
    type State: Send;
    /// State of a stream on the host.
    type Stream: Default + Send;
    /// The vocoder's sections of the row spec.
    type Sections;

    /// Name of the stage.
    fn name(&self) -> &'static str;
    /// Number of codes in a frame, and of entries in each codebook.
    fn codebooks(&self) -> (usize, usize);
    /// Samples of a frame. The first frame of a stream may lack some.
    fn samples_per_frame(&self) -> usize;
    /// Numbers that the device computes for a frame.
    fn numbers_per_frame(&self) -> usize {
        self.samples_per_frame()
    }
    /// Bytes of one stream's state of at most `frames` frames in one call.
    fn stream_bytes(&self, frames: usize) -> usize;
    /// Creates the state of `slots` streams of at most `frames` frames in one call.
    fn state(&self, ops: &O, slots: usize, frames: usize) -> Self::State;
    /// Reserves the row spec's sections for a step of `rows` frames.
    fn layout(&self, state: &Self::State, layout: &mut SpecLayout, rows: usize) -> Self::Sections;
    /// Fills a row spec with the next frames of several streams. `codes[codebook]` has one id for each row; `chunks`
    /// assigns the rows to slots.
    fn fill(
        &self,
        spec: &mut RowSpec,
        sections: &Self::Sections,
        state: &Self::State,
        codes: &[Vec<u32>],
        chunks: &[StreamRows],
    );
    /// Computes the numbers of a step's frames.
    fn forward(&self, ops: &O, at: (&O::Spec, &Self::Sections), state: &mut Self::State) -> O::T;
    /// Samples of a chunk, from its frames' numbers.
    fn samples(&self, stream: &mut Self::Stream, chunk: StreamRows, numbers: &[f32]) -> Vec<f32>;
    /// Samples after a stream's last frame.
    fn rest(&self, _stream: &mut Self::Stream) -> Vec<f32> {
        Vec::new()
    }
}

/// A vocoder with the duration of a frame, as a stage.
pub struct FrameVocoderPart<V> {
    vocoder: V,
    frame: Duration,
    left_context: Option<usize>,
    settings: &'static [&'static str],
}

impl<V> FrameVocoderPart<V> {
    /// Wraps a vocoder of frames of duration `frame`, which carries state.
    pub fn new(vocoder: V, frame: Duration) -> Self {
        Self { vocoder, frame, left_context: None, settings: &[] }
    }

    /// Lets the stage's settings choose left context instead of carried state.
    #[must_use]
    pub fn with_left_context<O: Ops>(self, settings: &EngineConfig) -> Self
    where
        V: FrameVocoder<O>,
    {
        let left_context = settings.stage_option(self.vocoder.name(), LEFT_CONTEXT);
        Self { left_context, settings: &[LEFT_CONTEXT], ..self }
    }
}

impl<O: Device, V: FrameVocoder<O> + 'static> StagePart<O> for FrameVocoderPart<V> {
    fn name(&self) -> &'static str {
        self.vocoder.name()
    }

    fn settings(&self) -> &'static [&'static str] {
        self.settings
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes { position: 0, fixed: self.vocoder.stream_bytes(MAX_FRAMES + self.left_context.unwrap_or(0)) }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(FrameVocoderStage::new(at.ops, self.vocoder, at.slots.total(), self.frame, self.left_context))
    }
}

/// A vocoder with the streams of all slots.
pub struct FrameVocoderStage<O: Ops, V: FrameVocoder<O>> {
    ops: O,
    vocoder: V,
    state: V::State,
    streams: SlotStreams<Stream<V::Stream>>,
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
struct Stream<S> {
    /// State of the vocoder.
    own: S,
    /// The last frames decoded, at most the left context.
    before: VecDeque<Vec<u32>>,
    frames: VecDeque<Vec<u32>>,
    /// Lead frames of the stream, whose samples are discarded.
    leading: usize,
    /// Frames decoded so far.
    decoded: usize,
    end: Option<StageEnd>,
}

impl<S> Stream<S> {
    /// Number of waiting lead frames.
    fn leads(&self) -> usize {
        self.leading.saturating_sub(self.decoded).min(self.frames.len())
    }
}

impl<O: Ops, V: FrameVocoder<O>> FrameVocoderStage<O, V> {
    /// Creates the stage for `slots` streams of frames of duration `frame`. With `left_context` no state is carried.
    pub fn new(ops: O, vocoder: V, slots: usize, frame: Duration, left_context: Option<usize>) -> Self {
        Self {
            state: vocoder.state(&ops, slots, MAX_FRAMES + left_context.unwrap_or(0)),
            left_context,
            streams: SlotStreams::new(slots),
            ops,
            vocoder,
            frame,
            launched: None,
            spec: RowSpec::default(),
            back: ReadBack::default(),
        }
    }

    /// Ends a slot's stream.
    fn end(&mut self, slot: usize, end: StageEnd, out: &mut Outbox) {
        let rest = self.vocoder.rest(&mut self.streams[slot].own);
        if !rest.is_empty() {
            out.push((slot, StageItem::Samples(rest)));
        }
        out.push((slot, StageItem::End(end)));
    }

    /// Launches the decoding of frames, padded to `rows`.
    fn decode(&mut self, codes: &[Vec<u32>], chunks: &[StreamRows], rows: usize) -> O::Ticket {
        let Self { ops, vocoder, state, spec, .. } = self;
        let mut layout = SpecLayout::default();
        let sections = vocoder.layout(state, &mut layout, rows);
        layout.clear_spec(spec);
        vocoder.fill(spec, &sections, state, codes, chunks);
        let key = StepKey { stage: vocoder.name(), rows, variant: 0 };
        ops.launch(key, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(vocoder.forward(ops, (spec, &sections), state));
        })
    }
}

impl<O: Device, V: FrameVocoder<O>> Stage for FrameVocoderStage<O, V> {
    fn name(&self) -> &'static str {
        self.vocoder.name()
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        let leads = matches!(item, StageItem::Lead(_));
        let (codebooks, entries) = self.vocoder.codebooks();
        let state = &mut self.streams[slot];
        match item {
            StageItem::Begin(_) | StageItem::Abort => {
                self.streams.reset(slot);
                out.push((slot, item));
            }
            // A code out of range would read another codebook's entry.
            StageItem::Lead(frame) | StageItem::Codes(frame) => {
                state.leading += usize::from(leads);
                if frame.len() == codebooks && frame.iter().all(|&code| (code as usize) < entries) {
                    state.frames.push_back(frame);
                } else {
                    let message = format!("codes {frame:?} are outside of the codebooks");
                    out.push((slot, StageItem::Fail(SessionError::Internal { stage: "talker", message })));
                }
            }
            StageItem::End(end) if state.frames.is_empty() => self.end(slot, end, out),
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
        let mut codes: Vec<Vec<u32>> = vec![Vec::new(); self.vocoder.codebooks().0];
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
        let (each, samples) = (self.vocoder.numbers_per_frame(), self.vocoder.samples_per_frame());
        let numbers = std::mem::take(&mut self.back.numbers);
        let mut rest = &numbers[..];
        for Chunk { rows: chunk, wanted, leading, epoch } in chunks {
            let (mine, after) = rest.split_at(chunk.rows * each);
            rest = after;
            let slot = chunk.slot;
            if !self.streams.is_current(slot, epoch) {
                continue;
            }
            let state = &mut self.streams[slot];
            let mine = self.vocoder.samples(&mut state.own, chunk, mine);
            // Frames of the left context come first; their samples were already sent.
            let mine = &mine[mine.len().saturating_sub(wanted * samples)..];
            // This ignores look-ahead: the family that has lead frames has none.
            let mine = &mine[(leading * samples).min(mine.len())..];
            let wanted = wanted - leading;
            if mine.iter().any(|sample| !sample.is_finite()) {
                out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: self.vocoder.name() })));
                continue;
            }
            // Only the first frame of a stream is short.
            let short = (wanted * samples).saturating_sub(mine.len());
            let (first, others) = mine.split_at((samples - short.min(samples)).min(mine.len()));
            if wanted > 0 {
                out.push((slot, StageItem::Samples(first.to_vec())));
            }
            out.extend(others.chunks(samples).map(|frame| (slot, StageItem::Samples(frame.to_vec()))));
            if state.frames.is_empty()
                && let Some(end) = state.end.take()
            {
                self.end(slot, end, out);
            }
        }
        self.back.numbers = numbers;
    }

    /// Launches each bucket of decode steps once, with padding only.
    fn prepare(&mut self) {
        if self.ops.eager_steps().is_none() {
            return;
        }
        let most = self.ops.bucket(self.streams.slots());
        let codes = vec![Vec::new(); self.vocoder.codebooks().0];
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
