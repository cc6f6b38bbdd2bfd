//! The talker and its code predictor as a language model of the generic stage: prefills the instructions silently, then speaks the text
//! that it gets, one codec frame a step and on until the model ends its speech.
//!
//! Where text streams in, each frame waits for the text id beside it. At the end of a response the sequence is truncated to the
//! instructions.

use std::sync::Arc;
use std::time::Duration;

use repartee_engine_api::{Role, Sampling};
use repartee_kernels::ops::NO_ID;
use repartee_kernels::row_spec::{SampleSection, Section};
use repartee_kernels::{NO_ROW, Outputs, RowSpec, SpecLayout, StateSpec, StepOps};

use super::generation::GenerationConfig;
use super::talker::{LEAST_FRAMES, Talker};
use super::utterance::{Marks, Row, Utterance};
use super::voices::{Cloned, VoiceList};
use crate::elements::{Element, Value};
use crate::models::parts::autoregressive::{
    BLOCK, CausalLm, Sampled, Sampler, SlotState, StepContext, StepInput, StepShape,
};
use crate::models::parts::code_predictor::PredictorPlaces;
use crate::sequence::BlockPool;
use crate::stage::{EdgeKind, End, Item, Outbox, ResponseParams, Room};

/// Slots whose frames are completed in one step.
const MAX_SLOTS: usize = 128;

/// The talker with its code predictor, its marks and settings.
pub struct TalkerLm<O: StepOps> {
    talker: Talker<O>,
    predictor_cache: Vec<O::State>,
    /// The sum of the embeddings of each slot's last frame.
    last: O::State,
    vocabulary: usize,
    marks: Marks,
    voices: VoiceList,
    /// Whether a text that does not stream in stands before the first frame.
    whole: bool,
    sampling: Sampling,
    predictor_sampling: Sampling,
    max_frames: usize,
    /// Positions of a slot but for a response's head.
    positions: usize,
    /// Width of a row.
    width: usize,
    /// Codes of a frame.
    groups: usize,
    /// Duration of a frame.
    frame: Duration,
}

/// Sizes of the stage.
pub struct Sizes {
    /// Slots.
    pub slots: usize,
    /// Positions of a slot.
    pub positions: usize,
    /// Of these, those that stand before a response's text, beside its instructions.
    pub head: usize,
    /// Width of a row.
    pub width: usize,
    /// Codes of a frame.
    pub groups: usize,
    /// Ids of codebook 0 and marks.
    pub vocabulary: usize,
}

/// What the talker keeps of a slot.
#[derive(Default)]
pub struct TalkerSlot {
    /// For each instruction row, cached or queued, its position in the prompt.
    origins: Vec<usize>,
    speaking: Option<Speaking>,
}

/// A response that is spoken.
struct Speaking {
    params: ResponseParams,
    utterance: Utterance,
    /// Whether the rows before the first frame are queued.
    begun: bool,
    /// Whether the row after the last frame waits for its text id.
    waits: bool,
    /// How the text ended, once it has.
    complete: Option<End>,
    /// How the speech ended, if it did before the text.
    over: Option<End>,
}

/// Where the talker's numbers of a step lie.
pub struct TalkerPlaces {
    text: Section,
    codec: Section,
    /// For each row, the slot whose last frame is its codec part.
    last: Section,
    /// Rows of a recording: the speaker's numbers, or the codes of a frame.
    cloned_at: Section,
    cloned: Section,
    cloned_codes: Vec<Section>,
    /// For each row that is sampled from, whether it may not end.
    endless: Section,
    params: SampleSection,
    predictor: PredictorPlaces,
    /// The slot of each frame that is made.
    made: Section,
}

type State<O> = SlotState<O, TalkerLm<O>>;

