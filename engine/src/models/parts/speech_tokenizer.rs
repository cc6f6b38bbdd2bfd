//! Sound to codes of a finite scalar quantizer: convolutions, transformer layers with a memory of their values, and a
//! projection to a few numbers of three levels each. After `S3TokenizerV3` of s3tokenizer, the tokenizer of CosyVoice3.

use repartee_checkpoint::onnx::OnnxLayerKind::{Convolution, Product, Scale};
use repartee_kernels::{Activation, Ops, SegmentShape, SequenceRows, SpecLayout, WeightLayout};

use super::audio_encoder::layer::{NORM_EPS, linear, norm};
use super::onnx_layers::{LayerReader, NamedTensor};
use super::rows::{ConvShape, HostConv, HostRows, Padding};
use super::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::load_error::LoadError;

/// Width of an attention head; half the width of a narrower model.
const HEAD: usize = 64;
/// Base of the rotary wavelengths.
const THETA: f32 = 10_000.0;
/// Factor of a level, so that none is exactly between two.
const SQUEEZE: f32 = 0.999;
/// Taps of a convolution before the layers, and its stride.
const TAPS: usize = 3;
const STRIDE: usize = 2;

/// Tensors of a layer, and those beside the layers.
const LAYER_TENSORS: usize = 18;
const OTHER_TENSORS: usize = 6;

struct Layer<O: Ops> {
    attention_norm: (O::Weight, O::Weight),
    qkv: (O::Weight, O::Weight),
    /// Depthwise convolution of the values.
    memory: (O::Weight, O::Weight),
    out: (O::Weight, O::Weight),
    final_norm: (O::Weight, O::Weight),
    up: (O::Weight, O::Weight),
    down: (O::Weight, O::Weight),
}

/// Encoder of speech: mel bins of a recording to codes, 25 a second.
pub struct SpeechTokenizer<O: Ops> {
    convolutions: [HostConv<O>; 2],
    layers: Vec<Layer<O>>,
    frequencies: O::Weight,
    project: (O::Weight, O::Weight),
    bins: usize,
    width: usize,
    levels: usize,
}

/// Names the tensors of a published file; `None` if its layers are others.
pub fn tensors(file: &[u8]) -> Option<Vec<NamedTensor>> {
    let mut layers = LayerReader::open(file)?;
    layers.take("conv1", Convolution)?;
    layers.take("conv2", Convolution)?;
    for at in 0.. {
        if !layers.follows(Scale, 1) {
            break;
        }
        let name = |part: &str| format!("blocks.{at}.{part}");
        layers.take(&name("attn_ln"), Scale)?;
        for part in ["query", "key", "value"] {
            layers.take(&name(part), Product)?;
        }
        layers.take(&name("fsmn_block"), Convolution)?;
        layers.take(&name("out"), Product)?;
        layers.take(&name("mlp_ln"), Scale)?;
        layers.take(&name("mlp.0"), Product)?;
        layers.take(&name("mlp.2"), Product)?;
    }
    layers.take("project_down", Product)?;
    layers.finish()
}

/// Shape of a tensor with so many axes.
pub(super) fn shape<const AXES: usize>(checkpoint: &Checkpoint, name: &str) -> Result<[usize; AXES], CheckpointError> {
    let found = checkpoint.shape(name).ok_or_else(|| CheckpointError::OtherLayers {
        file: checkpoint.name().to_owned(),
        model: format!("a model with {name}"),
    })?;
    found.try_into().map_err(|_| CheckpointError::OtherLayers {
        file: checkpoint.name().to_owned(),
        model: format!("a model whose {name} has {AXES} axes"),
    })
}

impl<O: Ops> Layer<O> {
    fn load(w: &Weights<'_, O>, width: usize, (inner, taps): (usize, usize)) -> Result<Self, LoadError> {
        let parts = ["query", "key", "value"];
        let [weights, biases] = ["weight", "bias"].map(|kind| parts.map(|part| format!("{part}.{kind}")));
        let weights: Vec<(&str, usize)> = weights.iter().map(|name| (&name[..], width)).collect();
        let biases: Vec<(&str, usize)> = biases.iter().map(|name| (&name[..], width)).collect();
        let memory = w.at("fsmn_block");
        let layout = WeightLayout::GroupedConv1d { dilation: 1, groups: width };
        Ok(Self {
            attention_norm: norm(w, "attn_ln", width)?,
            qkv: (w.linears(&weights, width)?, w.vectors(&biases)?),
            memory: (memory.convolution("weight", layout, [width, 1, taps])?, memory.vector("bias", width)?),
            out: linear(w, "out", width, width)?,
            final_norm: norm(w, "mlp_ln", width)?,
            up: linear(w, "mlp.0", inner, width)?,
            down: linear(w, "mlp.2", width, inner)?,
        })
    }

