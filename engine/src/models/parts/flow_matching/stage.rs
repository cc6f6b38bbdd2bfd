//! The diffusion transformer as a stage: codes to mel frames, a block at a time, each solved on its window.
//!
//! One row of a step is one evaluation, so the scheduler may run other work between any two. A window's frames depend
//! only on its codes, voice and noise: the split of the codes, the hand-off mode and the batch do not change a bit.

use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::{Ops, ReadBack, RowSpec, SpecLayout, StepKey};

use super::config::DitConfig;
use super::dit::{Dit, DitWindow};
use super::guidance::Guidance;
use super::noise::Noise;
use super::solver::{Solve, Solver};
use super::window::Window;
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::slot_streams::SlotStreams;
use crate::stage::{BatchEntry, EdgeKind, Outbox, RowKind, RunnableRows, Stage, StageEnd, StageItem};

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

    /// A response's codes, and a window's spectrogram with its slopes.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let (before, after) = self.config.window_blocks();
        let rows = self.solver.0.vectors() * (before + 1 + after) * self.config.block_size;
        let solve = rows * self.config.mel_dim * size_of::<f32>();
        SlotBytes { position: 0, fixed: self.most_codes * size_of::<u32>() + solve }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let Self { dit, config, solver, voices, code, .. } = *self;
        Box::new(DitStage::new(at.ops, dit, (config, solver), voices, at.slots.total(), code))
    }
}

/// The diffusion transformer with the windows of all slots.
pub struct DitStage<O: Ops> {
    ops: O,
    dit: Dit<O>,
    config: DitConfig,
    solver: Solver,
    guidance: Guidance,
    /// Names of the voices, by their index.
    voices: Vec<String>,
    streams: SlotStreams<Stream>,
    /// Duration of a code.
    code: Duration,
    launched: Option<Launched<O::Ticket>>,
    spec: RowSpec,
    back: ReadBack,
}

/// An evaluation that the device computes.
struct Launched<T> {
    ticket: T,
    /// Slot, frames and epoch at launch of each window. If the slot's epoch differs at collection, the result is
    /// dropped.
    windows: Vec<(usize, usize, u64)>,
}

#[derive(Default)]
struct Stream {
    noise: Noise,
    voice: usize,
    /// Codes from `first` on: those that a later window needs.
    codes: Vec<u32>,
    first: usize,
    /// Codes whose frames were emitted.
    done: usize,
    solving: Option<Solving>,
    end: Option<StageEnd>,
}

/// A window between two evaluations.
struct Solving {
    window: Window,
    solve: Solve,
}

impl Stream {
    /// Codes of the response so far.
    fn all(&self) -> usize {
        self.first + self.codes.len()
    }

    fn next(&self, config: &DitConfig) -> Option<Window> {
        Window::of(config, self.done, self.all(), self.end.is_some())
    }
}

impl<O: Ops> DitStage<O> {
    /// Creates the stage for `slots` concurrent responses, each in one of the `voices` that `dit` was loaded with.
    pub fn new(
        ops: O,
        dit: Dit<O>,
        (config, (solver, guidance)): (DitConfig, (Solver, Guidance)),
        voices: Vec<String>,
        slots: usize,
        code: Duration,
    ) -> Self {
        Self {
            ops,
            dit,
            config,
            solver,
            guidance,
            voices,
            streams: SlotStreams::new(slots),
            code,
            launched: None,
            spec: RowSpec::default(),
            back: ReadBack::default(),
        }
    }

    /// Continues with the slope of a slot's window; emits its block's frames once it is solved.
    fn advance(&mut self, slot: usize, slope: Vec<f32>, out: &mut Outbox) {
        let (repeats, mel) = (self.config.repeats, self.config.mel_dim);
        let state = &mut self.streams[slot];
        let Some(Solving { window, solve }) = &mut state.solving else { return };
        let Some(frames) = solve.advance(&self.solver, slope) else { return };
        let of = |code: usize| (code - window.from) * repeats * mel;
        let rows = frames[of(window.block)..of(window.block_end)].to_vec();
        let count = (window.block_end - window.block) * repeats;
        state.done = window.block_end;
        state.solving = None;
        out.push((slot, StageItem::Latents { rows, count }));
        // Drop codes that no later window needs.
        let (before, _) = self.config.window_blocks();
        let kept = state.done.saturating_sub(before * self.config.block_codes());
        state.codes.drain(..kept.saturating_sub(state.first));
        state.first = state.first.max(kept);
        if state.done == state.all()
            && let Some(end) = state.end
        {
            self.streams.reset(slot);
            out.push((slot, StageItem::End(end)));
        }
    }
}

