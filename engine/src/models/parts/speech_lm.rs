//! A language model of codes as a stage: text to codes, after CosyVoice's `llm`.
//!
//! A response's rows begin with the first one of its sequence; instructions are kept as ids until then. At the end of a
//! response the sequence is empty again.

use std::time::Duration;

use repartee_engine_api::Role;
use repartee_kernels::random::uniform;
use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{NO_ID, Ops, RowSpec, SpecLayout, StepOutputs};

use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::models::load_error::LoadError;
use crate::models::parts::autoregressive::{
    Autoregressive, BLOCK, CausalLm, SampleOutcome, SlotState, StepContext, StepInput, StepShape,
};
use crate::models::parts::config::LanguageModelConfig;
use crate::models::parts::decoder::{Decoder, DecoderShape, FeedForward};
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::models::parts::shared_voices::SharedVoices;
use crate::models::parts::speech_order::{Drawn, SpeechOrder, SpeechRow, SpeechRules, SpokenPrompt};
use crate::models::parts::talker::speech_state::{AfterUtterance, SpeechState};
use crate::models::parts::weights::Weights;
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "speech_lm";
/// Codes that a text token becomes, for estimates.
const CODES_PER_TOKEN: usize = 5;

/// Weights of `llm.pt`.
pub struct SpeechModel<O: Ops> {
    /// Table of the text tokens.
    pub text: O::Weight,
    /// Table of codes and special ids.
    pub speech: O::Weight,
    /// Transformer layers and the last norm.
    pub layers: Decoder<O>,
    head: O::Weight,
}

impl<O: Ops> SpeechModel<O> {
    /// Loads the model, which has `speech_ids` codes and special ids.
    pub fn load(w: &Weights<'_, O>, text: &LanguageModelConfig, speech_ids: usize) -> Result<Self, LoadError> {
        let (qwen, layers) = (w.at("llm.model.model"), &text.layers);
        let shape = DecoderShape { qkv_bias: true, ..layers.shape(None) };
        let dense = |_| FeedForward::Dense(layers.intermediate_size);
        Ok(Self {
            text: qwen.table("embed_tokens.weight", text.vocab_size, layers.hidden_size)?,
            speech: w.table("speech_embedding.weight", speech_ids, layers.hidden_size)?,
            layers: Decoder::load(&qwen, shape, dense)?,
            head: w.linear("llm_decoder.weight", speech_ids, layers.hidden_size)?,
        })
    }

    /// Computes rows of ids, each of which is in one of the lists.
    pub fn rows(&self, ops: &O, text: &O::Index, speech: &O::Index) -> O::T {
        ops.add(ops.embed_at(&self.text, text), &ops.embed_at(&self.speech, speech))
    }

    /// Computes the logits of rows after the layers.
    pub fn logits(&self, ops: &O, x: &O::T) -> O::T {
        ops.linear(&self.layers.norm(ops, x), &self.head, None)
    }
}

/// The language model with its voices, as a stage.
pub struct SpeechLmPart<O: Ops> {
    /// Weights of the tables, layers and head.
    pub model: SpeechModel<O>,
    /// Number of ids of the codes' table.
    pub vocabulary: usize,
    /// Order of text and codes.
    pub rules: SpeechRules,
    /// Instructions of a voice without any.
    pub instructions: Vec<u32>,
    /// Prompt of each voice, before its text.
    pub voices: SharedVoices<SpokenPrompt>,
    /// Most ids and codes of an enrolled voice's prompt; 0 if none are enrolled.
    pub most_enrolled: usize,
    /// Most positions of the model.
    pub most_positions: usize,
    /// Most draws of a response.
    pub most_codes: usize,
    /// Duration of a code.
    pub code: Duration,
}

impl<O: Ops> SpeechLmPart<O> {
    /// Positions of a slot beside its context: a voice's prompt, codes, and the rows between them.
    fn further(&self) -> usize {
        let prompts = self.voices.own().map(|voice| voice.text.len() + voice.codes.len());
        prompts.chain([self.most_enrolled]).max().unwrap_or_default() + self.instructions.len() + self.most_codes + 2
    }
}

impl<O: Device> StagePart<O> for SpeechLmPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn most_positions(&self) -> Option<usize> {
        Some(self.most_positions)
    }

    /// Keys and values, and the mask of sampled ids.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let position = self.model.layers.position_bytes();
        SlotBytes { position, fixed: self.further() * position + self.vocabulary }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let positions = at.slots.context + self.further();
        let lm = SpeechLm { part: *self, positions: at.slots.context, logits: Vec::new() };
        Box::new(Autoregressive::new(at.ops, lm, at.slots.total(), positions))
    }
}

