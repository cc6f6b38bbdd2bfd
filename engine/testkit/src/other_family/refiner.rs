//! Third stage: turns codes into latents with a solver, one window of frames at a time. One row is one evaluation over
//! the window, so that a step may end between two. A window waits for the frames after it, or for the end.

use std::time::Duration;

use repartee_engine::internals::flow_matching::solver::{Rule, Solve, Solver};
use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{BatchEntry, EdgeKind, Outbox, RowKind, RunnableRows, Stage, StageEnd, StageItem};
use repartee_kernels::cpu::{Cpu, Weight};
use repartee_kernels::random::uniform;
use repartee_kernels::{Activation, Ops, SegmentShape, SpecLayout};
use repartee_kernels_testkit::host::HostOps;

use super::sizes::{BOOK, CODES, FRAMES, HIDDEN, LATENT};

/// Number of frames in a window.
pub const WINDOW: usize = 8;
/// Frames of context before the window, refined.
pub const BEFORE: usize = 2;
/// Frames of context after the window.
pub const AFTER: usize = 3;
/// Solver evaluations of a window.
pub const EVALUATIONS: usize = 4;
const HEADS: usize = 2;

/// The refiner: latents from codes, a window at a time.
pub struct Refiner {
    ops: Cpu,
    codes: Weight,
    latent: Weight,
    qkv: Weight,
    out: Weight,
    solver: Solver,
    slots: Vec<Slot>,
}

#[derive(Default)]
struct Slot {
    seed: u64,
    response: u64,
    /// All codec frames of the response.
    frames: Vec<Vec<u32>>,
    /// Number of frames refined.
    done: usize,
    /// Latents of the last refined frames, at most [`BEFORE`].
    before: Vec<f32>,
    solving: Option<Solving>,
    end: Option<StageEnd>,
}

/// A window between two evaluations.
struct Solving {
    frames: usize,
    solve: Solve,
    /// Latents of the last evaluation; the result after the last one.
    latents: Vec<f32>,
    done: bool,
}

impl Slot {
    /// Number of frames of the next window; 0 while it waits.
    fn next(&self) -> usize {
        let left = self.frames.len() - self.done;
        if self.end.is_some() || left >= WINDOW + AFTER { left.min(WINDOW) } else { 0 }
    }

    fn begin(&mut self) {
        let frames = self.next();
        // Noise depends on the frame, so no cut of the work changes it.
        let number = |i: usize| uniform(self.seed, self.response, (self.done + i / LATENT) as u64, (i % LATENT) as u64);
        let latents: Vec<f32> = (0..frames * LATENT).map(|i| 2.0 * number(i) - 1.0).collect();
        self.solving = Some(Solving { frames, solve: Solve::new(latents.clone()), latents, done: false });
    }
}

impl Refiner {
    /// Reads its weights.
    pub fn load(ops: &Cpu, weights: &Weights<'_, Cpu>, slots: usize) -> Self {
        let w = weights.at("refiner");
        Self {
            ops: ops.clone(),
            codes: w.table("codes", CODES * BOOK, HIDDEN).unwrap(),
            latent: w.linear("latent", HIDDEN, LATENT).unwrap(),
            qkv: w.linear("qkv", 3 * HIDDEN, HIDDEN).unwrap(),
            out: w.linear("out", LATENT, HIDDEN).unwrap(),
            solver: Solver::new(Rule::Euler, (0..=EVALUATIONS).map(|i| i as f32 / EVALUATIONS as f32).collect()),
            slots: (0..slots).map(|_| Slot::default()).collect(),
        }
    }

