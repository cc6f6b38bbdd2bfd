//! The talker and its code predictor as a stage: prefills user rows silently, then turns text tokens into codec frames, one
//! frame a token and on until the model ends its speech.
//!
//! Its prompt is, as in the reference, the rows of all user messages and the header of the response. So at the end of a
//! response its sequence is truncated to the user rows.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use repartee_engine_api::{Sampling, SessionError};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::{Ops, SampleParams, SequenceRows, StateSpec};

use super::{BLOCK, sample_params};
use crate::models::qwen3_omni_moe::config::Config;
use crate::models::qwen3_omni_moe::generation::GenerationConfig;
use crate::models::qwen3_omni_moe::talker::Talker;
use crate::models::qwen3_omni_moe::thinker::Thinker;
use crate::sequence::{BlockPool, Sequence};
use crate::stage::{Element, End, Item, Outbox, ResponseParams, Slots, Stage, Work};

/// Rows between the user rows and the first frame: the response's header and its first text token.
const HEADER_ROWS: usize = 9;
/// Frames completed in one step, one a slot.
const MAX_FRAMES: usize = 128;

/// A row to prefill: a text part and a codec part, added.
enum Row<T> {
    /// A text token and a codec id ([`NO_ID`] for none).
    Text { id: u32, codec: u32 },
    /// An audio row, by the thinker's hidden row.
    Audio { hidden: Arc<T>, row: usize },
}

/// The talker with the state of all slots.
pub struct TalkerStage<O: Ops> {
    ops: O,
    thinker: Arc<Thinker<O>>,
    talker: Talker<O>,
    cache: Vec<O::State>,
    predictor_cache: Vec<O::State>,
    output_mask: O::State,
    pool: BlockPool,
    slots: Vec<Slot<O::T>>,
    ids: Ids,
    speakers: BTreeMap<String, u32>,
    sampling: Sampling,
    predictor_sampling: Sampling,
    max_frames: usize,
    /// Positions of one slot.
    context: usize,
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

struct Slot<T> {
    sequence: Sequence,
    /// Rows to prefill next.
    queue: VecDeque<Row<T>>,
    /// For each user row, prefilled or queued, its position in the thinker's prompt.
    origins: Vec<usize>,
    speaking: Option<Speaking<T>>,
}

struct Speaking<T> {
    params: ResponseParams,
    /// Text tokens so far.
    tokens: Vec<u32>,
    /// How the text ended, once it has.
    complete: Option<End>,
    /// How the speech ended, if it ended before the text.
    over: Option<End>,
    /// Whether the header and the first text token were queued.
    begun: bool,
    /// Frames so far.
    frames: usize,
    /// Sum of the last frame's embeddings: the codec part of the next row.
    last: Option<T>,
}

impl<T> Default for Slot<T> {
    fn default() -> Self {
        Self { sequence: Sequence::default(), queue: VecDeque::new(), origins: Vec::new(), speaking: None }
    }
}

impl<T> Slot<T> {
    /// The text part of the row after the last frame, once it is known: the next token, then the end mark, then padding.
    fn next_text(&self, ids: &Ids) -> Option<u32> {
        let speaking = self.speaking.as_ref()?;
        let next = speaking.frames;
        match speaking.complete {
            _ if next < speaking.tokens.len() => Some(speaking.tokens[next]),
            Some(_) if next == speaking.tokens.len() => Some(ids.tts_eos),
            Some(_) => Some(ids.tts_pad),
            None => None,
        }
    }

    /// Ends the speech; the response ends once its text has ended too.
    fn end<I>(&mut self, slot: usize, end: End, pool: &mut BlockPool, out: &mut Outbox<I>) {
        let Some(speaking) = &mut self.speaking else { return };
        if let Some(text) = speaking.complete {
            self.finish(pool);
            out.push((slot, Item::End(shorter(text, end))));
            return;
        }
        speaking.over = Some(end);
        speaking.last = None;
        self.reset_to_user_rows(pool);
    }

