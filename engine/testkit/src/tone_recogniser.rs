//! A recogniser that hears a word in each tenth of a second of sound. It has the parts of a real one: an encoder run for
//! each window, and a decode step for each word. The word of a window depends on the window after it, so the last word
//! of a growing text is a guess that is often revised.

use std::collections::BTreeMap;

use repartee_engine::Source;
use repartee_engine::internals::pipeline::{Assembly, ModelFrame, Pipeline, RecogniserPart};
use repartee_engine::internals::{
    BatchEntry, Checkpoint, Device, HearingOptions, Hypothesis, HypothesisOutbox, Recogniser, RowKind, RunnableRows,
    Tokenizer,
};

use crate::folder;

/// Sampling rate, in Hz.
pub const RATE: u32 = 16_000;
/// Samples of a window, which is a word.
pub const WINDOW: usize = 1_600;
/// Windows of sound that a slot holds.
const HELD_WINDOWS: usize = 2;
/// Words of one decode step's slot.
const STEP_WORDS: usize = 2;
/// Vocabulary.
const WORDS: [&str; 16] = [
    "so", "what", "is", "the", "house", "by", "sea", "rain", "and", "then", "song", "over", "lazy", "dog", "tell", "me",
];

/// The recogniser before its slots are known.
struct Part;

impl<O: Device> RecogniserPart<O> for Part {
    fn name(&self) -> &'static str {
        "recogniser"
    }

    fn slot_bytes(&self) -> usize {
        HELD_WINDOWS * WINDOW * size_of::<f32>()
    }

    fn place(self: Box<Self>, _: O, slots: usize) -> Box<dyn Recogniser> {
        Box::new(ToneRecogniser { slots: (0..slots).map(|_| None).collect(), launched: BTreeMap::new() })
    }
}

/// Makes a model that only hears.
pub fn assemble<O: Device>(ops: &O) -> Assembly<O> {
    let checkpoint = Checkpoint::open(Source::Folder(folder("dense").join("checkpoint"))).unwrap();
    let tokenizer = Tokenizer::load(&checkpoint, 1_000_000).unwrap();
    Pipeline::new(ops).recogniser(Part).with(ModelFrame::recogniser(tokenizer))
}

/// Words of a whole sound, computed at once.
pub fn words(samples: &[f32]) -> String {
    let windows: Vec<usize> = samples.chunks(WINDOW).map(encode).collect();
    let mut words = Vec::new();
    for at in 0..windows.len() {
        words.push(decode(&windows, &words, at));
    }
    text(&words)
}

/// Encodes a window: its zero crossings and its level.
fn encode(samples: &[f32]) -> usize {
    let crossings = samples.windows(2).filter(|pair| (pair[0] < 0.0) != (pair[1] < 0.0)).count();
    let level = samples.iter().map(|sample| sample.abs()).sum::<f32>() / samples.len().max(1) as f32;
    1 + crossings + (level * 1_000.0) as usize
}

/// Decodes word `at` after the words before it.
fn decode(windows: &[usize], words: &[usize], at: usize) -> usize {
    let after = windows.get(at + 1).copied().unwrap_or(0);
    (windows[at] * 7 + after * 3 + words[..at].last().copied().unwrap_or(0) * 5) % WORDS.len()
}

fn text(words: &[usize]) -> String {
    words.iter().map(|&word| WORDS[word]).collect::<Vec<_>>().join(" ")
}

/// State of an open slot.
#[derive(Clone, Default)]
struct Slot {
    samples: Vec<f32>,
    /// Encoded windows.
    windows: Vec<usize>,
    /// Words that stay.
    stable: Vec<usize>,
    /// Words of the pass that is being decoded, the stable ones first.
    pass: Option<Vec<usize>>,
    ended: bool,
    finished: bool,
    /// State before the end.
    before: Option<Box<Slot>>,
}

