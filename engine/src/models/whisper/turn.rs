//! Results of units of work: the next unit of a slot, a hypothesis, a cut.

use std::time::Duration;

use repartee_engine_api::{SessionError, TimedWord, TranscriptQuality};

use super::agreement::{MOST_AGREEMENTS, agreed, last_word};
use super::recogniser::{Computed, NAME, WhisperRecogniser};
use super::rules::{TextVerdict, compression_ratio, repeats_words};
use super::run::{Decoding, Progress, RunPrompt, ScoredToken, TEMPERATURES};
use super::slot::{Run, RunKind, RunPhase};
use super::window_encoding::WindowEncoding;
use super::words::timed_words;
use crate::device::Device;
use crate::recogniser::{Hypothesis, Recogniser as _};

/// Average logarithm of the probability below which a text of a short window is compared with that of the longest one.
const UNSURE: f32 = -0.5;
/// Tokens between two looks for repetition.
const LOOK: usize = 16;
/// Compression ratio of a text that is not decoded on.
const LOOPING: f32 = 3.0;

impl<O: Device> WhisperRecogniser<O> {
    /// Takes the result of a unit of a slot; returns the hypothesis that it makes.
    pub(super) fn take(
        &mut self,
        slot: usize,
        computed: Computed,
        logits: &mut [f32],
    ) -> Option<Result<Hypothesis, SessionError>> {
        let mut run = self.slots[slot].as_mut()?.run.take()?;
        let phase = std::mem::replace(&mut run.phase, RunPhase::Nothing);
        match (phase, computed) {
            (RunPhase::Encode(_), Computed::Encoded(encoded)) => {
                run.encoded = encoded;
                run.phase = RunPhase::Decode(self.decoding(slot, &run, 0)?);
            }
            (RunPhase::Decode(mut decoding), Computed::Text(count, _)) => {
                match decoding.advance(count, logits, &self.steps.model().config, &self.rules) {
                    Progress::NotFinite => return Some(Err(SessionError::NotFinite { stage: NAME })),
                    Progress::Continues if !self.repeats(&decoding) => run.phase = RunPhase::Decode(decoding),
                    Progress::Continues | Progress::Ended => return self.judge(slot, run, decoding),
                }
            }
            (RunPhase::Align(decoding, _), Computed::Begins(begins)) if run.kind == RunKind::Final => {
                self.note_details(slot, &run, &decoding, &begins, decoding.text.len());
                return self.conclude(slot, &run, decoding.text.clone(), decoding.language);
            }
            (RunPhase::Align(decoding, _), Computed::Begins(begins)) => {
                return self.cut(slot, &run, &decoding, &begins);
            }
            (RunPhase::Nothing, _) => {
                let text = self.slots[slot].as_ref()?.text.clone();
                self.note_untimed(slot, &run, &text);
                return self.conclude(slot, &run, text, None);
            }
            _ => {}
        }
        self.slots[slot].as_mut()?.run = Some(run);
        None
    }

    /// True if a text repeats itself already; looked for now and then.
    fn repeats(&self, decoding: &Decoding) -> bool {
        let tokens = decoding.text.len();
        tokens >= 2 * LOOK && tokens.is_multiple_of(LOOK) && compression_ratio(&self.spelt(&decoding.ids())) > LOOPING
    }

    /// Decoding of a run.
    fn decoding(&self, slot: usize, run: &Run, attempt: usize) -> Option<Decoding> {
        let open = self.slots[slot].as_ref()?;
        let most = self.config().decoder.positions / 2 - 1;
        let prompt = RunPrompt {
            previous: open.previous[open.previous.len().saturating_sub(most)..].to_vec(),
            language: open.given.or(open.language),
            forced: open.text[..open.stable].to_vec(),
            samples: (run.samples, open.dropped + run.samples),
            rate: self.features.config().sampling_rate,
            timestamps: false,
            translate: open.translate,
        };
        Some(Decoding::new(prompt, attempt, &self.config().tokens))
    }