    /// Ends the response and truncates to the user rows; queued user rows stay queued.
    fn finish(&mut self, pool: &mut BlockPool) {
        self.speaking = None;
        self.reset_to_user_rows(pool);
    }

    fn reset_to_user_rows(&mut self, pool: &mut BlockPool) {
        self.queue.truncate(self.origins.len().saturating_sub(self.sequence.len()));
        self.sequence.truncate(pool, self.origins.len());
    }
}

/// How a response ended whose text and speech ended so: at a limit if either did.
fn shorter(text: End, speech: End) -> End {
    if text == End::Length { text } else { speech }
}

impl<O: Ops> TalkerStage<O> {
    /// A stage for `slots` slots with a whole context each. `header` is `<|im_start|>assistant\n`.
    pub fn new(
        ops: O,
        thinker: Arc<Thinker<O>>,
        talker: Talker<O>,
        slots: Slots,
        header: [u32; 3],
        (config, generation): (&Config, &GenerationConfig),
    ) -> Self {
        let count = slots.total();
        let blocks = count * (slots.context + HEADER_ROWS).div_ceil(BLOCK);
        let codec = &config.talker;
        Self {
            cache: talker.model.cache(&ops, blocks, BLOCK),
            predictor_cache: talker.code_predictor.cache(&ops, count.min(MAX_FRAMES)),
            output_mask: ops.state(StateSpec::TokenMask { slots: count, vocabulary: codec.text.vocab_size }),
            pool: BlockPool::new(blocks, BLOCK),
            slots: (0..count).map(|_| Slot::default()).collect(),
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
            context: slots.context,
            ops,
            thinker,
            talker,
        }
    }

    /// Queues the response's header and first text token, [`HEADER_ROWS`] rows; the last one gives codebook 0 of the first
    /// frame.
    fn begin(&mut self, slot: usize) {
        let Slot { queue, speaking, .. } = &mut self.slots[slot];
        let Some(speaking) = speaking else { return };
        let Some(&first) = speaking.tokens.first() else { return };
        if std::mem::replace(&mut speaking.begun, true) {
            return;
        }
        let ids = &self.ids;
        // Voices were checked when the response was requested.
        let speaker = self.speakers.get(&speaking.params.voice).copied().unwrap_or(ids.codec_pad);
        queue.extend(ids.header.map(|id| Row::Text { id, codec: NO_ID }));
        queue.extend(
            [ids.nothink, ids.think_bos, ids.think_eos, speaker].map(|codec| Row::Text { id: ids.tts_pad, codec }),
        );
        queue.push_back(Row::Text { id: ids.tts_bos, codec: ids.codec_pad });
        queue.push_back(Row::Text { id: first, codec: ids.codec_bos });
    }

    /// The rows that `work` takes, packed.
    fn rows(&mut self, work: &[Work]) -> O::T {
        let (mut text, mut codec) = (Vec::new(), Vec::new());
        let (mut audio_at, mut audio): (Vec<usize>, Vec<O::T>) = (Vec::new(), Vec::new());
        let (mut last_at, mut last): (Vec<usize>, Vec<O::T>) = (Vec::new(), Vec::new());
        for &Work { slot, rows } in work {
            let state = &mut self.slots[slot];
            if state.queue.is_empty() {
                last_at.push(text.len());
                text.push(state.next_text(&self.ids).unwrap_or(self.ids.tts_pad));
                codec.push(NO_ID);
                last.extend(state.speaking.as_mut().and_then(|speaking| speaking.last.take()));
                continue;
            }
            for row in state.queue.drain(..rows) {
                match row {
                    Row::Text { id, codec: with } => {
                        text.push(id);
                        codec.push(with);
                    }
                    Row::Audio { hidden, row } => {
                        audio_at.push(text.len());
                        audio.push(self.ops.gather(&hidden, &[row]));
                        text.push(NO_ID);
                        codec.push(NO_ID);
                    }
                }
            }
        }
        let ops = &self.ops;
        let mut x = self.talker.text_rows(ops, &ops.embed(&self.thinker.embed_tokens, &ops.ids(&text)));
        if !audio.is_empty() {
            let hidden = ops.concat(&audio.iter().collect::<Vec<_>>());
            x = ops.scatter(x, &audio_at, &self.talker.audio_rows(ops, &hidden));
        }
        let mut with = self.talker.codec_rows(ops, &ops.ids(&codec));
        if !last.is_empty() {
            with = ops.scatter(with, &last_at, &ops.concat(&last.iter().collect::<Vec<_>>()));
        }
        ops.add(x, &with)
    }