impl<O: Device> Stage for DitStage<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Latents
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        let internal = |message| StageItem::Fail(SessionError::Internal { stage: STAGE, message });
        match item {
            StageItem::Begin(params) => {
                self.streams.reset(slot);
                match self.voices.iter().position(|voice| *voice == params.voice) {
                    Some(voice) => {
                        let noise = Noise { seed: params.seed, response: params.response };
                        self.streams[slot] = Stream { noise, voice, ..Stream::default() };
                        out.push((slot, StageItem::Begin(params)));
                    }
                    // The session checks the voice against the model's list.
                    None => out.push((slot, internal(format!("no voice is called {}", params.voice)))),
                }
            }
            // A code out of range has no embedding.
            StageItem::Codes(codes) => match codes[..] {
                [code] if (code as usize) < self.config.num_embeds => self.streams[slot].codes.push(code),
                _ => out.push((slot, internal(format!("codes {codes:?} are outside of the codebook")))),
            },
            StageItem::End(end) if self.streams[slot].done == self.streams[slot].all() => {
                self.streams.reset(slot);
                out.push((slot, StageItem::End(end)));
            }
            StageItem::End(end) => self.streams[slot].end = Some(end),
            StageItem::Abort => {
                self.streams.reset(slot);
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let state = &self.streams[slot];
        let left = match &state.solving {
            Some(solving) => self.solver.evaluations() - solving.solve.evaluated(&self.solver),
            None => state.next(&self.config).map_or(0, |_| self.solver.evaluations()),
        };
        RunnableRows::rows(left, RowKind::SolverStep)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let state = &self.streams[slot];
        self.code * u32::try_from(state.all() - state.done).unwrap_or(u32::MAX).min(10_000)
    }

    fn max_rows(&self) -> usize {
        1
    }

    fn max_items(&self) -> usize {
        1
    }

    fn launch(&mut self, work: &[BatchEntry], _: &mut Outbox) {
        self.launched = None;
        let Self { ops, dit, config, solver, streams, spec, .. } = self;
        let mel = config.mel_dim;
        for work in work {
            let state = &mut streams[work.slot];
            if state.solving.is_none()
                && let Some(window) = state.next(config)
            {
                let frames = window.codes() * config.repeats;
                let solve = Solve::new(state.noise.frames(window.from * config.repeats, frames, mel));
                state.solving = Some(Solving { window, solve });
            }
        }
        let solving = work.iter().filter_map(|work| Some((work.slot, streams[work.slot].solving.as_ref()?)));
        let inputs: Vec<(usize, Vec<f32>)> =
            solving.map(|(slot, solving)| (slot, solving.solve.input(solver))).collect();
        let windows: Vec<DitWindow<'_>> = inputs
            .iter()
            .filter_map(|(slot, mel)| {
                let state = &streams[*slot];
                let Solving { window, solve } = state.solving.as_ref()?;
                let codes = &state.codes[window.from - state.first..window.to - state.first];
                Some(DitWindow { codes, voice: state.voice, mel, time: solve.time(solver) })
            })
            .collect();
        if windows.is_empty() {
            return;
        }
        let rows = ops.bucket(dit.rows(&windows));
        let mut layout = SpecLayout::default();
        let sections = dit.layout(&mut layout, rows);
        layout.clear_spec(spec);
        dit.fill(spec, &sections, &windows);
        let ticket = ops.launch(StepKey { stage: STAGE, rows, variant: 0 }, spec, &mut |ops, spec, outputs| {
            outputs.rows.push(dit.forward(ops, spec, &sections));
        });
        let windows =
            inputs.iter().map(|(slot, input)| (*slot, input.len() / mel, self.streams.epoch(*slot))).collect();
        self.launched = Some(Launched { ticket, windows });
    }

    fn collect(&mut self, out: &mut Outbox) {
        let Some(Launched { ticket, windows }) = self.launched.take() else { return };
        let mut back = std::mem::take(&mut self.back);
        self.ops.collect(ticket, &mut back);
        let mut rest = &back.numbers[..];
        for (slot, frames, epoch) in windows {
            let (mine, after) = rest.split_at(2 * frames * self.config.mel_dim);
            rest = after;
            if !self.streams.is_current(slot, epoch) {
                continue;
            }
            if mine.iter().any(|number| !number.is_finite()) {
                out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: STAGE })));
                continue;
            }
            self.advance(slot, self.guidance.combine(mine), out);
        }
        self.back = back;
    }

    fn eager_steps(&self) -> Option<u64> {
        self.ops.eager_steps()
    }

    fn free(&mut self, slot: usize) {
        self.streams.reset(slot);
    }
}
