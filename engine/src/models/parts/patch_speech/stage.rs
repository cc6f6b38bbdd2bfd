//! The language model as a stage: clauses to latents. Each clause is an utterance of its own, which begins with an empty
//! sequence; each of its steps solves a patch of latents, whose row is the next position.

use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{NO_ID, Ops, RowSpec, SpecLayout, StepOutputs};

use super::limits::StepLimits;
use super::model::{PatchSpeechModel, STOPS};
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::models::parts::autoregressive::{
    Autoregressive, BLOCK, CausalLm, SampleOutcome, Sampler, SlotState, StepContext, StepInput, StepShape,
};
use crate::models::parts::flow_matching::noise::Noise;
use crate::models::parts::flow_matching::patches::aggregator::AggregatorSections;
use crate::models::parts::flow_matching::patches::head::{PatchFlowSections, PatchStart};
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::talker::speech_state::{AfterUtterance, SpeechState};
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, Stage, StageEnd, StageItem};
use crate::text::Tokenizer;

/// Name of the stage.
pub const STAGE: &str = "speech_lm";
/// Most slots that one step can advance: the flow has some seventy rows for each.
const MAX_SLOTS: usize = 32;
/// Most ids of an utterance's text. A longer clause becomes several.
const MOST_TEXT: usize = 256;
/// Most positions of an utterance's prompt, instructions included.
const MOST_PROMPT: usize = 1024;
/// Sound of a byte of text, for estimates.
const BYTE: Duration = Duration::from_millis(60);
/// Bit of the noise's counter above which the utterance's number stands.
const UTTERANCE: u32 = 32;

/// A family's prompt of an utterance.
pub trait UtterancePrompt: Send {
    /// Ids of instructions.
    fn instructions(&self, text: &str) -> Vec<u32>;
    /// Ids of a whole prompt: of a text, and of instructions, if there are any. [`NO_ID`] is a row of zeros.
    fn rows(&self, text: &[u32], instructions: &[u32]) -> Vec<u32>;
}

/// The language model as a stage.
pub struct PatchSpeechPart<O: Ops> {
    /// Layers, heads and tables with loaded weights.
    pub model: PatchSpeechModel<O>,
    /// Tokenizer of clauses.
    pub tokenizer: Tokenizer,
    /// Tokenizer of the text in which prompts reach the reader.
    pub reader: Tokenizer,
    /// Prompt of an utterance.
    pub prompt: Box<dyn UtterancePrompt>,
    /// Limits of an utterance.
    pub limits: StepLimits,
    /// Most positions of the model.
    pub most_positions: usize,
}

/// Setting of the stage: most patches of an utterance.
pub const MOST_PATCHES: &str = "most_patches";

impl<O: Ops> PatchSpeechPart<O> {
    /// Positions of an utterance with its prompt.
    fn positions(&self) -> usize {
        self.most_positions.min(MOST_PROMPT + self.limits.most)
    }
}

impl<O: Device> StagePart<O> for PatchSpeechPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn settings(&self) -> &'static [&'static str] {
        &[MOST_PATCHES]
    }

    /// Keys and values of an utterance, whatever the context of the session.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes { position: 0, fixed: self.positions() * self.model.layers.position_bytes() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let positions = self.positions();
        let lm = SpeechLm { part: *self, context: at.slots.context, numbers: Vec::new() };
        Box::new(Autoregressive::new(at.ops, lm, at.slots.total(), positions))
    }
}

/// The language model in its stage.
struct SpeechLm<O: Ops> {
    part: PatchSpeechPart<O>,
    /// Positions of a session's prompt.
    context: usize,
    /// Latents and stop logits of the last step's samplers.
    numbers: Vec<f32>,
}

/// Input of a position.
enum RowInput {
    /// A text token, or [`NO_ID`] for a row of zeros.
    Text(u32),
    /// Latents of a patch.
    Patch(Arc<[f32]>),
}

/// A position.
struct SpeechRow {
    input: RowInput,
    /// Start of the patch that is solved from it, if any is: the latents before, and the counter of its noise.
    start: Option<(Arc<[f32]>, usize)>,
}

