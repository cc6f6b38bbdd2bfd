//! A talker as a language model of the generic stage. It prefills its rows of the prompt silently, then turns text into
//! codes, one list of codes a row, until the model ends its speech.
//!
//! Each row after the first codes waits for its text token. At the end of a response the sequence is truncated to the
//! prompt's rows.
//!
//! If the text pauses for a tool call, the speech continues as at the text's end, so the words before the call are
//! heard while the call is written. Text after the call is a new utterance, as if it answered the same prompt; it
//! begins when the previous one has ended.

use std::time::Duration;

use repartee_engine_api::Role;
use repartee_kernels::{NO_ID, Ops, RowSpec, SpecLayout, StepOutputs};

use super::frames::{self, FrameDecoder, FrameSampling, MAX_SLOTS};
use super::model::{CodecPart, TalkerModel, TalkerRow, TextPart};
use super::speech_state::{AfterUtterance, SpeechState};
use super::step::{TalkerSections, TalkerStep, special_rows};
use crate::device::Device;
use crate::elements::Element;
use crate::models::parts::autoregressive::{
    Autoregressive, BLOCK, CausalLm, SampleOutcome, SlotState, StepContext, StepInput, StepShape,
};
use crate::models::parts::config::LanguageModelConfig;
use crate::models::parts::generation::Generation;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "talker";

/// Sizes of a talker's stage.
#[derive(Debug, Clone, Copy)]
pub struct TalkerSizes {
    /// Maximum positions of the model.
    pub model_positions: usize,
    /// Positions before a response's codes, in addition to its prompt and text.
    pub head: usize,
    /// Most lists of codes in a response.
    pub max_codes: usize,
    /// Duration of one list of codes.
    pub frame: Duration,
}

impl TalkerSizes {
    /// Positions of a slot: a prompt of `context` positions and the most codes of a response, within the model's
    /// maximum, plus the head.
    pub fn positions(&self, context: usize) -> usize {
        (context + self.max_codes).min(self.model_positions) + self.head
    }
}

/// A talker with its sizes and sampling, as a stage.
pub struct TalkerPart<T> {
    /// Weights, rows and voices.
    pub talker: T,
    /// Sizes of the stage.
    pub sizes: TalkerSizes,
    /// Sampling of a frame's codes.
    pub sampling: FrameSampling,
}

impl<T> TalkerPart<T> {
    /// Wraps a talker after a thinker, with the limit and the sampling of its checkpoint. `head` and `frame` are as in
    /// [`TalkerSizes`].
    pub fn new(
        talker: T,
        config: &LanguageModelConfig,
        generation: &Generation,
        (head, frame): (usize, Duration),
    ) -> Self {
        let (model_positions, max_codes) = (config.max_position_embeddings, generation.talker_max_new_tokens as usize);
        let sampling = FrameSampling { first: generation.talker, rest: generation.code_predictor };
        Self { talker, sizes: TalkerSizes { model_positions, head, max_codes, frame }, sampling }
    }
}

/// A talker in its stage.
struct TalkerLm<O: Ops, T> {
    talker: T,
    step: TalkerStep<O>,
    sizes: TalkerSizes,
    /// Positions of a slot without a response's head.
    positions: usize,
}

/// Talker state of a slot.
struct TalkerSlot<V> {
    /// Prompt position of each prompt row, cached or queued.
    origins: Vec<usize>,
    speech: Option<SpeechState<V, TextPart>>,
}

impl<V> Default for TalkerSlot<V> {
    fn default() -> Self {
        Self { origins: Vec::new(), speech: None }
    }
}

type State<O, T> = SlotState<O, TalkerLm<O, T>>;

impl<O: Device, T: TalkerModel<O> + 'static> StagePart<O> for TalkerPart<T> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn most_positions(&self) -> Option<usize> {
        Some(self.sizes.model_positions)
    }

    /// The KV cache, the last frame with the code predictor's cache, and the mask of sampled ids.
    fn slot_bytes(&self, context: usize) -> SlotBytes {
        let codec = self.talker.codec();
        let position = codec.model.position_bytes();
        let further = (self.sizes.positions(context) - context) * position;
        let frame = frames::slot_bytes(self.talker.code_predictor());
        SlotBytes { position, fixed: further + frame + codec.vocabulary }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let Self { talker, sizes, sampling } = *self;
        let (slots, positions) = (at.slots.total(), sizes.positions(at.slots.context));
        let frames = FrameDecoder::new(&at.ops, talker.code_predictor(), slots, sampling);
        let step = TalkerStep { handed: at.handed.take(), frames };
        let lm = TalkerLm { talker, step, sizes, positions: positions - sizes.head };
        Box::new(Autoregressive::new(at.ops, lm, slots, positions))
    }
}