    /// Completes one frame for each of `speakers`, from their normed last rows.
    fn frames(&mut self, speakers: &[usize], hidden: &O::T, out: &mut Outbox<O::T>) {
        let ops = &self.ops;
        let slots = &self.slots;
        let params = |sampling: &Sampling, codebook: usize| -> Vec<SampleParams> {
            let speaking = |slot: usize| slots[slot].speaking.as_ref().map(|s| (slot, s));
            let row =
                |(slot, s): (usize, &Speaking<O::T>)| sample_params(slot, sampling, &s.params, s.frames, codebook + 1);
            speakers.iter().filter_map(|&slot| speaking(slot)).map(row).collect()
        };
        let logits = self.talker.logits(ops, hidden);
        let first = ops.sample(
            &logits,
            &params(&self.sampling, 0),
            Some(&self.talker.allowed_mask),
            Some(&mut self.output_mask),
        );
        let embedded = self.talker.codec_rows(ops, &first);
        let predictor = &self.talker.code_predictor;
        let cache = &mut self.predictor_cache;
        let completed =
            predictor.complete(ops, hidden, embedded, cache, |c| params(&self.predictor_sampling, c), false);
        let codes: Vec<Vec<u32>> =
            std::iter::once(&first).chain(&completed.codes).map(|ids| ops.read_ids(ids)).collect();

        for (row, &slot) in speakers.iter().enumerate() {
            let frame: Vec<u32> = codes.iter().map(|ids| ids[row]).collect();
            let state = &mut self.slots[slot];
            let Some(speaking) = state.speaking.as_mut() else { continue };
            if frame[0] == self.ids.codec_eos {
                state.end(slot, End::Stop, &mut self.pool, out);
            } else if frame.contains(&NO_ID) {
                state.finish(&mut self.pool);
                out.push((slot, Item::Fail(SessionError::NotFinite { stage: "talker" })));
            } else {
                speaking.frames += 1;
                out.push((slot, Item::Frame(frame)));
                if speaking.frames >= self.max_frames || state.sequence.len() >= self.context {
                    state.end(slot, End::Length, &mut self.pool, out);
                } else {
                    speaking.last = Some(self.ops.gather(&completed.embedding, &[row]));
                }
            }
        }
    }
}

impl<O: Ops + Send> Stage<O::T> for TalkerStage<O>
where
    O::T: Send + Sync,
    O::Weight: Send + Sync,
    O::State: Send,
{
    fn name(&self) -> &'static str {
        "talker"
    }

