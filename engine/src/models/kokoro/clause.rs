//! Speech of one clause, step by step, so that long clauses leave room for others between their steps.
//!
//! Norms of the decoder see the whole clause, so each layer is computed whole. The last step repeats: it turns a range of
//! rows into spectra and those into samples, with the same bits for any ranges.

use realfft::num_complex::Complex;
use repartee_kernels::{NO_ROW, Ops, SpecLayout};

use super::model::Kokoro;
use crate::models::parts::vocoder::istft_net::source::windows;
use crate::models::parts::vocoder::stft::InverseStftStream;

/// A clause to speak.
#[derive(Debug, Clone, PartialEq)]
pub struct Clause {
    /// Ids of the phonemes, at most as many as the configuration has positions, less two.
    pub phonemes: Vec<u32>,
    /// The voice's style for so many phonemes.
    pub style: Vec<f32>,
    /// Speed of speech, 1 for that of the model.
    pub speed: f32,
    /// Seed of the source's noise; `None` for none.
    pub noise: Option<u64>,
}

/// Most frames of a clause: 40 s. Durations beyond are cut to a frame each.
pub const MOST_FRAMES: usize = 1600;
/// Rows of the last step: half a second of sound.
const SPECTRA: usize = 2400;
/// Id of the token before and after the phonemes.
const PAD: u32 = 0;

/// A clause on its way to samples.
pub struct ClauseWork<O: Ops> {
    clause: Clause,
    progress: Progress<O>,
    /// Rows of a last step.
    spectra: usize,
}

/// Results of the steps so far.
enum Progress<O: Ops> {
    Begun,
    Timed(Timed<O>),
    Pitched(Pitched<O>),
    /// Features, or the result of a level, and the source's spectra.
    Sounding {
        level: usize,
        x: O::T,
        source: Vec<f32>,
    },
    /// The same, and what the source adds at the level.
    Raising {
        level: usize,
        x: O::T,
        noise: O::T,
        source: Vec<f32>,
    },
    /// Input of a level's residual blocks, and the sum of those computed.
    Blocks {
        level: usize,
        block: usize,
        x: O::T,
        sum: Option<O::T>,
        source: Vec<f32>,
    },
    Spectra {
        x: O::T,
        from: usize,
        stream: InverseStftStream,
    },
    Done,
}

/// Encoded phonemes with their durations.
pub struct Timed<O: Ops> {
    /// Rows for the prosody, style included.
    pub encoded: O::T,
    /// Rows for the decoder.
    pub text: O::T,
    /// Frames of each phoneme.
    pub durations: Vec<usize>,
}

/// Frames with their pitch and loudness.
pub struct Pitched<O: Ops> {
    /// Rows for the decoder, one for each frame.
    pub text: O::T,
    /// Pitch in Hz, two values for each frame.
    pub pitch: Vec<f32>,
    /// Logarithms of the loudness, two values for each frame.
    pub loudness: Vec<f32>,
}

/// Uploads a list.
pub fn list<O: Ops>(ops: &O, numbers: &[u32]) -> O::Index {
    let mut layout = SpecLayout::default();
    let at = layout.list(numbers.len());
    let mut spec = layout.spec();
    spec.set(at, numbers);
    ops.index(&ops.upload(&spec), at)
}

/// Index of a row; none has as many.
fn row(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NO_ROW)
}

/// Uploads one segment.
pub fn segment<O: Ops>(ops: &O, rows: usize) -> O::Index {
    list(ops, &[row(rows)])
}

impl<O: Ops> ClauseWork<O> {
    /// Begins a clause.
    pub fn new(clause: Clause) -> Self {
        Self { clause, progress: Progress::Begun, spectra: SPECTRA }
    }

    /// Begins a clause whose last steps have this many rows.
    #[must_use]
    pub fn with_spectra(self, spectra: usize) -> Self {
        Self { spectra, ..self }
    }

