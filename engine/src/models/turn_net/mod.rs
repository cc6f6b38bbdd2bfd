//! The project's own turn-detection network, trained by `models/turns/recipe`, with its weights in the binary.
//!
//! It reads 3.2 s of sound that end where the judgement is made: a log-mel and a normalised autocorrelation of each
//! frame of 10 ms. Three convolutions of stride 2 make rows of 80 ms, two residual ones follow, attention pools the
//! rows, and a classifier sees the pool and the last rows.

mod correlation;

use std::path::Path;

use repartee_kernels::{Activation, Ops};
use safetensors::{Dtype, SafeTensors};

use self::correlation::{LAGS, correlation};
use super::load_error::LoadError;
use super::parts::audio_encoder::layer::{NORM_EPS, linear, norm};
use super::parts::audio_encoder::pool::attention_pool;
use super::parts::weights::Weights;
use super::smart_turn::TurnModelError;
use super::smart_turn::features::FeatureExtractor;
use crate::checkpoint::{Checkpoint, DType};

/// The weights, as the recipe exports them.
const WEIGHTS: &[u8] = include_bytes!("../../../../models/turns/model.safetensors");
/// Frames of 10 ms.
pub const FRAMES: usize = 320;
/// Mel bins of a frame.
const BINS: usize = 40;
/// Numbers of a frame.
const CHANNELS: usize = BINS + LAGS;
/// Widths of the convolutions with stride 2, and their kernel.
const WIDTHS: [usize; 3] = [64, 96, 128];
const KERNEL: usize = 5;
/// Kernels of the residual convolutions.
const RESIDUAL: [usize; 2] = [5, 3];
/// Rows after the convolutions, and their width.
const ROWS: usize = FRAMES >> WIDTHS.len();
const WIDTH: usize = WIDTHS[WIDTHS.len() - 1];
/// Rows that the classifier sees as they are.
const LAST: usize = 4;
/// Width of the classifier's hidden layer.
const HIDDEN: usize = 96;

/// Linear layer: weight and bias.
type Linear<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

/// Convolution over rows, as a linear layer over windows of rows.
struct Convolution<O: Ops> {
    kernel: usize,
    stride: usize,
    channels: usize,
    layer: Linear<O>,
}

impl<O: Ops> Convolution<O> {
    fn load(
        w: &Weights<'_, O>,
        name: &str,
        channels: usize,
        out: usize,
        (kernel, stride): (usize, usize),
    ) -> Result<Self, LoadError> {
        let layer = linear(w, &format!("{name}.linear"), out, kernel * channels)?;
        Ok(Self { kernel, stride, channels, layer })
    }

    /// Returns the activated output of `x`, `[rows, channels]`: `[rows / stride, out]`.
    fn apply(&self, ops: &O, x: &[f32]) -> Vec<f32> {
        let (channels, before) = (self.channels, self.kernel / 2);
        // Zeros on both sides; then a window is a stretch of the padded rows.
        let mut padded = vec![0.0; before * channels];
        padded.extend_from_slice(x);
        padded.resize(padded.len() + (self.kernel - 1 - before) * channels, 0.0);
        let rows = x.len() / channels / self.stride;
        let window = self.kernel * channels;
        let mut windows = Vec::with_capacity(rows * window);
        for row in 0..rows {
            windows.extend_from_slice(&padded[row * self.stride * channels..][..window]);
        }
        let y = ops.linear(&ops.tensor(windows, window), &self.layer.0, Some(&self.layer.1));
        ops.read(&ops.activation(y, Activation::Gelu))
    }
}

/// The network's weights.
pub struct TurnNet<O: Ops> {
    features: FeatureExtractor,
    down: Vec<Convolution<O>>,
    /// Added to the rows, `[ROWS, WIDTH]`.
    position: Vec<f32>,
    residual: Vec<(Linear<O>, Convolution<O>)>,
    /// Weights of the pool's score of a row. Its bias changes no share.
    score: Vec<f32>,
    hidden: Linear<O>,
    out: Linear<O>,
}

