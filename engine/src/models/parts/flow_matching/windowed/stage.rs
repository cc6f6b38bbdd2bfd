//! The flow as a stage: codes to latents, a window at a time. One row of a step is one evaluation, so the scheduler may run other
//! work between any two.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, RowSpec, SpecLayout};

use super::dit::WindowDit;
use super::sections::{WindowEvaluation, WindowSections, rows};
use super::window::{FlowWindow, FlowWindows, SETTINGS};
use crate::device::Device;
use crate::models::parts::flow_matching::guidance::Guidance;
use crate::models::parts::flow_matching::noise::Noise;
use crate::models::parts::flow_matching::solver::{Rule, Solve, Solver};
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::step_layers::StepLayers;
use crate::models::parts::stream_stage::{StreamModel, StreamStage};
use crate::stage::{BatchEntry, EdgeKind, ResponseParams, RowKind, Stage, StageItem};

/// Name of the stage.
pub const STAGE: &str = "flow";

/// Creates the solver with the reference's times, evenly from 0 to 1.
pub fn solver(points: usize) -> Solver {
    let last = points.max(2) - 1;
    Solver::new(Rule::Midpoint, (0..=last).map(|at| at as f32 / last as f32).collect())
}

/// A voice: the recording that its speech continues.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RecordedVoice {
    /// Codes of the recording.
    pub codes: Vec<u32>,
    /// Latents of the codes, `[rows, latents]`.
    pub latents: Vec<f32>,
    /// Vector of the speaker.
    pub speaker: Vec<f32>,
}

/// Latents as the vocoder takes them: each number times a factor, plus another one.
#[derive(Debug, Clone, PartialEq)]
pub struct LatentScale {
    /// Factor of each number of a latent.
    pub factors: Vec<f32>,
    /// Addend of each number.
    pub addends: Vec<f32>,
}

/// The flow as a stage.
pub struct WindowFlowPart<O: Ops> {
    /// The transformer, with tables for the voices and the times of the solver.
    pub dit: WindowDit<O>,
    /// Solver of a window.
    pub solver: Solver,
    /// Voices by name, in the order of the tables.
    pub voices: Arc<[(String, RecordedVoice)]>,
    /// Codes of a window.
    pub windows: FlowWindows,
    /// Scale of the latents that leave the stage.
    pub scale: LatentScale,
    /// Duration of a code.
    pub code: Duration,
    /// Most codes of a response.
    pub most_codes: usize,
}

impl<O: Device> StagePart<O> for WindowFlowPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn settings(&self) -> &'static [&'static str] {
        &SETTINGS
    }

    /// A response's codes, known latents, a solve, and rows between two units.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let config = self.dit.config();
        let recorded = self.voices.iter().map(|(_, voice)| voice.codes.len()).max().unwrap_or_default();
        let window = recorded + self.windows.left + self.windows.new + self.windows.ahead;
        let numbers = (self.solver.vectors() + 1) * window * config.ratio * config.latents;
        let unfinished = self.dit.step_layers().unfinished_bytes(rows(config, window));
        SlotBytes { position: 0, fixed: self.most_codes * size_of::<u32>() + numbers * size_of::<f32>() + unfinished }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(StreamStage::new(STAGE, at.ops, *self, at.slots.total()))
    }
}

/// Codes of a response, and the window that is being solved.
#[derive(Default)]
pub struct WindowStream {
    noise: Noise,
    voice: usize,
    /// Codes from `first` on: those that a later window has; and the latents of those that were solved.
    codes: Vec<u32>,
    latents: Vec<f32>,
    first: usize,
    /// Codes whose latents were emitted.
    done: usize,
    solving: Option<(FlowWindow, Solve)>,
}

impl WindowStream {
    /// Codes of the response so far.
    fn all(&self) -> usize {
        self.first + self.codes.len()
    }
}

fn internal(message: String) -> SessionError {
    SessionError::Internal { stage: STAGE, message }
}

impl<O: Ops> WindowFlowPart<O> {
    /// Numbers of a code's latents.
    fn width(&self) -> usize {
        self.dit.config().ratio * self.dit.config().latents
    }

    /// Noise of a window, a function of the frame: those of the recording come first.
    fn noise(&self, stream: &WindowStream, window: FlowWindow, recorded: usize) -> Vec<f32> {
        let (ratio, latents) = (self.dit.config().ratio, self.dit.config().latents);
        let mut noise = stream.noise.frames(0, ratio * recorded, latents);
        let (first, count) = (ratio * (recorded + window.from), ratio * (window.to - window.from));
        noise.extend(stream.noise.frames(first, count, latents));
        noise
    }
}

impl<O: Device> StreamModel<O> for WindowFlowPart<O> {
    type Stream = WindowStream;
    type Piece = WindowEvaluation;
    type Sections = WindowSections;

    const EDGES: (EdgeKind, EdgeKind) = (EdgeKind::Codes, EdgeKind::Latents);
    const ROWS: RowKind = RowKind::SolverStep;
    const MAX_ROWS: usize = 1;
    const MAX_ITEMS: usize = 1;

