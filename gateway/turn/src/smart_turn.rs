//! smart-turn v3: the encoder of Whisper tiny over 8 s of sound, attention that pools its rows into one, and a
//! classifier.

use std::fmt;
use std::path::Path;

use repartee_kernels::cpu::{Cpu, Weight};
use repartee_kernels::{DType, Ops as _, RawTensor, SpecLayout, StepOps as _, WeightLayout};

use super::features::FeatureExtractor;
use super::graph::{OnnxGraph, Tensor, TurnModelError};

/// Width of an attention head, as in every Whisper.
const HEAD: usize = 64;
/// Default epsilon of torch's layer norm.
const NORM_EPS: f32 = 1e-5;
/// Taps of both convolutions, which are padded by one row on each side. The second has stride 2.
const TAPS: usize = 3;

/// Linear layer, or a convolution computed as one.
struct Linear {
    weight: Weight,
    bias: Weight,
}

struct Norm {
    weight: Weight,
    bias: Weight,
}

struct Layer {
    attention_norm: Norm,
    qkv: Linear,
    out: Linear,
    final_norm: Norm,
    fc1: Linear,
    fc2: Linear,
}

/// Turn-detection model. Loaded once, shared by any number of threads.
pub struct TurnModel {
    features: FeatureExtractor,
    bins: usize,
    width: usize,
    conv1: Linear,
    conv2: Linear,
    /// Position embeddings, `[rows, width]`.
    positions: Vec<f32>,
    layers: Vec<Layer>,
    norm: Norm,
    pool: Linear,
    /// Weights of the pool's score of a hidden row, and their bias.
    pool_score: (Vec<f32>, f32),
    classify: Linear,
    classify_norm: Norm,
    classify_hidden: Linear,
    classify_out: Linear,
}

impl fmt::Debug for TurnModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TurnModel").field("layers", &self.layers.len()).finish_non_exhaustive()
    }
}

/// Prepares weights for the device.
struct Loader<'a> {
    ops: Cpu,
    graph: OnnxGraph<'a>,
}

impl Loader<'_> {
    fn weight(
        &self,
        name: &str,
        layout: WeightLayout,
        shape: &[usize],
        parts: &[&[f32]],
    ) -> Result<Weight, TurnModelError> {
        let bytes: Vec<Vec<u8>> =
            parts.iter().map(|part| part.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
        let tensor = |bytes| RawTensor { name, bytes, dtype: DType::F32, shape };
        let parts: Vec<RawTensor<'_>> = bytes.iter().map(|bytes| tensor(bytes)).collect();
        Ok(self.ops.weight(layout, &parts)?)
    }

    fn vector(&self, name: &str, width: usize) -> Result<Weight, TurnModelError> {
        let vector = check_shape(name, self.graph.weight(name)?, &[width])?;
        self.weight(name, WeightLayout::Vector, &[width], &[&vector])
    }

    fn norm(&self, name: &str, width: usize) -> Result<Norm, TurnModelError> {
        let part = |part| self.vector(&format!("{name}.{part}"), width);
        Ok(Norm { weight: part("weight")?, bias: part("bias")? })
    }

    /// Number of a layer's outputs, at least one.
    fn outputs(&self, name: &str) -> Result<usize, TurnModelError> {
        let (name, count) = (format!("{name}.bias"), self.graph.weight(&format!("{name}.bias"))?.values.len());
        if count > 0 { Ok(count) } else { Err(TurnModelError::Missing(name)) }
    }

    /// Loads a linear layer whose matrix `[in, out]` is found by its bias.
    fn linear(&self, name: &str, input: usize, output: usize) -> Result<Linear, TurnModelError> {
        let bias = format!("{name}.bias");
        let matrix = check_shape(name, self.graph.matmul_weight(&bias)?, &[input, output])?;
        let weight = self.weight(name, WeightLayout::Linear, &[output, input], &[&transposed(&matrix, output)])?;
        Ok(Linear { weight, bias: self.vector(&bias, output)? })
    }

    /// Loads a linear layer whose matrix is stored `[out, in]`.
    fn linear_out_in(&self, name: &str, input: usize, output: usize) -> Result<Linear, TurnModelError> {
        let bias = format!("{name}.bias");
        let matrix = check_shape(name, self.graph.layer_weight(&bias)?, &[output, input])?;
        let weight = self.weight(name, WeightLayout::Linear, &[output, input], &[&matrix])?;
        Ok(Linear { weight, bias: self.vector(&bias, output)? })
    }

    /// Loads queries, keys and values as one layer. Keys have no bias.
    fn attention(&self, name: &str, width: usize) -> Result<Linear, TurnModelError> {
        let [q, v] = ["q", "v"].map(|part| format!("{name}.{part}_proj.bias"));
        let shape = [width, width];
        let matrices = [
            check_shape(&q, self.graph.matmul_weight(&q)?, &shape)?,
            check_shape(name, self.graph.sibling_matmul_weight([&q, &v])?, &shape)?,
            check_shape(&v, self.graph.matmul_weight(&v)?, &shape)?,
        ]
        .map(|matrix| transposed(&matrix, width));
        let biases = [
            check_shape(&q, self.graph.weight(&q)?, &[width])?,
            vec![0.0; width],
            check_shape(&v, self.graph.weight(&v)?, &[width])?,
        ];
        let weight = self.weight(name, WeightLayout::Linear, &shape, &matrices.each_ref().map(|part| &part[..]))?;
        let bias = self.weight(name, WeightLayout::Vector, &[width], &biases.each_ref().map(|part| &part[..]))?;
        Ok(Linear { weight, bias })
    }

    /// Loads a convolution `[out, in, taps]` as a matrix `[out, taps * in]` over adjacent rows.
    fn convolution(&self, name: &str, input: usize, output: usize) -> Result<Linear, TurnModelError> {
        let bias = format!("{name}.bias");
        let taps = check_shape(name, self.graph.layer_weight(&bias)?, &[output, input, TAPS])?;
        let side_by_side: Vec<f32> =
            taps.chunks_exact(input * TAPS).flat_map(|filter| transposed(filter, TAPS)).collect();
        let weight = self.weight(name, WeightLayout::Linear, &[output, TAPS * input], &[&side_by_side])?;
        Ok(Linear { weight, bias: self.vector(&bias, output)? })
    }
}

