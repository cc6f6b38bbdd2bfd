//! One language model whose positions are text or a frame of codes. After each position the family's script says what
//! the next one is: by a count, a mark, or an empty id.
//!
//! A frame's position is the sum of its codes' embeddings, or the row of a patch of several frames; its codes come from a
//! depth model over the row before. The model's own speech stays in its prompt, as codes.

use std::sync::Arc;

use repartee_engine_api::{Role, Sampling};
use repartee_kernels::row_spec::{SampleSection, SpecSection};
use repartee_kernels::{NO_ID, NO_ROW, Ops, RowSpec, SampleParams, SpecLayout, StepOutputs};

use super::autoregressive::{
    Autoregressive, BLOCK, CausalLm, SampleOutcome, Sampler, SlotState, StepContext, StepInput, StepShape,
};
use super::decoder::ConvSections;
use super::depth::model::{DepthModel, DepthSections};
use super::language_model::LanguageModel;
use super::memory::SlotBytes;
use super::patch_encoder::{PatchEncoder, PatchSections};
use super::pipeline::{Placement, StagePart};
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "language_model";
/// Most slots that one step can advance: the depth model has memory for as many rows.
const MAX_SLOTS: usize = 128;
/// Divisor of the context: a quarter is reserved for a response, or less if its limit is lower.
const RESERVED_SHARE: usize = 4;

/// Kind of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PositionKind {
    /// A text token.
    Text,
    /// A frame of codes.
    Frame,
}

/// Use of what was sampled for a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampledPosition {
    /// It is said; the next position is of this kind.
    Said(PositionKind),
    /// It is a mark: it becomes a position and is not said; later prompts do not have it, unless their template writes it.
    /// The next position is of this kind.
    Mark(PositionKind),
    /// It ends the response, is not said and becomes no position.
    End,
    /// It is one token more than the response may have: the response ends before it.
    Full,
}

/// A family's rule of the order of text and frames.
pub trait InterleavingScript: Send {
    /// State of a response between positions, as far as the rule needs it.
    type Said: Default + Send;

    /// Kind of a response's first position.
    fn first(&self) -> PositionKind;
    /// Id of a text token in whose place a frame stands. With such an id each position is what is sampled for it, text or
    /// a frame, and the kinds that the script gives are not used.
    fn empty(&self) -> Option<u32> {
        None
    }
    /// Begins a response to a prompt.
    fn begin(&self, _said: &mut Self::Said, _prompt: &[Element]) {}
    /// Takes the text token that was sampled for a position.
    fn text(&self, said: &mut Self::Said, params: &ResponseParams, id: u32) -> SampledPosition;
    /// Takes the frame that was sampled for a position: codes frame by frame, codebook by codebook. It may change them.
    fn frame(&self, said: &mut Self::Said, params: &ResponseParams, codes: &mut [u32]) -> SampledPosition;
    /// Most positions of a response with `max_tokens` text tokens; `audio` is true if it is spoken. The stage ends the
    /// response after so many, marks included, and counts no tokens: where the number of frames varies, the script ends
    /// the response itself after `max_tokens` tokens.
    fn positions(&self, max_tokens: usize, audio: bool) -> usize;
}

/// An interleaved language model as the only stage before the vocoder.
pub struct InterleavedPart<O: Ops, S> {
    /// The language model. It hands rows to no talker.
    pub model: LanguageModel<O>,
    /// Maximum positions of the model.
    pub most_positions: usize,
    /// Mask over all ids of the model, a vector: 1 for each that may be sampled, 0 for the others.
    pub allowed_text: O::Weight,
    /// For each code of a frame, the table of its embedding in a position; none with `patch`.
    pub tables: Vec<O::Weight>,
    /// Encoder of a position's frames; `None` if they are the sum of their embeddings.
    pub patch: Option<Arc<PatchEncoder<O>>>,
    /// Depth model of a frame's codes.
    pub depth: DepthModel<O>,
    /// Order of text and frames.
    pub script: S,
    /// Default sampling of the text.
    pub text_sampling: Sampling,
    /// Sampling of codes.
    pub code_sampling: Sampling,
}

