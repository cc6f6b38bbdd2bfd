//! The talker as a language model of the generic stage: prefills what the thinker hands over of the prompt silently, then turns the rows of
//! the text into codes, one code a row and on until the model ends its speech.
//!
//! Its prompt is, as in the reference, the thinker's whole prompt. A text token's row is the thinker's own of that token, which is computed
//! when the next one is sampled: so the last token of a text that ended at a limit has none, and is not spoken. At the end of a response the
//! sequence is truncated to the prompt.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::Sampling;
use repartee_kernels::ops::NO_ID;
use repartee_kernels::row_spec::{SampleSection, Section};
use repartee_kernels::{NO_ROW, Outputs, RowSpec, SpecLayout, StepOps};

use super::config::{Config, TalkerConfig};
use super::talker::{Talker, ends};
use super::thinker::Thinker;
use crate::elements::Element;
use crate::models::parts::autoregressive::{BLOCK, CausalLm, Sampled, SlotState, StepContext, StepInput, StepShape};
use crate::models::parts::generation::Generation;
use crate::models::parts::slot_rows::SlotRows;
use crate::sequence::BlockPool;
use crate::stage::{EdgeKind, End, Item, Outbox, ResponseParams, Room};

/// Rows between the prompt and the first code.
const HEADER_ROWS: usize = 2;

/// A position: what the thinker hands over, or a text token's embedding, and a codec id ([`NO_ID`] for none).
#[derive(Debug, Clone, Copy)]
pub struct Row {
    text: Text,
    codec: u32,
}

#[derive(Debug, Clone, Copy)]
enum Text {
    /// The thinker's row of this position.
    Handed(usize),
    /// A mark of the text.
    Mark(u32),
}

/// The talker with its marks and settings.
pub struct TalkerLm<O: StepOps> {
    thinker: Arc<Thinker<O>>,
    talker: Talker<O>,
    /// The thinker's rows.
    handed: SlotRows<O>,
    config: TalkerConfig,
    /// For each voice the mark before its text.
    bos: BTreeMap<String, u32>,
    sampling: Sampling,
    max_codes: usize,
    positions: usize,
    /// Duration of a code.
    frame: Duration,
}

/// What the talker keeps of a slot.
#[derive(Default)]
pub struct TalkerSlot {
    /// Rows of the prompt, cached or queued.
    prompt: usize,
    speaking: Option<Speaking>,
}

/// A response that is spoken.
struct Speaking {
    params: ResponseParams,
    /// Positions of the text tokens so far.
    tokens: Vec<usize>,
    /// Whether the rows before the first code are queued.
    begun: bool,
    /// The last code, if the row after it waits for its text part.
    waits: Option<u32>,
    /// How the text ended, once it has.
    complete: Option<End>,
    /// How the speech ended, if it did before the text.
    over: Option<End>,
}

impl Speaking {
    /// Text tokens whose rows the thinker has computed.
    fn known(&self) -> usize {
        self.tokens.len() - usize::from(self.complete != Some(End::Stop) && !self.tokens.is_empty())
    }
}

/// Where the talker's numbers of a step lie.
pub struct TalkerPlaces {
    marks: Section,
    handed: Section,
    codec: Section,
    params: SampleSection,
    /// For each row that is sampled from, the padding that counts as said before; and in whose history.
    padding: Section,
    histories: SampleSection,
}

type State<O> = SlotState<O, TalkerLm<O>>;

/// Positions of a slot: the prompt's and as many codes as a response may have, as far as the model allows.
pub fn positions(config: &Config, generation: &Generation, context: usize) -> usize {
    let codes = generation.talker_max_new_tokens as usize;
    (context + HEADER_ROWS + codes).min(config.talker.text.max_position_embeddings + HEADER_ROWS)
}

/// How a response ended whose text and speech ended so: at a limit if either did.
fn both(text: End, speech: End) -> End {
    if text == End::Length { text } else { speech }
}

