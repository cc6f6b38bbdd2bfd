//! `encoder` of the codec: samples to codes, Mimi's; after `Qwen3TTSTokenizerV2Encoder` and `MimiModel` of
//! transformers 4.57.

use repartee_kernels::{Ops, SequenceRows, SpecLayout};

use super::layer::SpeechCodecLayer;
use crate::models::load_error::LoadError;
use crate::models::parts::codebook::Codebook;
use crate::models::parts::config::SpeechCodecConfig;
use crate::models::parts::rows::{ConvShape, HostConv, HostRows, Padding};
use crate::models::parts::weights::Weights;

/// Lower bound of the usage that divides a quantizer's entry.
const LEAST_USAGE: f32 = 1e-5;
/// Stride of the convolution before the quantizer.
const DOWNSAMPLE: usize = 2;

/// One step of the convolutional encoder.
enum Step<O: Ops> {
    Conv(HostConv<O>),
    /// Activation, convolution, activation, convolution; added to the input.
    Residual(HostConv<O>, HostConv<O>),
    Activation,
}

/// Residual quantizer: each codebook encodes the residual of those before it.
struct Quantizer<O: Ops> {
    input: Option<HostConv<O>>,
    codebooks: Vec<Codebook<O>>,
}

/// Codec encoder: convolutions, a transformer, and a semantic and an acoustic quantizer.
pub struct SpeechEncoder<O: Ops> {
    config: SpeechCodecConfig,
    steps: Vec<Step<O>>,
    layers: Vec<SpeechCodecLayer<O>>,
    downsample: HostConv<O>,
    semantic: Quantizer<O>,
    acoustic: Quantizer<O>,
}

fn elu(rows: HostRows) -> HostRows {
    rows.map(|value| if value > 0.0 { value } else { value.exp_m1() })
}

/// Loads a codebook below `w`, which has the sums of the rows that each entry stands for.
fn codebook<O: Ops>(w: &Weights<'_, O>, entries: usize, width: usize) -> Result<Codebook<O>, LoadError> {
    let sums = w.values("embed_sum", &[entries, width])?;
    let usage = w.values("cluster_usage", &[entries])?;
    let each = sums.chunks_exact(width).zip(usage);
    let values = each.flat_map(|(sum, usage)| sum.iter().map(move |sum| sum / usage.max(LEAST_USAGE))).collect();
    Codebook::new(w, values, width)
}

impl<O: Ops> Quantizer<O> {
    fn load(w: &Weights<'_, O>, config: &SpeechCodecConfig, codebooks: usize) -> Result<Self, LoadError> {
        let (hidden, width) = (config.hidden_size, config.vector_quantization_hidden_dimension);
        let input = || HostConv::load(&w.at("input_proj"), ConvShape::plain(hidden, width, 1), false);
        let codebook = |i| codebook(&w.at(format_args!("layers.{i}.codebook")), config.codebook_size, width);
        Ok(Self {
            input: (hidden != width).then(input).transpose()?,
            codebooks: (0..codebooks).map(codebook).collect::<Result<_, _>>()?,
        })
    }

    /// Returns the codes of each codebook.
    fn forward(&self, ops: &O, x: &HostRows) -> Vec<Vec<u32>> {
        let mut rows = self.input.as_ref().map_or_else(|| x.clone(), |input| input.forward(ops, x));
        self.codebooks.iter().map(|codebook| codebook.take(ops, &mut rows)).collect()
    }
}

