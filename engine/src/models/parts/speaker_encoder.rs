//! Speaker encoder (ECAPA-TDNN): a spectrogram to one embedding row; after `Qwen3TTSSpeakerEncoder` of qwen-tts, which
//! is `ECAPA_TimeDelayNet` of Qwen2.5-Omni in transformers.

use repartee_kernels::Ops;

use super::config::SpeakerEncoderConfig;
use super::rows::{ConvShape, HostConv, HostRows};
use super::weights::Weights;
use crate::models::load_error::LoadError;

/// Least variance of a channel.
const LEAST_VARIANCE: f32 = 1e-12;

/// Squeeze-excitation block around parallel convolutions.
struct Block<O: Ops> {
    tdnn1: HostConv<O>,
    /// Each takes its part of the channels plus the previous one's result.
    res2net: Vec<HostConv<O>>,
    tdnn2: HostConv<O>,
    squeeze: HostConv<O>,
    excite: HostConv<O>,
}

/// The speaker encoder, an ECAPA-TDNN.
pub struct SpeakerEncoder<O: Ops> {
    first: HostConv<O>,
    blocks: Vec<Block<O>>,
    mfa: HostConv<O>,
    attention_in: HostConv<O>,
    attention_out: HostConv<O>,
    fc: HostConv<O>,
}

fn relu(rows: HostRows) -> HostRows {
    rows.map(|value| value.max(0.0))
}

/// Weighted mean and standard deviation of each channel over the rows.
fn statistics(x: &HostRows, weight: impl Fn(usize, usize) -> f32) -> (Vec<f32>, Vec<f32>) {
    let over = |f: &dyn Fn(usize, usize) -> f32| -> Vec<f32> {
        (0..x.width).map(|channel| (0..x.count()).map(|row| weight(row, channel) * f(row, channel)).sum()).collect()
    };
    let mean = over(&|row, channel| x.row(row)[channel]);
    let variance = over(&|row, channel| (x.row(row)[channel] - mean[channel]).powi(2));
    (mean, variance.into_iter().map(|variance| variance.max(LEAST_VARIANCE).sqrt()).collect())
}

/// Repeats one row `rows` times.
fn repeated(row: &[f32], rows: usize) -> HostRows {
    HostRows { width: row.len(), data: row.repeat(rows) }
}

impl<O: Ops> Block<O> {
    fn load(w: &Weights<'_, O>, config: &SpeakerEncoderConfig, at: usize) -> Result<Self, LoadError> {
        let (input, out) = (config.enc_channels[at - 1], config.enc_channels[at]);
        let part = out / config.enc_res2net_scale;
        let inner = ConvShape {
            kernel: config.enc_kernel_sizes[at],
            dilation: config.enc_dilations[at],
            ..ConvShape::plain(part, part, 1)
        };
        let point = |name: &str, input, out| HostConv::load(&w.at(name), ConvShape::plain(input, out, 1), true);
        let parts = 0..config.enc_res2net_scale - 1;
        let res2net = parts.map(|i| HostConv::load(&w.at(format_args!("res2net_block.blocks.{i}.conv")), inner, true));
        Ok(Self {
            tdnn1: point("tdnn1.conv", input, out)?,
            res2net: res2net.collect::<Result<_, _>>()?,
            tdnn2: point("tdnn2.conv", out, out)?,
            squeeze: point("se_block.conv1", out, config.enc_se_channels)?,
            excite: point("se_block.conv2", config.enc_se_channels, out)?,
        })
    }

