//! Last stage: latents to samples. A frame's samples depend on its latent and the one before.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{BatchEntry, EdgeKind, Outbox, RowKind, RunnableRows, Stage, StageEnd, StageItem};
use repartee_kernels::Ops;
use repartee_kernels::cpu::{Cpu, Weight};

use super::sizes::{FRAMES, LATENT, SAMPLES};

/// Upper bound of one slot's frames in a step.
const MAX_FRAMES: usize = 8;

/// The vocoder: samples from latents, with one frame of overlap.
pub struct Vocoder {
    ops: Cpu,
    frame: Weight,
    slots: Vec<Slot>,
}

#[derive(Default)]
struct Slot {
    before: Option<Vec<f32>>,
    latents: VecDeque<Vec<f32>>,
    end: Option<StageEnd>,
}

impl Vocoder {
    /// Reads its weights.
    pub fn load(ops: &Cpu, weights: &Weights<'_, Cpu>, slots: usize) -> Self {
        let frame = weights.at("vocoder").linear("frame", SAMPLES, 2 * LATENT).unwrap();
        Self { ops: ops.clone(), frame, slots: (0..slots).map(|_| Slot::default()).collect() }
    }
}

impl Stage for Vocoder {
    fn name(&self) -> &'static str {
        "vocoder"
    }
    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Latents
    }
    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        let state = &mut self.slots[slot];
        match item {
            StageItem::Begin(_) | StageItem::Abort => {
                *state = Slot::default();
                out.push((slot, item));
            }
            StageItem::Latents { rows, count } => {
                state.latents.extend(rows.chunks(LATENT).take(count).map(<[f32]>::to_vec));
            }
            StageItem::End(end) if state.latents.is_empty() => {
                *state = Slot::default();
                out.push((slot, StageItem::End(end)));
            }
            StageItem::End(end) => state.end = Some(end),
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        RunnableRows::rows(self.slots[slot].latents.len(), RowKind::Window)
    }
    fn buffered_audio(&self, slot: usize) -> Duration {
        Duration::from_secs(1) * self.slots[slot].latents.len() as u32 / FRAMES
    }
    fn max_rows(&self) -> usize {
        MAX_FRAMES
    }
    fn max_items(&self) -> usize {
        MAX_FRAMES
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        let mut rows = Vec::new();
        for &BatchEntry { slot, rows: frames } in work {
            let state = &mut self.slots[slot];
            for latent in state.latents.drain(..frames) {
                rows.extend(state.before.take().unwrap_or_else(|| vec![0.0; LATENT]));
                rows.extend_from_slice(&latent);
                state.before = Some(latent);
            }
        }
        let ops = &self.ops;
        let samples = ops.read(&ops.clamp(ops.linear(&ops.tensor(rows, 2 * LATENT), &self.frame, None), -1.0, 1.0));
        let mut frames = samples.chunks(SAMPLES);
        for &BatchEntry { slot, rows } in work {
            out.extend(frames.by_ref().take(rows).map(|frame| (slot, StageItem::Samples(frame.to_vec()))));
            let state = &mut self.slots[slot];
            if state.latents.is_empty()
                && let Some(end) = state.end
            {
                *state = Slot::default();
                out.push((slot, StageItem::End(end)));
            }
        }
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = Slot::default();
    }

    /// Number of slots that hold data of a response.
    fn blocks(&self) -> usize {
        self.slots.iter().filter(|slot| slot.before.is_some() || !slot.latents.is_empty()).count()
    }
}
