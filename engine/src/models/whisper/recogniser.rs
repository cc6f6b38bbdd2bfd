//! Whisper as a recogniser: the turn is decoded at places of its sound, and once more at its end; complete sound at the end of
//! each longest window alone.
//!
//! Words on which three successive hypotheses agree are stable: later decodings begin with them. Sound that fills the longest
//! window is cut behind its last stable word, by cross attention, and the rest begins the next window.

use repartee_engine_api::HearingInfo;

use super::agreement::agreements;
use super::config::WhisperConfig;
use super::features::WindowFeatures;
use super::rules::DecodingRules;
use super::run::Decoding;
use super::schedule::Schedule;
use super::slot::{OpenSlot, Run, RunKind, RunPhase};
use super::steps::{TextRows, WhisperSteps};
use super::window_encoding::WindowEncoding;
use super::word_alignment::WordAlignment;
use crate::device::Device;
use crate::models::parts::idle_slots::IdleSlots;
use crate::recogniser::{HearingOptions, HypothesisOutbox, Recogniser};
use crate::stage::{BatchEntry, RowKind, RunnableRows};
use crate::text::Tokenizer;

/// Name of the recogniser.
pub const NAME: &str = "whisper";
/// Shortest sound that is decoded, as a part of a second.
const SHORTEST: u32 = 10;
/// Largest sample of silence, 60 dB below the loudest sound.
const QUIETEST: f32 = 0.001;

/// Result of a launched unit.
pub enum Computed {
    /// Nothing was to do.
    Nothing,
    /// Rows of the encoded window.
    Encoded(Vec<f32>),
    /// Number of computed tokens, and of rows of logits.
    Text(usize, usize),
    /// Row of the sound at which each token begins.
    Begins(Vec<usize>),
}

/// Whisper with the recognition of every slot; each step is a batch over slots.
pub struct WhisperRecogniser<O: Device> {
    pub(super) steps: WhisperSteps<O>,
    pub(super) features: WindowFeatures,
    pub(super) tokenizer: Tokenizer,
    pub(super) rules: DecodingRules,
    schedule: Schedule,
    pub(super) slots: Vec<Option<OpenSlot>>,
    serial: u64,
    launched: Vec<(usize, u64, Computed)>,
    /// Caches of the slots, layer by layer: so much is given back at once.
    idle: IdleSlots,
}

impl<O: Device> WhisperRecogniser<O> {
    /// Creates a recogniser with `slots` slots.
    pub fn new(steps: WhisperSteps<O>, features: WindowFeatures, tokenizer: Tokenizer, slots: usize) -> Self {
        let config = &steps.model().config;
        let schedule = Schedule::new(config.encoder.window, features.config().hop_length);
        let rules = DecodingRules::new(config);
        let idle = IdleSlots::new(slots * steps.layers());
        let slots = (0..slots).map(|_| None).collect();
        Self { rules, schedule, features, tokenizer, slots, steps, serial: 0, launched: Vec::new(), idle }
    }

    /// Encodes the longest window always, as the references do.
    #[must_use]
    pub fn with_whole_windows(mut self) -> Self {
        self.schedule = self.schedule.with_whole_windows();
        self
    }

    pub(super) fn config(&self) -> &WhisperConfig {
        &self.steps.model().config
    }

    /// Begins the run that is due in a slot, if none is under way.
    fn begin_due(&mut self, slot: usize) {
        let (schedule, rate) = (self.schedule, self.features.config().sampling_rate);
        let Some(open) = self.slots[slot].as_mut().filter(|open| open.run.is_none()) else { return };
        let place = if open.complete { schedule.limit() } else { schedule.next(open.heard) };
        let (kind, samples) = match open.sound.len() {
            length if length >= place && place == schedule.limit() => (RunKind::Cut, place),
            length if length >= place => (RunKind::Growing, place),
            length if open.ended && !open.finished => (RunKind::Final, length),
            _ => return,
        };
        // Silence is left out: a text of it is invented.
        let heard = open.sound[..samples].iter().any(|sample| sample.abs() > QUIETEST);
        let speaks = heard && samples >= (rate / SHORTEST) as usize;
        let phase = if speaks { RunPhase::Encode(WindowEncoding::default()) } else { RunPhase::Nothing };
        self.serial += 1;
        open.serial = self.serial;
        open.run = Some(Run { kind, samples, phase, whole: false, encoded: Vec::new(), best: None });
    }

    /// Tokens that the next step of a slot may compute: a row sees all of the sound if it has no more rows than that.
    fn count(&self, decoding: &Decoding, encoded: &[f32]) -> usize {
        decoding.queue.len().min(encoded.len() / self.config().decoder.width)
    }

    /// Language code of an index.
    pub(super) fn code(&self, language: Option<usize>) -> Option<&str> {
        language.and_then(|language| self.config().tokens.languages.get(language)).map(|(code, _)| &code[..])
    }