    fn forward(&self, ops: &O, x: HostRows) -> HostRows {
        let h = relu(self.tdnn1.forward(ops, &x));
        let part = h.width / (self.res2net.len() + 1);
        let mut parts = vec![h.columns(0, part)];
        for (i, conv) in self.res2net.iter().enumerate() {
            let mine = h.columns((i + 1) * part, part);
            let mine = if i == 0 { mine } else { mine.plus(&parts[i]) };
            parts.push(relu(conv.centred(ops, &mine)));
        }
        let h = relu(self.tdnn2.forward(ops, &HostRows::concat_columns(&parts.iter().collect::<Vec<_>>())));
        let (mean, _) = statistics(&h, |_, _| 1.0 / h.count() as f32);
        let squeezed = relu(self.squeeze.forward(ops, &HostRows { width: h.width, data: mean }));
        let gate = self.excite.forward(ops, &squeezed).map(|value| 1.0 / (1.0 + (-value).exp()));
        let mut h = h;
        for row in h.data.chunks_exact_mut(gate.width) {
            row.iter_mut().zip(&gate.data).for_each(|(value, gate)| *value *= gate);
        }
        h.plus(&x)
    }
}

impl<O: Ops> SpeakerEncoder<O> {
    /// Loads the encoder below the prefix of `w`.
    pub fn load(w: &Weights<'_, O>, config: &SpeakerEncoderConfig) -> Result<Self, LoadError> {
        let last = config.enc_channels.len() - 1;
        let channels = config.enc_channels[last];
        let dilated = |at: usize, input, out| ConvShape {
            kernel: config.enc_kernel_sizes[at],
            dilation: config.enc_dilations[at],
            ..ConvShape::plain(input, out, 1)
        };
        let point = |name: &str, input, out| HostConv::load(&w.at(name), ConvShape::plain(input, out, 1), true);
        let first = dilated(0, config.mel_dim, config.enc_channels[0]);
        let attention = config.enc_attention_channels;
        Ok(Self {
            first: HostConv::load(&w.at("blocks.0.conv"), first, true)?,
            blocks: (1..last)
                .map(|at| Block::load(&w.at(format_args!("blocks.{at}")), config, at))
                .collect::<Result<_, _>>()?,
            mfa: HostConv::load(&w.at("mfa.conv"), dilated(last, channels, channels), true)?,
            attention_in: point("asp.tdnn.conv", 3 * channels, attention)?,
            attention_out: point("asp.conv", attention, channels)?,
            fc: point("fc", 2 * channels, config.enc_dim)?,
        })
    }

    /// Least number of frames in a spectrogram.
    pub fn least_frames(&self) -> usize {
        let inner = self.blocks.iter().flat_map(|block| &block.res2net);
        inner.chain([&self.first, &self.mfa]).map(HostConv::least_rows).max().unwrap_or(1)
    }

    /// Embeds a spectrogram as one row.
    pub fn forward(&self, ops: &O, mel: &HostRows) -> Vec<f32> {
        let mut x = relu(self.first.centred(ops, mel));
        let mut made = Vec::with_capacity(self.blocks.len());
        for block in &self.blocks {
            x = block.forward(ops, x);
            made.push(x.clone());
        }
        let x = relu(self.mfa.centred(ops, &HostRows::concat_columns(&made.iter().collect::<Vec<_>>())));
        let rows = x.count();
        let (mean, deviation) = statistics(&x, |_, _| 1.0 / rows as f32);
        let seen = HostRows::concat_columns(&[&x, &repeated(&mean, rows), &repeated(&deviation, rows)]);
        let seen = relu(self.attention_in.forward(ops, &seen)).map(f32::tanh);
        let mut weights = self.attention_out.forward(ops, &seen);
        // A softmax over time, channel by channel.
        for channel in 0..weights.width {
            let at = |row: usize| row * weights.width + channel;
            let highest = (0..rows).map(|row| weights.data[at(row)]).fold(f32::NEG_INFINITY, f32::max);
            let exponentials: Vec<f32> = (0..rows).map(|row| (weights.data[at(row)] - highest).exp()).collect();
            let total: f32 = exponentials.iter().sum();
            for (row, value) in exponentials.into_iter().enumerate() {
                weights.data[row * weights.width + channel] = value / total;
            }
        }
        let (mut pooled, deviation) = statistics(&x, |row, channel| weights.row(row)[channel]);
        pooled.extend(deviation);
        self.fc.forward(ops, &HostRows { width: pooled.len(), data: pooled }).data
    }
}
