//! A language model whose ids are text and codes alike: each position is a token or a code, by the id that is drawn. The model has
//! learnt in which order; nothing forces it. Its own speech stays in its prompt, as codes.

use std::sync::Arc;

use repartee_engine_api::{Role, Sampling};
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ID, Ops, RowSpec, SpecLayout, StepOutputs};

use super::autoregressive::{
    Autoregressive, BLOCK, CausalLm, SampleOutcome, SlotState, StepContext, StepInput, StepShape,
};
use super::language_model::LanguageModel;
use super::memory::SlotBytes;
use super::pipeline::{Placement, StagePart};
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "language_model";
/// Divisor of the context: a quarter is reserved for a response, or less if its limit is lower.
const RESERVED_SHARE: usize = 4;

/// Ids of a vocabulary of text and codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedIds {
    /// Id of code 0, and number of codes; lower ids are text.
    pub codes: (u32, usize),
    /// Ids that end a response.
    pub ends: Vec<u32>,
    /// Most codes of a response for each of its tokens, and those of a response of any length.
    pub most_codes: (usize, usize),
}

impl SharedIds {
    /// Code of an id; `None` for text.
    pub fn code(&self, id: u32) -> Option<u32> {
        id.checked_sub(self.codes.0)
    }

    /// Most positions of a response with `max_tokens` text tokens. The last one finds that all are said.
    pub fn positions(&self, max_tokens: usize) -> usize {
        let (each, least) = self.most_codes;
        max_tokens.saturating_mul(1 + each).saturating_add(least + 1)
    }

    /// Most codes of a response of at most `positions` positions.
    pub fn most_codes(&self, positions: usize) -> usize {
        let (each, least) = self.most_codes;
        positions.saturating_sub(least) / (1 + each) * each + least
    }
}

/// A language model of text and codes, as the only stage before the flow.
pub struct SharedVocabularyPart<O: Ops> {
    /// The language model. It hands rows to no talker.
    pub model: LanguageModel<O>,
    /// Maximum positions of the model.
    pub most_positions: usize,
    /// Mask over all ids of the model, a vector: 1 for each that may be sampled, 0 for the others.
    pub allowed: O::Weight,
    /// Ids of codes and ends.
    pub ids: SharedIds,
    /// Sampling of text and codes of requests without one.
    pub sampling: Sampling,
}

/// The language model in its stage.
struct SharedVocabularyLm<O: Ops> {
    part: SharedVocabularyPart<O>,
    context: usize,
}

impl<O: Device> StagePart<O> for SharedVocabularyPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn most_positions(&self) -> Option<usize> {
        Some(self.most_positions)
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes { position: self.model.model.position_bytes(), fixed: self.model.vocabulary() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let (slots, context) = (at.slots.total(), at.slots.context);
        Box::new(Autoregressive::new(at.ops, SharedVocabularyLm { part: *self, context }, slots, context))
    }
}

/// A sampled position.
pub struct SharedPiece {
    element: Element,
    /// False for a code of a response that is not spoken.
    said: bool,
}

/// Sections of the row spec.
pub struct SharedSections {
    ids: SpecSection,
    /// Audio rows, and their numbers.
    audio_at: SpecSection,
    audio: SpecSection,
    params: SampleSection,
}

impl<O: Device> CausalLm<O> for SharedVocabularyLm<O> {
    type Row = Element;
    /// Text tokens of the response.
    type Slot = u32;
    type Piece = SharedPiece;
    type Sections = SharedSections;

    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn vocabulary(&self) -> usize {
        self.part.model.vocabulary()
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.part.model.model.cache(ops, blocks, BLOCK)
    }

    fn prompt_row(&self, element: &Element) -> Option<Element> {
        Some(element.clone())
    }

    fn limit(&self, params: &ResponseParams) -> usize {
        self.part.ids.positions(params.max_tokens as usize)
    }