impl<O: StepOps + Send> TalkerLm<O>
where
    O::Weight: Send + Sync,
    O::State: Send,
{
    /// The stage's model.
    pub fn new(
        ops: &O,
        talker: Talker<O>,
        Sizes { slots, positions, head, width, groups, vocabulary }: Sizes,
        (marks, voices, whole): (Marks, VoiceList, bool),
        generation: &GenerationConfig,
        frame: Duration,
    ) -> Self {
        Self {
            predictor_cache: talker.code_predictor.cache(ops, slots.min(MAX_SLOTS)),
            last: ops.state(StateSpec::Rows { rows: slots, columns: width }),
            vocabulary,
            marks,
            voices,
            whole,
            sampling: generation.talker,
            predictor_sampling: generation.code_predictor,
            max_frames: generation.max_new_tokens as usize,
            positions: positions - head,
            width,
            groups,
            frame,
            talker,
        }
    }

    /// Whether all text stands before the first frame, as in the reference unless text streams in or a voice is cloned.
    fn is_whole(&self, params: &ResponseParams) -> bool {
        self.whole && !params.streamed
    }

    /// Queues what the text that is known allows: the rows before the first frame, or the row after the last one.
    fn advance(&self, state: &mut State<O>) {
        let frames = state.decoding().map(|decoding| decoding.steps);
        let Some(speaking) = &mut state.own.speaking else { return };
        if !speaking.begun {
            let Some(rows) = self.marks.begin(&speaking.utterance) else { return };
            speaking.begun = true;
            let params = speaking.params.clone();
            rows.into_iter().for_each(|row| state.push(row));
            return state.begin(params, self.max_frames);
        }
        let Some(frames) = frames.filter(|_| speaking.waits) else { return };
        if let Some(id) = self.marks.beside(&speaking.utterance, frames) {
            speaking.waits = false;
            state.push(Row::Frame { id });
        }
    }

    /// Ends the response and truncates to the instructions; queued ones stay queued.
    fn finish(state: &mut State<O>, pool: &mut BlockPool) {
        state.own.speaking = None;
        state.truncate(pool, state.own.origins.len());
    }
}