impl<O: Ops> SpeechEncoder<O> {
    /// Loads `encoder` with the first `codebooks` codebooks.
    pub fn load(w: &Weights<'_, O>, config: &SpeechCodecConfig, codebooks: usize) -> Result<Self, LoadError> {
        let convolutions = w.at("encoder.layers");
        let conv = |name: String, shape| HostConv::load(&convolutions.at(name), shape, true);
        let mut steps =
            vec![Step::Conv(conv("0.conv".into(), ConvShape::plain(1, config.num_filters, config.kernel_size))?)];
        let mut channels = config.num_filters;
        for &ratio in config.upsampling_ratios.iter().rev() {
            for block in 0..config.num_residual_layers {
                let (at, inner) = (steps.len(), channels / config.compress);
                let dilation = config.dilation_growth_rate.pow(block as u32);
                let first = ConvShape { dilation, ..ConvShape::plain(channels, inner, config.residual_kernel_size) };
                steps.push(Step::Residual(
                    conv(format!("{at}.block.1.conv"), first)?,
                    conv(format!("{at}.block.3.conv"), ConvShape::plain(inner, channels, 1))?,
                ));
            }
            steps.push(Step::Activation);
            let shape = ConvShape { stride: ratio, ..ConvShape::plain(channels, 2 * channels, 2 * ratio) };
            steps.push(Step::Conv(conv(format!("{}.conv", steps.len()), shape)?));
            channels *= 2;
        }
        steps.push(Step::Activation);
        let last = ConvShape::plain(channels, config.hidden_size, config.last_kernel_size);
        steps.push(Step::Conv(conv(format!("{}.conv", steps.len()), last)?));
        let hidden = config.hidden_size;
        let down = ConvShape { stride: DOWNSAMPLE, ..ConvShape::plain(hidden, hidden, 2 * DOWNSAMPLE) };
        let quantizer = w.at("quantizer");
        Ok(Self {
            steps,
            layers: (0..config.num_hidden_layers)
                .map(|i| SpeechCodecLayer::load(&w.at(format_args!("encoder_transformer.layers.{i}")), config))
                .collect::<Result<_, _>>()?,
            downsample: HostConv::load(&w.at("downsample.conv"), down, false)?,
            semantic: Quantizer::load(&quantizer.at("semantic_residual_vector_quantizer"), config, 1)?,
            acoustic: Quantizer::load(&quantizer.at("acoustic_residual_vector_quantizer"), config, codebooks - 1)?,
            config: config.clone(),
        })
    }

    /// Encodes a recording as the quantizer's input, one row a frame.
    pub fn encode(&self, ops: &O, samples: &[f32]) -> HostRows {
        let mut x = HostRows { width: 1, data: samples.to_vec() };
        for step in &self.steps {
            x = match step {
                Step::Conv(conv) => conv.causal(ops, &x, Padding::Zero),
                Step::Activation => elu(x),
                Step::Residual(first, second) => {
                    let h = first.causal(ops, &elu(x.clone()), Padding::Zero);
                    second.forward(ops, &elu(h)).plus(&x)
                }
            };
        }
        let (rows, width) = (x.count(), x.width);
        let mut layout = SpecLayout::default();
        let at = layout.batch(rows, 1, 1);
        let mut spec = layout.spec();
        spec.set_batch(at, &[SequenceRows { table: &[0], position: 0, rows }], 0);
        let batch = ops.batch_at(&ops.upload(&spec), at);
        let x = ops.tensor(x.data, width);
        // The reference's mask is causal and ignores its configuration's window.
        let apply = |x, layer: &SpeechCodecLayer<O>| {
            let mut cache = SpeechCodecLayer::cache(ops, &self.config, 1, rows);
            layer.forward(ops, x, (&mut cache, &batch), (&self.config, None))
        };
        let x = self.layers.iter().fold(x, apply);
        self.downsample.causal(ops, &HostRows { width, data: ops.read(&x) }, Padding::Replicate)
    }

    /// Quantizes such rows; returns one list of codes a frame.
    pub fn quantize(&self, ops: &O, encoded: &HostRows) -> Vec<Vec<u32>> {
        let mut books = self.semantic.forward(ops, encoded);
        books.extend(self.acoustic.forward(ops, encoded));
        (0..encoded.count()).map(|frame| books.iter().map(|codes| codes[frame]).collect()).collect()
    }
}
