//! `code2wav`: codec frames to samples, after `Qwen3OmniMoeCode2Wav`, with all state carried: each frame is decoded once, and
//! any split of a stream gives the samples of one decode of the whole.
//!
//! The reference cuts both ends of each transposed convolution, so the first frame yields fewer samples and the last
//! few never exist ([`Code2Wav::look_ahead`]).

use repartee_kernels::{Attention, Layout, Ops, SequenceRows, StateSpec, StreamChunk};

use super::config::Code2WavConfig;
use super::decoder::{Decoder, FeedForward, Shape};
use super::weights::Weights;
use crate::models::LoadError;

/// Frames that one slot may decode in one call, unless its state was made for more.
pub const MAX_FRAMES: usize = 32;
/// Positions in a block of the attention window's ring.
const BLOCK: usize = 16;
/// Taps of the causal convolutions.
const KERNEL: usize = 7;
/// Dilations of a block's residual units.
const DILATIONS: [usize; 3] = [1, 3, 9];
/// `Qwen3OmniMoeConvNeXtBlock`'s norm.
const CONVNEXT_EPS: f32 = 1e-6;

struct Conv<O: Ops> {
    weight: O::Weight,
    bias: O::Weight,
    channels: usize,
    history: usize,
}

impl<O: Ops> Conv<O> {
    fn causal(
        w: &Weights<'_, O>,
        out: usize,
        channels: usize,
        kernel: usize,
        dilation: usize,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            weight: w.convolution("conv.weight", Layout::Conv1d { dilation }, [out, channels, kernel])?,
            bias: w.vector("conv.bias", out)?,
            channels,
            history: (kernel - 1) * dilation,
        })
    }

    fn depthwise(w: &Weights<'_, O>, channels: usize) -> Result<Self, LoadError> {
        Ok(Self {
            weight: w.convolution("conv.weight", Layout::Depthwise, [channels, 1, KERNEL])?,
            bias: w.vector("conv.bias", channels)?,
            channels,
            history: KERNEL - 1,
        })
    }

    fn transposed(
        w: &Weights<'_, O>,
        channels: usize,
        out: usize,
        kernel: usize,
        stride: usize,
    ) -> Result<Self, LoadError> {
        Ok(Self {
            weight: w.convolution("conv.weight", Layout::ConvTranspose1d { stride }, [channels, out, kernel])?,
            bias: w.vector("conv.bias", out)?,
            channels,
            history: kernel / stride - 1,
        })
    }

    fn tail(&self, ops: &O, slots: usize) -> O::State {
        ops.state(StateSpec::Tail { slots, rows: self.history, columns: self.channels })
    }
}

struct Snake<O: Ops> {
    alpha: O::Weight,
    beta: O::Weight,
}

impl<O: Ops> Snake<O> {
    fn load(w: &Weights<'_, O>, channels: usize) -> Result<Self, LoadError> {
        Ok(Self { alpha: w.vector("alpha", channels)?, beta: w.vector("beta", channels)? })
    }

    fn forward(&self, ops: &O, x: O::T) -> O::T {
        ops.snake(x, &self.alpha, &self.beta)
    }
}

struct ConvNeXt<O: Ops> {
    dwconv: Conv<O>,
    norm: (O::Weight, O::Weight),
    pwconv1: (O::Weight, O::Weight),
    pwconv2: (O::Weight, O::Weight),
    gamma: O::Weight,
}

struct ResidualUnit<O: Ops> {
    act1: Snake<O>,
    conv1: Conv<O>,
    act2: Snake<O>,
    conv2: Conv<O>,
}

struct Block<O: Ops> {
    snake: Snake<O>,
    upsample: Conv<O>,
    units: Vec<ResidualUnit<O>>,
}

/// The codec's decoder.
pub struct Code2Wav<O: Ops> {
    config: Code2WavConfig,
    code_embedding: O::Weight,
    pre_transformer: Decoder<O>,
    upsample: Vec<(Conv<O>, ConvNeXt<O>)>,
    first: Conv<O>,
    blocks: Vec<Block<O>>,
    last_snake: Snake<O>,
    last: Conv<O>,
}

/// What [`Code2Wav`] remembers of each slot's stream.
pub struct Code2WavState<O: Ops> {
    window: Vec<O::State>,
    /// One ring of blocks a slot.
    rings: Vec<Vec<u32>>,
    /// Frames that each slot has decoded.
    decoded: Vec<usize>,
    /// In the order in which the convolutions are met.
    tails: Vec<O::State>,
}