/// An interleaved language model in its stage.
struct InterleavedLm<O: Ops, S> {
    part: InterleavedPart<O, S>,
    context: usize,
    depth_cache: Vec<O::State>,
}

impl<O: Device, S: InterleavingScript + 'static> StagePart<O> for InterleavedPart<O, S> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn most_positions(&self) -> Option<usize> {
        Some(self.most_positions)
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let fixed = self.depth.slot_bytes() + self.model.vocabulary();
        SlotBytes { position: self.model.model.position_bytes(), fixed }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let (slots, context) = (at.slots.total(), at.slots.context);
        let depth_cache = self.depth.cache(&at.ops, slots.min(MAX_SLOTS));
        let lm = InterleavedLm { part: *self, context, depth_cache };
        Box::new(Autoregressive::new(at.ops, lm, slots, context))
    }
}

/// Input of a position.
pub struct InterleavedRow {
    element: Element,
    /// Kind of the position that is sampled from this one, if any is.
    next: PositionKind,
}

/// State of a slot.
pub struct InterleavedSlot<S> {
    said: S,
    /// Kind of the position that is sampled next; `None` before the first one.
    next: Option<PositionKind>,
}

impl<S: Default> Default for InterleavedSlot<S> {
    fn default() -> Self {
        Self { said: S::default(), next: None }
    }
}

/// A sampled token or frame.
pub struct InterleavedPiece {
    element: Element,
    /// False for a mark.
    said: bool,
}

/// Sections of the row spec.
pub struct InterleavedSections {
    ids: SpecSection,
    /// Codes of frames.
    codes: Vec<SpecSection>,
    /// Rows of patches, and their codes, in a step that has some.
    patches: Option<(SpecSection, PatchSections)>,
    /// Audio rows, and their numbers.
    audio_at: SpecSection,
    audio: SpecSection,
    params: SampleSection,
    /// Sections of the depth model, in a step that makes frames.
    depth: Option<DepthSections>,
    /// Rows of short convolutions, if some layers have one.
    conv: Option<ConvSections>,
}

impl<O: Ops, S: InterleavingScript> InterleavedLm<O, S> {
    /// True if the script gives the kind of each position before it is sampled.
    fn kinds_are_given(&self) -> bool {
        self.part.script.empty().is_none()
    }
}

impl<O: Device, S: InterleavingScript> CausalLm<O> for InterleavedLm<O, S> {
    type Row = InterleavedRow;
    type Slot = InterleavedSlot<S::Said>;
    type Piece = InterleavedPiece;
    type Sections = InterleavedSections;

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

    fn continues_from_blocks(&self) -> bool {
        self.part.model.model.conv_taps().is_some()
    }

    fn max_slots(&self) -> usize {
        MAX_SLOTS
    }

    fn prompt_row(&self, element: &Element) -> Option<InterleavedRow> {
        Some(InterleavedRow { element: element.clone(), next: self.part.script.first() })
    }

    fn limit(&self, params: &ResponseParams) -> usize {
        self.part.script.positions(params.max_tokens as usize, params.audio)
    }