impl<O: Ops> TurnNet<O> {
    /// Loads the weights in the binary.
    pub fn load(ops: &O) -> Result<Self, TurnModelError> {
        let checkpoint = embedded().ok_or(TurnModelError::Embedded)?;
        let w = Weights::new(ops, &checkpoint);
        let widths = [CHANNELS, WIDTHS[0], WIDTHS[1], WIDTHS[2]];
        let down: Result<Vec<_>, LoadError> = widths
            .windows(2)
            .enumerate()
            .map(|(index, pair)| Convolution::load(&w, &format!("down.{index}"), pair[0], pair[1], (KERNEL, 2)))
            .collect();
        let residual: Result<Vec<_>, LoadError> = RESIDUAL
            .iter()
            .enumerate()
            .map(|(index, &kernel)| {
                let norm = norm(&w, &format!("norm.{index}"), WIDTH)?;
                Ok((norm, Convolution::load(&w, &format!("residual.{index}"), WIDTH, WIDTH, (kernel, 1))?))
            })
            .collect();
        Ok(Self {
            features: FeatureExtractor::new(FRAMES, BINS)
                .map_err(|value| LoadError::Mel { file: checkpoint.name().to_owned(), value })?,
            down: down?,
            position: w.values("position", &[ROWS, WIDTH])?,
            residual: residual?,
            score: w.values("score.weight", &[1, WIDTH])?,
            hidden: linear(&w, "hidden", HIDDEN, WIDTH * (1 + LAST))?,
            out: linear(&w, "out", 1, HIDDEN)?,
        })
    }

    /// Returns the probability (0 to 1) that the speaker of `turn` (16 kHz, -1..1) has finished. Only the last 3.2 s
    /// count, with the pause at their end; a shorter turn is padded with silence before it.
    pub fn probability(&self, ops: &O, turn: &[f32]) -> f32 {
        let mut x = self.features(turn);
        for convolution in &self.down {
            x = convolution.apply(ops, &x);
        }
        for (x, position) in x.iter_mut().zip(&self.position) {
            *x += position;
        }
        for (norm, convolution) in &self.residual {
            let normed = ops.read(&ops.layer_norm(&ops.tensor(x.clone(), WIDTH), &norm.0, &norm.1, NORM_EPS));
            for (x, y) in x.iter_mut().zip(convolution.apply(ops, &normed)) {
                *x += y;
            }
        }
        let mut seen = pooled(&x, &self.score);
        seen.extend_from_slice(&x[(ROWS - LAST) * WIDTH..]);
        let hidden = ops.linear(&ops.tensor(seen, WIDTH * (1 + LAST)), &self.hidden.0, Some(&self.hidden.1));
        let hidden = ops.activation(hidden, Activation::Gelu);
        let logit = ops.read(&ops.linear(&hidden, &self.out.0, Some(&self.out.1)))[0];
        1.0 / (1.0 + (-logit).exp())
    }

    /// Returns `[FRAMES, CHANNELS]` of the last samples of `turn`.
    pub fn features(&self, turn: &[f32]) -> Vec<f32> {
        let sound = self.features.normalised(turn);
        let (mel, lags) = (self.features.spectrogram(&sound), correlation(&sound, FRAMES));
        let frames = mel.chunks_exact(BINS).zip(lags.chunks_exact(LAGS));
        frames.flat_map(|(mel, lags)| mel.iter().chain(lags)).copied().collect()
    }
}

/// Returns the mean of the rows of `x`, weighted by the softmax of their scores.
fn pooled(x: &[f32], score: &[f32]) -> Vec<f32> {
    let scores: Vec<f32> = x.chunks_exact(WIDTH).map(|row| row.iter().zip(score).map(|(x, w)| x * w).sum()).collect();
    attention_pool(x, WIDTH, &scores)
}

/// Returns the weights in the binary; `None` if they are no tensors of half precision.
fn embedded() -> Option<Checkpoint> {
    let file = SafeTensors::deserialize(WEIGHTS).ok()?;
    let mut tensors = Vec::new();
    for (name, tensor) in file.tensors() {
        if tensor.dtype() != Dtype::F16 {
            return None;
        }
        tensors.push((name, tensor.shape().to_vec(), DType::F16.widen(tensor.data())));
    }
    Some(Checkpoint::converted(Path::new("models/turns/model.safetensors"), tensors))
}