impl<O: StepOps + Send> TalkerLm<O>
where
    O::Weight: Send + Sync,
    O::State: Send,
{
    /// For slots of `positions` positions each; `handed` are the thinker's rows, `bos` each voice's mark before its text.
    pub fn new(
        (thinker, talker, handed): (Arc<Thinker<O>>, Talker<O>, SlotRows<O>),
        positions: usize,
        bos: BTreeMap<String, u32>,
        (config, generation): (&TalkerConfig, &Generation),
        frame: Duration,
    ) -> Self {
        Self {
            thinker,
            talker,
            handed,
            config: config.clone(),
            bos,
            sampling: generation.talker,
            max_codes: generation.talker_max_new_tokens as usize,
            positions,
            frame,
        }
    }

    /// Queues what the rows that are known allow: those before the first code, or the one after the last code.
    fn advance(&self, state: &mut State<O>) {
        let steps = state.decoding().map_or(0, |decoding| decoding.steps);
        let Some(speaking) = state.own.speaking.as_mut().filter(|speaking| speaking.over.is_none()) else { return };
        let known = speaking.known();
        if !speaking.begun {
            let Some(&first) = speaking.tokens[..known].first() else { return };
            speaking.begun = true;
            let params = speaking.params.clone();
            // Voices were checked when the response was requested.
            let bos = self.bos.get(&params.voice).copied().unwrap_or(self.config.tts_text_pad_token_id);
            state.push(Row { text: Text::Mark(bos), codec: self.config.tts_codec_pad_token_id });
            state.push(Row { text: Text::Handed(first), codec: self.config.tts_codec_start_token_id });
            return state.begin(params, self.max_codes);
        }
        let Some(codec) = speaking.waits else { return };
        let text = match speaking.tokens[..known].get(steps) {
            Some(&position) => Text::Handed(position),
            None if speaking.complete.is_none() => return,
            None if steps == known => Text::Mark(self.config.tts_text_end_token_id),
            None => Text::Mark(self.config.tts_text_pad_token_id),
        };
        speaking.waits = None;
        state.push(Row { text, codec });
    }

    /// Ends the response and truncates to the prompt; queued rows of it stay queued.
    fn finish(state: &mut State<O>, pool: &mut BlockPool) {
        state.own.speaking = None;
        state.truncate(pool, state.own.prompt);
    }
}

