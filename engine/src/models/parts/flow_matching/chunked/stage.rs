//! The flow as a stage: codes to mel frames, a chunk at a time, each solved once.
//!
//! One row of a step is one evaluation, so the scheduler may run other work between any two. A recording of the checkpoint's
//! voices is solved when the stage is made, one of another voice by its first response; but for the last chunk, which sees
//! the first codes of a response.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, ReadBack, RowSpec, SpecLayout, StepKey};

use super::config::ChunkDitConfig;
use super::dit::ChunkDit;
use super::recordings::{RecordingPlaces, SolvedRecording};
use super::sections::{ChunkEvaluation, ChunkSections, rows};
use super::voice::FlowVoice;
use crate::config::EngineConfig;
use crate::device::Device;
use crate::models::parts::flow_matching::guidance::Guidance;
use crate::models::parts::flow_matching::noise::Noise;
use crate::models::parts::flow_matching::solver::{Rule, Solve, Solver};
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::shared_voices::SharedVoices;
use crate::models::parts::step_layers::StepLayers;
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::stage::{BatchEntry, EdgeKind, ResponseParams, RowKind, Stage, StageItem};

/// Name of the stage.
const STAGE: &str = "flow";
/// Setting of the stage: chunks of the response before a chunk that it attends to.
const LEFT_CHUNKS: &str = "left_chunks";
/// Value of an absent setting.
const DEFAULT_LEFT_CHUNKS: usize = 4;
/// Setting of the stage: chunks of an enrolled voice's recording that are kept, counted from its end.
const RECORDING_CHUNKS: &str = "recording_chunks";
const DEFAULT_RECORDING_CHUNKS: usize = 4;
const MOST_RECORDING_CHUNKS: usize = 64;
/// Steps of a solve, which the reference fixes.
const STEPS: usize = 10;

/// Creates the solver with the reference's times: short steps first.
pub fn solver() -> Solver {
    let point = |at: usize| 1.0 - (at as f32 / STEPS as f32 * 0.5 * std::f32::consts::PI).cos();
    Solver::new(Rule::Euler, (0..=STEPS).map(point).collect())
}

/// Chunks of an enrolled voice's recording that are kept, at least one.
pub fn recording_chunks(settings: &EngineConfig) -> usize {
    settings.stage_option(STAGE, RECORDING_CHUNKS).unwrap_or(DEFAULT_RECORDING_CHUNKS).clamp(1, MOST_RECORDING_CHUNKS)
}

/// The flow as a stage.
pub struct ChunkFlowPart<O: Ops> {
    dit: ChunkDit<O>,
    solver: Solver,
    guidance: Guidance,
    voices: SharedVoices<FlowVoice>,
    /// Most chunks of an enrolled voice's recording; `None` if none are enrolled.
    recording_chunks: Option<usize>,
    /// Duration of a code.
    code: Duration,
    /// Most codes of a response.
    most_codes: usize,
    /// Chunks of the response before a chunk that it attends to.
    left: usize,
}

impl<O: Ops> ChunkFlowPart<O> {
    /// Wraps a transformer for these voices, to which others are enrolled if it `clones`; with a code's duration and the most
    /// codes of a response.
    pub fn new(
        dit: ChunkDit<O>,
        (voices, clones): (SharedVoices<FlowVoice>, bool),
        (code, most_codes): (Duration, usize),
        settings: &EngineConfig,
    ) -> Self {
        let guidance = Guidance { strength: dit.config().guidance };
        let left = settings.stage_option(STAGE, LEFT_CHUNKS).unwrap_or(DEFAULT_LEFT_CHUNKS);
        // More than a response has change nothing.
        let left = left.min(most_codes.div_ceil(dit.config().chunk_codes));
        let recording_chunks = clones.then(|| recording_chunks(settings));
        Self { dit, solver: solver(), guidance, voices, recording_chunks, code, most_codes, left }
    }

    /// Cache blocks of a slot for each time and row of the pair: the recording's last chunk, and a ring of the response's.
    fn ring(&self) -> usize {
        self.left + 2
    }

    fn pairs(&self) -> usize {
        2 * self.solver.evaluations()
    }

    /// Most chunks of a recording.
    fn most_recorded(&self) -> usize {
        let own = self.voices.own().map(|voice| voice.chunks(self.dit.config())).max();
        own.max(self.recording_chunks).unwrap_or_default()
    }
}

