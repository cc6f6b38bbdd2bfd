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
use repartee_kernels::{Ops, SampleParams};

use super::speaking::{Speaking, Utterance};
use crate::elements::{Element, Value};
use crate::models::parts::autoregressive::{BLOCK, CausalLm, Forward, HiddenRow, Sampled, Sampler, SlotState};
use crate::models::qwen3_omni_moe::config::Config;
use crate::models::qwen3_omni_moe::generation::GenerationConfig;
use crate::models::qwen3_omni_moe::talker::Talker;
use crate::models::qwen3_omni_moe::thinker::Thinker;
use crate::sequence::BlockPool;
use crate::stage::{EdgeKind, End, Item, Outbox, ResponseParams, Room};

/// Rows between the user rows and the first frame: the response's header and its first text token.
const HEADER_ROWS: usize = 9;
/// Slots whose frames are completed in one step.
const MAX_SLOTS: usize = 128;

/// A position: a text part and a codec part, added.
pub enum Row<T> {
    /// A text token and a codec id ([`NO_ID`] for none).
    Text {
        /// The token.
        id: u32,
        /// The codec id.
        codec: u32,
    },
    /// An audio row, by the thinker's hidden row.
    Audio {
        /// The thinker's rows.
        hidden: Arc<T>,
        /// Which of them.
        row: usize,
    },
    /// A text token and the sum of the last frame's embeddings.
    Frame {
        /// The token.
        id: u32,
        /// The sum.
        last: T,
    },
}