impl<O: Ops> Code2Wav<O> {
    /// Loads `code2wav`.
    pub fn load(w: &Weights<'_, O>, config: &Code2WavConfig) -> Result<Self, LoadError> {
        let hidden = config.hidden_size;
        let shape = Shape {
            hidden,
            layers: config.num_hidden_layers,
            attention: Attention {
                heads: config.num_attention_heads,
                kv_heads: config.num_key_value_heads,
                head_dim: config.head_dim,
                window: Some(config.sliding_window),
            },
            eps: config.rms_norm_eps as f32,
            theta: config.rope.theta as f32,
            qk_norm: false,
            layer_scale: true,
        };
        let upsample = config.upsampling_ratios.iter().enumerate().map(|(i, &factor)| {
            let w = w.at(format_args!("upsample.{i}"));
            let next = w.at("1");
            let linear = |name: &str, out, input| -> Result<_, LoadError> {
                Ok((next.linear(&format!("{name}.weight"), out, input)?, next.vector(&format!("{name}.bias"), out)?))
            };
            let block = ConvNeXt {
                dwconv: Conv::depthwise(&next.at("dwconv"), hidden)?,
                norm: (next.vector("norm.weight", hidden)?, next.vector("norm.bias", hidden)?),
                pwconv1: linear("pwconv1", 4 * hidden, hidden)?,
                pwconv2: linear("pwconv2", hidden, 4 * hidden)?,
                gamma: next.vector("gamma", hidden)?,
            };
            Ok((Conv::transposed(&w.at("0"), hidden, hidden, factor, factor)?, block))
        });
        let blocks = config.upsample_rates.iter().enumerate().map(|(i, &rate)| {
            let (input, out) = (config.decoder_dim >> i, config.decoder_dim >> (i + 1));
            let w = w.at(format_args!("decoder.{}.block", i + 1));
            let units = DILATIONS.iter().enumerate().map(|(j, &dilation)| {
                let w = w.at(2 + j);
                Ok(ResidualUnit {
                    act1: Snake::load(&w.at("act1"), out)?,
                    conv1: Conv::causal(&w.at("conv1"), out, out, KERNEL, dilation)?,
                    act2: Snake::load(&w.at("act2"), out)?,
                    conv2: Conv::causal(&w.at("conv2"), out, out, 1, 1)?,
                })
            });
            Ok(Block {
                snake: Snake::load(&w.at("0"), input)?,
                upsample: Conv::transposed(&w.at("1"), input, out, 2 * rate, rate)?,
                units: units.collect::<Result<_, LoadError>>()?,
            })
        });
        let rates = config.upsample_rates.len();
        let last = config.decoder_dim >> rates;
        Ok(Self {
            code_embedding: w.table("code_embedding.weight", config.codebook_size * config.num_quantizers, hidden)?,
            pre_transformer: Decoder::load(&w.at("pre_transformer"), shape, |_| {
                FeedForward::Dense(config.intermediate_size)
            })?,
            upsample: upsample.collect::<Result<_, LoadError>>()?,
            first: Conv::causal(&w.at("decoder.0"), config.decoder_dim, hidden, KERNEL, 1)?,
            blocks: blocks.collect::<Result<_, LoadError>>()?,
            last_snake: Snake::load(&w.at(format_args!("decoder.{}", rates + 1)), last)?,
            last: Conv::causal(&w.at(format_args!("decoder.{}", rates + 2)), 1, last, KERNEL, 1)?,
            config: config.clone(),
        })
    }

    /// Samples by which the first frame falls short of a whole one: what the cut ends of the transposed convolutions hold
    /// back, each block's own rate times the samples that one of its rows still becomes.
    pub fn look_ahead(&self) -> usize {
        let rates = &self.config.upsample_rates;
        (0..rates.len()).map(|i| rates[i..].iter().product::<usize>()).sum()
    }

    /// State for `slots` streams that decode at most [`MAX_FRAMES`] frames in one call.
    pub fn state(&self, ops: &O, slots: usize) -> Code2WavState<O> {
        self.state_for(ops, slots, MAX_FRAMES)
    }

    /// Positions in a slot's ring of the attention window, in blocks. The oldest position that a call's first row sees must
    /// outlive the call's last row.
    fn ring(&self, frames: usize) -> usize {
        (self.config.sliding_window + frames).div_ceil(BLOCK) + 1
    }

    /// The convolutions, in the order in which they are met.
    fn convolutions(&self) -> impl Iterator<Item = &Conv<O>> {
        let upsample = self.upsample.iter().flat_map(|(up, next)| [up, &next.dwconv]);
        let blocks = self.blocks.iter().flat_map(|block| {
            std::iter::once(&block.upsample).chain(block.units.iter().flat_map(|unit| [&unit.conv1, &unit.conv2]))
        });
        upsample.chain([&self.first]).chain(blocks).chain([&self.last])
    }

    /// Bytes that the state of one stream takes that decodes at most `frames` frames in one call.
    pub fn slot_bytes(&self, frames: usize) -> usize {
        let tails: usize = self.convolutions().map(|conv| conv.history * conv.channels * size_of::<f32>()).sum();
        self.ring(frames) * BLOCK * self.pre_transformer.position_bytes() + tails
    }

