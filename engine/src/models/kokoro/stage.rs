//! The stage: clauses in, samples out. Each clause is an utterance of its own; a row of the stage is a step of it
//! ([`ClauseWork`]).

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::SessionError;
use repartee_kernels::Ops;

use super::clause::{Clause, ClauseWork, MOST_FRAMES};
use super::model::Kokoro;
use super::utterances::utterances;
use super::voices::{VoiceStyles, is_british, requested};
use crate::device::Device;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::phonemes::{Accent, Lexicon, phonemes};
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::stage::{BatchEntry, EdgeKind, Outbox, ResponseParams, RowKind, RunnableRows, Stage, StageEnd, StageItem};

/// Name of the stage.
const STAGE: &str = "kokoro";
/// Most steps of one slot at once.
const MAX_ROWS: usize = 4;
/// Sound of a phoneme, for estimates.
const PHONEME: Duration = Duration::from_millis(70);

/// The model with its voices and lexicons, as a stage.
pub struct KokoroPart<O: Ops> {
    /// Layers with loaded weights.
    pub model: Kokoro<O>,
    /// Voices of the folder.
    pub voices: VoiceStyles,
    /// Most multiplications of a unit of a convolution.
    pub unit: usize,
    /// Lexicons of American and of British English, if the folder has them.
    pub lexicons: Vec<Lexicon>,
}

impl<O: Ops> KokoroPart<O> {
    /// Lexicon of a voice.
    fn lexicon(&self, voice: &str) -> &Lexicon {
        let accent = if is_british(voice) { Accent::British } else { Accent::American };
        // Loading requires one.
        self.lexicons.iter().find(|lexicon| lexicon.accent == accent).unwrap_or(&self.lexicons[0])
    }
}

impl<O: Device> StagePart<O> for KokoroPart<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    /// Five tensors of the last level of the longest clause: the input of its blocks, their sum, and of a block its input
    /// and a convolution's input and result.
    fn slot_bytes(&self, _: usize) -> SlotBytes {
        let sizes = &self.model.config.istftnet;
        let last = sizes.upsample_rates.len();
        let rows = 2 * MOST_FRAMES * sizes.frames();
        SlotBytes { position: 0, fixed: 5 * rows * sizes.channels(last) * size_of::<f32>() }
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = (0..at.slots.total()).map(|_| None).collect();
        Box::new(SpeechStage { ops: at.ops, part: *self, slots })
    }
}

/// The stage with the speech of each slot.
struct SpeechStage<O: Device> {
    ops: O,
    part: KokoroPart<O>,
    slots: Vec<Option<Speech<O>>>,
}

/// Speech of one response.
struct Speech<O: Ops> {
    voice: String,
    seed: u64,
    /// Number of the next utterance: each has noise of its own.
    number: u64,
    /// Utterances that wait.
    queue: VecDeque<Clause>,
    /// Utterance that is computed.
    work: Option<ClauseWork<O>>,
    /// End of the response, once no clause follows.
    end: Option<StageEnd>,
}

impl<O: Ops> Speech<O> {
    fn new(params: &ResponseParams) -> Self {
        let (voice, seed) = (params.voice.clone(), params.seed.wrapping_add(params.response.rotate_left(32)));
        Self { voice, seed, number: 0, queue: VecDeque::new(), work: None, end: None }
    }

    /// Queues the utterances of a clause.
    fn push(&mut self, part: &KokoroPart<O>, text: &str) {
        let (voice, speed) = requested(&self.voice);
        let config = &part.model.config;
        for ids in utterances(&phonemes(part.lexicon(voice), text), config) {
            let style = part.voices.style(voice, ids.len()).to_vec();
            let noise = Some(self.seed.wrapping_add(self.number));
            self.number += 1;
            self.queue.push_back(Clause { phonemes: ids, style, speed, noise });
        }
    }

    /// Takes the response's end if nothing of it is left to compute.
    fn ended(&self) -> Option<StageEnd> {
        self.end.filter(|_| self.work.is_none() && self.queue.is_empty())
    }
}

impl<O: Device> SpeechStage<O> {
    /// Passes the end of a slot's response on once all its sound was given.
    fn end_if_complete(&mut self, slot: usize, out: &mut Outbox) {
        if let Some(end) = self.slots[slot].as_ref().and_then(Speech::ended) {
            self.slots[slot] = None;
            out.push((slot, StageItem::End(end)));
        }
    }

    /// Computes one step of a slot; false if it has none.
    fn step_of(&mut self, slot: usize, out: &mut Outbox) -> bool {
        let Some(speech) = &mut self.slots[slot] else { return false };
        let begun = |clause| ClauseWork::new(clause, self.part.unit);
        let next = speech.work.take().or_else(|| speech.queue.pop_front().map(begun));
        let Some(mut work) = next else { return false };
        let mut samples = Vec::new();
        work.step(&self.ops, &self.part.model, &mut samples);
        if !work.is_done() {
            speech.work = Some(work);
        }
        if samples.iter().any(|sample| !sample.is_finite()) {
            self.slots[slot] = None;
            out.push((slot, StageItem::Fail(SessionError::NotFinite { stage: STAGE })));
            return false;
        }
        if !samples.is_empty() {
            out.push((slot, StageItem::Samples(samples)));
        }
        self.end_if_complete(slot, out);
        true
    }
}

impl<O: Device> Stage for SpeechStage<O> {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Clauses
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Samples
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Begin(params) => {
                self.slots[slot] = Some(Speech::new(&params));
                out.push((slot, StageItem::Begin(params)));
            }
            StageItem::Clause(text) => {
                if let Some(speech) = &mut self.slots[slot] {
                    speech.push(&self.part, &text);
                }
            }
            StageItem::End(end) => {
                if let Some(speech) = &mut self.slots[slot] {
                    speech.end = Some(end);
                }
                self.end_if_complete(slot, out);
            }
            StageItem::Abort => {
                self.slots[slot] = None;
                out.push((slot, StageItem::Abort));
            }
            _ => {}
        }
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let busy = self.slots[slot].as_ref().is_some_and(|speech| speech.work.is_some() || !speech.queue.is_empty());
        RunnableRows::rows(if busy { MAX_ROWS } else { 0 }, RowKind::Window)
    }

    fn buffered_audio(&self, slot: usize) -> Duration {
        let queued = self.slots[slot]
            .as_ref()
            .map_or(0, |speech| speech.queue.iter().map(|clause| clause.phonemes.len()).sum::<usize>());
        PHONEME * u32::try_from(queued).unwrap_or(u32::MAX).min(10_000)
    }

    fn max_rows(&self) -> usize {
        MAX_ROWS
    }

    fn max_items(&self) -> usize {
        MAX_ROWS
    }

    fn launch(&mut self, work: &[BatchEntry], out: &mut Outbox) {
        for entry in work {
            for _ in 0..entry.rows {
                if !self.step_of(entry.slot, out) {
                    break;
                }
            }
        }
    }

    fn end_idle_period(&mut self) -> bool {
        self.ops.shrink()
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }
}