impl<O: Device, T: TalkerModel<O>> TalkerLm<O, T> {
    /// Queues the next rows if their text is known: those before the first codes, or the one after the last codes.
    fn advance(&self, state: &mut State<O, T>) {
        let count = state.decoding().map_or(0, |decoding| decoding.steps);
        let Some(speaking) = state.own.speech.as_mut().filter(|speaking| !speaking.is_over()) else { return };
        let Some(said) = speaking.utterances.front() else { return };
        if !speaking.begun {
            let Some(rows) = self.talker.first_rows(&speaking.voice, said) else { return };
            speaking.begun = true;
            let params = speaking.params.clone();
            rows.into_iter().for_each(|row| state.push(row));
            return state.begin(params, self.sizes.max_codes);
        }
        let Some(codes) = &speaking.waiting_codes else { return };
        if let Some(text) = self.talker.next_text(&speaking.voice, said, count) {
            let codec = match self.talker.code_predictor() {
                Some(_) => CodecPart::LastFrame,
                None => CodecPart::Id(codes.first().copied().unwrap_or(NO_ID)),
            };
            speaking.waiting_codes = None;
            state.push(TalkerRow { text, codec });
        }
    }
}

/// Ends the response and truncates to the prompt's rows; queued ones stay queued.
fn finish<O: Ops, L: CausalLm<O, Slot = TalkerSlot<V>>, V>(state: &mut SlotState<O, L>, pool: &mut BlockPool) {
    state.own.speech = None;
    state.truncate(pool, state.own.origins.len());
}

impl<O: Device, T: TalkerModel<O>> CausalLm<O> for TalkerLm<O, T> {
    type Row = TalkerRow;
    type Slot = TalkerSlot<T::Voice>;
    type Piece = Vec<u32>;
    type Sections = TalkerSections;

    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        self.talker.input_kind()
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn vocabulary(&self) -> usize {
        self.talker.codec().vocabulary
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.talker.codec().model.cache(ops, blocks, BLOCK)
    }

    fn max_slots(&self) -> usize {
        self.talker.code_predictor().map_or(usize::MAX, |_| MAX_SLOTS)
    }

    fn prompt_row(&self, _: &Element) -> Option<TalkerRow> {
        None
    }

    fn limit(&self, _: &ResponseParams) -> usize {
        self.sizes.max_codes
    }

    fn most_frames(&self) -> Option<usize> {
        Some(self.sizes.max_codes)
    }

    fn accept(
        &mut self,
        slot: usize,
        item: StageItem,
        state: &mut State<O, T>,
        pool: &mut BlockPool,
        out: &mut Outbox,
    ) {
        match item {
            StageItem::Rewind { to } => {
                // No response is active, so the queue holds prompt rows only.
                let keep = state.own.origins.partition_point(|&origin| origin < to);
                state.own.origins.truncate(keep);
                state.truncate(pool, keep);
            }
            StageItem::Context { from, elements } => {
                let read = elements.iter().enumerate().filter(|(_, element)| self.talker.reads(element.role));
                for (at, element) in read {
                    if let Some(row) = self.talker.prompt_row(element, from + at) {
                        state.push(row);
                        state.own.origins.push(from + at);
                    }
                }
            }
            StageItem::Begin(params) => {
                out.push((slot, StageItem::Begin(params.clone())));
                if params.audio {
                    let voice = self.talker.voice(&params);
                    out.extend(self.talker.lead(&voice).iter().map(|frame| (slot, StageItem::Lead(frame.clone()))));
                    state.own.speech = Some(SpeechState::new(params, voice));
                }
            }
            StageItem::TextPause => {
                if let Some(speaking) = &mut state.own.speech {
                    speaking.end_text(StageEnd::Stop);
                    self.advance(state);
                }
            }
            StageItem::End(end) => {
                let ended = match &mut state.own.speech {
                    Some(speaking) => {
                        speaking.end_text(end);
                        // A response whose first token is a stop has no audio.
                        let silent = speaking.utterances.front().is_none_or(|said| said.known().is_empty());
                        speaking.complete(end, silent)
                    }
                    None => Some(end),
                };
                match ended {
                    Some(end) => {
                        state.own.speech = None;
                        out.push((slot, StageItem::End(end)));
                    }
                    None => self.advance(state),
                }
            }
            StageItem::Abort => {
                if state.own.speech.is_some() {
                    state.end();
                    finish(state, pool);
                }
                out.push((slot, StageItem::Abort));
            }
            item => {
                if let (Some(speaking), Some(token)) = (&mut state.own.speech, TextPart::of(&item)) {
                    speaking.token(token);
                    self.advance(state);
                }
            }
        }
    }