    /// State for `slots` streams that decode at most `frames` frames in one call.
    pub fn state_for(&self, ops: &O, slots: usize, frames: usize) -> Code2WavState<O> {
        let ring = self.ring(frames);
        let rings = (0..slots).map(|slot| (0..ring).map(|i| (slot * ring + i) as u32).collect()).collect();
        Code2WavState {
            window: self.pre_transformer.cache(ops, slots * ring, BLOCK),
            rings,
            decoded: vec![0; slots],
            tails: self.convolutions().map(|conv| conv.tail(ops, slots)).collect(),
        }
    }

    /// Decodes the next frames of several streams: `codes[codebook]` has one id a row, `chunks` assigns the rows to slots (at
    /// most as many each as the state was made for). Returns the samples `[samples, 1]` and how many each slot got.
    pub fn forward(
        &self,
        ops: &O,
        codes: &[Vec<u32>],
        state: &mut Code2WavState<O>,
        chunks: &[StreamChunk],
    ) -> (O::T, Vec<StreamChunk>) {
        for chunk in chunks.iter().filter(|chunk| chunk.first) {
            state.decoded[chunk.slot] = 0;
        }
        let sequences: Vec<_> = chunks
            .iter()
            .map(|chunk| SequenceRows {
                table: &state.rings[chunk.slot],
                position: state.decoded[chunk.slot],
                rows: chunk.rows,
            })
            .collect();
        let batch = ops.batch(&sequences);
        for chunk in chunks {
            state.decoded[chunk.slot] += chunk.rows;
        }

        let offset = |(codebook, ids): (usize, &Vec<u32>)| {
            let base = (codebook * self.config.codebook_size) as u32;
            let ids: Vec<u32> = ids.iter().map(|id| base + id).collect();
            ops.embed(&self.code_embedding, &ops.ids(&ids))
        };
        let mut embedded = codes.iter().enumerate().map(offset);
        let first = embedded.next().expect("a codec has at least one codebook: its configuration was checked");
        let x = ops.scale_all(embedded.fold(first, |sum, x| ops.add(sum, &x)), 1.0 / codes.len() as f32);

        let (x, _) = self.pre_transformer.forward(ops, x, &mut state.window, &batch, None);
        let mut x = self.pre_transformer.norm(ops, &x);
        let mut chunks = chunks.to_vec();
        let mut tails = state.tails.iter_mut();
        let mut tail = || tails.next().expect("one tail for each convolution: `state` makes them");
        for (up, next) in &self.upsample {
            (x, chunks) = ops.conv_transpose1d(&x, &up.weight, &up.bias, tail(), &chunks);
            x = next.forward(ops, x, tail(), &chunks);
        }
        x = ops.conv1d(&x, &self.first.weight, &self.first.bias, tail(), &chunks);
        for block in &self.blocks {
            x = block.snake.forward(ops, x);
            let up = &block.upsample;
            (x, chunks) = ops.conv_transpose1d(&x, &up.weight, &up.bias, tail(), &chunks);
            for unit in &block.units {
                x = unit.forward(ops, x, tail(), tail(), &chunks);
            }
        }
        x = self.last_snake.forward(ops, x);
        x = ops.conv1d(&x, &self.last.weight, &self.last.bias, tail(), &chunks);
        (ops.clamp(x, -1.0, 1.0), chunks)
    }
}

impl<O: Ops> ConvNeXt<O> {
    fn forward(&self, ops: &O, x: O::T, tail: &mut O::State, chunks: &[StreamChunk]) -> O::T {
        let h = ops.conv1d(&x, &self.dwconv.weight, &self.dwconv.bias, tail, chunks);
        let h = ops.layer_norm(&h, &self.norm.0, &self.norm.1, CONVNEXT_EPS);
        let h = ops.gelu(ops.linear(&h, &self.pwconv1.0, Some(&self.pwconv1.1)));
        let h = ops.linear(&h, &self.pwconv2.0, Some(&self.pwconv2.1));
        ops.add(ops.scale(h, &self.gamma), &x)
    }
}

impl<O: Ops> ResidualUnit<O> {
    fn forward(&self, ops: &O, x: O::T, tail1: &mut O::State, tail2: &mut O::State, chunks: &[StreamChunk]) -> O::T {
        let h = self.act1.forward(ops, ops.copy(&x));
        let h = ops.conv1d(&h, &self.conv1.weight, &self.conv1.bias, tail1, chunks);
        let h = self.act2.forward(ops, h);
        let h = ops.conv1d(&h, &self.conv2.weight, &self.conv2.bias, tail2, chunks);
        ops.add(h, &x)
    }
}