/// Returns the numbers of a tensor; an error if its shape differs.
fn check_shape(name: &str, tensor: Tensor, shape: &[usize]) -> Result<Vec<f32>, TurnModelError> {
    if tensor.shape == shape {
        return Ok(tensor.values);
    }
    Err(TurnModelError::Shape { name: name.to_owned(), shape: tensor.shape, expected: format!("{shape:?}") })
}

/// Transposes a matrix of `columns` columns.
fn transposed(matrix: &[f32], columns: usize) -> Vec<f32> {
    (0..columns).flat_map(|column| matrix.iter().skip(column).step_by(columns).copied()).collect()
}

impl TurnModel {
    /// Loads the published ONNX file. Takes some tenths of a second.
    pub fn load(path: &Path) -> Result<Self, TurnModelError> {
        let read = std::fs::read(path).map_err(|error| TurnModelError::Read { path: path.to_owned(), error })?;
        Self::parse(&read)
    }

    fn parse(file: &[u8]) -> Result<Self, TurnModelError> {
        let loader = Loader { ops: Cpu::default(), graph: OnnxGraph::read(file)? };
        let graph = &loader.graph;
        let name = "inner.encoder.embed_positions.weight";
        let positions = graph.weight(name)?;
        let wrong = |name: &str, shape: &[usize], expected: &str| TurnModelError::Shape {
            name: name.to_owned(),
            shape: shape.to_vec(),
            expected: expected.to_owned(),
        };
        let &[rows, width] = &positions.shape[..] else { return Err(wrong(name, &positions.shape, "two axes")) };
        if rows == 0 || width == 0 || width % HEAD > 0 {
            return Err(wrong(name, &positions.shape, "rows of whole attention heads"));
        }
        let first = graph.layer_weight("inner.encoder.conv1.bias")?.shape;
        let &[_, bins, TAPS] = &first[..] else { return Err(wrong("conv1", &first, "three taps")) };
        // Layers are numbered from 0 without gaps.
        let mut layers = Vec::new();
        while let name = format!("inner.encoder.layers.{}", layers.len())
            && graph.weight(&format!("{name}.self_attn_layer_norm.weight")).is_ok()
        {
            let inner = loader.outputs(&format!("{name}.fc1"))?;
            layers.push(Layer {
                attention_norm: loader.norm(&format!("{name}.self_attn_layer_norm"), width)?,
                qkv: loader.attention(&format!("{name}.self_attn"), width)?,
                out: loader.linear(&format!("{name}.self_attn.out_proj"), width, width)?,
                final_norm: loader.norm(&format!("{name}.final_layer_norm"), width)?,
                fc1: loader.linear(&format!("{name}.fc1"), width, inner)?,
                fc2: loader.linear(&format!("{name}.fc2"), inner, width)?,
            });
        }
        if layers.is_empty() {
            return Err(TurnModelError::Missing("inner.encoder.layers.0".to_owned()));
        }
        let [pooled, classes, hidden] =
            ["inner.pool_attention.0", "inner.classifier.0", "inner.classifier.4"].map(|name| loader.outputs(name));
        let (pooled, classes, hidden) = (pooled?, classes?, hidden?);
        let score = "inner.pool_attention.2.bias";
        Ok(Self {
            features: FeatureExtractor::new(2 * rows, bins)?,
            bins,
            width,
            conv1: loader.convolution("inner.encoder.conv1", bins, width)?,
            conv2: loader.convolution("inner.encoder.conv2", width, width)?,
            positions: positions.values,
            layers,
            norm: loader.norm("inner.encoder.layer_norm", width)?,
            pool: loader.linear("inner.pool_attention.0", width, pooled)?,
            pool_score: (
                check_shape(score, graph.matmul_weight(score)?, &[pooled, 1])?,
                check_shape(score, graph.weight(score)?, &[1])?[0],
            ),
            classify: loader.linear_out_in("inner.classifier.0", width, classes)?,
            classify_norm: loader.norm("inner.classifier.1", classes)?,
            classify_hidden: loader.linear_out_in("inner.classifier.4", classes, hidden)?,
            classify_out: loader.linear_out_in("inner.classifier.6", hidden, 1)?,
        })
    }