/// The language model in its stage.
struct SpeechLm<O: Ops> {
    part: SpeechLmPart<O>,
    /// Positions of a slot's prompt and text.
    positions: usize,
    /// Logits of the last step's samplers.
    logits: Vec<f32>,
}

/// State of a slot.
#[derive(Default)]
struct SpeechSlot {
    /// Ids of the instructions, each with its position in the prompt.
    instructions: Vec<(usize, u32)>,
    speech: Option<SpokenResponse>,
}

struct SpokenResponse {
    state: SpeechState<SpokenPrompt, u32>,
    /// Order of the utterance that is spoken; `None` before its first row.
    order: Option<SpeechOrder>,
}

/// Sections of the row spec.
struct SpeechSections {
    text: SpecSection,
    speech: SpecSection,
}

type State<O> = SlotState<O, SpeechLm<O>>;

impl<O: Device> SpeechLm<O> {
    /// Queues the rows whose text is known, and begins to draw after them.
    fn advance(&self, state: &mut State<O>) {
        let draws = state.decoding().is_some();
        let SpeechSlot { instructions, speech } = &mut state.own;
        let Some(SpokenResponse { state: spoken, order }) = speech.as_mut().filter(|speech| !speech.state.is_over())
        else {
            return;
        };
        let Some(said) = spoken.utterances.front().filter(|said| !said.tokens.is_empty()) else { return };
        let ids: Vec<u32> = instructions.iter().map(|(_, id)| *id).collect();
        let SpeechLmPart { rules, instructions: absent, .. } = &self.part;
        let whole = !spoken.params.streamed;
        let order = order.get_or_insert_with(|| SpeechOrder::new(*rules, whole, (&ids, absent), &spoken.voice));
        let rows = order.advance(&said.tokens, said.ended.is_some());
        let params = (order.can_draw() && !draws).then(|| spoken.params.clone());
        rows.into_iter().for_each(|row| state.push(row));
        if let Some(params) = params {
            state.begin(params, self.part.most_codes);
        }
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
    type Piece = Drawn;
    type Sections = SpeechSections;

    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn vocabulary(&self) -> usize {
        self.part.vocabulary
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.part.model.layers.cache(ops, blocks, BLOCK)
    }

    fn prompt_row(&self, _: &Element) -> Option<SpeechRow> {
        None
    }

    fn limit(&self, _: &ResponseParams) -> usize {
        self.part.most_codes
    }

    fn most_frames(&self) -> Option<usize> {
        Some(self.part.most_codes)
    }

    fn accept(&mut self, slot: usize, item: StageItem, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        match item {
            StageItem::Rewind { to } => state.own.instructions.retain(|(position, _)| *position < to),
            StageItem::Context { from, elements } => {
                let read = elements.iter().enumerate().filter(|(_, element)| element.role == Role::System);
                let token = |(at, element): (usize, &Element)| match element.value {
                    ElementValue::Token(id) => Some((from + at, id)),
                    ElementValue::Audio { .. } | ElementValue::Codes(_) => None,
                };
                state.own.instructions.extend(read.filter_map(token));
            }
            StageItem::Begin(params) => {
                if params.audio {
                    let voice = self.part.voices.get(&params.voice).map(|voice| (*voice).clone()).unwrap_or_default();
                    state.own.speech =
                        Some(SpokenResponse { state: SpeechState::new(params.clone(), voice), order: None });
                }
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::TextPause => {
                if let Some(speech) = &mut state.own.speech {
                    speech.state.end_text(StageEnd::Stop);
                }
                self.advance(state);
            }
            StageItem::End(end) => {
                let ended = state.own.speech.as_mut().map_or(Some(end), |speech| {
                    speech.state.end_text(end);
                    let silent = speech.state.utterances.front().is_none_or(|said| said.tokens.is_empty());
                    speech.state.complete(end, silent)
                });
                match ended {
                    Some(end) => {
                        state.own.speech = None;
                        out.push((slot, StageItem::End(end)));
                    }
                    None => self.advance(state),
                }
            }
            StageItem::Abort => {
                state.end();
                finish(state, pool);
                out.push((slot, StageItem::Abort));
            }
            StageItem::Token(id) => {
                if let Some(speech) = &mut state.own.speech {
                    speech.state.token(id);
                }
                self.advance(state);
            }
            _ => {}
        }
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> SpeechSections {
        SpeechSections { text: layout.list(shape.rows), speech: layout.list(shape.rows) }
    }

    fn fill(&mut self, step: &StepInput<'_, SpeechRow>, sections: &SpeechSections, spec: &mut RowSpec) {
        let text = |row: &SpeechRow| if let SpeechRow::Text(id) = row { *id } else { NO_ID };
        let speech = |row: &SpeechRow| if let SpeechRow::Speech(id) = row { *id } else { NO_ID };
        spec.set_each(sections.text, step.rows.iter().map(text));
        spec.set_each(sections.speech, step.rows.iter().map(speech));
    }

    fn forward(&mut self, ops: &O, sections: &SpeechSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        let StepContext { spec, batch, last, cache, .. } = step;
        let model = &self.part.model;
        let x = model.rows(ops, &ops.index(spec, sections.text), &ops.index(spec, sections.speech));
        let (x, _) = model.layers.forward(ops, x, cache, batch, None);
        if let Some(last) = last {
            outputs.rows.push(model.logits(ops, &ops.gather_at(&x, last)));
        }
    }

    fn computed(&mut self, numbers: &[f32]) {
        self.logits.clear();
        self.logits.extend_from_slice(numbers);
    }

    fn sampled(&mut self, _: Vec<u32>, at: usize, state: &mut State<O>) -> SampleOutcome<Drawn> {
        let vocabulary = self.part.vocabulary;
        let number = state.decoding().map(|decoding| {
            let (params, step) = (&decoding.params, decoding.steps as u64);
            // The text's random numbers are stream 0.
            [1, 2].map(|stream| uniform(params.seed, params.response, step, stream))
        });
        let order = state.own.speech.as_mut().and_then(|speech| speech.order.as_mut());
        let logits = self.logits.get(at * vocabulary..(at + 1) * vocabulary);
        let (Some(number), Some(order), Some(logits)) = (number, order, logits) else {
            return SampleOutcome::NotFinite;
        };
        match order.draw(logits, number) {
            None => SampleOutcome::NotFinite,
            Some(Drawn::End) => SampleOutcome::Stop,
            Some(drawn) => SampleOutcome::Piece(drawn),
        }
    }

    fn emit(&self, slot: usize, piece: &Drawn, _: usize, out: &mut Outbox) {
        if let Drawn::Code(code, true) = piece {
            out.push((slot, StageItem::Codes(vec![*code])));
        }
    }

    fn continue_after(&mut self, state: &mut State<O>, piece: Drawn) {
        match piece {
            Drawn::Code(code, _) => state.push(SpeechRow::Speech(code)),
            Drawn::Fill | Drawn::End => self.advance(state),
        }
    }

    /// The response ends once its text has ended too and no utterance is left.
    fn ended(&mut self, slot: usize, end: StageEnd, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        let Some(speech) = &mut state.own.speech else { return };
        speech.order = None;
        match speech.state.speech_ended(end) {
            AfterUtterance::End(end) => {
                finish(state, pool);
                out.push((slot, StageItem::End(end)));
            }
            after => {
                state.truncate(pool, 0);
                if after == AfterUtterance::Utterance {
                    self.advance(state);
                }
            }
        }
    }

    fn failed(&mut self, state: &mut State<O>, pool: &mut BlockPool) {
        finish(state, pool);
    }

    /// Instructions are ids, which every slot has whole.
    fn shareable_prefix(&self, _: &State<O>, positions: usize) -> usize {
        positions
    }

    fn share_prefix(&self, state: &mut State<O>, donor: &State<O>, positions: usize) -> usize {
        let known = donor.own.instructions.iter().filter(|(position, _)| *position < positions);
        state.own.instructions = known.copied().collect();
        0
    }

    fn reads(&self, element: &Element) -> bool {
        element.role == Role::System
    }

    fn buffered_audio(&self, state: &State<O>) -> Duration {
        let Some(speech) = &state.own.speech else { return Duration::ZERO };
        let made = state.decoding().map_or(0, |decoding| decoding.steps);
        let left = (CODES_PER_TOKEN * speech.state.tokens()).saturating_sub(made);
        self.part.code * u32::try_from(left).unwrap_or(u32::MAX).min(1000)
    }

    fn context_budget(&self, prompt: &[Element], _: usize) -> ContextBudget {
        ContextBudget { used: prompt.len(), limit: self.positions }
    }
}
