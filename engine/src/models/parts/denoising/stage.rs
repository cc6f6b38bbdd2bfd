//! The stage: clauses in, codes out, a block at once. A row is a refinement step of a block. A pass refines the canvases of
//! all slots that the planner chose; until it is done others wait, and of a large model each launch runs some of its layers.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::Ops;
use repartee_kernels::random::uniform;

use super::canvas::{Canvas, Refined};
use super::denoiser::{Denoiser, Pass};
use crate::device::Device;
use crate::models::parts::audio_encoder::pieces::UNIT;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::slot_streams::SlotStreams;
use crate::stage::{BatchEntry, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageEnd, StageItem};

/// Name of the stage.
pub const STAGE: &str = "speech_lm";
/// Setting of the stage: refinement steps of a block.
pub const BLOCK_STEPS: &str = "block_steps";
/// Estimated sound of a byte of text.
const BYTE: Duration = Duration::from_millis(60);
/// Bits of a step's counter beside that of the utterance.
const UTTERANCE: u32 = 20;
/// Tensors of a pass that live at once, in rows of the model's width.
const TENSORS: usize = 8;

/// The model as a stage, before the slots are known.
pub struct DenoiserPart<D> {
    /// Layers with loaded weights, and the prompts of texts.
    pub model: D,
    /// Most positions of a prompt and its canvas.
    pub most_positions: usize,
}

impl<O: Device, D: Denoiser<O> + 'static> StagePart<O> for DenoiserPart<D> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn settings(&self) -> &'static [&'static str] {
        &[BLOCK_STEPS]
    }

    /// Rows of a pass, and the logits of an empty canvas.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let numbers =
            TENSORS * self.most_positions * self.model.width() + self.model.plan().canvas * self.model.choices();
        SlotBytes { position: 0, fixed: numbers * size_of::<f32>() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        Box::new(DenoisingStage { ops: at.ops, part: *self, slots: SlotStreams::new(at.slots.total()), pass: None })
    }
}

/// The stage with the speech of each slot.
struct DenoisingStage<O: Device, D> {
    ops: O,
    part: DenoiserPart<D>,
    slots: SlotStreams<Option<Speech>>,
    pass: Option<SlotPass<O>>,
}

/// A pass on its way.
struct SlotPass<O: Ops> {
    pass: Pass<O>,
    /// Slot of each canvas, and its epoch at the start.
    slots: Vec<(usize, u64)>,
}

/// A spoken response.
struct Speech {
    params: ResponseParams,
    /// Prompts that wait, and the bytes of their texts.
    prompts: VecDeque<(Vec<u32>, usize)>,
    /// Canvas in work.
    canvas: Option<Canvas>,
    /// Number of the next utterance.
    number: u64,
    /// True if an utterance filled its canvas and did not end.
    limited: bool,
    /// End of the text, once no clause follows.
    end: Option<StageEnd>,
}

impl Speech {
    fn new(params: ResponseParams) -> Self {
        Self { params, prompts: VecDeque::new(), canvas: None, number: 0, limited: false, end: None }
    }

    fn is_busy(&self) -> bool {
        self.canvas.is_some() || !self.prompts.is_empty()
    }

    /// End of the response, once nothing of it is left.
    fn ended(&self) -> Option<StageEnd> {
        let end = self.end.filter(|_| !self.is_busy())?;
        Some(if self.limited { StageEnd::Length } else { end })
    }

    /// Canvas in work; a new one for the first prompt that waits.
    fn canvas<O: Ops>(&mut self, model: &impl Denoiser<O>) -> Option<&Canvas> {
        if self.canvas.is_none() {
            let (prompt, _) = self.prompts.pop_front()?;
            self.canvas = Some(Canvas::new(&prompt, model.mask(), model.plan()));
        }
        self.canvas.as_ref()
    }

    /// Refines the canvas, and gives the codes of a block that becomes whole. False for logits that are not finite.
    fn refine<O: Ops>(&mut self, model: &impl Denoiser<O>, logits: &[f32], out: &mut Vec<StageItem>) -> bool {
        let Some(canvas) = &mut self.canvas else { return true };
        let (params, number) = (&self.params, self.number);
        let uniform =
            |step: u64, place: usize| uniform(params.seed, params.response, (number << UTTERANCE) + step, place as u64);
        let choices = match canvas.refine(logits, uniform, |choice| model.id(choice)) {
            Refined::NotFinite => return false,
            Refined::Open => return true,
            Refined::Block(choices) => choices,
        };
        let codes: Vec<u32> = choices.iter().map_while(|&choice| model.code(choice)).collect();
        let ends = codes.len() < choices.len();
        if !codes.is_empty() {
            out.extend(codes.into_iter().map(|code| StageItem::Codes(vec![code])));
            out.push(StageItem::TextPause);
        }
        if ends || canvas.is_whole() {
            self.limited |= !ends;
            self.canvas = None;
            self.number += 1;
        }
        true
    }
}