impl<O: Device> StagePart<O> for ChunkFlowPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn settings(&self) -> &'static [&'static str] {
        &[LEFT_CHUNKS, RECORDING_CHUNKS]
    }

    /// Keys and values of the visible chunks and of an enrolled voice's recording, frames before a chunk, a solve, rows between
    /// two units, and a response's codes.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let config = self.dit.config();
        let recorded = self.recording_chunks.unwrap_or(1) - 1;
        let cached = self.pairs() * (self.ring() + recorded) * self.dit.block_bytes();
        let frames = self.solver.evaluations() * config.reach() + self.solver.vectors() * config.chunk();
        let rest = frames * config.mel * size_of::<f32>() + self.most_codes * size_of::<u32>();
        let unfinished = self.dit.step_layers().unfinished_bytes(rows(config));
        SlotBytes { position: 0, fixed: cached + rest + unfinished }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let (slots, part) = (at.slots.total(), *self);
        let (config, pairs) = (part.dit.config(), part.pairs());
        // A slot reads one recording, so a place is free when a response begins.
        let others = part.recording_chunks.map_or((0, 0), |chunks| (slots, chunks));
        let blocks = (slots * pairs * part.ring(), pairs);
        let (recordings, blocks) = RecordingPlaces::new(part.voices.own(), config, blocks, others);
        let cache = part.dit.cache(&at.ops, blocks + 1);
        let own = recordings.own().to_vec();
        let mut model = ChunkFlow { part, cache, recordings, scratch: blocks as u32 };
        for recording in own {
            model.solve_recording(&at.ops, recording);
        }
        Box::new(StreamStage::new(STAGE, at.ops, model, slots))
    }
}

/// The flow with the keys and values of all slots and voices.
struct ChunkFlow<O: Ops> {
    part: ChunkFlowPart<O>,
    cache: Vec<O::State>,
    recordings: RecordingPlaces,
    /// Block of the padding.
    scratch: u32,
}

/// Codes of a response, and the chunk that is being solved.
#[derive(Default)]
struct ChunkStream {
    /// Recording of the voice; `None` without a response.
    recording: Option<Arc<SolvedRecording>>,
    /// Codes of the recording and the response.
    codes: Vec<u32>,
    /// Chunk that is solved next, counted from the recording's first.
    chunk: usize,
    /// Codes whose frames were emitted, those of the recording included.
    done: usize,
    /// Frames before the chunk at each time.
    before: Vec<Vec<f32>>,
    solve: Option<(Solve, usize)>,
}

/// Chunk of a stream in a step.
struct ChunkPiece {
    voice: Arc<FlowVoice>,
    codes: Vec<u32>,
    first: usize,
    frames: usize,
    mel: Vec<f32>,
    time: usize,
    blocks: [Vec<u32>; 2],
}

impl ChunkPiece {
    fn evaluation(&self) -> ChunkEvaluation<'_> {
        ChunkEvaluation {
            voice: &self.voice,
            codes: &self.codes,
            first: self.first,
            frames: self.frames,
            mel: &self.mel,
            time: self.time,
            blocks: &self.blocks,
        }
    }
}

fn internal(message: String) -> SessionError {
    SessionError::Internal { stage: STAGE, message }
}

/// Last frames of a spectrogram that the chunk after it needs.
fn last_frames(mel: &[f32], config: &ChunkDitConfig) -> Vec<f32> {
    mel[mel.len().saturating_sub(config.reach() * config.mel)..].to_vec()
}

impl<O: Ops> ChunkFlow<O> {
    /// Frames of the next chunk; `None` if it waits for codes.
    fn next(&self, stream: &ChunkStream, ended: bool) -> Option<usize> {
        let config = self.part.dit.config();
        let (first, known) = (stream.chunk * config.chunk_codes, stream.codes.len());
        let whole = known >= first + config.chunk_codes + config.pre_lookahead_len;
        let left = known > stream.done && known > first;
        (whole || (ended && left)).then(|| (known - first).min(config.chunk_codes) * config.token_mel_ratio)
    }

    /// Block of chunk `chunk` of a slot, or of the recording.
    fn block(&self, slot: Option<usize>, recording: &SolvedRecording, pair: usize, chunk: usize) -> u32 {
        let (pairs, ring, config) = (self.part.pairs(), self.part.ring(), self.part.dit.config());
        let at = match slot {
            Some(slot) if chunk >= recording.shared(config) => {
                let recorded = recording.voice.chunks(config);
                // The recording's last chunk stays; those of the response take turns.
                let place = if chunk < recorded { 0 } else { 1 + (chunk - recorded) % (ring - 1) };
                (slot * pairs + pair) * ring + place
            }
            _ => recording.first_block + chunk * pairs + pair,
        };
        at as u32
    }