    /// Judges a complete text, and decodes again if it is doubtful.
    fn judge(&mut self, slot: usize, mut run: Run, decoding: Decoding) -> Option<Result<Hypothesis, SessionError>> {
        let spelt = self.spelt(&decoding.ids());
        let quality = decoding.quality(compression_ratio(spelt.trim()));
        let (forced, language) = (decoding.prompt().forced.clone(), decoding.language);
        // Short windows make texts repeat themselves: a text that does, or is not sure, is decoded on the longest window.
        let repeated = quality.is_repetitive() || (!run.whole && repeats_words(&spelt));
        let unsure = !run.whole && run.kind != RunKind::Growing && quality.average < UNSURE;
        let recorded = self.slots[slot].as_ref()?.details.is_some();
        let verdict = quality.verdict();
        let text = if verdict == TextVerdict::Silence || !spelt.contains(char::is_alphanumeric) {
            // Stops and notes stand for sound without words.
            forced
        } else if verdict == TextVerdict::Doubtful || repeated || unsure {
            if !repeated && run.best.as_ref().is_none_or(|(_, best)| quality.average > *best) {
                run.best = Some((decoding.text.clone(), quality.average));
            }
            if run.kind == RunKind::Growing {
                // The last hypothesis stays.
                let open = self.slots[slot].as_mut()?;
                open.heard = run.samples;
                return None;
            }
            let attempt = decoding.attempt() + 1;
            let next = match (run.whole, attempt < TEMPERATURES.len()) {
                (false, _) => Some(RunPhase::Encode(WindowEncoding::default())),
                (true, true) => Some(RunPhase::Decode(self.decoding(slot, &run, attempt)?)),
                (true, false) => None,
            };
            if let Some(phase) = next {
                (run.phase, run.whole) = (phase, true);
                self.slots[slot].as_mut()?.run = Some(run);
                return None;
            }
            // Of a recording, whose speaker may repeat himself, a text that ended is better than none.
            let last = if recorded && quality.complete { decoding.text.clone() } else { forced };
            run.best.take().map_or(last, |(text, _)| text)
        } else {
            decoding.text.clone()
        };
        if (run.kind == RunKind::Cut || (recorded && run.kind == RunKind::Final)) && !text.is_empty() {
            let decoding = decoding.with_text(text);
            let work = self.alignment(&run, &decoding);
            run.phase = RunPhase::Align(decoding, work);
            self.slots[slot].as_mut()?.run = Some(run);
            return None;
        }
        self.conclude(slot, &run, text, language)
    }

    /// Cuts a full window behind its last stable word, and keeps the rest.
    fn cut(
        &mut self,
        slot: usize,
        run: &Run,
        decoding: &Decoding,
        begins: &[usize],
    ) -> Option<Result<Hypothesis, SessionError>> {
        let (ids, language) = (decoding.ids(), decoding.language);
        let code = self.code(language);
        let open = self.slots[slot].as_ref()?;
        // Words that were stable before stay so: the next window does not begin with them.
        let least = open.stable;
        let agreements = open.agreements.unwrap_or(MOST_AGREEMENTS);
        let stable = agreed(&open.earlier(agreements), &ids, code, |ids| self.spelt(ids)).max(least);
        let last = last_word(&ids, code, |ids| self.spelt(ids));
        let row = 2 * self.features.config().hop_length;
        // A cut frees a third of the window at least.
        let fits = |(token, at): &(usize, usize)| *token >= least && *at >= run.samples / 3;
        let place = |token: usize| Some((token, begins.get(token)? * row)).filter(fits);
        let (kept, at) = [stable, last].into_iter().find_map(place).unwrap_or((ids.len(), run.samples));
        let spelt = self.spelt(&ids[..kept]);
        self.note_details(slot, run, decoding, begins, kept);
        let open = self.slots[slot].as_mut()?;
        open.language = open.language.or(language);
        open.done += &spelt;
        open.previous.extend(&ids[..kept]);
        open.dropped += at;
        open.sound.drain(..at);
        (open.heard, open.stable, open.before) = (run.samples - at, 0, Vec::new());
        open.text = decoding.text[kept..].to_vec();
        self.hypothesis(slot, false)
    }

