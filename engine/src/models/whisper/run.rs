//! One decoding of the sound so far: the prompt, the tokens that follow, their probabilities. It is decoded again at a
//! higher temperature if it is doubtful.

use std::ops::Range;

use super::config::{WhisperConfig, WhisperTokens};
use super::rules::{DecodingRules, TextQuality, choose, log_probability, most_likely};
use repartee_kernels::random::uniform;

/// Temperatures of the decodings of one run; those of hypotheses that more sound follows are the first alone.
pub const TEMPERATURES: [f32; 3] = [0.0, 0.4, 0.8];
/// Tokens of a second of sound, at most, and those beside.
const TOKENS: (usize, usize) = (20, 8);
/// Seed of the random numbers; they differ by place, temperature and step.
const SEED: u64 = 0x0077_6869_7370_6572;

/// A token of a text, and the logarithm of its probability.
pub type ScoredToken = (u32, f32);

/// Prompt of a decoding.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RunPrompt {
    /// Text before the sound; empty for none.
    pub previous: Vec<u32>,
    /// Index of the language; `None` if it is to be found.
    pub language: Option<usize>,
    /// Tokens with which the text begins.
    pub forced: Vec<ScoredToken>,
    /// Samples of sound, of this run and of all of the turn.
    pub samples: (usize, usize),
    /// Sampling rate, in Hz.
    pub rate: u32,
    /// True for a text between timestamps.
    pub timestamps: bool,
    /// True for an English translation.
    pub translate: bool,
}

impl RunPrompt {
    /// Token of the task, if the model has any.
    fn task(&self, tokens: &WhisperTokens) -> Option<u32> {
        if self.translate { tokens.translate } else { tokens.transcribe }
    }
}

/// Progress of a decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More tokens follow.
    Continues,
    /// The text has ended.
    Ended,
    /// Logits were not finite.
    NotFinite,
}

/// One decoding, step by step: the tokens that are computed next, and the text so far.
#[derive(Debug, Clone)]
pub struct Decoding {
    prompt: RunPrompt,
    attempt: usize,
    /// Tokens to compute next, and the number of those computed before.
    pub queue: Vec<u32>,
    /// Number of computed positions.
    pub computed: usize,
    /// Position of `<|startoftranscript|>`.
    start: usize,
    /// Positions before the text, once the language is known.
    prompted: usize,
    /// Index of the language.
    pub language: Option<usize>,
    /// Tokens so far.
    pub text: Vec<ScoredToken>,
    no_speech: f32,
    end: f32,
    complete: bool,
}

impl Decoding {
    /// Begins a decoding with the temperature number `attempt`.
    pub fn new(prompt: RunPrompt, attempt: usize, tokens: &WhisperTokens) -> Self {
        let mut queue = Vec::with_capacity(prompt.previous.len() + prompt.forced.len() + 5);
        if !prompt.previous.is_empty() {
            queue.push(tokens.previous);
            queue.extend(&prompt.previous);
        }
        let start = queue.len();
        queue.push(tokens.start);
        let mut decoding = Self {
            attempt,
            queue,
            computed: 0,
            start,
            prompted: 0,
            language: None,
            text: prompt.forced.clone(),
            no_speech: 0.0,
            end: 0.0,
            complete: false,
            prompt,
        };
        if decoding.prompt.language.is_some() || tokens.languages.is_empty() {
            decoding.begin_text(decoding.prompt.language, tokens);
        }
        decoding
    }

    /// Queues what stands between the start and the text, and the forced text.
    fn begin_text(&mut self, language: Option<usize>, tokens: &WhisperTokens) {
        self.language = language;
        self.queue.extend(language.and_then(|language| tokens.languages.get(language)).map(|(_, id)| id));
        self.queue.extend(self.prompt.task(tokens));
        self.queue.extend((!self.prompt.timestamps).then_some(tokens.no_timestamps));
        self.prompted = self.computed + self.queue.len();
        self.queue.extend(self.prompt.forced.iter().map(|(id, _)| id));
    }

    /// Prompt of the decoding.
    pub fn prompt(&self) -> &RunPrompt {
        &self.prompt
    }