    fn special_rows(&self, rows: &[Element]) -> usize {
        rows.iter().filter(|row| row.is_audio()).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> SharedSections {
        SharedSections {
            ids: layout.list(shape.rows),
            audio_at: layout.list(shape.special),
            audio: layout.list(shape.special * self.part.model.width()),
            params: layout.samples(shape.sampled),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, Element>, sections: &SharedSections, spec: &mut RowSpec) {
        let id = |row: &Element| match &row.value {
            ElementValue::Token(id) => *id,
            ElementValue::Codes(codes) => codes.first().map_or(NO_ID, |code| self.part.ids.codes.0 + code),
            ElementValue::Audio { .. } => NO_ID,
        };
        spec.set_each(sections.ids, step.rows.iter().map(id));
        let audio = || step.rows.iter().enumerate().filter_map(|(at, row)| Some((at as u32, row.audio()?)));
        spec.set_each(sections.audio_at, audio().map(|(at, _)| at));
        spec.set_floats_each(sections.audio, audio().flat_map(|(_, row)| row.iter().copied()));
        let sampling = |params: &ResponseParams| params.sampling.unwrap_or(self.part.sampling);
        let params = step.samplers.iter().map(|row| row.sample_params(&sampling(row.params), 0));
        spec.set_samples(sections.params, params);
    }

    fn forward(&mut self, ops: &O, sections: &SharedSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let (model, index) = (&self.part.model, |section| ops.index(spec, section));
        let audio = (sections.audio.capacity() > 0)
            .then(|| (index(sections.audio_at), ops.floats(spec, sections.audio, model.width())));
        let ids = index(sections.ids);
        let x = model.embed(ops, &ids, audio.as_ref().map(|(at, audio)| (at, audio)));
        let (x, _) = model.forward(ops, x, &ids, cache, batch);
        let Some(last) = last else { return };
        let (logits, params) = (model.logits(ops, &x, last), index(sections.params.words()));
        outputs.ids.push(ops.sample_at(&logits, &params, Some(&self.part.allowed), Some(output_mask)));
    }

    /// A response that is not spoken has its codes, because its text goes with them, but does not say them.
    fn sampled(&mut self, ids: Vec<u32>, _: usize, state: &mut SlotState<O, Self>) -> SampleOutcome<SharedPiece> {
        let id = ids.first().copied().unwrap_or(NO_ID);
        let Some(decoding) = state.decoding() else { return SampleOutcome::Stop };
        let (audio, most, begins) = (decoding.params.audio, decoding.params.max_tokens, decoding.steps == 0);
        if begins {
            state.own = 0;
        }
        if id == NO_ID {
            return SampleOutcome::NotFinite;
        }
        if let Some(code) = self.part.ids.code(id) {
            return SampleOutcome::Piece(SharedPiece { element: Element::codes(Arc::from([code])), said: audio });
        }
        if self.part.ids.ends.contains(&id) {
            return SampleOutcome::Stop;
        }
        if state.own >= most {
            return SampleOutcome::Full;
        }
        state.own += 1;
        SampleOutcome::Piece(SharedPiece { element: Element::token(Role::Assistant, id), said: true })
    }

    fn emit(&self, slot: usize, piece: &SharedPiece, _: usize, out: &mut Outbox) {
        match &piece.element.value {
            _ if !piece.said => {}
            ElementValue::Token(id) => out.push((slot, StageItem::Token(*id))),
            ElementValue::Codes(codes) => out.push((slot, StageItem::Codes(codes.to_vec()))),
            ElementValue::Audio { .. } => {}
        }
    }

    fn continue_after(&mut self, state: &mut SlotState<O, Self>, piece: SharedPiece) {
        state.extend(piece.element.clone(), piece.element);
    }

    fn ended(&mut self, slot: usize, end: StageEnd, _: &mut SlotState<O, Self>, _: &mut BlockPool, out: &mut Outbox) {
        out.push((slot, StageItem::End(end)));
    }

    fn failed(&mut self, state: &mut SlotState<O, Self>, _: &mut BlockPool) {
        state.drop_queue();
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget {
        let reserved = self.part.ids.positions(max_tokens).min(self.context / RESERVED_SHARE);
        ContextBudget { used: prompt.len(), limit: self.context - reserved }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_above_the_text_are_codes() {
        let ids = SharedIds { codes: (400, 64), ends: vec![2], most_codes: (5, 64) };
        assert_eq!((ids.code(399), ids.code(400), ids.code(463)), (None, Some(0), Some(63)));
        assert_eq!(ids.positions(10), 125);
        assert_eq!(ids.positions(usize::MAX), usize::MAX);
        assert_eq!((ids.most_codes(125), ids.most_codes(0)), (114, 64));
    }
}