impl<O: Device, D: Denoiser<O>> DenoisingStage<O, D> {
    /// Drops a slot's response, and the pass on its way if nobody waits for it any more.
    fn release(&mut self, slot: usize) {
        self.slots.reset(slot);
        let waits = |&(slot, epoch): &(usize, u64)| self.slots.is_current(slot, epoch);
        self.pass = self.pass.take().filter(|pass| pass.slots.iter().any(waits));
    }

    /// Ends a slot's response if nothing of it is left.
    fn end_if_complete(&mut self, slot: usize, out: &mut Outbox) {
        if let Some(end) = self.slots[slot].as_ref().and_then(Speech::ended) {
            self.release(slot);
            out.push((slot, StageItem::End(end)));
        }
    }

    /// Begins a pass over the canvases of these slots; `None` if none has one.
    fn begin(&mut self, work: &[BatchEntry]) -> Option<SlotPass<O>> {
        let Self { ops, part, slots, .. } = self;
        let mut chosen = Vec::new();
        let mut canvases = Vec::new();
        for entry in work.iter().filter(|entry| entry.rows > 0) {
            let canvas = slots[entry.slot].as_mut().and_then(|speech| speech.canvas(&part.model));
            if let Some(canvas) = canvas {
                canvases.push(canvas.ids().to_vec());
                chosen.push((entry.slot, slots.epoch(entry.slot)));
            }
        }
        let ids: Vec<&[u32]> = canvases.iter().map(|ids| &ids[..]).collect();
        (!ids.is_empty()).then(|| SlotPass { pass: Pass::new(ops, &part.model, &ids), slots: chosen })
    }

    /// Refines the canvases of a pass that is done.
    fn refine(&mut self, SlotPass { pass, slots: chosen }: &SlotPass<O>, out: &mut Outbox) {
        let canvas = |&(slot, epoch): &(usize, u64)| {
            let speech = self.slots[slot].as_ref().filter(|_| self.slots.is_current(slot, epoch));
            speech.and_then(|speech| speech.canvas.as_ref()).map_or(0..0, Canvas::wanted)
        };
        let wanted: Vec<_> = chosen.iter().map(canvas).collect();
        let logits = pass.logits(&self.ops, &self.part.model, &wanted);
        for ((&(slot, _), logits), _) in
            chosen.iter().zip(&logits).zip(&wanted).filter(|(_, wanted)| !wanted.is_empty())
        {
            let mut items = Vec::new();
            let Some(speech) = &mut self.slots[slot] else { continue };
            if speech.refine(&self.part.model, logits, &mut items) {
                out.extend(items.into_iter().map(|item| (slot, item)));
                self.end_if_complete(slot, out);
            } else {
                self.release(slot);
                out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: STAGE })));
            }
        }
    }
}

impl<O: Device, D: Denoiser<O>> Stage for DenoisingStage<O, D> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Clauses
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Begin(params) => {
                self.release(slot);
                self.slots[slot] = Some(Speech::new(params.clone()));
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::Clause(text) => {
                let Some(speech) = &mut self.slots[slot] else { return };
                match self.part.model.prompts(&text) {
                    Ok(prompts) => speech.prompts.extend(prompts.into_iter().map(|prompt| (prompt, text.len()))),
                    Err(error) => {
                        let message = format!("a clause has no ids: {error}");
                        self.release(slot);
                        out.push((slot, StageItem::Fail(SessionError::Internal { stage: STAGE, message })));
                    }
                }
            }
            StageItem::End(end) => {
                if let Some(speech) = &mut self.slots[slot] {
                    speech.end = Some(end);
                }
                self.end_if_complete(slot, out);
            }
            StageItem::Abort => {
                self.release(slot);
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let busy = self.slots[slot].as_ref().is_some_and(Speech::is_busy);
        RunnableRows::rows(usize::from(busy), RowKind::SolverStep)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let Some(speech) = &self.slots[slot] else { return Duration::ZERO };
        let bytes: usize = speech.prompts.iter().map(|(_, bytes)| bytes).sum();
        BYTE * u32::try_from(bytes).unwrap_or(u32::MAX).min(100_000)
    }

    fn max_rows(&self) -> usize {
        1
    }

    /// The codes of a block, and the pause behind them.
    fn max_items(&self) -> usize {
        self.part.model.plan().block + 1
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        let Some(mut pass) = self.pass.take().or_else(|| self.begin(work)) else { return };
        // A device that captures steps is fast, and gains nothing from smaller ones.
        let most = if self.ops.eager_steps().is_some() { usize::MAX } else { UNIT };
        if pass.pass.advance(&self.ops, &self.part.model, most) {
            self.refine(&pass, out);
        } else {
            self.pass = Some(pass);
        }
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }

    fn most_frames(&self) -> Option<usize> {
        Some(self.part.model.plan().canvas)
    }

    fn free(&mut self, slot: usize) {
        self.release(slot);
    }
}