/// How a response ended whose text and speech ended so: at a limit if either did.
fn both(text: End, speech: End) -> End {
    if text == End::Length { text } else { speech }
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
                // No response is active, so the queue holds instructions only.
                let keep = state.own.origins.partition_point(|&origin| origin < to);
                state.own.origins.truncate(keep);
                state.truncate(pool, keep);
            }
            Item::Context { from, elements } => {
                for (i, element) in elements.iter().enumerate().filter(|(_, element)| self.reads(element)) {
                    if let Value::Token(id) = element.value {
                        state.push(Row::Text { id, codec: NO_ID });
                        state.own.origins.push(from + i);
                    }
                }
            }
            Item::Begin(params) => {
                let voice = self.voices.get(&params.voice);
                let utterance = Utterance { voice, whole: self.is_whole(&params), ..Utterance::default() };
                out.push((slot, Item::Begin(params.clone())));
                if params.audio {
                    let recording = utterance.recording().map_or(&[][..], |recording| &recording.frames);
                    out.extend(recording.iter().map(|frame| (slot, Item::Lead(frame.clone()))));
                    state.own.speaking =
                        Some(Speaking { params, utterance, begun: false, waits: false, complete: None, over: None });
                }
            }
            Item::Token(id) => {
                // What is said after the speech has ended is not heard.
                if let Some(speaking) = state.own.speaking.as_mut().filter(|speaking| speaking.over.is_none()) {
                    speaking.utterance.text.push(id);
                    self.advance(state);
                }
            }
            Item::End(end) => match &mut state.own.speaking {
                Some(speaking) if speaking.over.is_none() && !speaking.utterance.text.is_empty() => {
                    speaking.utterance.ended = true;
                    speaking.complete = Some(end);
                    self.advance(state);
                }
                // A response without text has no audio.
                speaking => {
                    let speech = speaking.take().and_then(|speaking| speaking.over);
                    out.push((slot, Item::End(both(end, speech.unwrap_or(end)))));
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
        rows.iter().filter(|row| matches!(row, Row::Cloned { .. })).count()
    }

    fn layout(&self, shape: StepShape, layout: &mut SpecLayout) -> TalkerPlaces {
        TalkerPlaces {
            text: layout.list(shape.rows),
            codec: layout.list(shape.rows),
            last: layout.list(shape.rows),
            cloned_at: layout.list(shape.special),
            cloned: layout.list(shape.special * self.width),
            cloned_codes: (0..self.groups).map(|_| layout.list(shape.special)).collect(),
            endless: layout.list(shape.sampled),
            params: layout.samples(shape.sampled),
            predictor: self.talker.code_predictor.layout(layout, shape.sampled),
            made: layout.list(shape.sampled),
        }
    }

    fn fill(&mut self, step: &StepInput<'_, Row>, places: &TalkerPlaces, spec: &mut RowSpec) {
        let ids = |row: &Row| match *row {
            Row::Text { id, codec } => (id, codec),
            Row::Cloned { id, .. } | Row::Frame { id } => (id, NO_ID),
        };
        spec.set_each(places.text, step.rows.iter().map(|row| ids(row).0));
        spec.set_each(places.codec, step.rows.iter().map(|row| ids(row).1));
        let last = |(row, at): (&Row, &(usize, usize))| match row {
            Row::Frame { .. } => at.0 as u32,
            Row::Text { .. } | Row::Cloned { .. } => NO_ROW,
        };
        spec.set_each(places.last, step.rows.iter().zip(step.at).map(last));
        let cloned = || {
            step.rows.iter().enumerate().filter_map(|(at, row)| match row {
                Row::Cloned { voice, frame, .. } => Some((at, voice, *frame)),
                _ => None,
            })
        };
        spec.set_each(places.cloned_at, cloned().map(|(at, ..)| at as u32));
        // A frame's row is made of its codes alone.
        let speaker = |at: usize, voice: &Cloned, frame: Option<usize>| {
            if frame.is_none() { voice.speaker.get(at).copied().unwrap_or_default() } else { 0.0 }
        };
        let width = self.width;
        let numbers = cloned().flat_map(move |(_, voice, frame)| (0..width).map(move |at| speaker(at, voice, frame)));
        spec.set_floats_each(places.cloned, numbers);
        for (group, section) in places.cloned_codes.iter().enumerate() {
            let code =
                |voice: &Cloned, frame| voice.frames.get::<usize>(frame).and_then(|codes| codes.get(group)).copied();
            let code =
                |(_, voice, frame): (usize, &Arc<Cloned>, Option<usize>)| frame.and_then(|frame| code(voice, frame));
            spec.set_each(*section, cloned().map(|row| code(row).unwrap_or(NO_ID)));
        }
        let endless = |row: &Sampler<'_>| if row.step < LEAST_FRAMES { 0 } else { NO_ID };
        spec.set_each(places.endless, step.samplers.iter().map(endless));
        // The text's random numbers would be stream 0, codebook `c` is stream `c + 1`.
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
        let x = talker.text_rows(ops, &index(places.text));
        let mut codecs = talker.codec_rows(ops, &index(places.codec));
        if places.cloned_at.capacity() > 0 {
            let [first, rest @ ..] = &places.cloned_codes[..] else { unreachable!("a frame has at least two codes") };
            let rest: Vec<O::Index> = rest.iter().map(|codes| index(*codes)).collect();
            let frames = talker.code_predictor.embed_frames(ops, talker.codec_rows(ops, &index(*first)), &rest);
            let rows = ops.add(ops.floats(spec, places.cloned, self.width), &frames);
            codecs = ops.scatter_at(codecs, &index(places.cloned_at), &rows);
        }
        let with = ops.overlay(codecs, &self.last, &index(places.last));
        let x = ops.add(x, &with);
        let Some(last) = last else {
            talker.model.forward(ops, x, cache, batch, None);
            return;
        };
        let hidden = talker.forward(ops, x, cache, batch, last);
        let logits = ops.add(talker.logits(ops, &hidden), &ops.embed_at(&talker.endless, &index(places.endless)));
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
        if codes.first() == Some(&self.marks.codec_eos) {
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

    /// The response ends once its text has ended too.
    fn ended(&mut self, slot: usize, end: End, state: &mut State<O>, pool: &mut BlockPool, out: &mut Outbox) {
        let Some(speaking) = &mut state.own.speaking else { return };
        if let Some(text) = speaking.complete {
            Self::finish(state, pool);
            out.push((slot, Item::End(both(text, end))));
            return;
        }
        (speaking.over, speaking.waits) = (Some(end), false);
        state.truncate(pool, state.own.origins.len());
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
        element.role == Role::System
    }

    fn ahead(&self, state: &State<O>) -> Duration {
        let Some(speaking) = &state.own.speaking else { return Duration::ZERO };
        let frames = state.decoding().map_or(0, |decoding| decoding.steps);
        let tokens = speaking.utterance.text.len().saturating_sub(frames);
        self.frame * u32::try_from(tokens).unwrap_or(u32::MAX).min(1000)
    }

    /// Frames are reserved, not text tokens: speech takes several times as many positions as its text.
    fn room(&self, prompt: &[Element], _: usize) -> Room {
        Room { used: prompt.len(), limit: self.positions - self.max_frames.min(self.positions / 2) }
    }
}