    fn begin(&mut self, params: &ResponseParams) -> Result<WindowStream, SessionError> {
        // The session checks the voice against the model's list.
        let unknown = || internal(format!("no voice is called {}", params.voice));
        let voice = self.voices.iter().position(|(name, _)| *name == params.voice).ok_or_else(unknown)?;
        let noise = Noise { seed: params.seed, response: params.response };
        Ok(WindowStream { noise, voice, ..WindowStream::default() })
    }

    fn append(&self, stream: &mut WindowStream, item: StageItem) -> Result<(), SessionError> {
        let StageItem::Codes(codes) = item else { return Ok(()) };
        match codes[..] {
            [code] if (code as usize) < self.dit.config().codes.0 => stream.codes.push(code),
            _ => return Err(internal(format!("codes {codes:?} are outside of the codebook"))),
        }
        Ok(())
    }

    fn ready_rows(&self, stream: &WindowStream, ended: bool) -> usize {
        match &stream.solving {
            Some((_, solve)) => self.solver.evaluations() - solve.evaluated(&self.solver),
            None => self.windows.next(stream.done, stream.all(), ended).map_or(0, |_| self.solver.evaluations()),
        }
    }

    fn is_empty(&self, stream: &WindowStream) -> bool {
        stream.done == stream.all()
    }

    fn buffered_audio(&self, stream: &WindowStream) -> Duration {
        self.code * u32::try_from(stream.all() - stream.done).unwrap_or(u32::MAX).min(10_000)
    }

    fn take(&self, stream: &mut WindowStream, _: BatchEntry, ended: bool) -> Option<WindowEvaluation> {
        let (_, voice) = &self.voices[stream.voice];
        if stream.solving.is_none()
            && let Some(window) = self.windows.next(stream.done, stream.all(), ended)
        {
            let solve = Solve::new(self.noise(stream, window, voice.codes.len()));
            stream.solving = Some((window, solve));
        }
        let (window, solve) = stream.solving.as_ref()?;
        let codes = &stream.codes[window.from - stream.first..window.to - stream.first];
        let latents = &stream.latents[(window.from - stream.first) * self.width()..];
        Some(WindowEvaluation {
            codes: [&voice.codes[..], codes].concat(),
            known: [&voice.latents[..], latents].concat(),
            value: solve.input(&self.solver),
            condition: stream.voice * self.solver.evaluations() + solve.time(&self.solver),
        })
    }

    fn size(&self, piece: &WindowEvaluation) -> (usize, usize) {
        (rows(self.dit.config(), piece.codes.len()), 2 * piece.value.len())
    }

    fn layout(&self, layout: &mut SpecLayout, rows: usize) -> WindowSections {
        WindowSections::new(layout, self.dit.config(), rows)
    }

    fn fill(&self, spec: &mut RowSpec, sections: &WindowSections, pieces: &[WindowEvaluation]) {
        sections.fill(spec, self.dit.config(), pieces);
    }

    fn forward(&mut self, ops: &O, spec: &O::Spec, sections: &WindowSections) -> O::T {
        self.dit.forward(ops, spec, sections)
    }

    fn layers(&self) -> Option<StepLayers> {
        Some(self.dit.step_layers())
    }

    fn forward_layers(
        &mut self,
        ops: &O,
        at: (&O::Spec, &WindowSections),
        layers: Range<usize>,
        x: Option<O::T>,
    ) -> O::T {
        self.dit.forward_layers(ops, at, layers, x)
    }

    /// Continues with the slopes of the window; gives the latents of its new codes once it is solved.
    fn items(&self, stream: &mut WindowStream, _: WindowEvaluation, numbers: &[f32]) -> Option<Vec<StageItem>> {
        if numbers.iter().any(|number| !number.is_finite()) {
            return None;
        }
        let guidance = Guidance { strength: self.dit.config().guidance };
        let Some((window, solve)) = &mut stream.solving else { return Some(Vec::new()) };
        let Some(solved) = solve.advance(&self.solver, guidance.combine(numbers)) else { return Some(Vec::new()) };
        let (width, recorded) = (self.width(), self.voices[stream.voice].1.codes.len());
        let (begin, end) = window.new;
        let of = |code: usize| (recorded + code - window.from) * width;
        let latents = solved[of(begin)..of(end)].to_vec();
        stream.done = end;
        stream.solving = None;
        let scale = self.scale.factors.iter().zip(&self.scale.addends).cycle();
        let rows = latents.iter().zip(scale).map(|(number, (factor, addend))| addend + number * factor).collect();
        stream.latents.extend(latents);
        // Drop codes that no later window has.
        let kept = end.saturating_sub(self.windows.left).max(stream.first);
        stream.codes.drain(..kept - stream.first);
        stream.latents.drain(..(kept - stream.first) * width);
        stream.first = kept;
        Some(vec![StageItem::Latents { rows, count: (end - begin) * self.dit.config().ratio }])
    }
}
