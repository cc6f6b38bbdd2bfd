//! smart-turn v3, which judges whether a speaker has finished: the encoder of Whisper tiny over 8 s of sound, attention
//! that pools its rows into one, and a classifier. It answers with a number, so it is no family.

pub mod features;

use std::path::Path;

use repartee_checkpoint::onnx::OnnxGraph;
use repartee_kernels::{Activation, Ops, ReadBack, RowSpec};
use thiserror::Error;

use self::features::FeatureExtractor;
use super::load_error::LoadError;
use super::parts::audio_encoder::layer::{AudioLayerShape, NORM_EPS, linear, norm};
use super::parts::audio_encoder::pool::attention_pool;
use super::parts::audio_encoder::shape::{Convolutions, EncoderShape, Positions};
use super::parts::audio_encoder::tower::AudioTower;
use super::parts::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::model::WindowInput;

/// Prefix of the encoder's weights.
const ENCODER: &str = "inner.encoder";
/// Width of an attention head, as in every Whisper.
const HEAD: usize = 64;

/// Error of loading a turn-detection model.
#[derive(Debug, Error)]
pub enum TurnModelError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Path of the file.
        path: String,
        /// Cause of the failure.
        error: std::io::Error,
    },
    /// The file is not an ONNX graph.
    #[error("{path}: this is not an ONNX file, or the file is truncated")]
    NotOnnx {
        /// Path of the file.
        path: String,
    },
    /// The weights in the binary cannot be read.
    #[error("the turn-detection model in this binary is damaged: build it again")]
    Embedded,
    /// A weight has another shape than the model takes.
    #[error("the ONNX file is not a smart-turn v3 model: {name} has shape {shape:?}, expected {expected}")]
    Shape {
        /// Name of the weight.
        name: String,
        /// Its shape in the file.
        shape: Vec<usize>,
        /// Description of the expected shape.
        expected: String,
    },
    /// The graph lacks a weight.
    #[error("the ONNX file is not a smart-turn v3 model: it has no {0}")]
    Missing(String),
    /// The spectrogram or the device refuses a size.
    #[error("the ONNX file is not a smart-turn v3 model: {0}")]
    Load(LoadError),
}

impl From<LoadError> for TurnModelError {
    fn from(error: LoadError) -> Self {
        match error {
            // Their messages speak of config.json.
            LoadError::Checkpoint(CheckpointError::MissingTensor { tensor, .. }) => Self::Missing(tensor),
            LoadError::Checkpoint(CheckpointError::WrongShape { tensor, expected, found, .. }) => {
                Self::Shape { name: tensor, shape: found, expected: format!("{expected:?}") }
            }
            error => Self::Load(error),
        }
    }
}

/// Linear layer: weight and bias.
type Linear<O> = (<O as repartee_kernels::Ops>::Weight, <O as repartee_kernels::Ops>::Weight);

/// The model's weights.
pub struct SmartTurn<O: Ops> {
    features: FeatureExtractor,
    encoder: AudioTower<O>,
    pool: Linear<O>,
    /// Weights of the pool's score of a hidden row, and their bias.
    pool_score: (Vec<f32>, f32),
    classify: Linear<O>,
    classify_norm: Linear<O>,
    classify_hidden: Linear<O>,
    classify_out: Linear<O>,
}

/// Reads the published ONNX file `path` as a checkpoint with torch's names.
pub fn open(path: &Path) -> Result<Checkpoint, TurnModelError> {
    let label = || path.display().to_string();
    let file = std::fs::read(path).map_err(|error| TurnModelError::Read { path: label(), error })?;
    parameters(&file)
        .map(|all| Checkpoint::converted(path, all))
        .ok_or_else(|| TurnModelError::NotOnnx { path: label() })
}

/// Name, shape and numbers of each weight in an ONNX file; `None` if it is none.
fn parameters(file: &[u8]) -> Option<impl Iterator<Item = (String, Vec<usize>, Vec<f32>)>> {
    let graph = OnnxGraph::read(file)?;
    let mut all = graph.parameters()?;
    // Keys have no bias.
    for layer in 0.. {
        let name = |part: &str| format!("{ENCODER}.layers.{layer}.self_attn.{part}");
        let beside = ["q_proj.bias", "v_proj.bias"].map(name);
        let Some(keys) = graph.weight_beside(beside.each_ref().map(|name| &name[..])) else { break };
        all.insert(name("k_proj.weight"), keys);
    }
    Some(all.into_iter().map(|(name, tensor)| (name, tensor.shape, tensor.values)))
}

/// Returns the shape of a tensor.
fn shape<'a>(checkpoint: &'a Checkpoint, name: &str) -> Result<&'a [usize], TurnModelError> {
    checkpoint.shape(name).ok_or_else(|| TurnModelError::Missing(name.to_owned()))
}

/// Returns the number of outputs of a layer.
fn outputs(checkpoint: &Checkpoint, layer: &str) -> Result<usize, TurnModelError> {
    Ok(shape(checkpoint, &format!("{layer}.bias"))?.iter().product())
}