/// Text of an utterance.
struct UtteranceText {
    ids: Vec<u32>,
    characters: usize,
    bytes: usize,
}

/// State of a slot.
#[derive(Default)]
struct SpeechSlot {
    /// Instructions of the next response, as ids of the reader's text.
    instructions: Vec<u32>,
    speech: Option<Speech>,
}

/// A spoken response.
struct Speech {
    state: SpeechState<(), UtteranceText>,
    /// Ids of the instructions.
    instructions: Vec<u32>,
    /// Number of the utterance, its patches, and its last latents.
    number: usize,
    patches: usize,
    history: Vec<f32>,
}

impl Speech {
    /// Start of the next patch, of `latents` latents.
    fn start(&self, latents: usize) -> (Arc<[f32]>, usize) {
        (Arc::from(&self.history[..]), (self.number << UTTERANCE) + self.patches * latents)
    }
}

/// Sections of the row spec.
struct SpeechSections {
    ids: SpecSection,
    /// Rows of patches, and the patches, in a step that has some.
    patches: Option<(SpecSection, AggregatorSections)>,
    /// Sections of the flow, in a step that solves patches.
    flow: Option<PatchFlowSections>,
}

type State<O> = SlotState<O, SpeechLm<O>>;

impl<O: Device> SpeechLm<O> {
    /// Numbers of a patch, and of the latents before it.
    fn sizes(&self) -> (usize, usize) {
        let flow = self.part.model.flow.config();
        (flow.patch * flow.latent, flow.history * flow.latent)
    }

    /// Begins the first utterance that waits, if none is spoken.
    fn advance(&self, state: &mut State<O>) {
        let Some(speech) = state.own.speech.as_mut().filter(|speech| !speech.state.is_over() && !speech.state.begun)
        else {
            return;
        };
        let Some(text) = speech.state.utterances.front().and_then(|said| said.tokens.first()) else { return };
        let rows = self.part.prompt.rows(&text.ids, &speech.instructions);
        let (limit, params) = (self.part.limits.most(text.characters), speech.state.params.clone());
        (speech.state.begun, speech.patches, speech.history) = (true, 0, vec![0.0; self.sizes().1]);
        let (last, start) = (rows.len() - 1, speech.start(self.part.model.flow.config().patch));
        for (at, id) in rows.into_iter().enumerate() {
            let start = (at == last).then(|| start.clone());
            state.push(SpeechRow { input: RowInput::Text(id), start });
        }
        state.begin(params, limit);
    }

    /// Ids of instructions, which are ids of the reader's text.
    fn instructions(&self, ids: &[u32]) -> Vec<u32> {
        let text = self.part.reader.decode(ids);
        let text = text.trim();
        if text.is_empty() { Vec::new() } else { self.part.prompt.instructions(text) }
    }

    /// Queues a clause.
    fn clause(&self, speech: &mut Speech, text: &str) -> Result<(), SessionError> {
        let failed = |error| SessionError::Internal { stage: STAGE, message: format!("a clause has no ids: {error}") };
        let ids = self.part.tokenizer.encode(text).map_err(failed)?;
        let (characters, bytes) = (text.chars().count(), text.len());
        for ids in ids.chunks(MOST_TEXT) {
            speech.state.token(UtteranceText { ids: ids.to_vec(), characters, bytes });
            speech.state.end_text(StageEnd::Stop);
        }
        Ok(())
    }
}

/// Drops a response and its rows.
fn finish<O: Device>(state: &mut State<O>, pool: &mut BlockPool) {
    state.own.speech = None;
    state.truncate(pool, 0);
}

