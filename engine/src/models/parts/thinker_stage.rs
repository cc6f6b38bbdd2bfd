//! A thinker as a language model of the generic stage: reads the prompt, writes text. In a response whose text streams
//! in, given tokens replace the sampled ones.

use std::sync::Arc;

use repartee_engine_api::{Role, Sampling};
use repartee_forms::{Mask, Matcher};
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::shapes::held_words;
use repartee_kernels::{NO_ID, NO_ROW, Ops, RowSpec, SpecLayout, StepOutputs};

use super::autoregressive::{
    Autoregressive, BLOCK, CausalLm, SampleOutcome, SlotState, StepContext, StepInput, StepShape,
};
use super::config::LanguageModelConfig;
use super::generation::Generation;
use super::given_text::GivenText;
use super::language_model::LanguageModel;
use super::memory::SlotBytes;
use super::pipeline::{Placement, StagePart};
use super::slot_rows::SlotRows;
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::held_form::{FormIds, HeldForm};
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "thinker";
/// Divisor of the context: a quarter is reserved for a response, or less if its limit is lower.
const RESERVED_SHARE: usize = 4;

/// Positions whose hidden rows the talker gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HiddenRows {
    /// None: there is no talker, and the response is its text.
    None,
    /// The user's audio alone: the talker reads the text as tokens.
    Heard,
    /// All positions, the response's included.
    All,
}

/// A thinker with its stop tokens and settings, as the first stage.
pub struct ThinkerPart<O: Ops> {
    /// The language model, shared with the talker if that reads its embeddings.
    pub thinker: Arc<LanguageModel<O>>,
    /// Maximum positions of the model.
    pub most_positions: usize,
    /// Tokens that end the text.
    pub stop: Vec<u32>,
    /// Default sampling of requests.
    pub sampling: Sampling,
    /// Positions whose hidden rows the talker gets.
    pub handed_over: HiddenRows,
    /// Mask over the ids, 1 for those that may be sampled; `None` for all.
    pub allowed: Option<O::Weight>,
}

impl<O: Ops> ThinkerPart<O> {
    /// Wraps a thinker with the stops and the sampling of its checkpoint.
    pub fn new(
        thinker: Arc<LanguageModel<O>>,
        config: &LanguageModelConfig,
        generation: &Generation,
        handed_over: HiddenRows,
    ) -> Self {
        let (stop, sampling) = (generation.eos_token_ids.clone(), generation.thinker);
        let most_positions = config.max_position_embeddings;
        Self { thinker, most_positions, stop, sampling, handed_over, allowed: None }
    }
}

/// Text of a slot that is not the model's own choice alone.
#[derive(Default)]
pub struct ThinkerSlot {
    given: GivenText,
    /// A text that is held to a form, and the ids that may follow.
    held: Option<(Matcher, Mask)>,
}

/// True if a slot's response takes text that streams in.
fn reads<O: Device>(state: &SlotState<O, ThinkerLm<O>>) -> bool {
    state.decoding().is_some_and(|decoding| decoding.params.streamed)
}

/// A thinker in its stage.
struct ThinkerLm<O: Ops> {
    part: ThinkerPart<O>,
    /// Positions of a prompt and its response together.
    context: usize,
    /// Hidden rows for the talker; `None` without one.
    hidden: Option<SlotRows<O>>,
}

impl<O: Device> StagePart<O> for ThinkerPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn most_positions(&self) -> Option<usize> {
        Some(self.most_positions)
    }

    /// The KV cache, the rows for the talker, and the mask of sampled ids.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let row = if self.handed_over == HiddenRows::None { 0 } else { self.thinker.width() * size_of::<f32>() };
        SlotBytes { position: self.thinker.model.position_bytes() + row, fixed: self.thinker.vocabulary() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let (slots, context) = (at.slots.total(), at.slots.context);
        let has_talker = self.handed_over != HiddenRows::None;
        let hidden = has_talker.then(|| SlotRows::new(&at.ops, slots, context, self.thinker.width()));
        at.handed.clone_from(&hidden);
        Box::new(Autoregressive::new(at.ops, ThinkerLm { part: *self, context, hidden }, slots, context))
    }
}

