//! The talker and its code predictor as a language model of the generic stage: prefills user rows silently, then turns text
//! tokens into codec frames, one frame a token and on until the model ends its speech.
//!
//! Its prompt is, as in the reference, the rows of all user messages and the header of the response. So at the end of a
//! response its sequence is truncated to the user rows.
//!
//! Where the text pauses for a tool call, the speech goes on as at the text's end, so that what was said before the call is
//! heard while the call is written. Text after the call is a new utterance, as if it were a response to the same user rows;
//! it begins when the one before it has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::{Role, Sampling};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::row_spec::{SampleSection, Section};
use repartee_kernels::{NO_ROW, Outputs, RowSpec, SpecLayout, StateSpec, StepOps};

use super::config::Config;
use super::generation::GenerationConfig;
use super::talker::Talker;
use super::thinker::Thinker;
use crate::elements::{Element, Value};
use crate::models::parts::autoregressive::{
    BLOCK, CausalLm, Sampled, Sampler, SlotState, StepContext, StepInput, StepShape,
};
use crate::models::parts::code_predictor::PredictorPlaces;
use crate::models::parts::slot_rows::SlotRows;
use crate::models::parts::speaking::{Speaking, Utterance};
use crate::sequence::BlockPool;
use crate::stage::{EdgeKind, End, Item, Outbox, ResponseParams, Room};

/// Rows between the user rows and the first frame: the response's header and its first text token.
const HEADER_ROWS: usize = 9;
/// Slots whose frames are completed in one step.
const MAX_SLOTS: usize = 128;

/// A position: a text part and a codec part, added.
pub enum Row {
    /// A text token and a codec id ([`NO_ID`] for none).
    Text {
        /// The token.
        id: u32,
        /// The codec id.
        codec: u32,
    },
    /// An audio row, by the thinker's hidden row.
    Audio {
        /// Its position in the thinker's prompt.
        position: usize,
    },
    /// A text token and the sum of the last frame's embeddings.
    Frame {
        /// The token.
        id: u32,
    },
}

/// The talker with its code predictor, its marks and settings.
pub struct TalkerLm<O: StepOps> {
    thinker: Arc<Thinker<O>>,
    talker: Talker<O>,
    predictor_cache: Vec<O::State>,
    /// The thinker's hidden rows.
    hidden: SlotRows<O>,
    /// The sum of the embeddings of each slot's last frame.
    last: O::State,
    vocabulary: usize,
    ids: Ids,
    speakers: BTreeMap<String, u32>,
    sampling: Sampling,
    predictor_sampling: Sampling,
    max_frames: usize,
    positions: usize,
    /// Duration of a frame.
    frame: Duration,
}

/// Token ids of the response's header and marks.
struct Ids {
    /// `<|im_start|>assistant\n`
    header: [u32; 3],
    tts_bos: u32,
    tts_eos: u32,
    tts_pad: u32,
    nothink: u32,
    think_bos: u32,
    think_eos: u32,
    codec_pad: u32,
    codec_bos: u32,
    codec_eos: u32,
}

/// What the talker keeps of a slot.
#[derive(Default)]
pub struct TalkerSlot {
    /// For each user row, cached or queued, its position in the thinker's prompt.
    origins: Vec<usize>,
    speaking: Option<Speaking>,
}

/// Where the talker's numbers of a step lie.
pub struct TalkerPlaces {
    text: Section,
    codec: Section,
    /// For each row, the slot whose last frame is its codec part.
    last: Section,
    /// Audio rows, and the numbers of their hidden rows.
    audio_at: Section,
    audio: Section,
    params: SampleSection,
    predictor: PredictorPlaces,
    /// The slot of each frame that is made.
    made: Section,
}

type State<O> = SlotState<O, TalkerLm<O>>;

/// Positions of a slot: the prompt's and as many frames as a response may have, as far as the model allows.
pub fn positions(config: &Config, generation: &GenerationConfig, context: usize) -> usize {
    let frames = generation.talker_max_new_tokens as usize;
    (context + HEADER_ROWS + frames).min(config.talker.text.max_position_embeddings + HEADER_ROWS)
}