impl<O: Device> CausalLm<O> for SpeechLm<O> {
    type Row = SpeechRow;
    type Slot = SpeechSlot;
    type Piece = Arc<[f32]>;
    type Sections = SpeechSections;

    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Clauses
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Latents
    }

    /// Nothing is sampled.
    fn vocabulary(&self) -> usize {
        1
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.part.model.layers.cache(ops, blocks, BLOCK)
    }

    fn max_slots(&self) -> usize {
        MAX_SLOTS
    }

    fn prompt_row(&self, _: &Element) -> Option<SpeechRow> {
        None
    }

    fn limit(&self, _: &ResponseParams) -> usize {
        self.part.limits.most
    }

    fn accept(&mut self, slot: usize, item: StageItem, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        match item {
            StageItem::Context { elements, .. } => {
                let id = |element: &Element| match element.value {
                    ElementValue::Token(id) => Some(id),
                    ElementValue::Audio { .. } | ElementValue::Codes(_) => None,
                };
                state.own.instructions = elements.iter().filter_map(id).collect();
            }
            StageItem::Begin(params) => {
                let instructions = self.instructions(&std::mem::take(&mut state.own.instructions));
                let speech = || {
                    let state = SpeechState::new(params.clone(), ());
                    Speech { state, instructions, number: 0, patches: 0, history: Vec::new() }
                };
                state.own.speech = params.audio.then(speech);
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::Clause(text) => {
                let queued = state.own.speech.as_mut().map(|speech| self.clause(speech, &text));
                match queued {
                    Some(Err(error)) => out.push((slot, StageItem::Fail(error))),
                    Some(Ok(())) => self.advance(state),
                    None => {}
                }
            }
            StageItem::End(end) => {
                let ended = state.own.speech.as_mut().map_or(Some(end), |speech| {
                    let silent = speech.state.utterances.is_empty();
                    speech.state.complete(end, silent)
                });
                if let Some(end) = ended {
                    finish(state, pool);
                    out.push((slot, StageItem::End(end)));
                }
            }
            StageItem::Abort => {
                state.end();
                finish(state, pool);
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    /// Rows of patches.
    fn special_rows(&self, rows: &[SpeechRow]) -> usize {
        rows.iter().filter(|row| matches!(row.input, RowInput::Patch(_))).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> SpeechSections {
        let model = &self.part.model;
        SpeechSections {
            ids: layout.list(shape.rows),
            patches: (shape.special > 0)
                .then(|| (layout.list(shape.special), model.aggregator.layout(layout, shape.special))),
            flow: (shape.sampled > 0).then(|| model.flow.layout(layout, shape.sampled)),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, SpeechRow>, sections: &SpeechSections, spec: &mut RowSpec) {
        let model = &self.part.model;
        let id = |row: &SpeechRow| if let RowInput::Text(id) = row.input { id } else { NO_ID };
        spec.set_each(sections.ids, step.rows.iter().map(id));
        if let Some((rows, sections)) = &sections.patches {
            let patch = |(at, row): (usize, &'_ SpeechRow)| match &row.input {
                RowInput::Patch(latents) => Some((at as u32, latents.clone())),
                RowInput::Text(_) => None,
            };
            let patches: Vec<_> = step.rows.iter().enumerate().filter_map(patch).collect();
            spec.set_each(*rows, patches.iter().map(|(at, _)| *at));
            model.aggregator.fill(spec, sections, patches.iter().map(|(_, latents)| &latents[..]));
        }
        if let Some(sections) = &sections.flow {
            let sizes = model.flow.config();
            let noise = |sampler: &Sampler<'_>, first: usize| {
                let noise = Noise { seed: sampler.params.seed, response: sampler.params.response };
                noise.frames(first, sizes.patch, sizes.latent)
            };
            let start = |sampler: &Sampler<'_>| {
                let (history, first) = step.rows[sampler.row].start.as_ref()?;
                Some((history.clone(), noise(sampler, *first)))
            };
            let starts: Vec<_> = step.samplers.iter().filter_map(start).collect();
            let starts: Vec<_> = starts.iter().map(|(history, noise)| PatchStart { history, noise }).collect();
            model.flow.fill(spec, sections, &starts);
        }
    }

    fn forward(&mut self, ops: &O, sections: &SpeechSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, .. } = step;
        let model = &self.part.model;
        let mut x = ops.embed_at(&model.text, &ops.index(spec, sections.ids));
        if let Some((rows, sections)) = &sections.patches {
            x = ops.scatter_at(x, &ops.index(spec, *rows), &model.aggregator.forward(ops, (spec, sections)));
        }
        let (x, _) = model.layers.forward(ops, x, cache, batch, None);
        let (Some(last), Some(flow)) = (last, &sections.flow) else { return };
        let hidden = model.layers.norm(ops, &ops.gather_at(&x, last));
        let latents = ops.reshape(model.flow.solve(ops, (spec, flow), &hidden), self.sizes().0);
        let stops = ops.linear(&hidden, &model.stop.0, Some(&model.stop.1));
        outputs.rows.push(ops.concat_columns(&[&latents, &stops]));
    }

    fn computed(&mut self, numbers: &[f32]) {
        self.numbers.clear();
        self.numbers.extend_from_slice(numbers);
    }

    fn sampled(&mut self, _: Vec<u32>, at: usize, state: &mut State<O>) -> SampleOutcome<Arc<[f32]>> {
        let (patch, history) = self.sizes();
        let width = patch + STOPS;
        let (Some(speech), Some(numbers)) = (&mut state.own.speech, self.numbers.get(at * width..(at + 1) * width))
        else {
            return SampleOutcome::NotFinite;
        };
        if numbers.iter().any(|number| !number.is_finite()) {
            return SampleOutcome::NotFinite;
        }
        let (latents, stops) = numbers.split_at(patch);
        speech.patches += 1;
        speech.history.extend_from_slice(latents);
        speech.history.drain(..speech.history.len().saturating_sub(history));
        let ends = speech.patches > self.part.limits.least + 1 && stops[1] > stops[0];
        let piece = Arc::from(latents);
        if ends { SampleOutcome::Last(piece) } else { SampleOutcome::Piece(piece) }
    }

    fn emit(&self, slot: usize, piece: &Arc<[f32]>, _: usize, out: &mut Outbox) {
        out.push((slot, StageItem::Latents { rows: piece.to_vec(), count: self.part.model.flow.config().patch }));
    }

    fn continue_after(&mut self, state: &mut State<O>, piece: Arc<[f32]>) {
        let patch = self.part.model.flow.config().patch;
        let start = state.own.speech.as_ref().map(|speech| speech.start(patch));
        state.push(SpeechRow { input: RowInput::Patch(piece), start });
    }

    /// The response ends once its text has ended too and no clause is left.
    fn ended(&mut self, slot: usize, end: StageEnd, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        let Some(speech) = &mut state.own.speech else { return };
        out.push((slot, StageItem::TextPause));
        speech.number += 1;
        let after = speech.state.speech_ended(end);
        state.truncate(pool, 0);
        match after {
            AfterUtterance::End(end) => {
                state.own.speech = None;
                out.push((slot, StageItem::End(end)));
            }
            AfterUtterance::Utterance => self.advance(state),
            AfterUtterance::Wait => {}
        }
    }

    fn failed(&mut self, state: &mut State<O>, pool: &mut BlockPool) {
        finish(state, pool);
    }

    /// Each response gets its instructions anew.
    fn shareable_prefix(&self, _: &State<O>, positions: usize) -> usize {
        positions
    }

    /// The latents, and the end of the utterance.
    fn max_items(&self) -> usize {
        2
    }

    fn buffered_audio(&self, state: &State<O>) -> Duration {
        let Some(speech) = &state.own.speech else { return Duration::ZERO };
        let bytes: usize = speech.state.utterances.iter().flat_map(|said| &said.tokens).map(|text| text.bytes).sum();
        let made = self.part.limits.patch * u32::try_from(speech.patches).unwrap_or(u32::MAX);
        (BYTE * u32::try_from(bytes).unwrap_or(u32::MAX).min(100_000)).saturating_sub(made)
    }

    fn context_budget(&self, prompt: &[Element], _: usize) -> ContextBudget {
        ContextBudget { used: prompt.len(), limit: self.context }
    }
}