    /// Ends a run with its text.
    fn conclude(
        &mut self,
        slot: usize,
        run: &Run,
        text: Vec<ScoredToken>,
        language: Option<usize>,
    ) -> Option<Result<Hypothesis, SessionError>> {
        let ids = |text: &[ScoredToken]| text.iter().map(|(id, _)| *id).collect::<Vec<_>>();
        let open = self.slots[slot].as_ref()?;
        if run.kind == RunKind::Final {
            let whole = open.done.clone() + &self.spelt(&ids(&text));
            let found = self.code(open.given.or(open.language).or(language)).map(str::to_owned);
            let open = self.slots[slot].as_mut()?;
            open.finished = true;
            let details = open.details.clone().map(|mut details| {
                details.language.clone_from(&found);
                details
            });
            return Some(Ok(Hypothesis { stable: whole.len(), text: whole, is_final: true, language: found, details }));
        }
        let stable = open.agreements.map_or(0, |agreements| {
            agreed(&open.earlier(agreements), &ids(&text), self.code(language), |ids| self.spelt(ids))
        });
        let open = self.slots[slot].as_mut()?;
        open.pass_hypothesis();
        open.stable = open.stable.max(stable).min(text.len());
        if open.stable > 0 {
            open.language = open.language.or(language);
        }
        (open.text, open.heard) = (text, run.samples);
        if run.kind == RunKind::Cut {
            // Nothing was said in the window.
            open.dropped += run.samples;
            open.sound.drain(..run.samples);
            open.heard = 0;
        }
        self.hypothesis(slot, false)
    }

    /// Records words and quality of the first `kept` tokens of a recording's window.
    fn note_details(&mut self, slot: usize, run: &Run, decoding: &Decoding, begins: &[usize], kept: usize) {
        let Some(open) = self.slots[slot].as_ref().filter(|open| open.details.is_some()) else { return };
        let (ids, rate) = (decoding.ids(), f64::from(self.rate()));
        let row = 2 * self.features.config().hop_length;
        let place =
            |row_at: usize| Duration::from_secs_f64((open.dropped + (row_at * row).min(run.samples)) as f64 / rate);
        let times: Vec<Duration> = begins.iter().map(|begin| place(*begin)).collect();
        let words = timed_words(&ids, kept, self.code(decoding.language), (&times, place(usize::MAX / row)), |ids| {
            self.spelt(ids)
        });
        let quality = decoding.quality(compression_ratio(self.spelt(&ids).trim()));
        let temperature = TEMPERATURES.get(decoding.attempt()).copied().unwrap_or_default();
        let Some(details) = self.slots[slot].as_mut().and_then(|open| open.details.as_mut()) else { return };
        let before = details.quality;
        let first = details.words.is_empty();
        details.words.extend(words);
        details.quality = TranscriptQuality {
            average: if first { quality.average } else { before.average.min(quality.average) },
            compression: before.compression.max(quality.compression),
            no_speech: before.no_speech.max(quality.no_speech),
            temperature: before.temperature.max(temperature),
        };
    }

    /// Records text whose sound is too short or too quiet for times of words, at the end of a recording.
    fn note_untimed(&mut self, slot: usize, run: &Run, text: &[ScoredToken]) {
        let (tokens, rate) = (text.iter().map(|(id, _)| *id).collect::<Vec<_>>(), f64::from(self.rate()));
        let spelt = self.spelt(&tokens);
        let Some(open) = self.slots[slot].as_mut().filter(|_| run.kind == RunKind::Final && !spelt.is_empty()) else {
            return;
        };
        let place = |sample: usize| Duration::from_secs_f64(sample as f64 / rate);
        let (begin, end) = (place(open.dropped), place(open.dropped + run.samples));
        if let Some(details) = &mut open.details {
            details.words.push(TimedWord { text: spelt, tokens, begin, end });
        }
    }

    /// Hypothesis of the slot as it stands.
    fn hypothesis(&self, slot: usize, is_final: bool) -> Option<Result<Hypothesis, SessionError>> {
        let open = self.slots[slot].as_ref()?;
        let ids: Vec<u32> = open.text.iter().map(|(id, _)| *id).collect();
        let stable = open.done.len() + self.spelt(&ids[..open.stable]).len();
        let text = open.done.clone() + &self.spelt(&ids);
        let language = self.code(open.given.or(open.language)).map(str::to_owned);
        Some(Ok(Hypothesis { stable: stable.min(text.len()), text, is_final, language, details: None }))
    }
}