/// Derives the shape of the encoder from those of its weights.
fn encoder_shape(checkpoint: &Checkpoint) -> Result<EncoderShape, TurnModelError> {
    let wrong = |name: &str, shape: &[usize], expected: &str| TurnModelError::Shape {
        name: name.to_owned(),
        shape: shape.to_vec(),
        expected: expected.to_owned(),
    };
    let positions = "inner.encoder.embed_positions.weight";
    let (rows, width) = match shape(checkpoint, positions)? {
        &[rows, width] if width.is_multiple_of(HEAD) => (rows, width),
        other => return Err(wrong(positions, other, "rows of whole attention heads")),
    };
    let first = "inner.encoder.conv1.weight";
    let bins = match shape(checkpoint, first)? {
        &[_, bins, _] => bins,
        other => return Err(wrong(first, other, "three axes")),
    };
    // Layers are numbered from 0 without gaps.
    let layer = |index: usize| format!("{ENCODER}.layers.{index}.fc1");
    let layers = (0..).take_while(|&index| checkpoint.has_tensor(&format!("{}.bias", layer(index)))).count();
    let inner = outputs(checkpoint, &layer(0))?;
    Ok(EncoderShape {
        bins,
        window: 2 * rows,
        chunk: 2 * rows,
        convolutions: Convolutions::Conv1d,
        positions: Positions::Table("embed_positions.weight"),
        layers,
        layer: AudioLayerShape { width, heads: width / HEAD, inner, key_bias: false },
        reach: (None, None),
        skip: None,
        pairs: false,
        norm: "layer_norm",
        projection: Vec::new(),
    })
}

impl<O: Ops> SmartTurn<O> {
    /// Loads the model.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, TurnModelError> {
        let shape = encoder_shape(checkpoint)?;
        let w = Weights::new(ops, checkpoint);
        let inner = w.at("inner");
        let width = shape.layer.width;
        let [pool, classifier] = ["pool_attention", "classifier"].map(|name| inner.at(name));
        let [pooled, classes, hidden] = ["inner.pool_attention.0", "inner.classifier.0", "inner.classifier.4"]
            .map(|name| outputs(checkpoint, name));
        let (pooled, classes, hidden) = (pooled?, classes?, hidden?);
        Ok(Self {
            features: FeatureExtractor::new(shape.window, shape.bins)
                .map_err(|value| LoadError::Mel { file: checkpoint.name().to_owned(), value })?,
            encoder: AudioTower::load(&inner.at("encoder"), shape)?,
            pool: linear(&pool, "0", pooled, width)?,
            pool_score: (pool.values("2.weight", &[1, pooled])?, pool.values("2.bias", &[1])?[0]),
            classify: linear(&classifier, "0", classes, width)?,
            classify_norm: norm(&classifier, "1", classes)?,
            classify_hidden: linear(&classifier, "4", hidden, classes)?,
            classify_out: linear(&classifier, "6", 1, hidden)?,
        })
    }

    /// Returns the probability (0 to 1) that the speaker of `turn` (16 kHz, -1..1) has finished. Only the last 8 s
    /// count, with the pause at their end; a shorter turn is padded with silence before it.
    pub fn probability(&self, ops: &O, turn: &[f32]) -> f32 {
        let linear = |x: &O::T, layer: &Linear<O>| ops.linear(x, &layer.0, Some(&layer.1));
        let window = WindowInput { data: &self.features.extract(turn), index: 0 };
        let rows = self.encoder.encode(ops, &[window], &mut RowSpec::default(), &mut ReadBack::default()).concat();
        let width = self.encoder.shape().layer.width;
        let hidden = ops.read(&linear(&ops.tensor(rows.clone(), width), &self.pool));
        let x = linear(&ops.tensor(self.pooled(&hidden, &rows), width), &self.classify);
        let x = ops
            .activation(ops.layer_norm(&x, &self.classify_norm.0, &self.classify_norm.1, NORM_EPS), Activation::Gelu);
        let x = ops.activation(linear(&x, &self.classify_hidden), Activation::Gelu);
        let logit = ops.read(&linear(&x, &self.classify_out))[0];
        1.0 / (1.0 + (-logit).exp())
    }

    /// Returns the mean of `rows`, weighted by the softmax of the scores of `hidden`.
    fn pooled(&self, hidden: &[f32], rows: &[f32]) -> Vec<f32> {
        let (weights, bias) = &self.pool_score;
        let score = |row: &[f32]| bias + row.iter().zip(weights).map(|(x, weight)| x.tanh() * weight).sum::<f32>();
        let scores: Vec<f32> = hidden.chunks_exact(weights.len()).map(score).collect();
        attention_pool(rows, self.encoder.shape().layer.width, &scores)
    }
}

#[cfg(test)]
mod tests {
    use repartee_kernels::cpu::Cpu;

    use super::*;

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(open(Path::new("/nowhere.onnx")), Err(TurnModelError::Read { .. })));
        for file in [&b""[..], b"a text", &[0x3a, 0x7f, 1]] {
            assert!(parameters(file).is_none(), "{file:?}");
        }
        // An empty graph.
        let checkpoint = Checkpoint::converted(Path::new("empty.onnx"), parameters(&[0x3a, 0]).unwrap());
        let empty = SmartTurn::load(&Cpu::default(), &checkpoint).map(|_| ()).unwrap_err().to_string();
        assert!(empty.contains("smart-turn") && empty.contains("embed_positions"), "{empty}");
    }
}