    /// Text of tokens.
    pub(super) fn spelt(&self, ids: &[u32]) -> String {
        let end = self.config().tokens.end;
        self.tokenizer.decode(&ids.iter().copied().filter(|id| *id < end).collect::<Vec<_>>())
    }

    /// Samples of the window of a run.
    fn window_samples(&self, run: &Run) -> usize {
        if run.whole { self.schedule.limit() } else { self.schedule.window(run.samples) }
    }

    /// Mel frames of the window of a run.
    fn frames(&self, run: &Run) -> usize {
        self.window_samples(run) / self.features.config().hop_length
    }

    /// Spectrogram of the window of a slot's run.
    fn window(&self, slot: usize, run: &Run) -> Vec<f32> {
        let sound = self.slots[slot].as_ref().map_or(&[][..], |open| &open.sound[..run.samples]);
        self.features.extract(sound, self.window_samples(run))
    }

    /// Does units of work of a slot's window. What it makes stays with the run.
    fn advance_window(&mut self, slot: usize, units: usize) {
        let Some((serial, run)) = self.slots[slot].as_ref().and_then(OpenSlot::running) else { return };
        let (window, samples) = (self.window_samples(run), run.samples);
        let Self { steps, slots, features, launched, .. } = self;
        let Some(OpenSlot { run: Some(run), sound, .. }) = &mut slots[slot] else { return };
        let RunPhase::Encode(encoding) = &mut run.phase else { return };
        let complete = steps.advance(slot, encoding, units, || features.extract(&sound[..samples], window));
        launched.extend(complete.map(|rows| (slot, serial, Computed::Encoded(rows))));
    }

    /// Alignment of a complete text to the sound of its run.
    pub(super) fn alignment(&self, run: &Run, decoding: &Decoding) -> Box<WordAlignment> {
        let config = self.config();
        let rows = run.encoded.len() / config.decoder.width;
        let spoken = run.samples.div_ceil(2 * self.features.config().hop_length).clamp(1, rows.max(1));
        let most = self.steps.model().encoder.unit();
        Box::new(WordAlignment::new(config, decoding.aligned(&config.tokens), (rows, spoken), most))
    }

    /// Does units of work of a slot's alignment.
    fn advance_alignment(&mut self, slot: usize, units: usize) {
        let Self { steps, slots, launched, .. } = self;
        let Some(open) = &mut slots[slot] else { return };
        let serial = open.serial;
        let Some(Run { phase: RunPhase::Align(_, work), encoded, .. }) = &mut open.run else { return };
        let begins = work.advance(steps, slot, encoded, units);
        launched.extend(begins.map(|begins| (slot, serial, Computed::Begins(begins))));
    }
}

