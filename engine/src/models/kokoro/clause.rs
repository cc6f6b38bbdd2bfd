//! Speech of one clause, step by step, so that long clauses leave room for others between their steps.
//!
//! Norms of the decoder see the whole clause, so a layer begins when the one before has ended. Most of the time is taken by
//! the generator's convolutions, which are computed some rows at a time. The last step repeats: it turns a range of rows
//! into spectra and those into samples. Any ranges give the same bits.

use std::ops::ControlFlow::{Break, Continue};

use realfft::num_complex::Complex;
use repartee_kernels::Ops;

use super::decoder::TrunkWork;
use super::model::Kokoro;
use super::predictor::CurveWork;
use crate::models::parts::lists::{list, one_segment, row};
use crate::models::parts::vocoder::istft_net::blocks::SnakeBlockWork;
use crate::models::parts::vocoder::istft_net::source::windows;
use crate::models::parts::vocoder::segment_conv::PartialConv;
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
    /// Most multiplications of a convolution's unit.
    most: usize,
    /// Rows of a last step.
    spectra: usize,
}

/// Results of the steps so far.
enum Progress<O: Ops> {
    Begun,
    /// Rows of PL-BERT after some layers.
    Reading {
        layers: usize,
        x: O::T,
    },
    /// Rows for the prosody after some layers.
    Encoding {
        layers: usize,
        x: O::T,
    },
    Timed(Timed<O>),
    Pitching(Aligned<O>, CurveWork<O>),
    /// The same, with the pitch.
    Loudening(Aligned<O>, Vec<f32>, CurveWork<O>),
    Pitched(Pitched<O>),
    /// The same, and the source's signal.
    Humming(Pitched<O>, Vec<f32>),
    /// The decoder's trunk, and the source's spectra.
    Shaping(TrunkWork<O>, Vec<f32>),
    /// Features, or the result of a level, and what the source adds.
    Sounding {
        level: usize,
        x: O::T,
        noise: SnakeBlockWork<O>,
        source: Vec<f32>,
    },
    /// Upsampling, and what the source adds to it.
    Raising {
        level: usize,
        x: PartialConv<O>,
        noise: O::T,
        source: Vec<f32>,
    },
    /// Input of a level's residual blocks, the sum of those computed, and the next one.
    Blocks {
        level: usize,
        block: usize,
        x: O::T,
        sum: Option<O::T>,
        work: SnakeBlockWork<O>,
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

/// Frames, each with the rows of its phoneme.
pub struct Aligned<O: Ops> {
    /// Rows that pitch and loudness are predicted from.
    pub prosody: O::T,
    /// Rows for the decoder.
    pub text: O::T,
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

impl<O: Ops> ClauseWork<O> {
    /// Begins a clause, whose convolutions are cut into units of at most about `most` multiplications.
    pub fn new(clause: Clause, most: usize) -> Self {
        Self { clause, progress: Progress::Begun, most, spectra: SPECTRA }
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
        let (clause, most) = (&self.clause, self.most);
        let (style, manner) = (|| model.sound_style(ops, clause), || model.prosody_style(ops, clause));
        let predictor = &model.predictor;
        self.progress = match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Begun => Progress::Reading { layers: 0, x: model.embedded(ops, clause) },
            Progress::Reading { layers, x } if layers < model.bert.layers() => {
                Progress::Reading { layers: layers + 1, x: model.read_on(ops, &x) }
            }
            Progress::Reading { x, .. } => Progress::Encoding { layers: 0, x: model.styled(ops, clause, &x) },
            Progress::Encoding { layers, x } if layers < predictor.layers() => {
                Progress::Encoding { layers: layers + 1, x: predictor.encode(ops, layers, &x, &manner()) }
            }
            Progress::Encoding { x, .. } => Progress::Timed(model.timed(ops, clause, x)),
            Progress::Timed(timed) => {
                let aligned = model.aligned(ops, &timed);
                let curve = predictor.pitch.begin(ops, &aligned.prosody, &manner());
                Progress::Pitching(aligned, curve)
            }
            Progress::Pitching(aligned, curve) => match curve.step(ops, &predictor.pitch, &manner(), most) {
                Continue(curve) => Progress::Pitching(aligned, curve),
                Break(pitch) => {
                    let curve = predictor.loudness.begin(ops, &aligned.prosody, &manner());
                    Progress::Loudening(aligned, ops.read(&pitch), curve)
                }
            },
            Progress::Loudening(aligned, pitch, curve) => match curve.step(ops, &predictor.loudness, &manner(), most) {
                Continue(curve) => Progress::Loudening(aligned, pitch, curve),
                Break(loudness) => {
                    Progress::Pitched(Pitched { text: aligned.text, pitch, loudness: ops.read(&loudness) })
                }
            },
            Progress::Pitched(pitched) => {
                let signal = model.source.signal(&pitched.pitch, clause.noise);
                Progress::Humming(pitched, signal)
            }
            Progress::Humming(pitched, signal) => {
                Progress::Shaping(model.shaping(ops, clause, &pitched), model.source.spectra(&signal))
            }
            Progress::Shaping(work, source) => match model.trunk.step(ops, work, &style(), most) {
                Continue(work) => Progress::Shaping(work, source),
                Break(x) => model.sounding(ops, 0, x, source),
            },
            Progress::Sounding { level, x, noise, source } => {
                match model.generator.noise_step(ops, level, noise, &style(), most) {
                    Continue(noise) => Progress::Sounding { level, x, noise, source },
                    Break(noise) => Progress::Raising { level, x: model.generator.upsampling(ops, x), noise, source },
                }
            }
            Progress::Raising { level, x, noise, source } => match model.generator.upsample_step(ops, level, x, most) {
                Continue(x) => Progress::Raising { level, x, noise, source },
                Break(x) => {
                    let x = model.generator.raised(ops, level, &x, noise);
                    let work = SnakeBlockWork::new(ops.copy(&x));
                    Progress::Blocks { level, block: 0, x, sum: None, work, source }
                }
            },
            Progress::Blocks { level, block, x, sum, work, source } => {
                match model.generator.block_step(ops, (level, block), work, &style(), most) {
                    Continue(work) => Progress::Blocks { level, block, x, sum, work, source },
                    Break(own) => {
                        let sum = match sum {
                            Some(sum) => ops.add(sum, &own),
                            None => own,
                        };
                        model.after_block(ops, (level, block), x, sum, source)
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

/// Ids of a clause with those around them.
fn ids(clause: &Clause) -> Vec<u32> {
    [&[PAD], &clause.phonemes[..], &[PAD]].concat()
}

impl<O: Ops> Kokoro<O> {
    /// Style of the sound.
    pub fn sound_style(&self, ops: &O, clause: &Clause) -> O::T {
        let half = self.config.style_dim;
        ops.tensor(clause.style[..half].to_vec(), half)
    }

    /// Style of durations, pitch and loudness.
    pub fn prosody_style(&self, ops: &O, clause: &Clause) -> O::T {
        let half = self.config.style_dim;
        ops.tensor(clause.style[half..].to_vec(), half)
    }

    /// Rows of a clause's phonemes before the first layer of PL-BERT.
    pub fn embedded(&self, ops: &O, clause: &Clause) -> O::T {
        let ids = ids(clause);
        let positions: Vec<u32> = (0..ids.len()).map(row).collect();
        self.bert.embedded(ops, &list(ops, &ids), &list(ops, &positions))
    }

    /// Applies a layer of PL-BERT.
    pub fn read_on(&self, ops: &O, x: &O::T) -> O::T {
        self.bert.layer(ops, x, &one_segment(ops, ops.rows(x)))
    }

    /// Rows of PL-BERT's last layer for the layers of the predictor, with the style beside them.
    pub fn styled(&self, ops: &O, clause: &Clause, read: &O::T) -> O::T {
        let (weight, bias) = &self.bert_encoder;
        let x = ops.linear(read, weight, Some(bias));
        self.predictor.styled(ops, &x, &self.prosody_style(ops, clause))
    }

    /// Predicts the durations of phonemes from their rows after the predictor's layers, and encodes the phonemes for the
    /// decoder.
    pub fn timed(&self, ops: &O, clause: &Clause, encoded: O::T) -> Timed<O> {
        let ids = ids(clause);
        let logits = ops.read(&self.predictor.durations(ops, &encoded));
        let durations = durations(&logits, self.config.max_dur, clause.speed);
        let text = self.text_encoder.forward(ops, &list(ops, &ids), &one_segment(ops, ids.len()));
        Timed { encoded, text, durations }
    }

    /// Repeats each phoneme's rows for its frames.
    pub fn aligned(&self, ops: &O, timed: &Timed<O>) -> Aligned<O> {
        let frames: Vec<u32> =
            timed.durations.iter().enumerate().flat_map(|(at, &frames)| vec![row(at); frames]).collect();
        let frames = list(ops, &frames);
        let prosody = self.predictor.shared(ops, &ops.gather_at(&timed.encoded, &frames));
        Aligned { prosody, text: ops.gather_at(&timed.text, &frames) }
    }

    /// Begins the features that the generator takes.
    pub fn shaping(&self, ops: &O, clause: &Clause, pitched: &Pitched<O>) -> TrunkWork<O> {
        let curves = ops.tensor(self.trunk.halved(&pitched.pitch, &pitched.loudness), 2);
        self.trunk.begin(ops, &pitched.text, curves, &self.sound_style(ops, clause))
    }

    /// Begins what the source's spectra add to a level.
    pub fn noise(&self, ops: &O, level: usize, source: &[f32]) -> SnakeBlockWork<O> {
        let config = self.generator.config();
        let columns = config.source_channels() * config.source_taps(level);
        self.generator.noise(ops, level, &ops.tensor(windows(config, level, source), columns))
    }

    /// Begins a level over `x`.
    fn sounding(&self, ops: &O, level: usize, x: O::T, source: Vec<f32>) -> Progress<O> {
        Progress::Sounding { level, x, noise: self.noise(ops, level, &source), source }
    }

    /// Continues behind a residual block of a level: with the next block, level, or the spectra.
    fn after_block(
        &self,
        ops: &O,
        (level, block): (usize, usize),
        x: O::T,
        sum: O::T,
        source: Vec<f32>,
    ) -> Progress<O> {
        let blocks = self.generator.blocks();
        if block + 1 < blocks {
            let work = SnakeBlockWork::new(ops.copy(&x));
            return Progress::Blocks { level, block: block + 1, x, sum: Some(sum), work, source };
        }
        let x = ops.scale_all(sum, 1.0 / blocks as f32);
        if level + 1 < self.generator.levels() {
            self.sounding(ops, level + 1, x, source)
        } else {
            Progress::Spectra { x, from: 0, stream: InverseStftStream::default() }
        }
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
        let mut numbers = ops.read(&self.generator.spectra(ops, x, &one_segment(ops, seen.len())));
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