impl<O: StepOps + Send> TalkerLm<O>
where
    O::Weight: Send + Sync,
    O::State: Send,
{
    /// For `slots` slots of `positions` positions each. `hidden` are the thinker's rows, `header` is `<|im_start|>assistant\n`.
    pub fn new(
        ops: &O,
        (thinker, talker, hidden): (Arc<Thinker<O>>, Talker<O>, SlotRows<O>),
        (slots, positions): (usize, usize),
        header: [u32; 3],
        (config, generation): (&Config, &GenerationConfig),
        frame: Duration,
    ) -> Self {
        let codec = &config.talker;
        Self {
            predictor_cache: talker.code_predictor.cache(ops, slots.min(MAX_SLOTS)),
            hidden,
            last: ops.state(StateSpec::Rows { rows: slots, columns: codec.text.hidden_size }),
            vocabulary: codec.text.vocab_size,
            ids: Ids {
                header,
                tts_bos: config.tts_bos_token_id,
                tts_eos: config.tts_eos_token_id,
                tts_pad: config.tts_pad_token_id,
                nothink: codec.codec_nothink_id,
                think_bos: codec.codec_think_bos_id,
                think_eos: codec.codec_think_eos_id,
                codec_pad: codec.codec_pad_id,
                codec_bos: codec.codec_bos_id,
                codec_eos: codec.codec_eos_token_id,
            },
            speakers: codec.speaker_id.clone(),
            sampling: generation.talker,
            predictor_sampling: generation.code_predictor,
            max_frames: generation.talker_max_new_tokens as usize,
            positions,
            frame,
            thinker,
            talker,
        }
    }

    /// Queues the response's header and first text token, [`HEADER_ROWS`] rows; the last one gives codebook 0 of the first
    /// frame.
    fn begin(&self, state: &mut State<O>, first: u32) {
        let Some(speaking) = &state.own.speaking else { return };
        let params = speaking.params.clone();
        let ids = &self.ids;
        // Voices were checked when the response was requested.
        let speaker = self.speakers.get(&params.voice).copied().unwrap_or(ids.codec_pad);
        let header = ids.header.map(|id| Row::Text { id, codec: NO_ID });
        let codecs = [ids.nothink, ids.think_bos, ids.think_eos, speaker];
        let codecs = codecs.map(|codec| Row::Text { id: ids.tts_pad, codec });
        let bos = Row::Text { id: ids.tts_bos, codec: ids.codec_pad };
        let first = Row::Text { id: first, codec: ids.codec_bos };
        header.into_iter().chain(codecs).chain([bos, first]).for_each(|row| state.push(row));
        state.begin(params, self.max_frames);
    }

    /// Queues the row after the last frame once its text part is known: the next token, then the end mark, then padding.
    fn advance(&self, state: &mut State<O>) {
        let Some(frames) = state.decoding().map(|decoding| decoding.steps) else { return };
        let Some(speaking) = &mut state.own.speaking else { return };
        let Some(Utterance { tokens, ended }) = speaking.utterances.front() else { return };
        let id = match tokens.get(frames) {
            Some(&token) => token,
            None if !ended => return,
            None if frames == tokens.len() => self.ids.tts_eos,
            None => self.ids.tts_pad,
        };
        if std::mem::take(&mut speaking.waits) {
            state.push(Row::Frame { id });
        }
    }

    /// Ends the response and truncates to the user rows; queued user rows stay queued.
    fn finish(state: &mut State<O>, pool: &mut BlockPool) {
        state.own.speaking = None;
        state.truncate(pool, state.own.origins.len());
    }
}