impl<O: Device> Recogniser for WhisperRecogniser<O> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn rate(&self) -> u32 {
        self.features.config().sampling_rate
    }

    fn info(&self) -> HearingInfo {
        let tokens = &self.config().tokens;
        let languages = tokens.languages.iter().map(|(code, _)| code.clone()).collect::<Vec<_>>();
        HearingInfo {
            // A model without languages knows English alone.
            languages: if languages.is_empty() { vec!["en".to_owned()] } else { languages },
            word_times: true,
            translates: tokens.translate.is_some(),
            longest: None,
        }
    }

    fn slots(&self) -> usize {
        self.slots.len()
    }

    fn open(&mut self, slot: usize, options: &HearingOptions) {
        let language = options.language.as_deref().and_then(|named| {
            let code = named.split(['-', '_']).next().unwrap_or_default().to_lowercase();
            self.config().tokens.languages.iter().position(|(other, _)| *other == code)
        });
        let hints = options.prompt.trim();
        let previous = if hints.is_empty() {
            Vec::new()
        } else {
            // Words of a text begin with a space. Hints that cannot be encoded are left out.
            self.tokenizer.encode(&format!(" {hints}")).unwrap_or_default()
        };
        let layers = self.steps.layers();
        (slot * layers..(slot + 1) * layers).for_each(|cache| self.idle.touch(cache));
        self.serial += 1;
        self.slots[slot] = Some(OpenSlot {
            serial: self.serial,
            translate: options.translate,
            details: options.detailed.then(Box::default),
            given: language,
            language: None,
            complete: options.complete,
            previous,
            done: String::new(),
            dropped: 0,
            sound: Vec::new(),
            heard: 0,
            text: Vec::new(),
            before: Vec::new(),
            agreements: agreements(options.delay),
            stable: 0,
            ended: false,
            finished: false,
            run: None,
        });
    }

    fn push(&mut self, slot: usize, samples: &[f32]) -> usize {
        let limit = self.schedule.limit();
        let Some(open) = self.slots[slot].as_mut().filter(|open| !open.ended) else { return 0 };
        let taken = samples.len().min(limit.saturating_sub(open.sound.len()));
        open.sound.extend_from_slice(&samples[..taken]);
        self.begin_due(slot);
        taken
    }

    fn end(&mut self, slot: usize) {
        if let Some(open) = &mut self.slots[slot] {
            open.ended = true;
        }
        self.begin_due(slot);
    }

    fn resume(&mut self, slot: usize) {
        if let Some(open) = &mut self.slots[slot] {
            (open.ended, open.finished) = (false, false);
            // What a final run finds changes nothing.
            open.run.take_if(|run| run.kind == RunKind::Final);
        }
        self.begin_due(slot);
    }

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    fn runnable_rows(&self, slot: usize) -> RunnableRows {
        let run = self.slots[slot].as_ref().and_then(|open| open.run.as_ref());
        match run.map(|run| (&run.phase, &run.encoded)) {
            None => RunnableRows::NONE,
            Some((RunPhase::Nothing, _)) => RunnableRows::rows(1, RowKind::Decode),
            Some((RunPhase::Encode(encoding), _)) => {
                let frames = run.map_or(0, |run| self.frames(run));
                RunnableRows::rows(self.steps.units_left(frames, encoding), RowKind::Window)
            }
            Some((RunPhase::Decode(decoding), encoded)) => match self.count(decoding, encoded) {
                1 => RunnableRows::rows(1, RowKind::Decode),
                count => RunnableRows::rows(count, RowKind::Prefill),
            },
            Some((RunPhase::Align(_, work), _)) => RunnableRows::rows(work.units_left(), RowKind::Window),
        }
    }

    fn max_rows(&self) -> usize {
        self.config().decoder.positions
    }

    fn launch(&mut self, work: &[BatchEntry]) {
        self.launched.clear();
        let (mut windows, mut texts, mut complete, mut parts) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for &BatchEntry { slot, rows } in work {
            let Some((serial, run)) = self.slots[slot].as_ref().and_then(OpenSlot::running) else { continue };
            match &run.phase {
                RunPhase::Nothing => self.launched.push((slot, serial, Computed::Nothing)),
                RunPhase::Encode(_) if self.steps.units(self.frames(run)) > 1 => parts.push((slot, rows)),
                RunPhase::Encode(_) => windows.push((slot, serial, self.window(slot, run))),
                RunPhase::Decode(decoding) => {
                    let count = self.count(decoding, &run.encoded).min(rows.max(1));
                    texts.push((slot, serial, decoding.wanted(count), count));
                }
                RunPhase::Align(..) => complete.push((slot, rows)),
            }
        }
        for (slot, units) in parts {
            self.advance_window(slot, units);
        }
        for (slot, units) in complete {
            self.advance_alignment(slot, units);
        }
        let Self { steps, slots, launched, .. } = self;
        if !windows.is_empty() {
            let inputs: Vec<_> = windows.iter().map(|(slot, _, mel)| (*slot, &mel[..])).collect();
            let encoded = steps.encode(&inputs).into_iter().map(Computed::Encoded);
            launched.extend(windows.iter().zip(encoded).map(|((slot, serial, _), rows)| (*slot, *serial, rows)));
        }
        let mut inputs = Vec::with_capacity(texts.len());
        for (slot, serial, wanted, count) in &texts {
            let Some((_, run)) = slots[*slot].as_ref().and_then(OpenSlot::running) else { continue };
            let RunPhase::Decode(decoding) = &run.phase else { continue };
            inputs.push(TextRows {
                slot: *slot,
                ids: &decoding.queue[..*count],
                position: decoding.computed,
                sound: run.encoded.len() / steps.model().config.decoder.width,
                wanted,
            });
            launched.push((*slot, *serial, Computed::Text(*count, wanted.len())));
        }
        if !inputs.is_empty() {
            steps.launch(&inputs);
        }
    }

    fn collect(&mut self, out: &mut HypothesisOutbox) {
        let vocabulary = self.config().decoder.vocabulary;
        let mut logits = self.steps.collect().to_vec();
        let mut rest = &mut logits[..];
        for (slot, serial, computed) in std::mem::take(&mut self.launched) {
            let rows = if let Computed::Text(_, rows) = computed { rows } else { 0 };
            let (mine, after) = std::mem::take(&mut rest).split_at_mut(rows * vocabulary);
            rest = after;
            // The slot may have been freed or resumed meanwhile.
            if self.slots[slot].as_ref().is_some_and(|open| open.serial == serial) {
                let taken = self.take(slot, computed, mine);
                if !matches!(taken, Some(Err(_))) {
                    self.begin_due(slot);
                }
                out.extend(taken.map(|taken| (slot, taken)));
            }
        }
    }

    fn held(&self) -> usize {
        self.slots.iter().flatten().count()
    }
    fn end_idle_period(&mut self) -> bool {
        let layers = self.steps.layers();
        self.idle.end_period(|cache| self.slots[cache / layers].is_some()) | self.steps.shrink()
    }

    fn give_back_idle(&mut self) -> bool {
        let Some(cache) = self.idle.take() else { return false };
        let layers = self.steps.layers();
        self.steps.discard(cache / layers, cache % layers);
        true
    }
}