/// Sections of the row spec for the thinker.
pub struct ThinkerSections {
    ids: SpecSection,
    /// Audio rows, and their numbers.
    audio_at: SpecSection,
    audio: SpecSection,
    /// For each row, the destination of its hidden row.
    hidden: SpecSection,
    params: SampleSection,
    /// Rows of logits that are held to a form, and the bit sets of their ids.
    held_at: SpecSection,
    held: SpecSection,
}

impl<O: Device> CausalLm<O> for ThinkerLm<O> {
    type Row = Element;
    type Slot = ThinkerSlot;
    type Piece = u32;
    type Sections = ThinkerSections;

    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn output_kind(&self) -> EdgeKind {
        match self.part.handed_over {
            HiddenRows::None | HiddenRows::Heard => EdgeKind::Text,
            HiddenRows::All => EdgeKind::Rows,
        }
    }

    fn vocabulary(&self) -> usize {
        self.part.thinker.vocabulary()
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.part.thinker.model.cache(ops, blocks, BLOCK)
    }

    fn prompt_row(&self, element: &Element) -> Option<Element> {
        Some(element.clone())
    }

    fn limit(&self, params: &ResponseParams) -> usize {
        params.max_tokens as usize
    }

    fn accept(
        &mut self,
        slot: usize,
        item: StageItem,
        state: &mut SlotState<O, Self>,
        _: &mut BlockPool,
        out: &mut Outbox,
    ) {
        match item {
            // Text may come after the response has ended at its limit: the next response must not find it.
            StageItem::Streamed(elements) if reads(state) => state.own.given.push(&elements),
            StageItem::StreamedEnd(_) if reads(state) => state.own.given.end(),
            StageItem::Abort => {
                state.end();
                state.drop_queue();
                state.own = ThinkerSlot::default();
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn form_ids(&self) -> Option<FormIds> {
        Some(FormIds { count: self.vocabulary(), stops: self.part.stop.clone() })
    }

    fn hold(&mut self, state: &mut SlotState<O, Self>) {
        // The last sampled position has none after it.
        let free = (self.context + 1).saturating_sub(state.cached());
        let Some(decoding) = state.decoding() else { return };
        let (left, steps) = (decoding.left().min(free), decoding.steps);
        let begun = decoding.params.held.as_ref().filter(|_| steps == 0).map(HeldForm::matcher);
        if steps == 0 {
            state.own.held = begun.map(|matcher| (matcher, Mask::default()));
        }
        if let Some((matcher, mask)) = &mut state.own.held {
            mask.clone_from(matcher.mask(left));
        }
    }

    fn held<'a>(&self, state: &'a SlotState<O, Self>) -> Option<&'a Mask> {
        state.own.held.as_ref().map(|(_, mask)| mask)
    }

    fn special_rows(&self, rows: &[Element]) -> usize {
        rows.iter().filter(|row| row.is_audio()).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> ThinkerSections {
        ThinkerSections {
            ids: layout.list(shape.rows),
            audio_at: layout.list(shape.special),
            audio: layout.list(shape.special * self.part.thinker.width()),
            hidden: layout.list(if self.hidden.is_some() { shape.rows } else { 0 }),
            params: layout.samples(shape.sampled),
            held_at: layout.list(shape.held),
            held: layout.list(shape.held * held_words(self.part.thinker.vocabulary())),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, Element>, sections: &ThinkerSections, spec: &mut RowSpec) {
        let id = |row: &Element| match row.value {
            ElementValue::Token(id) => id,
            // The template writes no codes.
            ElementValue::Audio { .. } | ElementValue::Codes(_) => NO_ID,
        };
        spec.set_each(sections.ids, step.rows.iter().map(id));
        let audio = || step.rows.iter().enumerate().filter(|(_, row)| row.is_audio());
        spec.set_each(sections.audio_at, audio().map(|(i, _)| i as u32));
        let audio_rows = audio().filter_map(|(_, row)| row.audio());
        spec.set_floats_each(sections.audio, audio_rows.flat_map(|row| row.iter().copied()));
        if let Some(rows) = &self.hidden {
            let hidden = |(row, at): (&Element, &(usize, usize))| {
                let heard = row.role == Role::User && !matches!(row.value, ElementValue::Token(_));
                let read = heard || self.part.handed_over == HiddenRows::All;
                if read { rows.number(at.0, at.1) } else { NO_ROW }
            };
            spec.set_each(sections.hidden, step.rows.iter().zip(step.at).map(hidden));
        }
        let sampling = |params: &ResponseParams| params.sampling.unwrap_or(self.part.sampling);
        let params = step.samplers.iter().map(|row| row.sample_params(&sampling(row.params), 0));
        spec.set_samples(sections.params, params);
        let held = || step.samplers.iter().enumerate().filter_map(|(at, row)| Some((at as u32, row.held?)));
        spec.set_each(sections.held_at, held().map(|(at, _)| at));
        let words = held_words(self.part.thinker.vocabulary());
        spec.set_each(sections.held, held().flat_map(|(_, mask)| mask.words().take(words)));
    }

    fn forward(&mut self, ops: &O, sections: &ThinkerSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let index = |section| ops.index(spec, section);
        let audio = (sections.audio.capacity() > 0)
            .then(|| (index(sections.audio_at), ops.floats(spec, sections.audio, self.part.thinker.width())));
        let audio = audio.as_ref().map(|(at, audio)| (at, audio));
        let ids = index(sections.ids);
        let x = self.part.thinker.embed(ops, &ids, audio);
        let (x, hidden) = self.part.thinker.forward(ops, x, &ids, cache, batch);
        if let (Some(to), Some(hidden)) = (&self.hidden, hidden) {
            to.store(ops, &index(sections.hidden), &hidden);
        }
        if let Some(last) = last {
            let mut logits = self.part.thinker.logits(ops, &x, last);
            if sections.held_at.capacity() > 0 {
                logits = ops.hold_at(logits, &index(sections.held_at), &index(sections.held));
            }
            outputs.ids.push(ops.sample_at(
                &logits,
                &index(sections.params.words()),
                self.part.allowed.as_ref(),
                Some(output_mask),
            ));
        }
    }

    fn sampled(&mut self, ids: Vec<u32>, _: usize, state: &mut SlotState<O, Self>) -> SampleOutcome<u32> {
        let id = ids.first().copied().unwrap_or(NO_ID);
        // What may not follow is chosen if no logit of the others is a number.
        let held = state.own.held.as_mut().filter(|_| id != NO_ID);
        let held = held.map(|(matcher, _)| (matcher.advance(id), matcher.is_ended()));
        match id {
            NO_ID => SampleOutcome::NotFinite,
            _ if held.is_some_and(|(taken, _)| !taken) => SampleOutcome::NotFinite,
            _ if state.decoding().is_some_and(|decoding| decoding.params.streamed) => state.own.given.next(),
            id if self.part.stop.contains(&id) => SampleOutcome::Stop,
            id if held.is_some_and(|(_, ended)| ended) => SampleOutcome::Last(id),
            id => SampleOutcome::Piece(id),
        }
    }

    fn resume(&mut self, state: &mut SlotState<O, Self>) -> Option<SampleOutcome<u32>> {
        state.own.given.resumed()
    }

    fn emit(&self, slot: usize, &id: &u32, position: usize, out: &mut Outbox) {
        let item = match self.part.handed_over {
            HiddenRows::None | HiddenRows::Heard => StageItem::Token(id),
            HiddenRows::All => StageItem::Row { id, position },
        };
        out.push((slot, item));
    }

    fn continue_after(&mut self, state: &mut SlotState<O, Self>, id: u32) {
        state.extend(Element::token(Role::Assistant, id), Element::token(Role::Assistant, id));
    }

    fn ended(
        &mut self,
        slot: usize,
        end: StageEnd,
        state: &mut SlotState<O, Self>,
        _: &mut BlockPool,
        out: &mut Outbox,
    ) {
        state.own = ThinkerSlot::default();
        out.push((slot, StageItem::End(end)));
    }

    fn discard_slot(&mut self, ops: &O, slot: usize) -> usize {
        self.hidden.as_ref().map_or(0, |hidden| hidden.discard(ops, slot))
    }

    fn failed(&mut self, state: &mut SlotState<O, Self>, _: &mut BlockPool) {
        state.own = ThinkerSlot::default();
        state.drop_queue();
    }

    /// A sampled token, and a given token for which the response waited.
    fn max_items(&self) -> usize {
        2
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget {
        let reserved = max_tokens.min(self.context / RESERVED_SHARE);
        ContextBudget { used: prompt.len(), limit: self.context - reserved }
    }
}