impl<O: StepOps + Send> CausalLm<O> for TalkerLm<O>
where
    O::Weight: Send + Sync,
    O::State: Send,
{
    type Row = Row;
    type Slot = TalkerSlot;
    type Piece = Vec<u32>;
    type Places = TalkerPlaces;

    fn name(&self) -> &'static str {
        "talker"
    }

    fn takes(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn gives(&self) -> EdgeKind {
        EdgeKind::Codes
    }

    fn vocabulary(&self) -> usize {
        self.vocabulary
    }

    fn cache(&self, ops: &O, blocks: usize) -> Vec<O::State> {
        self.talker.model.cache(ops, blocks, BLOCK)
    }

    fn max_slots(&self) -> usize {
        MAX_SLOTS
    }

    fn prompt_row(&self, _: &Element) -> Option<Row> {
        None
    }

    fn limit(&self, _: &ResponseParams) -> usize {
        self.max_frames
    }

    fn accept(&mut self, slot: usize, item: Item, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        match item {
            Item::Rewind { to } => {
                // No response is active, so the queue holds user rows only.
                let keep = state.own.origins.partition_point(|&origin| origin < to);
                state.own.origins.truncate(keep);
                state.truncate(pool, keep);
            }
            Item::Context { from, elements } => {
                for (i, element) in elements.iter().enumerate().filter(|(_, element)| self.reads(element)) {
                    state.push(match element.value {
                        Value::Token(id) => Row::Text { id, codec: NO_ID },
                        Value::Audio { .. } | Value::Codes(_) => Row::Audio { position: from + i },
                    });
                    state.own.origins.push(from + i);
                }
            }
            Item::Begin(params) => {
                if params.audio {
                    state.own.speaking = Some(Speaking::new(params.clone()));
                }
                out.push((slot, Item::Begin(params)));
            }
            Item::Token(id) => {
                if let Some(speaking) = &mut state.own.speaking {
                    if speaking.token(id) { self.begin(state, id) } else { self.advance(state) }
                }
            }
            Item::TextPause => {
                if let Some(speaking) = &mut state.own.speaking {
                    speaking.end_text();
                    self.advance(state);
                }
            }
            Item::End(end) => match &mut state.own.speaking {
                Some(speaking) if !speaking.utterances.is_empty() => {
                    speaking.end_text();
                    speaking.complete = Some(end);
                    match speaking.over.and_then(|speech| speaking.end(speech)) {
                        Some(end) => {
                            state.own.speaking = None;
                            out.push((slot, Item::End(end)));
                        }
                        None => self.advance(state),
                    }
                }
                // A response whose first token is a stop has no audio.
                _ => {
                    state.own.speaking = None;
                    out.push((slot, Item::End(end)));
                }
            },
            Item::Abort => {
                if state.own.speaking.is_some() {
                    state.end();
                    Self::finish(state, pool);
                }
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }

    fn special(&self, rows: &[Row]) -> usize {
        rows.iter().filter(|row| matches!(row, Row::Audio { .. })).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> TalkerPlaces {
        TalkerPlaces {
            text: layout.list(shape.rows),
            codec: layout.list(shape.rows),
            last: layout.list(shape.rows),
            audio_at: layout.list(shape.special),
            audio: layout.list(shape.special),
            params: layout.samples(shape.sampled),
            predictor: self.talker.code_predictor.layout(layout, shape.sampled),
            made: layout.list(shape.sampled),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, Row>, places: &TalkerPlaces, spec: &mut RowSpec) {
        let ids = |row: &Row| match *row {
            Row::Text { id, codec } => (id, codec),
            Row::Audio { .. } => (NO_ID, NO_ID),
            Row::Frame { id } => (id, NO_ID),
        };
        spec.set_each(places.text, step.rows.iter().map(|row| ids(row).0));
        spec.set_each(places.codec, step.rows.iter().map(|row| ids(row).1));
        let rows = || step.rows.iter().zip(step.at);
        let last = |(row, at): (&Row, &(usize, usize))| match row {
            Row::Frame { .. } => at.0 as u32,
            _ => NO_ROW,
        };
        spec.set_each(places.last, rows().map(last));
        let hidden = &self.hidden;
        let audio = || {
            rows().enumerate().filter_map(move |(i, (row, at))| match row {
                Row::Audio { position } => Some((i, hidden.number(at.0, *position))),
                _ => None,
            })
        };
        spec.set_each(places.audio_at, audio().map(|(i, _)| i as u32));
        spec.set_each(places.audio, audio().map(|(_, number)| number));
        // The text's random numbers are stream 0, codebook `c` is stream `c + 1`.
        let chosen = |sampling, codebook: usize| {
            step.samplers.iter().map(move |row: &Sampler<'_>| row.sample_params(sampling, codebook + 1))
        };
        spec.set_samples(places.params, chosen(&self.sampling, 0));
        let predictor = &self.talker.code_predictor;
        predictor.fill(spec, &places.predictor, |codebook| chosen(&self.predictor_sampling, codebook));
        spec.set_each(places.made, step.samplers.iter().map(|row| row.slot as u32));
    }

    fn forward(&mut self, ops: &O, places: &TalkerPlaces, step: StepContext<'_, O>, outputs: &mut Outputs<O>) {
        let StepContext { spec, batch, last, cache, output_mask } = step;
        let talker = &self.talker;
        let index = |section| ops.index(spec, section);
        let mut x = talker.text_rows(ops, &ops.embed_at(&self.thinker.embed_tokens, &index(places.text)));
        if places.audio.capacity() > 0 {
            let hidden = self.hidden.load(ops, &index(places.audio));
            x = ops.scatter_at(x, &index(places.audio_at), &talker.audio_rows(ops, &hidden));
        }
        let with = ops.overlay(talker.codec_rows(ops, &index(places.codec)), &self.last, &index(places.last));
        x = ops.add(x, &with);
        let Some(last) = last else {
            talker.model.forward(ops, x, cache, batch, None);
            return;
        };
        let hidden = talker.forward(ops, x, cache, batch, last);
        let logits = talker.logits(ops, &hidden);
        let params = index(places.params.words());
        let first = ops.sample_at(&logits, &params, Some(&talker.allowed_mask), Some(output_mask));
        let embedded = talker.codec_rows(ops, &first);
        outputs.ids.push(first);
        let cache = &mut self.predictor_cache;
        let embedding =
            talker.code_predictor.complete(ops, (spec, &places.predictor), &hidden, embedded, cache, |ids, _| {
                outputs.ids.push(ids);
            });
        ops.store(&mut self.last, &index(places.made), &embedding);
    }

    fn sampled(&mut self, codes: Vec<u32>, _: usize, _: &mut State<O>) -> Sampled<Vec<u32>> {
        if codes.first() == Some(&self.ids.codec_eos) {
            Sampled::Stop
        } else if codes.contains(&NO_ID) {
            Sampled::NotFinite
        } else {
            Sampled::Piece(codes)
        }
    }

    fn give(&self, slot: usize, codes: &Vec<u32>, _: usize, out: &mut Outbox) {
        out.push((slot, Item::Codes(codes.clone())));
    }

    fn follow(&mut self, state: &mut State<O>, _: Vec<u32>) {
        if let Some(speaking) = &mut state.own.speaking {
            speaking.waits = true;
        }
        self.advance(state);
    }

    /// The response ends once its text has ended too, and no utterance is left.
    fn ended(&mut self, slot: usize, end: End, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        let Some(speaking) = &mut state.own.speaking else { return };
        speaking.waits = false;
        if let Some(first) = speaking.next(end) {
            state.truncate(pool, state.own.origins.len());
            self.begin(state, first);
        } else if let Some(end) = speaking.end(end) {
            Self::finish(state, pool);
            out.push((slot, Item::End(end)));
        } else {
            speaking.over = Some(end);
            state.truncate(pool, state.own.origins.len());
        }
    }

    fn failed(&mut self, state: &mut State<O>, pool: &mut BlockPool) {
        Self::finish(state, pool);
    }

    fn shares(&self, donor: &State<O>, positions: usize) -> usize {
        // A queued row's input is not kept once it is computed, so only cached rows can be shared.
        donor.own.origins.get(donor.cached()).copied().unwrap_or(positions).min(positions)
    }

    fn share(&self, state: &mut State<O>, donor: &State<O>, positions: usize) -> usize {
        let rows = donor.own.origins.partition_point(|&origin| origin < positions);
        state.own.origins = donor.own.origins[..rows].to_vec();
        rows
    }

    fn reads(&self, element: &Element) -> bool {
        element.role == Role::User
    }

    fn ahead(&self, state: &State<O>) -> Duration {
        let Some(speaking) = &state.own.speaking else { return Duration::ZERO };
        let frames = state.decoding().map_or(0, |decoding| decoding.steps);
        let tokens: usize = speaking.utterances.iter().map(|utterance| utterance.tokens.len()).sum();
        self.frame * u32::try_from(tokens.saturating_sub(frames)).unwrap_or(u32::MAX).min(1000)
    }

    /// Frames are reserved, not text tokens: speech takes several times as many positions as its text.
    fn room(&self, prompt: &[Element], _: usize) -> Room {
        let used = prompt.iter().filter(|element| self.reads(element)).count();
        let positions = self.positions - HEADER_ROWS;
        Room { used, limit: positions - self.max_frames.min(positions / 2) }
    }
}