    fn forward(
        &self,
        ops: &O,
        x: O::T,
        (batch, segments): (&O::Batch, &O::Index),
        rotary: (&O::Weight, usize),
    ) -> O::T {
        let (frequencies, width) = rotary;
        let affine = |x: &O::T, by: &(O::Weight, O::Weight)| ops.linear(x, &by.0, Some(&by.1));
        let h = ops.layer_norm(&x, &self.attention_norm.0, &self.attention_norm.1, NORM_EPS);
        let qkv = affine(&h, &self.qkv);
        let [q, k] = [0, width].map(|from| ops.rotary(ops.narrow(&qkv, from, width), batch, frequencies));
        let v = ops.narrow(&qkv, 2 * width, width);
        let shape = SegmentShape { heads: width / head(width), left: None, right: None };
        let h = affine(&ops.segment_attention_at(&q, &k, &v, segments, shape), &self.out);
        let memory = ops.add(ops.segment_conv1d_at(&v, &self.memory.0, &self.memory.1, segments), &v);
        let x = ops.add(ops.add(h, &memory), &x);
        let h = ops.layer_norm(&x, &self.final_norm.0, &self.final_norm.1, NORM_EPS);
        let h = ops.activation(affine(&h, &self.up), Activation::Gelu);
        ops.add(affine(&h, &self.down), &x)
    }
}

/// Width of a head of rows of `width` numbers.
fn head(width: usize) -> usize {
    HEAD.min(width / 2)
}

impl<O: Ops> SpeechTokenizer<O> {
    /// Loads the tokenizer out of tensors with the names of [`tensors`].
    ///
    /// # Errors
    /// The tensors do not fit each other.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, LoadError> {
        let w = Weights::new(ops, checkpoint);
        let [width, bins, _] = shape(checkpoint, "conv1.weight")?;
        let [levels, _] = shape(checkpoint, "project_down.weight")?;
        let name = |at: usize, part: &str| format!("blocks.{at}.{part}.weight");
        let layers = 0..checkpoint.tensor_names().filter(|name| name.ends_with("mlp.0.weight")).count();
        let tensors = OTHER_TENSORS + layers.len() * LAYER_TENSORS;
        if width < 2 || !width.is_multiple_of(2 * head(width)) || checkpoint.tensor_names().count() != tensors {
            let model = "a tokenizer with whole layers and attention heads".to_owned();
            return Err(CheckpointError::OtherLayers { file: checkpoint.name().to_owned(), model }.into());
        }
        let layer = |at: usize| -> Result<_, LoadError> {
            let [inner, _] = shape(checkpoint, &name(at, "mlp.0"))?;
            let [_, _, taps] = shape(checkpoint, &name(at, "fsmn_block"))?;
            Layer::load(&w.at("blocks").at(at), width, (inner, taps))
        };
        let conv = |name: &str, channels: usize| {
            let shape = ConvShape { stride: STRIDE, ..ConvShape::plain(channels, width, TAPS) };
            HostConv::load(&w.at(name), shape, true)
        };
        Ok(Self {
            convolutions: [conv("conv1", bins)?, conv("conv2", width)?],
            layers: layers.map(layer).collect::<Result<_, _>>()?,
            frequencies: w.rotary(head(width), THETA)?,
            project: linear(&w, "project_down", levels, width)?,
            bins,
            width,
            levels,
        })
    }

    /// Mel bins of a frame.
    pub fn bins(&self) -> usize {
        self.bins
    }

    /// Number of codes; `None` if a code has no 32 bits.
    pub fn codes(&self) -> Option<usize> {
        3_usize.checked_pow(u32::try_from(self.levels).ok()?).filter(|&codes| u32::try_from(codes).is_ok())
    }

    /// Encodes mel frames as rows, one for each four frames. All rows see each other, so callers bound the frames.
    pub fn encode(&self, ops: &O, mel: &HostRows) -> HostRows {
        let mut x = mel.clone();
        for conv in &self.convolutions {
            let HostRows { width, data } = conv.forward(ops, &x.padded(TAPS / 2, TAPS / 2, Padding::Zero));
            x = HostRows { width, data: ops.read(&ops.activation(ops.tensor(data, width), Activation::Gelu)) };
        }
        let rows = x.count();
        if rows == 0 {
            return x;
        }
        let mut layout = SpecLayout::default();
        let (at, segments) = (layout.batch(rows, 1, 1), layout.segments(rows, 1));
        let mut spec = layout.spec();
        spec.set_batch(at, &[SequenceRows { table: &[0], position: 0, rows }], 0);
        spec.set_segments(segments, &[rows]);
        let uploaded = ops.upload(&spec);
        let (batch, segments) = (ops.batch_at(&uploaded, at), ops.index(&uploaded, segments.words()));
        let x = self.layers.iter().fold(ops.tensor(x.data, x.width), |x, layer| {
            layer.forward(ops, x, (&batch, &segments), (&self.frequencies, self.width))
        });
        HostRows { width: self.width, data: ops.read(&x) }
    }

    /// Quantizes such rows: each number is one of three levels, a digit of the code, the least one first.
    pub fn quantize(&self, ops: &O, encoded: &HostRows) -> Vec<u32> {
        let x = ops.tensor(encoded.data.clone(), encoded.width);
        let numbers = ops.read(&ops.linear(&x, &self.project.0, Some(&self.project.1)));
        let digit = |number: &f32| ((number.tanh() * SQUEEZE).round() + 1.0) as u32;
        let code = |row: &[f32]| row.iter().rev().fold(0, |code, number| 3 * code + digit(number));
        numbers.chunks_exact(self.levels).map(code).collect()
    }
}
