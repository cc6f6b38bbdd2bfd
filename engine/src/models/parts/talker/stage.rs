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
use repartee_kernels::ops::NO_ID;
use repartee_kernels::{RowSpec, SpecLayout, StepOps, StepOutputs};

use super::codec_lm::CodecLm;
use super::speech_state::{AfterUtterance, SpeechState, SpokenUtterance};
use crate::elements::Element;
use crate::models::parts::autoregressive::{
    BLOCK, CausalLm, SampleOutcome, SlotState, StepContext, StepInput, StepShape,
};
use crate::sequence::BlockPool;
use crate::stage::{ContextBudget, EdgeKind, Outbox, ResponseParams, StageEnd, StageItem};

/// A model that turns text into codes: its rows, and their computation.
pub trait TalkerModel<O: StepOps>: Send {
    /// Input of one position.
    type Row: Send;
    /// The talker's form of a text token.
    type Token: Send;
    /// Voice or style of a response.
    type Voice: Send;
    /// The talker's sections of the row spec.
    type Sections;

    /// Edge kind of the stage's input.
    fn input_kind(&self) -> EdgeKind;
    /// Codec language model: the layers, and the ids to sample from.
    fn codec(&self) -> &CodecLm<O>;
    /// Most slots that one step can advance.
    fn max_slots(&self) -> usize {
        usize::MAX
    }

    /// True if the talker reads prompt positions of this role.
    fn reads(&self, role: Role) -> bool;
    /// Row of a prompt element that the talker reads; `position` is its position in the prompt.
    fn prompt_row(&self, element: &Element, position: usize) -> Option<Self::Row>;
    /// Number of talker positions that a prompt takes.
    fn used(&self, prompt: &[Element]) -> usize {
        prompt.len()
    }

    /// Voice or style of a response. The voice was checked when the response was requested.
    fn voice(&self, params: &ResponseParams) -> Self::Voice;
    /// Lead frames: they precede all others in the codec, and their samples are discarded.
    fn lead<'a>(&self, _voice: &'a Self::Voice) -> &'a [Vec<u32>] {
        &[]
    }
    /// Text token of an item, if it has one.
    fn token(&self, item: &StageItem) -> Option<Self::Token>;
    /// True if an ended text leaves nothing to say.
    fn is_silent(&self, said: &SpokenUtterance<Self::Token>) -> bool {
        said.tokens.is_empty()
    }
    /// Rows before the first codes; `None` until enough of the text is known.
    fn first_rows(&self, voice: &Self::Voice, said: &SpokenUtterance<Self::Token>) -> Option<Vec<Self::Row>>;
    /// Row after `codes`, which are the `count`-th, counted from 1; `None` while their text token is not known.
    fn next_row(
        &self,
        voice: &Self::Voice,
        said: &SpokenUtterance<Self::Token>,
        count: usize,
        codes: &[u32],
    ) -> Option<Self::Row>;
    /// True if a code ends the speech.
    fn is_end(&self, code: u32) -> bool;

    /// Implements [`CausalLm::special_rows`] for the talker.
    fn special(&self, _rows: &[Self::Row]) -> usize {
        0
    }
    /// Implements [`CausalLm::layout`] for the talker.
    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> Self::Sections;
    /// Implements [`CausalLm::fill`] for the talker.
    fn fill(&self, step: &StepInput<'_, Self::Row>, sections: &Self::Sections, spec: &mut RowSpec);
    /// Implements [`CausalLm::forward`] for the talker.
    fn forward(&mut self, ops: &O, sections: &Self::Sections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>);
}

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

/// A talker with its settings.
pub struct TalkerLm<T> {
    talker: T,
    sizes: TalkerSizes,
    /// Positions of a slot without a response's head.
    positions: usize,
}

/// Talker state of a slot.
pub struct TalkerSlot<V, T> {
    /// Prompt position of each prompt row, cached or queued.
    origins: Vec<usize>,
    speech: Option<SpeechState<V, T>>,
}

impl<V, T> Default for TalkerSlot<V, T> {
    fn default() -> Self {
        Self { origins: Vec::new(), speech: None }
    }
}

type State<O, T> = SlotState<O, TalkerLm<T>>;

impl<T> TalkerLm<T> {
    /// Wraps a talker for prompts of at most `context` positions.
    pub fn new(talker: T, sizes: TalkerSizes, context: usize) -> Self {
        Self { talker, sizes, positions: sizes.positions(context) - sizes.head }
    }

    /// Queues the next rows if their text is known: those before the first codes, or the one after the last codes.
    fn advance<O: StepOps>(&self, state: &mut State<O, T>)
    where
        T: TalkerModel<O>,
    {
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
        if let Some(row) = self.talker.next_row(&speaking.voice, said, count, codes) {
            speaking.waiting_codes = None;
            state.push(row);
        }
    }
}

/// Ends the response and truncates to the prompt's rows; queued ones stay queued.
fn finish<O: StepOps, L, V, T>(state: &mut SlotState<O, L>, pool: &mut BlockPool)
where
    L: CausalLm<O, Slot = TalkerSlot<V, T>>,
{
    state.own.speech = None;
    state.truncate(pool, state.own.origins.len());
}

impl<O: StepOps, T: TalkerModel<O>> CausalLm<O> for TalkerLm<T> {
    type Row = T::Row;
    type Slot = TalkerSlot<T::Voice, T::Token>;
    type Piece = Vec<u32>;
    type Sections = T::Sections;

    fn name(&self) -> &'static str {
        "talker"
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
        self.talker.max_slots()
    }

    fn prompt_row(&self, _: &Element) -> Option<T::Row> {
        None
    }

    fn limit(&self, _: &ResponseParams) -> usize {
        self.sizes.max_codes
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
                        let silent = speaking.utterances.front().is_none_or(|said| self.talker.is_silent(said));
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
                if let (Some(speaking), Some(token)) = (&mut state.own.speech, self.talker.token(&item)) {
                    speaking.token(token);
                    self.advance(state);
                }
            }
        }
    }

    fn special_rows(&self, rows: &[T::Row]) -> usize {
        self.talker.special(rows)
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> T::Sections {
        self.talker.layout(shape, layout)
    }

    fn fill(&mut self, step: &StepInput<'_, T::Row>, sections: &T::Sections, spec: &mut RowSpec) {
        self.talker.fill(step, sections, spec);
    }

    fn forward(&mut self, ops: &O, sections: &T::Sections, step: StepContext<'_, O>, outputs: &mut StepOutputs<O>) {
        self.talker.forward(ops, sections, step, outputs);
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
