//! The stage: codes in, samples out. A block of units ends at a pause or at the end; a row of the stage is a step of it
//! ([`BlockSound`]).

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::Ops;

use super::Vits;
use super::block::{BlockSound, FRAMES_PER_UNIT, UnitBlock};
use crate::device::Device;
use crate::models::parts::audio_encoder::pieces::UNIT;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::stage::{BatchEntry, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "uvits";
/// Most steps of one slot at once.
const MAX_ROWS: usize = 4;
/// Pieces of a second in which samples leave.
const PIECES: usize = 2;

/// The decoder with its styles, as a stage.
pub struct VitsPart<O: Ops> {
    /// Layers with loaded weights.
    pub model: Vits<O>,
    /// Names of the styles, in the order of their rows.
    pub styles: Vec<String>,
    /// Most units of a block.
    pub most_units: usize,
    /// Duration of a unit, for estimates.
    pub unit: Duration,
}

impl<O: Device> StagePart<O> for VitsPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    /// Six tensors of the last level of the longest block.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let config = &self.model.config;
        let rows = self.most_units * FRAMES_PER_UNIT * config.samples();
        let channels = config.channels >> config.upsampling.len();
        SlotBytes { position: 0, fixed: 6 * rows * channels * size_of::<f32>() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = (0..at.slots.total()).map(|_| None).collect();
        Box::new(VitsStage { ops: at.ops, part: *self, slots })
    }
}

/// The stage with the speech of each slot.
struct VitsStage<O: Device> {
    ops: O,
    part: VitsPart<O>,
    slots: Vec<Option<Speech<O>>>,
}

/// Speech of one response.
struct Speech<O: Ops> {
    style: usize,
    noise: (u64, u64),
    /// Number of the next block.
    number: u64,
    /// Units of a block that is not complete, and blocks that wait.
    units: Vec<u32>,
    queue: VecDeque<UnitBlock>,
    /// Block that is computed, and samples of the one before that wait.
    work: Option<BlockSound<O>>,
    samples: VecDeque<f32>,
    /// End of the response, once no unit follows.
    end: Option<StageEnd>,
}

impl<O: Ops> Speech<O> {
    fn new(part: &VitsPart<O>, params: &ResponseParams) -> Self {
        let style = part.styles.iter().position(|name| *name == params.voice).unwrap_or_default();
        let (queue, samples) = (VecDeque::new(), VecDeque::new());
        let noise = (params.seed, params.response);
        Self { style, noise, number: 0, units: Vec::new(), queue, work: None, samples, end: None }
    }

    /// Completes the block of units.
    fn complete(&mut self) {
        if !self.units.is_empty() {
            let units = std::mem::take(&mut self.units);
            self.queue.push_back(UnitBlock { units, style: self.style, noise: self.noise, number: self.number });
            self.number += 1;
        }
    }

    fn is_busy(&self) -> bool {
        self.work.is_some() || !self.queue.is_empty() || !self.samples.is_empty()
    }
}

impl<O: Device> VitsStage<O> {
    /// Passes the end of a slot's response on once all its sound was given.
    fn end_if_complete(&mut self, slot: usize, out: &mut Outbox) {
        let speech = self.slots[slot].as_ref();
        if let Some(end) = speech.filter(|speech| !speech.is_busy()).and_then(|speech| speech.end) {
            self.slots[slot] = None;
            out.push((slot, StageItem::End(end)));
        }
    }

    /// Computes one step of a slot; false if it has none.
    fn step_of(&mut self, slot: usize, out: &mut Outbox) -> bool {
        let Some(speech) = &mut self.slots[slot] else { return false };
        if !speech.samples.is_empty() {
            let piece = (self.part.model.config.sample_rate as usize / PIECES).min(speech.samples.len());
            out.push((slot, StageItem::Samples(speech.samples.drain(..piece).collect())));
            self.end_if_complete(slot, out);
            return true;
        }
        let Some(mut work) = speech.work.take().or_else(|| speech.queue.pop_front().map(BlockSound::new)) else {
            return false;
        };
        // A device that captures steps is fast, and gains nothing from smaller ones.
        let most = if self.ops.eager_steps().is_some() { usize::MAX } else { UNIT };
        match work.step(&self.ops, &self.part.model, most) {
            None => speech.work = Some(work),
            Some(samples) if samples.iter().all(|sample| sample.is_finite()) => speech.samples.extend(samples),
            Some(_) => {
                self.slots[slot] = None;
                out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: STAGE })));
                return false;
            }
        }
        self.end_if_complete(slot, out);
        true
    }
}

impl<O: Device> Stage for VitsStage<O> {
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
        match item {
            StageItem::Begin(params) => {
                self.slots[slot] = Some(Speech::new(&self.part, &params));
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::Codes(codes) => {
                if let Some(speech) = &mut self.slots[slot] {
                    speech.units.extend(codes);
                }
            }
            StageItem::TextPause => {
                if let Some(speech) = &mut self.slots[slot] {
                    speech.complete();
                }
            }
            StageItem::End(end) => {
                if let Some(speech) = &mut self.slots[slot] {
                    speech.complete();
                    speech.end = Some(end);
                }
                self.end_if_complete(slot, out);
            }
            StageItem::Abort => {
                self.slots[slot] = None;
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let busy = self.slots[slot].as_ref().is_some_and(Speech::is_busy);
        RunnableRows::rows(if busy { MAX_ROWS } else { 0 }, RowKind::Window)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let queued = |speech: &Speech<O>| speech.queue.iter().map(|block| block.units.len()).sum::<usize>();
        let queued = self.slots[slot].as_ref().map_or(0, queued);
        self.part.unit * u32::try_from(queued).unwrap_or(u32::MAX).min(100_000)
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    fn max_items(&self) -> usize {
        MAX_ROWS
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for entry in work {
            for _ in 0..entry.rows {
                if !self.step_of(entry.slot, out) {
                    break;
                }
            }
        }
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }
}