    fn special_rows(&self, rows: &[TalkerRow]) -> usize {
        special_rows(rows)
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> TalkerSections {
        self.step.layout(&self.talker, shape, layout)
    }

    fn fill(&mut self, step: &StepInput<'_, TalkerRow>, sections: &TalkerSections, spec: &mut RowSpec) {
        self.step.fill(&self.talker, step, sections, spec);
    }

    fn forward(&mut self, ops: &O, sections: &TalkerSections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        self.step.forward(&self.talker, ops, sections, step, outputs);
    }

    fn sampled(&mut self, codes: Vec<u32>, _: usize, _: &mut State<O, T>) -> SampleOutcome<Vec<u32>> {
        if codes.first().is_some_and(|&code| self.talker.is_end(code)) {
            SampleOutcome::Stop
        } else if codes.contains(&NO_ID) {
            SampleOutcome::NotFinite
        } else {
            SampleOutcome::Piece(codes)
        }
    }

    fn emit(&self, slot: usize, codes: &Vec<u32>, _: usize, out: &mut Outbox) {
        out.push((slot, StageItem::Codes(codes.clone())));
    }

    fn continue_after(&mut self, state: &mut State<O, T>, codes: Vec<u32>) {
        if let Some(speaking) = &mut state.own.speech {
            speaking.waiting_codes = Some(codes);
        }
        self.advance(state);
    }

    /// The response ends once its text has ended too and no utterance is left.
    fn ended(&mut self, slot: usize, end: StageEnd, state: &mut State<O, T>, pool: &mut BlockPool, out: &mut Outbox) {
        let Some(speaking) = &mut state.own.speech else { return };
        match speaking.speech_ended(end) {
            AfterUtterance::Utterance => {
                state.truncate(pool, state.own.origins.len());
                self.advance(state);
            }
            AfterUtterance::End(end) => {
                finish(state, pool);
                out.push((slot, StageItem::End(end)));
            }
            AfterUtterance::Wait => state.truncate(pool, state.own.origins.len()),
        }
    }

    fn failed(&mut self, state: &mut State<O, T>, pool: &mut BlockPool) {
        finish(state, pool);
    }

    fn shareable_prefix(&self, donor: &State<O, T>, positions: usize) -> usize {
        // The inputs of queued rows are not kept, so only cached rows can be shared. The talker has no rows for a
        // response's positions, which a later prompt may contain.
        let rows = &donor.own.origins;
        let known = if self.talker.reads(Role::Assistant) { rows.len() } else { positions };
        rows.get(donor.cached()).copied().unwrap_or(known).min(positions)
    }

    fn share_prefix(&self, state: &mut State<O, T>, donor: &State<O, T>, positions: usize) -> usize {
        let rows = donor.own.origins.partition_point(|&origin| origin < positions);
        state.own.origins = donor.own.origins[..rows].to_vec();
        rows
    }

    fn reads(&self, element: &Element) -> bool {
        self.talker.reads(element.role)
    }

    fn buffered_audio(&self, state: &State<O, T>) -> Duration {
        let Some(speaking) = &state.own.speech else { return Duration::ZERO };
        let made = state.decoding().map_or(0, |decoding| decoding.steps);
        self.sizes.frame * u32::try_from(speaking.tokens().saturating_sub(made)).unwrap_or(u32::MAX).min(1000)
    }

    /// Reserves codes, not text tokens: speech takes several times as many positions as its text.
    fn context_budget(&self, prompt: &[Element], _: usize) -> ContextBudget {
        let reserved = self.sizes.max_codes.min(self.positions / 2);
        ContextBudget { used: self.talker.used(prompt), limit: self.positions - reserved }
    }
}