    /// Rows of audio and of patches, and rows before a frame: a step with none of the last needs no depth model, unless
    /// each position may become a frame.
    fn special_rows(&self, rows: &[InterleavedRow]) -> usize {
        let is_patch = |row: &&InterleavedRow| self.part.patch.is_some() && row.element.codes_of().is_some();
        let before_frame = |row: &&InterleavedRow| self.kinds_are_given() && row.next == PositionKind::Frame;
        rows.iter().filter(|row| row.element.is_audio() || is_patch(row) || before_frame(row)).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> InterleavedSections {
        InterleavedSections {
            ids: layout.list(shape.rows),
            codes: self.part.tables.iter().map(|_| layout.list(shape.rows)).collect(),
            patches: self.part.patch.as_ref().filter(|_| shape.special > 0).map(|patch| {
                let rows = layout.list(shape.special);
                (rows, patch.layout(layout, shape.special))
            }),
            audio_at: layout.list(shape.special),
            audio: layout.list(shape.special * self.part.model.width()),
            params: layout.samples(shape.sampled),
            depth: {
                let frames = shape.sampled > 0 && (shape.special > 0 || !self.kinds_are_given());
                frames.then(|| self.part.depth.layout(layout, shape.sampled))
            },
            conv: self.part.model.model.conv_taps().map(|taps| ConvSections::new(layout, shape.rows, taps)),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, InterleavedRow>, sections: &InterleavedSections, spec: &mut RowSpec) {
        let id = |row: &InterleavedRow| match row.element.value {
            ElementValue::Token(id) => id,
            ElementValue::Audio { .. } | ElementValue::Codes(_) => NO_ID,
        };
        spec.set_each(sections.ids, step.rows.iter().map(id));
        for (at, section) in sections.codes.iter().enumerate() {
            let code = |row: &InterleavedRow| match &row.element.value {
                ElementValue::Codes(codes) => codes.get(at).copied().unwrap_or(NO_ID),
                ElementValue::Token(_) | ElementValue::Audio { .. } => NO_ID,
            };
            spec.set_each(*section, step.rows.iter().map(code));
        }
        if let (Some(patch), Some((rows, sections))) = (&self.part.patch, &sections.patches) {
            let patches =
                || step.rows.iter().enumerate().filter_map(|(i, row)| Some((i as u32, row.element.codes_of()?)));
            spec.set_each(*rows, patches().map(|(i, _)| i));
            patch.fill(spec, sections, &patches().map(|(_, codes)| codes).collect::<Vec<_>>());
        }
        let audio = || step.rows.iter().enumerate().filter_map(|(i, row)| Some((i as u32, row.element.audio()?)));
        spec.set_each(sections.audio_at, audio().map(|(i, _)| i));
        spec.set_floats_each(sections.audio, audio().flat_map(|(_, row)| row.iter().copied()));
        let params = |row: &Sampler<'_>| {
            let params = row.sample_params(&row.params.sampling.unwrap_or(self.part.text_sampling), 0);
            let is_text = !self.kinds_are_given() || step.rows[row.row].next == PositionKind::Text;
            // The id of a position that becomes a frame is unused, and no history counts it.
            if is_text { params } else { SampleParams { slot: NO_ROW as usize, ..params } }
        };
        spec.set_samples(sections.params, step.samplers.iter().map(params));
        if let Some(conv) = &sections.conv {
            conv.fill(spec, step.sequences, BLOCK);
        }
        if let Some(sections) = &sections.depth {
            // The text's random numbers are stream 0.
            let stream = |code| 1 + self.part.depth.order().position(|other| other == code).unwrap_or_default();
            self.part.depth.fill(spec, sections, |code| {
                let stream = stream(code);
                let params = |row: &Sampler<'_>| row.sample_params(&self.part.code_sampling, stream);
                step.samplers.iter().map(params).collect::<Vec<_>>()
            });
        }
    }

    fn forward(
        &mut self,
        ops: &O,
        sections: &InterleavedSections,
        step: StepContext<'_, O>,
        outputs: &mut StepOutputs<O>,
    ) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let model = &self.part.model;
        let index = |section| ops.index(spec, section);
        let audio = (sections.audio.capacity() > 0)
            .then(|| (index(sections.audio_at), ops.floats(spec, sections.audio, model.width())));
        let mut x = model.embed(ops, &index(sections.ids), audio.as_ref().map(|(at, audio)| (at, audio)));
        for (table, codes) in self.part.tables.iter().zip(&sections.codes) {
            x = ops.add(x, &ops.embed_at(table, &index(*codes)));
        }
        if let (Some(patch), Some((rows, sections))) = (&self.part.patch, &sections.patches) {
            x = ops.scatter_at(x, &index(*rows), &patch.forward(ops, spec, sections));
        }
        let conv = sections.conv.as_ref().map(|conv| conv.rows(ops, spec));
        let (x, _) = model.model.forward_with(ops, x, cache, (batch, conv.as_ref()), None);
        let Some(last) = last else { return };
        let hidden = model.model.norm(ops, &ops.gather_at(&x, last));
        let (allowed, params) = (Some(&self.part.allowed_text), index(sections.params.words()));
        outputs.ids.push(ops.sample_at(&model.head(ops, &hidden), &params, allowed, Some(output_mask)));
        if let Some(sections) = &sections.depth {
            let cache = &mut self.depth_cache;
            self.part.depth.draw(ops, (spec, sections), &hidden, None, cache, |ids, _| outputs.ids.push(ids));
        }
    }

