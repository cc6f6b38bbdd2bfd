//! The diffusion transformer as a stage: codes to mel frames, a block at a time, each solved on its window.
//!
//! One row of a step is one evaluation, so the scheduler may run other work between any two. A window's frames depend
//! only on its codes, voice and noise: the split of the codes, the hand-off mode and the batch do not change a bit.

use std::ops::Range;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, RowSpec, SpecLayout};

use super::config::DitConfig;
use super::dit::{Dit, DitWindow};
use super::guidance::Guidance;
use super::noise::Noise;
use super::sections::DitSections;
use super::solver::{Solve, Solver};
use super::window::Window;
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::step_layers::StepLayers;
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::stage::{BatchEntry, EdgeKind, ResponseParams, RowKind, Stage, StageItem};

/// Name of the stage.
const STAGE: &str = "dit";

/// The diffusion transformer with its solver and voices, as a stage.
pub struct DitPart<O: Ops> {
    /// The transformer, for the times of the solver.
    pub dit: Dit<O>,
    /// Sizes of the transformer.
    pub config: DitConfig,
    /// Solver, and guidance of its slopes.
    pub solver: (Solver, Guidance),
    /// Names of the voices that `dit` was loaded with, by their index.
    pub voices: Vec<String>,
    /// Duration of a code.
    pub code: Duration,
    /// Most codes of a response.
    pub most_codes: usize,
}

impl<O: Device> StagePart<O> for DitPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    /// A response's codes, a window's spectrogram with its slopes, and its rows between two units.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let (before, after) = self.config.window_blocks();
        let frames = (before + 1 + after) * self.config.block_size;
        let solve = self.solver.0.vectors() * frames * self.config.mel_dim * size_of::<f32>();
        let unfinished = self.dit.step_layers().unfinished_bytes(2 * frames);
        SlotBytes { position: 0, fixed: self.most_codes * size_of::<u32>() + solve + unfinished }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(StreamStage::new(STAGE, at.ops, *self, at.slots.total()))
    }
}

/// Codes of a response, and the window that is being solved.
#[derive(Default)]
pub struct DitStream {
    noise: Noise,
    voice: usize,
    /// Codes from `first` on: those that a later window needs.
    codes: Vec<u32>,
    first: usize,
    /// Codes whose frames were emitted.
    done: usize,
    solving: Option<Solving>,
}

/// A window between two evaluations.
struct Solving {
    window: Window,
    solve: Solve,
}

/// Input of an evaluation, as in [`DitWindow`].
pub struct DitEvaluation {
    codes: Vec<u32>,
    voice: usize,
    mel: Vec<f32>,
    time: usize,
}

impl DitEvaluation {
    fn window(&self) -> DitWindow<'_> {
        DitWindow { codes: &self.codes, voice: self.voice, mel: &self.mel, time: self.time }
    }
}

impl DitStream {
    /// Codes of the response so far.
    fn all(&self) -> usize {
        self.first + self.codes.len()
    }

    fn next(&self, config: &DitConfig, ended: bool) -> Option<Window> {
        Window::of(config, self.done, self.all(), ended)
    }
}

fn internal(message: String) -> SessionError {
    SessionError::Internal { stage: STAGE, message }
}