    /// Blocks that a chunk sees at a time, for each row of the pair: the recording, and the last chunks of the response.
    fn visible(&self, slot: Option<usize>, recording: &SolvedRecording, chunk: usize, time: usize) -> [Vec<u32>; 2] {
        let recorded = recording.voice.chunks(self.part.dit.config());
        let from = chunk.saturating_sub(self.part.left).max(recorded);
        [0, 1].map(|row| {
            let chunks = (0..recorded.min(chunk + 1)).chain(from..=chunk);
            chunks.map(|chunk| self.block(slot, recording, 2 * time + row, chunk)).collect()
        })
    }

    /// Takes the next evaluation of a stream.
    fn piece(&self, stream: &mut ChunkStream, slot: Option<usize>, ended: bool) -> Option<ChunkPiece> {
        let config = self.part.dit.config();
        if stream.solve.is_none() {
            let frames = self.next(stream, ended)?;
            // The noise is a function of the frame alone, so that a recording is solved once.
            let noise = Noise::default().frames(stream.chunk * config.chunk(), frames, config.mel);
            stream.solve = Some((Solve::new(noise), frames));
        }
        let ((solve, frames), recording) = (stream.solve.as_ref()?, stream.recording.as_ref()?);
        let time = solve.time(&self.part.solver);
        let mut mel = stream.before.get(time).cloned().unwrap_or_default();
        mel.extend(solve.input(&self.part.solver));
        Some(ChunkPiece {
            voice: Arc::clone(&recording.voice),
            codes: stream.codes.clone(),
            first: stream.chunk * config.chunk(),
            frames: *frames,
            mel,
            time,
            blocks: self.visible(slot, recording, stream.chunk, time),
        })
    }

    /// Continues with the slopes of an evaluation; returns the chunk's frames once it is solved.
    fn advance(&self, stream: &mut ChunkStream, piece: &ChunkPiece, numbers: &[f32]) -> Option<Vec<f32>> {
        let config = self.part.dit.config();
        stream.before.resize(self.part.solver.evaluations(), Vec::new());
        stream.before[piece.time] = last_frames(&piece.mel, config);
        let (solve, _) = stream.solve.as_mut()?;
        let frames = solve.advance(&self.part.solver, self.part.guidance.combine(numbers))?.to_vec();
        stream.solve = None;
        stream.chunk += 1;
        if let Some(recording) = stream.recording.as_ref().filter(|it| it.shared(config) == stream.chunk) {
            recording.solved(stream.before.clone());
        }
        Some(frames)
    }

    /// Solves the chunks of a recording that no response changes.
    fn solve_recording(&mut self, ops: &O, recording: Arc<SolvedRecording>) {
        let (codes, shared) = (recording.voice.codes.clone(), recording.shared(self.part.dit.config()));
        if shared == 0 {
            recording.solved(Vec::new());
        }
        let mut stream = ChunkStream { recording: Some(recording), codes, ..ChunkStream::default() };
        let (mut spec, mut back) = (RowSpec::default(), ReadBack::default());
        while stream.chunk < shared {
            let Some(piece) = self.piece(&mut stream, None, false) else { break };
            let count = ops.bucket(self.size_of(&piece).0);
            let mut layout = SpecLayout::default();
            let sections = self.sections(&mut layout, count);
            layout.clear_spec(&mut spec);
            self.fill_pieces(&mut spec, &sections, std::slice::from_ref(&piece));
            let Self { part, cache, .. } = self;
            let key = StepKey { stage: STAGE, rows: count, variant: 0 };
            let ticket = ops.launch(key, &spec, &mut |ops, spec, outputs| {
                outputs.rows.push(part.dit.forward(ops, (spec, &sections), cache));
            });
            ops.collect(ticket, &mut back);
            let numbers = back.numbers[..self.size_of(&piece).1].to_vec();
            self.advance(&mut stream, &piece, &numbers);
        }
    }

    fn size_of(&self, piece: &ChunkPiece) -> (usize, usize) {
        let config = self.part.dit.config();
        (rows(config), 2 * piece.frames * config.mel)
    }