    fn accept(&mut self, slot: usize, item: Item<O::T>, out: &mut Outbox<O::T>) {
        let state = &mut self.slots[slot];
        match item {
            Item::Rewind { to } => {
                // No response is active, so the queue holds user rows only.
                let keep = state.origins.partition_point(|&origin| origin < to);
                let read = state.sequence.len();
                state.origins.truncate(keep);
                state.queue.truncate(keep.saturating_sub(read));
                state.sequence.truncate(&mut self.pool, keep);
            }
            Item::Context { from, elements, hidden } => {
                for (i, element) in elements.iter().enumerate() {
                    let row = match element {
                        Element::Token { id, user: true } => Row::Text { id: *id, codec: NO_ID },
                        Element::Audio { .. } => Row::Audio { hidden: Arc::clone(&hidden), row: i },
                        Element::Token { .. } => continue,
                    };
                    state.queue.push_back(row);
                    state.origins.push(from + i);
                }
            }
            Item::Begin(params) => {
                if params.audio {
                    self.ops.reset(&mut self.output_mask, slot);
                    state.speaking = Some(Speaking {
                        params: params.clone(),
                        tokens: Vec::new(),
                        complete: None,
                        over: None,
                        begun: false,
                        frames: 0,
                        last: None,
                    });
                }
                out.push((slot, Item::Begin(params)));
            }
            Item::Token(id) => {
                if let Some(speaking) = state.speaking.as_mut().filter(|speaking| speaking.over.is_none()) {
                    speaking.tokens.push(id);
                    self.begin(slot);
                }
            }
            Item::End(end) => match &mut state.speaking {
                Some(Speaking { over: Some(speech), .. }) => {
                    let end = shorter(end, *speech);
                    state.speaking = None;
                    out.push((slot, Item::End(end)));
                }
                Some(speaking) if !speaking.tokens.is_empty() => speaking.complete = Some(end),
                // A response whose first token is a stop has no audio.
                _ => {
                    state.speaking = None;
                    out.push((slot, Item::End(end)));
                }
            },
            Item::Abort => {
                if state.speaking.is_some() {
                    state.finish(&mut self.pool);
                }
                out.push((slot, Item::Abort));
            }
            _ => {}
        }
    }

    fn ready(&self, slot: usize) -> usize {
        let slot = &self.slots[slot];
        if !slot.queue.is_empty() {
            return slot.queue.len();
        }
        let speaks = slot.speaking.as_ref().is_some_and(|speaking| speaking.last.is_some());
        usize::from(speaks && slot.next_text(&self.ids).is_some())
    }

    fn max_rows(&self) -> usize {
        256
    }

    fn step(&mut self, work: &[Work], out: &mut Outbox<O::T>) {
        let mut fits = Vec::with_capacity(work.len());
        for &Work { slot, rows } in work.iter().take(MAX_FRAMES) {
            let state = &mut self.slots[slot];
            if state.sequence.append(&mut self.pool, rows).is_ok() {
                fits.push(Work { slot, rows });
            } else {
                let tokens = (state.sequence.len() + rows) as u32;
                let limit = (self.pool.blocks() * BLOCK) as u32;
                state.finish(&mut self.pool);
                out.push((slot, Item::Fail(SessionError::ContextFull { tokens, limit })));
            }
        }
        if fits.is_empty() {
            return;
        }
        let x = self.rows(&fits);
        let sequences: Vec<_> = fits
            .iter()
            .map(|&Work { slot, rows }| {
                let sequence = &self.slots[slot].sequence;
                SequenceRows { table: sequence.table(), position: sequence.len() - rows, rows }
            })
            .collect();
        let batch = self.ops.batch(&sequences);
        // A slot speaks once its header and first text token are prefilled.
        let (mut at, mut speakers) = (Vec::new(), Vec::new());
        let mut row = 0;
        for &Work { slot, rows } in &fits {
            row += rows;
            let state = &self.slots[slot];
            if state.queue.is_empty() && state.speaking.as_ref().is_some_and(|speaking| speaking.begun) {
                at.push(row - 1);
                speakers.push(slot);
            }
        }
        let hidden = self.talker.forward(&self.ops, x, &mut self.cache, &batch, &at);
        if !speakers.is_empty() {
            self.frames(&speakers, &hidden, out);
        }
    }

    fn free(&mut self, slot: usize) {
        let mut state = std::mem::take(&mut self.slots[slot]);
        state.sequence.release(&mut self.pool);
    }

    fn held(&self, slot: usize) -> usize {
        self.slots[slot].sequence.len()
    }

    fn blocks(&self) -> usize {
        self.pool.blocks() - self.pool.free()
    }
}