    /// Runs one evaluation for each of the slots.
    fn evaluate(&mut self, slots: &[usize]) {
        let mut codes = vec![Vec::new(); CODES];
        let (mut latents, mut segments) = (Vec::new(), Vec::new());
        for &slot in slots {
            let state = &self.slots[slot];
            let Some(solving) = &state.solving else { continue };
            let from = state.done - state.before.len() / LATENT;
            let to = state.frames.len().min(state.done + solving.frames + AFTER);
            for frame in &state.frames[from..to] {
                for (book, codes) in codes.iter_mut().enumerate() {
                    codes.push((book * BOOK) as u32 + frame[book]);
                }
            }
            latents.extend_from_slice(&state.before);
            latents.extend_from_slice(&solving.latents);
            segments.push(to - from);
            latents.resize(segments.iter().sum::<usize>() * LATENT, 0.0);
        }
        let ops = &self.ops;
        let mut x = ops.linear(&ops.tensor(latents, LATENT), &self.latent, None);
        for codes in &codes {
            x = ops.add(x, &ops.embed_at(&self.codes, &ops.list(codes)));
        }
        let qkv = ops.linear(&x, &self.qkv, None);
        let part = |at: usize| ops.narrow(&qkv, at * HIDDEN, HIDDEN);
        let mut layout = SpecLayout::default();
        let at = layout.segments(segments.iter().sum(), segments.len());
        let mut spec = layout.spec();
        spec.set_segments(at, &segments);
        let lengths = ops.index(&ops.upload(&spec), at.words());
        let seen = ops.segment_attention_at(&part(0), &part(1), &part(2), &lengths, SegmentShape::whole(HEADS));
        let slopes = ops.read(&ops.linear(&ops.activation(ops.add(seen, &x), Activation::Silu), &self.out, None));
        let mut first = 0;
        for (&slot, rows) in slots.iter().zip(segments) {
            let state = &mut self.slots[slot];
            let Some(solving) = &mut state.solving else { continue };
            let mine = &slopes[first * LATENT + state.before.len()..];
            let slope = solving.latents.iter().zip(mine).map(|(latent, slope)| slope - 0.5 * latent).collect();
            solving.done = solving.solve.advance(&self.solver, slope).is_some();
            solving.latents = solving.solve.value().to_vec();
            first += rows;
        }
    }

    /// Gives the window of a slot if its last evaluation is done.
    fn give(&mut self, slot: usize, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        let Some(Solving { frames, latents, .. }) = state.solving.take_if(|solving| solving.done) else {
            return;
        };
        state.done += frames;
        state.before.extend_from_slice(&latents);
        state.before.drain(..state.before.len().saturating_sub(BEFORE * LATENT));
        out.push((slot, StageItem::Latents { rows: latents, count: frames }));
        if state.done == state.frames.len()
            && let Some(end) = state.end
        {
            *state = Slot::default();
            out.push((slot, StageItem::End(end)));
        }
    }
}

impl Stage for Refiner {
    fn name(&self) -> &'static str {
        "refiner"
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Latents
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        match item {
            StageItem::Begin(params) => {
                *state = Slot { seed: params.seed, response: params.response, ..Slot::default() };
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::Codes(frame) => state.frames.push(frame),
            StageItem::End(end) if state.done == state.frames.len() => {
                *state = Slot::default();
                out.push((slot, StageItem::End(end)));
            }
            StageItem::End(end) => state.end = Some(end),
            StageItem::Abort => {
                *state = Slot::default();
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let state = &self.slots[slot];
        let rows = match &state.solving {
            Some(solving) => EVALUATIONS - solving.solve.evaluated(&self.solver),
            None if state.next() > 0 => EVALUATIONS,
            None => 0,
        };
        RunnableRows::rows(rows, RowKind::SolverStep)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let state = &self.slots[slot];
        Duration::from_secs(1) * (state.frames.len() - state.done) as u32 / FRAMES
    }

    fn max_rows(&self) -> usize {
        EVALUATIONS
    }
    fn max_items(&self) -> usize {
        1
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for work in work.iter().filter(|work| work.rows > 0) {
            if self.slots[work.slot].solving.is_none() {
                self.slots[work.slot].begin();
            }
        }
        for round in 0..EVALUATIONS {
            let slots: Vec<usize> = work.iter().filter(|work| work.rows > round).map(|work| work.slot).collect();
            if !slots.is_empty() {
                self.evaluate(&slots);
            }
        }
        work.iter().for_each(|work| self.give(work.slot, out));
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    /// Number of slots that hold frames.
    fn blocks(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.frames.is_empty()).count()
    }
}
