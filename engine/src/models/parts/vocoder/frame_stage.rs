//! A vocoder of codec frames as a stage: codes to samples, with state carried from frame to frame.
//!
//! For comparison a stage can decode with left context instead: it decodes each chunk together with the few frames
//! before it and discards their samples.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, RowSpec, SpecLayout, StreamRows};

use crate::config::EngineConfig;
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::stage::{BatchEntry, EdgeKind, RowKind, Stage, StageItem};

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
        let (name, slots) = (self.vocoder.name(), at.slots.total());
        let state = self.vocoder.state(&at.ops, slots, MAX_FRAMES + self.left_context.unwrap_or(0));
        Box::new(StreamStage::new(name, at.ops, FrameVocoderModel { part: *self, state }, slots))
    }
}

/// A vocoder with its state on the device.
struct FrameVocoderModel<O: Ops, V: FrameVocoder<O>> {
    part: FrameVocoderPart<V>,
    state: V::State,
}

/// Frames of a stream in a step.
struct Chunk {
    /// Codes of each frame, those of the left context first.
    frames: Vec<Vec<u32>>,
    rows: StreamRows,
    /// Frames that are not left context.
    wanted: usize,
    /// Wanted frames that are lead frames, whose samples are discarded.
    leading: usize,
}

#[derive(Default)]
struct FrameStream<S> {
    /// State of the vocoder.
    own: S,
    /// The last frames decoded, at most the left context.
    before: Vec<Vec<u32>>,
    frames: VecDeque<Vec<u32>>,
    /// Lead frames of the stream, whose samples are discarded.
    leading: usize,
    /// Frames decoded so far.
    decoded: usize,
}

impl<S> FrameStream<S> {
    /// Number of waiting lead frames.
    fn leads(&self) -> usize {
        self.leading.saturating_sub(self.decoded).min(self.frames.len())
    }
}

impl<O: Device, V: FrameVocoder<O>> StreamModel<O> for FrameVocoderModel<O, V> {
    type Stream = FrameStream<V::Stream>;
    type Piece = Chunk;
    type Sections = V::Sections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Codes, EdgeKind::Samples);
    const ROWS: RowKind = RowKind::Window;
    const MAX_ROWS: usize = MAX_FRAMES;
    const MAX_ITEMS: usize = MAX_FRAMES;
    const PREPARED: bool = true;

    /// A code out of range would read another codebook's entry.
    fn append(&self, stream: &mut FrameStream<V::Stream>, item: StageItem) -> Result<(), SessionError> {
        let leads = matches!(item, StageItem::Lead(_));
        let (StageItem::Lead(frame) | StageItem::Codes(frame)) = item else { return Ok(()) };
        let (codebooks, entries) = self.part.vocoder.codebooks();
        stream.leading += usize::from(leads);
        if frame.len() != codebooks || frame.iter().any(|&code| code as usize >= entries) {
            let message = format!("codes {frame:?} are outside of the codebooks");
            return Err(SessionError::Internal { stage: "talker", message });
        }
        stream.frames.push_back(frame);
        Ok(())
    }

    fn ready_rows(&self, stream: &FrameStream<V::Stream>, _: bool) -> usize {
        stream.frames.len()
    }

    fn is_empty(&self, stream: &FrameStream<V::Stream>) -> bool {
        stream.frames.is_empty()
    }

    fn buffered_audio(&self, stream: &FrameStream<V::Stream>) -> Duration {
        let heard = stream.frames.len() - stream.leads();
        self.part.frame * u32::try_from(heard).unwrap_or(u32::MAX).min(1000)
    }

    fn take(&self, stream: &mut FrameStream<V::Stream>, entry: BatchEntry, _: bool) -> Option<Chunk> {
        let BatchEntry { slot, rows: wanted } = entry;
        let leading = stream.leads().min(wanted);
        let frames: Vec<Vec<u32>> = stream.before.drain(..).chain(stream.frames.drain(..wanted)).collect();
        // With left context each chunk is a stream of its own.
        let position = if self.part.left_context.is_some() { 0 } else { stream.decoded };
        stream.decoded += wanted;
        if let Some(kept) = self.part.left_context {
            stream.before = frames[frames.len().saturating_sub(kept)..].to_vec();
        }
        let rows = StreamRows { slot, position, rows: frames.len() };
        Some(Chunk { frames, rows, wanted, leading })
    }

    fn size(&self, chunk: &Chunk) -> (usize, usize) {
        (chunk.rows.rows, chunk.rows.rows * self.part.vocoder.numbers_per_frame())
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> V::Sections {
        self.part.vocoder.layout(&self.state, layout, rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &V::Sections, chunks: &[Chunk]) {
        let frames = || chunks.iter().flat_map(|chunk| &chunk.frames);
        let codebooks = 0..self.part.vocoder.codebooks().0;
        let codes: Vec<Vec<u32>> = codebooks.map(|book| frames().map(|frame| frame[book]).collect()).collect();
        let rows: Vec<StreamRows> = chunks.iter().map(|chunk| chunk.rows).collect();
        self.part.vocoder.fill(spec, sections, &self.state, &codes, &rows);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &V::Sections) -> O::T {
        self.part.vocoder.forward(ops, (spec, sections), &mut self.state)
    }

    fn items(&self, stream: &mut FrameStream<V::Stream>, chunk: Chunk, numbers: &[f32]) -> Option<Vec<StageItem>> {
        let frame = self.part.vocoder.samples_per_frame();
        let Chunk { rows, wanted, leading, .. } = chunk;
        let samples = self.part.vocoder.samples(&mut stream.own, rows, numbers);
        // Frames of the left context come first; their samples were already sent.
        let samples = &samples[samples.len().saturating_sub(wanted * frame)..];
        // This ignores look-ahead: the family that has lead frames has none.
        let samples = &samples[(leading * frame).min(samples.len())..];
        if samples.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        let heard = wanted - leading;
        // Only the first frame of a stream is short.
        let short = (heard * frame).saturating_sub(samples.len());
        let (first, others) = samples.split_at((frame - short.min(frame)).min(samples.len()));
        let first = (heard > 0).then_some(first);
        Some(first.into_iter().chain(others.chunks(frame)).map(|frame| StageItem::Samples(frame.to_vec())).collect())
    }

    fn rest(&self, stream: &mut FrameStream<V::Stream>) -> Vec<StageItem> {
        let rest = self.part.vocoder.rest(&mut stream.own);
        if rest.is_empty() { Vec::new() } else { vec![StageItem::Samples(rest)] }
    }
}