    /// Returns the probability (0 to 1) that the speaker of `turn` (16 kHz, -1..1) has finished. Only the last 8 s
    /// count, with the pause at their end; a shorter turn is padded with silence before it.
    pub fn probability(&self, turn: &[f32]) -> f32 {
        // Each call has its own buffers, so that threads may run in parallel.
        let ops = Cpu::default();
        let linear = |x: &_, layer: &Linear| ops.linear(x, &layer.weight, Some(&layer.bias));
        let norm = |x: &_, norm: &Norm| ops.layer_norm(x, &norm.weight, &norm.bias, NORM_EPS);
        let width = self.width;

        let x = ops.tensor(taps(&self.features.extract(turn), self.bins, 1), TAPS * self.bins);
        let x = ops.read(&ops.gelu(linear(&x, &self.conv1)));
        let x = ops.tensor(taps(&x, width, 2), TAPS * width);
        let x = ops.gelu(linear(&x, &self.conv2));
        let mut x = ops.add(x, &ops.tensor(self.positions.clone(), width));
        let rows = ops.rows(&x);
        let mut layout = SpecLayout::default();
        let whole = layout.segments(rows, 1);
        let mut spec = layout.spec();
        spec.set_segments(whole, &[rows]);
        let whole = ops.index(&ops.upload(&spec), whole.words());
        for layer in &self.layers {
            let qkv = linear(&norm(&x, &layer.attention_norm), &layer.qkv);
            let [q, k, v] = [0, 1, 2].map(|part| ops.narrow(&qkv, part * width, width));
            let h = ops.segment_attention_at(&q, &k, &v, &whole, width / HEAD);
            x = ops.add(linear(&h, &layer.out), &x);
            let h = ops.gelu(linear(&norm(&x, &layer.final_norm), &layer.fc1));
            x = ops.add(linear(&h, &layer.fc2), &x);
        }
        let x = norm(&x, &self.norm);

        let pooled = self.pooled(&ops.read(&linear(&x, &self.pool)), &ops.read(&x));
        let x = linear(&ops.tensor(pooled, width), &self.classify);
        let x = ops.gelu(norm(&x, &self.classify_norm));
        let x = ops.gelu(linear(&x, &self.classify_hidden));
        let logit = ops.read(&linear(&x, &self.classify_out))[0];
        1.0 / (1.0 + (-logit).exp())
    }

    /// Returns the mean of `rows`, weighted by the softmax of the scores of `hidden`.
    fn pooled(&self, hidden: &[f32], rows: &[f32]) -> Vec<f32> {
        let (weights, bias) = &self.pool_score;
        let score = |row: &[f32]| bias + row.iter().zip(weights).map(|(x, weight)| x.tanh() * weight).sum::<f32>();
        let scores: Vec<f32> = hidden.chunks_exact(weights.len()).map(score).collect();
        let highest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares: Vec<f32> = scores.iter().map(|score| (score - highest).exp()).collect();
        let total: f32 = shares.iter().sum();
        let mut mean = vec![0.0; self.width];
        for (row, share) in rows.chunks_exact(self.width).zip(&shares) {
            for (mean, x) in mean.iter_mut().zip(row) {
                *mean += x * share / total;
            }
        }
        mean
    }
}

/// For every `stride`-th row of `columns` numbers: the row before it, itself and the row after, concatenated; zeros
/// beyond the ends.
fn taps(rows: &[f32], columns: usize, stride: usize) -> Vec<f32> {
    let mut padded = vec![0.0; columns];
    padded.extend_from_slice(rows);
    padded.resize(rows.len() + 2 * columns, 0.0);
    padded.windows(TAPS * columns).step_by(stride * columns).flatten().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_reach_one_row_to_each_side() {
        let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        assert_eq!(
            taps(&rows, 2, 2),
            [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
            "rows 0 and 2 with their neighbours"
        );
        assert_eq!(taps(&rows, 2, 1).len(), 4 * 6);
    }

    #[test]
    fn other_files_are_refused() {
        assert!(matches!(TurnModel::load(Path::new("/nowhere.onnx")), Err(TurnModelError::Read { .. })));
        for file in [&b""[..], b"a text", &[0x3a, 0x7f, 1]] {
            assert!(matches!(TurnModel::parse(file), Err(TurnModelError::NotOnnx)), "{file:?}");
        }
        // An empty graph.
        let empty = TurnModel::parse(&[0x3a, 0]).unwrap_err().to_string();
        assert!(empty.contains("smart-turn") && empty.contains("embed_positions"), "{empty}");
    }
}