    /// Tokens whose attention to the sound times the text: the position of the first, the tokens from
    /// `<|startoftranscript|>` to the end, and the range of those at which a token of the text, or the end, is asked for.
    pub fn aligned(&self, tokens: &WhisperTokens) -> (usize, Vec<u32>, Range<usize>) {
        let mut ids = vec![tokens.start];
        ids.extend(self.language.and_then(|language| tokens.languages.get(language)).map(|(_, id)| id));
        ids.extend(self.prompt.task(tokens));
        let first = ids.len();
        ids.push(tokens.no_timestamps);
        ids.extend(self.ids());
        let last = ids.len();
        ids.push(tokens.end);
        (self.start, ids, first..last)
    }

    /// Number of the temperature.
    pub fn attempt(&self) -> usize {
        self.attempt
    }

    /// Indices among the next `count` queued tokens whose logits are wanted: the start's, and the last one's.
    pub fn wanted(&self, count: usize) -> Vec<usize> {
        let start = self.start.checked_sub(self.computed).filter(|start| *start < count);
        let last = (count == self.queue.len()).then(|| count.saturating_sub(1)).filter(|last| start != Some(*last));
        start.into_iter().chain(last).collect()
    }

    /// Takes the wanted rows of logits of the next `count` queued tokens.
    pub fn advance(
        &mut self,
        count: usize,
        rows: &mut [f32],
        config: &WhisperConfig,
        rules: &DecodingRules,
    ) -> Progress {
        let wanted = self.wanted(count);
        let (before, whole) = (self.computed, count == self.queue.len());
        self.queue.drain(..count);
        self.computed += count;
        let mut rows = wanted.iter().zip(rows.chunks_exact_mut(config.decoder.vocabulary)).peekable();
        if let Some((_, logits)) = rows.next_if(|(at, _)| before + **at == self.start) {
            let tokens = &config.tokens;
            self.no_speech = log_probability(logits, tokens.no_speech).exp();
            if !self.no_speech.is_finite() {
                return Progress::NotFinite;
            }
            if self.prompted == 0 {
                let best = most_likely(logits, tokens.languages.iter().map(|(_, id)| *id));
                let language = tokens.languages.iter().position(|(_, id)| Some(*id) == best);
                self.begin_text(language, tokens);
                return Progress::Continues;
            }
        }
        match rows.next() {
            Some((_, logits)) if whole => self.take(logits, config, rules),
            _ => Progress::Continues,
        }
    }

    /// Chooses the next token.
    fn take(&mut self, logits: &mut [f32], config: &WhisperConfig, rules: &DecodingRules) -> Progress {
        let text: Vec<u32> = self.ids();
        rules.apply(logits, &text, self.prompt.timestamps);
        let draw = uniform(SEED, self.prompt.samples.1 as u64, self.attempt as u64, text.len() as u64);
        let temperature = TEMPERATURES.get(self.attempt).copied().unwrap_or(0.0);
        let Some(chosen) = choose(logits, temperature, draw) else { return Progress::NotFinite };
        if chosen.id == config.tokens.end {
            (self.end, self.complete) = (chosen.log_probability, true);
            return Progress::Ended;
        }
        self.text.push((chosen.id, chosen.log_probability));
        let seconds = self.prompt.samples.0.div_ceil(self.prompt.rate.max(1) as usize);
        let most = TOKENS.0 * seconds + TOKENS.1;
        if self.text.len() >= most || self.computed + 1 >= config.decoder.positions {
            return Progress::Ended;
        }
        self.queue.push(chosen.id);
        Progress::Continues
    }

    /// Returns the decoding with another text.
    pub fn with_text(self, text: Vec<ScoredToken>) -> Self {
        Self { text, ..self }
    }

    /// Ids of the text.
    pub fn ids(&self) -> Vec<u32> {
        self.text.iter().map(|(id, _)| *id).collect()
    }

    /// Properties of the text, whose compression ratio is `compression`.
    pub fn quality(&self, compression: f32) -> TextQuality {
        let sum: f32 = self.text.iter().map(|(_, probability)| probability).sum();
        let average = (sum + self.end) / (self.text.len() + 1) as f32;
        TextQuality { no_speech: self.no_speech, average, compression, complete: self.complete }
    }
}