impl<O: StepOps + Send> CausalLm<O> for TalkerLm<O>
where
    O::Weight: Send + Sync,
    O::State: Send,
{
    type Row = Row;
    type Slot = TalkerSlot;
    type Piece = u32;
    type Places = TalkerPlaces;

    fn name(&self) -> &'static str {
        "talker"
    }

    fn takes(&self) -> EdgeKind {
        EdgeKind::Rows
    }

    fn gives(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn vocabulary(&self) -> usize {
        self.config.text.vocab_size
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.talker.model.cache(ops, blocks, BLOCK)
    }

    fn prompt_row(&self, _: &Element) -> Option<Row> {
        None
    }

    fn limit(&self, _: &ResponseParams) -> usize {
        self.max_codes
    }

    fn accept(&mut self, slot: usize, item: Item, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        match item {
            Item::Rewind { to } => {
                // No response is active, so the queue holds rows of the prompt only.
                state.own.prompt = state.own.prompt.min(to);
                state.truncate(pool, state.own.prompt);
            }
            Item::Context { from, elements } => {
                let rows = from..from + elements.len();
                rows.for_each(|position| state.push(Row { text: Text::Handed(position), codec: NO_ID }));
                state.own.prompt += elements.len();
            }
            Item::Begin(params) => {
                out.push((slot, Item::Begin(params.clone())));
                if params.audio {
                    state.own.speaking = Some(Speaking {
                        params,
                        tokens: Vec::new(),
                        begun: false,
                        waits: None,
                        complete: None,
                        over: None,
                    });
                }
            }
            Item::Row { position, .. } => {
                if let Some(speaking) = &mut state.own.speaking {
                    // It was sampled from the row before its own.
                    speaking.tokens.push(position + 1);
                    self.advance(state);
                }
            }
            Item::End(end) => match &mut state.own.speaking {
                Some(speaking) => {
                    speaking.complete = Some(end);
                    let over = speaking.over.or((speaking.known() == 0).then_some(End::Stop));
                    match over {
                        Some(speech) => {
                            state.own.speaking = None;
                            out.push((slot, Item::End(both(end, speech))));
                        }
                        None => self.advance(state),
                    }
                }
                None => out.push((slot, Item::End(end))),
            },
            Item::Abort => {
                if state.own.speaking.is_some() {
                    state.end();
                    Self::finish(state, pool);
                }
                out.push((slot, Item::Abort));
            }
            // The template has no tools, so that no text pauses for a call.
            _ => {}
        }
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> TalkerPlaces {
        TalkerPlaces {
            marks: layout.list(shape.rows),
            handed: layout.list(shape.rows),
            codec: layout.list(shape.rows),
            params: layout.samples(shape.sampled),
            padding: layout.list(shape.sampled),
            histories: layout.samples(shape.sampled),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, Row>, places: &TalkerPlaces, spec: &mut RowSpec) {
        let mark = |row: &Row| match row.text {
            Text::Mark(id) => id,
            Text::Handed(_) => NO_ID,
        };
        spec.set_each(places.marks, step.rows.iter().map(mark));
        let handed = |(row, at): (&Row, &(usize, usize))| match row.text {
            Text::Handed(position) => self.handed.number(at.0, position),
            Text::Mark(_) => NO_ROW,
        };
        spec.set_each(places.handed, step.rows.iter().zip(step.at).map(handed));
        spec.set_each(places.codec, step.rows.iter().map(|row| row.codec));
        // The text's random numbers are stream 0.
        spec.set_samples(places.params, step.samplers.iter().map(|row| row.sample_params(&self.sampling, 1)));
        spec.set_each(places.padding, step.samplers.iter().map(|_| 0));
        let histories = step.samplers.iter().map(|row| row.sample_params(&Sampling::GREEDY, 1));
        spec.set_samples(places.histories, histories);
    }

    fn forward(&mut self, ops: &O, places: &TalkerPlaces, step: StepContext<'_, O>, outputs: &mut Outputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let index = |section| ops.index(spec, section);
        let marks = ops.embed_at(&self.thinker.embed_tokens, &index(places.marks));
        let x = ops.add(self.handed.load(ops, &index(places.handed)), &marks);
        let x = self.talker.rows(ops, x, &index(places.codec));
        let Some(last) = last else {
            self.talker.model.forward(ops, x, cache, batch, None);
            return;
        };
        let hidden = self.talker.forward(ops, x, cache, batch, last);
        let logits = self.talker.logits(ops, &hidden);
        if self.sampling.repetition_penalty != 1.0 {
            let histories = index(places.histories.words());
            self.talker.say_padding(ops, &index(places.padding), &histories, output_mask);
        }
        let params = index(places.params.words());
        outputs.ids.push(ops.sample_at(&logits, &params, Some(&self.talker.allowed_mask), Some(output_mask)));
    }

    fn sampled(&mut self, ids: Vec<u32>, _: usize, _: &mut State<O>) -> Sampled<u32> {
        match ids.first().copied().unwrap_or(NO_ID) {
            NO_ID => Sampled::NotFinite,
            id if ends(&self.config).contains(&id) => Sampled::Stop,
            id => Sampled::Piece(id),
        }
    }

    fn give(&self, slot: usize, &code: &u32, _: usize, out: &mut Outbox) {
        out.push((slot, Item::Codes(vec![code])));
    }

    fn follow(&mut self, state: &mut State<O>, code: u32) {
        if let Some(speaking) = &mut state.own.speaking {
            speaking.waits = Some(code);
        }
        self.advance(state);
    }

    /// The response ends once its text has ended too.
    fn ended(&mut self, slot: usize, end: End, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        let Some(speaking) = &mut state.own.speaking else { return };
        if let Some(text) = speaking.complete {
            Self::finish(state, pool);
            out.push((slot, Item::End(both(text, end))));
        } else {
            speaking.over = Some(end);
            state.truncate(pool, state.own.prompt);
        }
    }

    fn failed(&mut self, state: &mut State<O>, pool: &mut BlockPool) {
        Self::finish(state, pool);
    }

    fn shares(&self, donor: &State<O>, positions: usize) -> usize {
        // What a queued row is computed from belongs to the donor's slot, so only cached rows can be shared.
        donor.cached().min(donor.own.prompt).min(positions)
    }

    fn share(&self, state: &mut State<O>, _: &State<O>, positions: usize) -> usize {
        state.own.prompt = positions;
        positions
    }

    fn reads(&self, _: &Element) -> bool {
        true
    }

    fn ahead(&self, state: &State<O>) -> Duration {
        let Some(speaking) = &state.own.speaking else { return Duration::ZERO };
        let codes = state.decoding().map_or(0, |decoding| decoding.steps);
        self.frame * u32::try_from(speaking.tokens.len().saturating_sub(codes)).unwrap_or(u32::MAX).min(1000)
    }

    /// Codes are reserved, not text tokens: speech takes several times as many positions as its text.
    fn room(&self, prompt: &[Element], _: usize) -> Room {
        let positions = self.positions - HEADER_ROWS;
        Room { used: prompt.len(), limit: positions - self.max_codes.min(positions / 2) }
    }
}