    /// True once all samples were given.
    pub fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done)
    }

    /// Computes the next step and appends the samples that it completes.
    pub fn step(&mut self, ops: &O, model: &Kokoro<O>, samples: &mut Vec<f32>) {
        let generator = &model.generator;
        let half = model.config.style_dim;
        let style = || ops.tensor(self.clause.style[..half].to_vec(), half);
        self.progress = match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Begun => Progress::Timed(model.timed(ops, &self.clause)),
            Progress::Timed(timed) => Progress::Pitched(model.pitched(ops, &self.clause, &timed)),
            Progress::Pitched(pitched) => {
                let source = model.source.spectra(&model.source.signal(&pitched.pitch, self.clause.noise));
                Progress::Sounding { level: 0, x: model.features(ops, &self.clause, &pitched), source }
            }
            Progress::Sounding { level, x, source } => {
                let noise = model.noise(ops, level, &source, &style());
                Progress::Raising { level, x, noise, source }
            }
            Progress::Raising { level, x, noise, source } => {
                let x = model.raised(ops, level, x, noise);
                Progress::Blocks { level, block: 0, x, sum: None, source }
            }
            Progress::Blocks { level, block, x, sum, source } => {
                let rows = segment(ops, ops.rows(&x));
                let own = generator.block(ops, (level, block), &x, &style(), &rows);
                let sum = match sum {
                    Some(sum) => ops.add(sum, &own),
                    None => own,
                };
                match (block + 1 < generator.blocks(), level + 1 < generator.levels()) {
                    (true, _) => Progress::Blocks { level, block: block + 1, x, sum: Some(sum), source },
                    (false, more) => {
                        let x = ops.scale_all(sum, 1.0 / generator.blocks() as f32);
                        match more {
                            true => Progress::Sounding { level: level + 1, x, source },
                            false => Progress::Spectra { x, from: 0, stream: InverseStftStream::default() },
                        }
                    }
                }
            }
            Progress::Spectra { x, from, mut stream } => {
                let rows = ops.rows(&x);
                let to = rows.min(from + self.spectra.max(1));
                model.sound(&model.spectra(ops, &x, from..to), &mut stream, samples);
                if to < rows {
                    Progress::Spectra { x, from: to, stream }
                } else {
                    model.inverse.finish(&mut stream, samples);
                    Progress::Done
                }
            }
            Progress::Done => Progress::Done,
        };
    }
}

impl<O: Ops> Kokoro<O> {
    /// Encodes a clause's phonemes and predicts their durations.
    pub fn timed(&self, ops: &O, clause: &Clause) -> Timed<O> {
        let ids: Vec<u32> = [&[PAD], &clause.phonemes[..], &[PAD]].concat();
        let (count, half) = (ids.len(), self.config.style_dim);
        let positions: Vec<u32> = (0..count).map(row).collect();
        let (ids, segments, styled) = (list(ops, &ids), segment(ops, count), list(ops, &vec![0; count]));
        let style = ops.tensor(clause.style[half..].to_vec(), half);
        let (weight, bias) = &self.bert_encoder;
        let x = ops.linear(&self.bert.forward(ops, &ids, &list(ops, &positions), &segments), weight, Some(bias));
        let encoded = self.predictor.encode(ops, x, &style, &styled, &segments);
        let logits = ops.read(&self.predictor.durations(ops, &encoded, &segments));
        let durations = durations(&logits, self.config.max_dur, clause.speed);
        Timed { encoded, text: self.text_encoder.forward(ops, &ids, &segments), durations }
    }

    /// Repeats each phoneme's rows for its frames, and predicts their pitch and loudness.
    pub fn pitched(&self, ops: &O, clause: &Clause, timed: &Timed<O>) -> Pitched<O> {
        let frames: Vec<u32> =
            timed.durations.iter().enumerate().flat_map(|(at, &frames)| vec![row(at); frames]).collect();
        let (count, half) = (frames.len(), self.config.style_dim);
        let (frames, style) = (list(ops, &frames), ops.tensor(clause.style[half..].to_vec(), half));
        let encoded = ops.gather_at(&timed.encoded, &frames);
        let (whole, halves) = (segment(ops, count), segment(ops, 2 * count));
        let [pitch, loudness] =
            self.predictor.curves(ops, &encoded, &style, &whole, &halves).map(|curve| ops.read(&curve));
        Pitched { text: ops.gather_at(&timed.text, &frames), pitch, loudness }
    }