impl Slot {
    fn runnable(&self) -> RunnableRows {
        match &self.pass {
            Some(words) => RunnableRows::rows((self.windows.len() - words.len()).max(1), RowKind::Decode),
            None if self.samples.len() >= WINDOW => RunnableRows::rows(1, RowKind::Window),
            None if self.ended && !self.finished && !self.samples.is_empty() => RunnableRows::rows(1, RowKind::Window),
            None if self.ended && !self.finished => RunnableRows::rows(1, RowKind::Decode),
            None => RunnableRows::NONE,
        }
    }

    fn advance(&mut self, rows: usize) -> Option<Hypothesis> {
        let Some(words) = &mut self.pass else {
            if self.samples.is_empty() {
                self.pass = Some(self.stable.clone());
                return self.advance(rows);
            }
            let window: Vec<f32> = self.samples.drain(..self.samples.len().min(WINDOW)).collect();
            self.windows.push(encode(&window));
            self.pass = Some(self.stable.clone());
            return None;
        };
        for _ in 0..rows {
            if words.len() < self.windows.len() {
                let word = decode(&self.windows, words, words.len());
                words.push(word);
            }
        }
        if words.len() < self.windows.len() {
            return None;
        }
        let words = self.pass.take()?;
        let is_final = self.ended && self.samples.is_empty();
        // The last word may change with the window after it.
        self.stable = words[..if is_final { words.len() } else { words.len().saturating_sub(1) }].to_vec();
        self.finished = is_final;
        Some(Hypothesis {
            text: text(&words),
            stable: text(&self.stable).len(),
            is_final,
            language: None,
            details: None,
        })
    }
}

/// The recogniser.
struct ToneRecogniser {
    slots: Vec<Option<Slot>>,
    /// Launched slots: state after the step, and the hypothesis.
    launched: BTreeMap<usize, (Slot, Option<Hypothesis>)>,
}

impl ToneRecogniser {
    fn slot(&mut self, slot: usize) -> &mut Slot {
        self.slots[slot].as_mut().unwrap()
    }
}

impl Recogniser for ToneRecogniser {
    fn name(&self) -> &'static str {
        "recogniser"
    }

    fn rate(&self) -> u32 {
        RATE
    }

    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn open(&mut self, slot: usize, _: &HearingOptions) {
        assert!(self.slots[slot].is_none(), "slot {slot} is open");
        self.slots[slot] = Some(Slot::default());
    }

    fn push(&mut self, slot: usize, samples: &[f32]) -> usize {
        let state = self.slot(slot);
        assert!(!state.ended, "sound after the end");
        let taken = samples.len().min(HELD_WINDOWS * WINDOW - state.samples.len());
        state.samples.extend_from_slice(&samples[..taken]);
        taken
    }

    fn end(&mut self, slot: usize) {
        let state = self.slot(slot);
        assert!(!state.ended, "a second end");
        state.before = Some(Box::new(state.clone()));
        state.ended = true;
    }

    fn resume(&mut self, slot: usize) {
        let state = self.slot(slot);
        *state = *state.before.take().expect("an end to withdraw");
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
        self.launched.remove(&slot);
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        self.slots[slot].as_ref().map_or(RunnableRows::NONE, Slot::runnable)
    }

    fn max_rows(&self) -> usize {
        STEP_WORDS
    }

    fn launch(&mut self, work: &[BatchEntry]) {
        self.launched.clear();
        for entry in work {
            let mut state = self.slot(entry.slot).clone();
            assert!(entry.rows <= state.runnable().rows.min(STEP_WORDS), "more units than there are");
            let hypothesis = state.advance(entry.rows);
            self.launched.insert(entry.slot, (state, hypothesis));
        }
    }

    fn collect(&mut self, out: &mut HypothesisOutbox) {
        for (slot, (state, hypothesis)) in std::mem::take(&mut self.launched) {
            self.slots[slot] = Some(state);
            out.extend(hypothesis.map(|hypothesis| (slot, Ok(hypothesis))));
        }
    }

    fn held(&self) -> usize {
        self.slots.iter().flatten().count()
    }
}