/// The talker with its code predictor, its marks and settings.
pub struct TalkerLm<O: Ops> {
    thinker: Arc<Thinker<O>>,
    talker: Talker<O>,
    predictor_cache: Vec<O::State>,
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
pub struct TalkerSlot<T> {
    /// For each user row, cached or queued, its position in the thinker's prompt.
    origins: Vec<usize>,
    speaking: Option<Speaking<T>>,
}

impl<T> Default for TalkerSlot<T> {
    fn default() -> Self {
        Self { origins: Vec::new(), speaking: None }
    }
}

/// A codec frame, and the sum of its embeddings.
pub struct Frame<T> {
    codes: Vec<u32>,
    embedding: T,
}

type State<O> = SlotState<O, TalkerLm<O>>;

/// Positions of a slot: the prompt's and as many frames as a response may have, as far as the model allows.
pub fn positions(config: &Config, generation: &GenerationConfig, context: usize) -> usize {
    let frames = generation.talker_max_new_tokens as usize;
    (context + HEADER_ROWS + frames).min(config.talker.text.max_position_embeddings + HEADER_ROWS)
}

impl<O: Ops + Send> TalkerLm<O>
where
    O::T: Send + Sync,
    O::Weight: Send + Sync,
    O::State: Send,
{
    /// For `slots` slots of `positions` positions each. `header` is `<|im_start|>assistant\n`.
    pub fn new(
        ops: &O,
        (thinker, talker): (Arc<Thinker<O>>, Talker<O>),
        (slots, positions): (usize, usize),
        header: [u32; 3],
        (config, generation): (&Config, &GenerationConfig),
        frame: Duration,
    ) -> Self {
        let codec = &config.talker;
        Self {
            predictor_cache: talker.code_predictor.cache(ops, slots.min(MAX_SLOTS)),
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
        if let Some(last) = speaking.last.take() {
            state.push(Row::Frame { id, last });
        }
    }

    /// Ends the response and truncates to the user rows; queued user rows stay queued.
    fn finish(state: &mut State<O>, pool: &mut BlockPool) {
        state.own.speaking = None;
        state.truncate(pool, state.own.origins.len());
    }

    /// Embeddings of packed rows.
    fn embed(&self, ops: &O, rows: Vec<Row<O::T>>) -> O::T {
        let (mut text, mut codec) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
        let (mut audio_at, mut audio): (Vec<usize>, Vec<O::T>) = (Vec::new(), Vec::new());
        let (mut last_at, mut lasts): (Vec<usize>, Vec<O::T>) = (Vec::new(), Vec::new());
        for (at, row) in rows.into_iter().enumerate() {
            let (id, with) = match row {
                Row::Text { id, codec } => (id, codec),
                Row::Audio { hidden, row } => {
                    audio_at.push(at);
                    audio.push(ops.gather(&hidden, &[row]));
                    (NO_ID, NO_ID)
                }
                Row::Frame { id, last } => {
                    last_at.push(at);
                    lasts.push(last);
                    (id, NO_ID)
                }
            };
            text.push(id);
            codec.push(with);
        }
        let mut x = self.talker.text_rows(ops, &ops.embed(&self.thinker.embed_tokens, &ops.ids(&text)));
        if !audio.is_empty() {
            let hidden = ops.concat(&audio.iter().collect::<Vec<_>>());
            x = ops.scatter(x, &audio_at, &self.talker.audio_rows(ops, &hidden));
        }
        let mut with = self.talker.codec_rows(ops, &ops.ids(&codec));
        if !lasts.is_empty() {
            with = ops.scatter(with, &last_at, &ops.concat(&lasts.iter().collect::<Vec<_>>()));
        }
        ops.add(x, &with)
    }
}

impl<O: Ops + Send> CausalLm<O> for TalkerLm<O>
where
    O::T: Send + Sync,
    O::Weight: Send + Sync,
    O::State: Send,
{
    type Row = Row<O::T>;
    type Slot = TalkerSlot<O::T>;
    type Piece = Frame<O::T>;

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

    fn prompt_row(&self, _: &Element<O::T>) -> Option<Row<O::T>> {
        None
    }

    fn limit(&self, _: &ResponseParams) -> usize {
        self.max_frames
    }

    fn accept(
        &mut self,
        slot: usize,
        item: Item<O::T>,
        state: &mut State<O>,
        pool: &mut BlockPool,
        out: &mut Outbox<O::T>,
    ) {
        match item {
            Item::Rewind { to } => {
                // No response is active, so the queue holds user rows only.
                let keep = state.own.origins.partition_point(|&origin| origin < to);
                state.own.origins.truncate(keep);
                state.truncate(pool, keep);
            }
            Item::Context { from, elements, hidden } => {
                for (i, element) in elements.iter().enumerate().filter(|(_, element)| self.reads(element)) {
                    state.push(match element.value {
                        Value::Token(id) => Row::Text { id, codec: NO_ID },
                        Value::Audio { .. } | Value::Codes(_) => Row::Audio { hidden: Arc::clone(&hidden), row: i },
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

    fn forward(
        &mut self,
        ops: &O,
        rows: Vec<Row<O::T>>,
        cache: &mut [O::State],
        batch: &O::Batch,
        at: &[usize],
    ) -> Forward<O::T> {
        let x = self.embed(ops, rows);
        Forward { last: self.talker.forward(ops, x, cache, batch, at), hidden: None }
    }

    fn sample(
        &mut self,
        ops: &O,
        last: &O::T,
        samplers: &[Sampler<'_>],
        output_mask: &mut O::State,
    ) -> Vec<Sampled<Frame<O::T>>> {
        // The text's random numbers are stream 0, codebook `c` is stream `c + 1`.
        let params = |sampling: &Sampling, codebook: usize| -> Vec<SampleParams> {
            samplers.iter().map(|row| row.sample_params(sampling, codebook + 1)).collect()
        };
        let logits = self.talker.logits(ops, last);
        let allowed = Some(&self.talker.allowed_mask);
        let first = ops.sample(&logits, &params(&self.sampling, 0), allowed, Some(output_mask));
        let embedded = self.talker.codec_rows(ops, &first);
        let (predictor, cache) = (&self.talker.code_predictor, &mut self.predictor_cache);
        let completed = predictor.complete(ops, last, embedded, cache, |c| params(&self.predictor_sampling, c), false);
        let codes: Vec<Vec<u32>> =
            std::iter::once(&first).chain(&completed.codes).map(|ids| ops.read_ids(ids)).collect();
        let sampled = |row: usize| {
            let codes: Vec<u32> = codes.iter().map(|ids| ids[row]).collect();
            if codes[0] == self.ids.codec_eos {
                Sampled::Stop
            } else if codes.contains(&NO_ID) {
                Sampled::NotFinite
            } else {
                Sampled::Piece(Frame { codes, embedding: ops.gather(&completed.embedding, &[row]) })
            }
        };
        (0..samplers.len()).map(sampled).collect()
    }

    fn give(&self, slot: usize, frame: &Frame<O::T>, _: HiddenRow<'_, O::T>, out: &mut Outbox<O::T>) {
        out.push((slot, Item::Codes(frame.codes.clone())));
    }

    fn follow(&mut self, state: &mut State<O>, frame: Frame<O::T>) {
        if let Some(speaking) = &mut state.own.speaking {
            speaking.last = Some(frame.embedding);
        }
        self.advance(state);
    }

    /// The response ends once its text has ended too, and no utterance is left.
    fn ended(&mut self, slot: usize, end: End, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox<O::T>) {
        let Some(speaking) = &mut state.own.speaking else { return };
        speaking.last = None;
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

    fn reads(&self, element: &Element<O::T>) -> bool {
        element.role == Role::User
    }

    fn ahead(&self, state: &State<O>) -> Duration {
        let Some(speaking) = &state.own.speaking else { return Duration::ZERO };
        let frames = state.decoding().map_or(0, |decoding| decoding.steps);
        let tokens: usize = speaking.utterances.iter().map(|utterance| utterance.tokens.len()).sum();
        self.frame * u32::try_from(tokens.saturating_sub(frames)).unwrap_or(u32::MAX).min(1000)
    }

    /// Frames are reserved, not text tokens: speech takes several times as many positions as its text.
    fn room(&self, prompt: &[Element<O::T>], _: usize) -> Room {
        let used = prompt.iter().filter(|element| self.reads(element)).count();
        let positions = self.positions - HEADER_ROWS;
        Room { used, limit: positions - self.max_frames.min(positions / 2) }
    }
}