impl<O: Device> StreamModel<O> for DitPart<O> {
    type Stream = DitStream;
    type Piece = DitEvaluation;
    type Sections = DitSections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Codes, EdgeKind::Latents);
    const ROWS: RowKind = RowKind::SolverStep;
    const MAX_ROWS: usize = 1;
    const MAX_ITEMS: usize = 1;

    fn begin(&mut self, params: &ResponseParams) -> Result<DitStream, SessionError> {
        // The session checks the voice against the model's list.
        let unknown = || internal(format!("no voice is called {}", params.voice));
        let voice = self.voices.iter().position(|voice| *voice == params.voice).ok_or_else(unknown)?;
        let noise = Noise { seed: params.seed, response: params.response };
        Ok(DitStream { noise, voice, ..DitStream::default() })
    }

    /// A code out of range has no embedding.
    fn append(&self, stream: &mut DitStream, item: StageItem) -> Result<(), SessionError> {
        let StageItem::Codes(codes) = item else { return Ok(()) };
        match codes[..] {
            [code] if (code as usize) < self.config.num_embeds => stream.codes.push(code),
            _ => return Err(internal(format!("codes {codes:?} are outside of the codebook"))),
        }
        Ok(())
    }

    fn ready_rows(&self, stream: &DitStream, ended: bool) -> usize {
        let solver = &self.solver.0;
        match &stream.solving {
            Some(solving) => solver.evaluations() - solving.solve.evaluated(solver),
            None => stream.next(&self.config, ended).map_or(0, |_| solver.evaluations()),
        }
    }

    fn is_empty(&self, stream: &DitStream) -> bool {
        stream.done == stream.all()
    }

    fn buffered_audio(&self, stream: &DitStream) -> Duration {
        self.code * u32::try_from(stream.all() - stream.done).unwrap_or(u32::MAX).min(10_000)
    }

    fn take(&self, stream: &mut DitStream, _: BatchEntry, ended: bool) -> Option<DitEvaluation> {
        let (solver, config) = (&self.solver.0, &self.config);
        if stream.solving.is_none()
            && let Some(window) = stream.next(config, ended)
        {
            let (first, frames) = (window.from * config.repeats, window.codes() * config.repeats);
            let solve = Solve::new(stream.noise.frames(first, frames, config.mel_dim));
            stream.solving = Some(Solving { window, solve });
        }
        let Solving { window, solve } = stream.solving.as_ref()?;
        let codes = stream.codes[window.from - stream.first..window.to - stream.first].to_vec();
        Some(DitEvaluation { codes, voice: stream.voice, mel: solve.input(solver), time: solve.time(solver) })
    }

    fn size(&self, piece: &DitEvaluation) -> (usize, usize) {
        let rows = self.dit.rows(&[piece.window()]);
        (rows, rows * self.config.mel_dim)
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> DitSections {
        self.dit.layout(layout, rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &DitSections, pieces: &[DitEvaluation]) {
        let windows: Vec<DitWindow<'_>> = pieces.iter().map(DitEvaluation::window).collect();
        self.dit.fill(spec, sections, &windows);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &DitSections) -> O::T {
        self.dit.forward(ops, spec, sections)
    }

    fn layers(&self) -> Option<StepLayers> {
        Some(self.dit.step_layers())
    }

    fn forward_layers(&mut self, ops: &O, at: (&O::Spec, &DitSections), layers: Range<usize>, x: Option<O::T>) -> O::T {
        self.dit.forward_layers(ops, at, layers, x)
    }

    /// Continues with the slope of the window; gives its block's frames once it is solved.
    fn items(&self, stream: &mut DitStream, _: DitEvaluation, numbers: &[f32]) -> Option<Vec<StageItem>> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let (solver, guidance) = &self.solver;
        let Some(Solving { window, solve }) = &mut stream.solving else { return Some(Vec::new()) };
        let Some(frames) = solve.advance(solver, guidance.combine(numbers)) else { return Some(Vec::new()) };
        let (repeats, mel) = (self.config.repeats, self.config.mel_dim);
        let of = |code: usize| (code - window.from) * repeats * mel;
        let rows = frames[of(window.block)..of(window.block_end)].to_vec();
        let count = (window.block_end - window.block) * repeats;
        stream.done = window.block_end;
        stream.solving = None;
        // Drop codes that no later window needs.
        let (before, _) = self.config.window_blocks();
        let kept = stream.done.saturating_sub(before * self.config.block_codes());
        stream.codes.drain(..kept.saturating_sub(stream.first));
        stream.first = stream.first.max(kept);
        Some(vec![StageItem::Latents { rows, count }])
    }
}