    /// Computes the features that the generator takes.
    pub fn features(&self, ops: &O, clause: &Clause, pitched: &Pitched<O>) -> O::T {
        let half = self.config.style_dim;
        let style = ops.tensor(clause.style[..half].to_vec(), half);
        let curves = ops.tensor(self.trunk.halved(&pitched.pitch, &pitched.loudness), 2);
        let count = ops.rows(&pitched.text);
        let segments = (&segment(ops, count), &segment(ops, 2 * count));
        self.trunk.forward(ops, &pitched.text, &curves, &style, segments)
    }

    /// Computes what the source's spectra add to a level.
    pub fn noise(&self, ops: &O, level: usize, source: &[f32], style: &O::T) -> O::T {
        let config = self.generator.config();
        let windows = windows(config, level, source);
        let columns = config.source_channels() * config.source_taps(level);
        let rows = segment(ops, windows.len() / columns);
        self.generator.noise(ops, level, &ops.tensor(windows, columns), style, &rows)
    }

    /// Raises the rows of a level to its rate and adds the source's.
    pub fn raised(&self, ops: &O, level: usize, x: O::T, noise: O::T) -> O::T {
        let below = segment(ops, ops.rows(&x));
        // The last level has one row more than its input gives: the second row is repeated before the first.
        let reflected = || [1, 0].into_iter().chain(1..row(ops.rows(&noise) - 1)).collect::<Vec<u32>>();
        let from = (level + 1 == self.generator.levels()).then(|| list(ops, &reflected()));
        self.generator.raise(ops, level, x, noise, &below, from.as_ref())
    }

    /// Adds rows of spectra to a stream, and appends the samples that are complete then.
    pub fn sound(&self, rows: &[f32], stream: &mut InverseStftStream, samples: &mut Vec<f32>) {
        let bins = self.inverse.bins();
        for row in rows.chunks_exact(2 * bins) {
            let bin = |at: usize| Complex::from_polar(row[at].exp(), row[bins + at].sin());
            self.inverse.push(stream, &(0..bins).map(bin).collect::<Vec<_>>(), samples);
        }
    }

    /// Computes the logarithms of magnitudes and the phases' arguments of a range of the last level's rows.
    pub fn spectra(&self, ops: &O, x: &O::T, rows: std::ops::Range<usize>) -> Vec<f32> {
        let (context, all) = (self.generator.context(), ops.rows(x));
        let seen = rows.start.saturating_sub(context)..all.min(rows.end + context);
        let places: Vec<u32> = seen.clone().map(row).collect();
        let x = ops.gather_at(x, &list(ops, &places));
        let mut numbers = ops.read(&self.generator.spectra(ops, x, &segment(ops, seen.len())));
        let width = self.generator.config().source_channels();
        numbers.truncate((rows.end - seen.start) * width);
        numbers.drain(..(rows.start - seen.start) * width);
        numbers
    }
}

/// Frames of each phoneme: the sum of sigmoids at a speed, rounded to even, at least one.
pub fn durations(logits: &[f32], max_dur: usize, speed: f32) -> Vec<usize> {
    let mut left = MOST_FRAMES;
    let frames = |logits: &[f32]| {
        let sum: f32 = logits.iter().map(|logit| 1.0 / (1.0 + (-logit).exp())).sum();
        // A number that is not finite becomes 0.
        let frames = ((sum / speed).round_ties_even() as usize).clamp(1, left.max(1));
        left = left.saturating_sub(frames);
        frames
    };
    logits.chunks_exact(max_dur).map(frames).collect()
}