    fn sampled(&mut self, ids: Vec<u32>, _: usize, state: &mut SlotState<O, Self>) -> SampleOutcome<InterleavedPiece> {
        let script = &self.part.script;
        let Some(decoding) = state.decoding() else { return SampleOutcome::Stop };
        let (params, begins) = (decoding.params.clone(), decoding.steps == 0);
        if begins {
            state.own = InterleavedSlot::default();
            let mut said = S::Said::default();
            script.begin(&mut said, state.last_prompt());
            state.own.said = said;
        }
        let Some((&text, codes)) = ids.split_first() else { return SampleOutcome::NotFinite };
        let kind = match script.empty() {
            Some(empty) if text == empty => PositionKind::Frame,
            Some(_) => PositionKind::Text,
            None => state.own.next.unwrap_or(script.first()),
        };
        let said = &mut state.own.said;
        let (element, taken) = match kind {
            PositionKind::Text if text == NO_ID => return SampleOutcome::NotFinite,
            PositionKind::Text => (Element::token(Role::Assistant, text), script.text(said, &params, text)),
            PositionKind::Frame if codes.contains(&NO_ID) || codes.is_empty() => return SampleOutcome::NotFinite,
            PositionKind::Frame => {
                let mut drawn: Vec<_> = self.part.depth.order().zip(codes).collect();
                drawn.sort_by_key(|(code, _)| (code.frame, code.codebook));
                let mut codes: Vec<u32> = drawn.into_iter().map(|(_, &id)| id).collect();
                let taken = script.frame(said, &params, &mut codes);
                (Element::codes(Arc::from(codes)), taken)
            }
        };
        let (next, said) = match taken {
            SampledPosition::End => return SampleOutcome::Stop,
            SampledPosition::Full => return SampleOutcome::Full,
            SampledPosition::Said(next) => (next, true),
            SampledPosition::Mark(next) => (next, false),
        };
        state.own.next = Some(next);
        SampleOutcome::Piece(InterleavedPiece { element, said })
    }

    fn emit(&self, slot: usize, piece: &InterleavedPiece, _: usize, out: &mut Outbox) {
        match &piece.element.value {
            _ if !piece.said => {}
            ElementValue::Token(id) => out.push((slot, StageItem::Token(*id))),
            ElementValue::Codes(codes) => {
                let frames = codes.chunks(self.part.depth.codebooks.len().max(1));
                out.extend(frames.map(|frame| (slot, StageItem::Codes(frame.to_vec()))));
            }
            ElementValue::Audio { .. } => {}
        }
    }

    /// The frames of one position.
    fn max_items(&self) -> usize {
        self.part.depth.frames
    }

    fn continue_after(&mut self, state: &mut SlotState<O, Self>, piece: InterleavedPiece) {
        let next = state.own.next.unwrap_or(self.part.script.first());
        state.extend(piece.element.clone(), InterleavedRow { element: piece.element, next });
    }

    fn ended(&mut self, slot: usize, end: StageEnd, _: &mut SlotState<O, Self>, _: &mut BlockPool, out: &mut Outbox) {
        out.push((slot, StageItem::End(end)));
    }

    fn failed(&mut self, state: &mut SlotState<O, Self>, _: &mut BlockPool) {
        state.drop_queue();
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> ContextBudget {
        let reserved = self.part.script.positions(max_tokens, true).min(self.context / RESERVED_SHARE);
        ContextBudget { used: prompt.len(), limit: self.context - reserved }
    }
}