    fn sections(&self, layout: &mut SpecLayout, rows: usize) -> ChunkSections {
        let config = self.part.dit.config();
        ChunkSections::new(layout, config, rows, self.part.most_recorded() + self.part.left + 1)
    }

    fn fill_pieces(&self, spec: &mut RowSpec, sections: &ChunkSections, pieces: &[ChunkPiece]) {
        let chunks: Vec<_> = pieces.iter().map(ChunkPiece::evaluation).collect();
        sections.fill(spec, self.part.dit.config(), &chunks, self.scratch);
    }
}

impl<O: Device> StreamModel<O> for ChunkFlow<O> {
    type Stream = ChunkStream;
    type Piece = ChunkPiece;
    type Sections = ChunkSections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Codes, EdgeKind::Latents);
    const ROWS: RowKind = RowKind::SolverStep;
    const MAX_ROWS: usize = 1;
    const MAX_ITEMS: usize = 1;

    fn begin(&mut self, params: &ResponseParams) -> Result<ChunkStream, SessionError> {
        let voices = &self.part.voices;
        // The session checks the voice against the model's list; it may have been removed since.
        let unknown = || SessionError::UnknownVoice { voice: params.voice.clone(), known: voices.names().join(", ") };
        let voice = voices.get(&params.voice).ok_or_else(unknown)?;
        let config = self.part.dit.config();
        let full = || internal("every place of a recording is read".to_owned());
        let recording = self.recordings.of(voice, config).ok_or_else(full)?;
        let (codes, shared) = (recording.voice.codes.clone(), recording.shared(config));
        let (chunk, before) = match recording.before() {
            Some(before) => (shared, before.clone()),
            None => (0, Vec::new()),
        };
        Ok(ChunkStream { recording: Some(recording), done: codes.len(), codes, chunk, before, solve: None })
    }

    fn append(&self, stream: &mut ChunkStream, item: StageItem) -> Result<(), SessionError> {
        let StageItem::Codes(codes) = item else { return Ok(()) };
        match codes[..] {
            [code] if (code as usize) < self.part.dit.config().vocab_size => stream.codes.push(code),
            _ => return Err(internal(format!("codes {codes:?} are outside of the codebook"))),
        }
        Ok(())
    }

    fn ready_rows(&self, stream: &ChunkStream, ended: bool) -> usize {
        let solver = &self.part.solver;
        match &stream.solve {
            Some((solve, _)) => solver.evaluations() - solve.evaluated(solver),
            None => self.next(stream, ended).map_or(0, |_| solver.evaluations()),
        }
    }

    fn is_empty(&self, stream: &ChunkStream) -> bool {
        stream.done == stream.codes.len()
    }

    fn buffered_audio(&self, stream: &ChunkStream) -> Duration {
        self.part.code * u32::try_from(stream.codes.len() - stream.done).unwrap_or(u32::MAX).min(10_000)
    }

    fn take(&self, stream: &mut ChunkStream, entry: BatchEntry, ended: bool) -> Option<ChunkPiece> {
        self.piece(stream, Some(entry.slot), ended)
    }

    fn size(&self, piece: &ChunkPiece) -> (usize, usize) {
        self.size_of(piece)
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> ChunkSections {
        self.sections(layout, rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &ChunkSections, pieces: &[ChunkPiece]) {
        self.fill_pieces(spec, sections, pieces);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &ChunkSections) -> O::T {
        self.part.dit.forward(ops, (spec, sections), &mut self.cache)
    }

    fn layers(&self) -> Option<StepLayers> {
        Some(self.part.dit.step_layers())
    }

    fn forward_layers(
        &mut self,
        ops: &O,
        at: (&O::Spec, &ChunkSections),
        layers: Range<usize>,
        x: Option<O::T>,
    ) -> O::T {
        self.part.dit.forward_layers(ops, at, &mut self.cache, (layers, x))
    }

    fn items(&self, stream: &mut ChunkStream, piece: ChunkPiece, numbers: &[f32]) -> Option<Vec<StageItem>> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let Some(rows) = self.advance(stream, &piece, numbers) else { return Some(Vec::new()) };
        let config = self.part.dit.config();
        if piece.first / config.chunk() < piece.voice.chunks(config) {
            return Some(Vec::new());
        }
        stream.done += piece.frames / config.token_mel_ratio;
        Some(vec![StageItem::Latents { rows, count: piece.frames }])
    }
}
