//! Tables of the diffusion transformer, computed at load time: all values that depend on a voice, a code or a time
//! alone.

use repartee_kernels::{Ops, WeightLayout};

use super::config::DitConfig;
use super::modulation::{LAST_PARTS, modulation, part, times};
use super::voice::Voice;
use crate::models::load_error::LoadError;
use crate::models::parts::rows::HostRows;
use crate::models::parts::speaker_encoder::SpeakerEncoder;
use crate::models::parts::weights::Weights;

/// Tables of rows, each of `hidden_size` numbers unless stated otherwise.
#[derive(Debug, Clone, PartialEq)]
pub struct Prepared {
    /// Part of the input projection for the spectrogram, `[hidden, mel]`.
    pub mel: Vec<f32>,
    /// Contribution of each code to a frame's input. Code 0 also stands for no code.
    pub codes: Vec<f32>,
    /// Contribution of each voice with the projection's bias: a guided and an unguided row.
    pub voices: Vec<f32>,
    /// Scales, shifts and gates of each time, for each layer.
    pub layers: Vec<Vec<f32>>,
    /// Scales and shifts of each time for the last norm.
    pub last: Vec<f32>,
}

/// Copies columns `from..to` of rows of `width`.
pub fn columns(values: &[f32], width: usize, from: usize, to: usize) -> Vec<f32> {
    values.chunks_exact(width).flat_map(|row| row[from..to].iter().copied()).collect()
}

impl Prepared {
    /// Computes the tables of `code2wav_dit_model` for evaluations at `at_times` in these voices.
    pub fn compute<O: Ops>(
        ops: &O,
        w: &Weights<'_, O>,
        config: &DitConfig,
        at_times: &[f32],
        voices: &[Voice],
    ) -> Result<Self, LoadError> {
        let (hidden, mel, emb) = (config.hidden_size, config.mel_dim, config.emb_dim);
        let (enc, own) = (config.speaker.enc_dim, config.enc_emb_dim);
        let input = w.at("input_embed");
        let width = mel + enc + emb + own;
        let proj = input.at("proj").values("weight", &[hidden, width])?;
        // A frame's input is the concatenation of its spectrogram, the speaker encoder's row, the code's embedding and
        // the voice's conditioning row.
        let project = |x: Vec<f32>, from: usize, length: usize, bias: Option<&O::Weight>| -> Result<O::T, LoadError> {
            let part = columns(&proj, width, from, from + length);
            let weight = w.made("input_embed.proj", WeightLayout::Linear, &part, &[hidden, length])?;
            Ok(ops.linear(&ops.tensor(x, length), &weight, bias))
        };
        let embedding = w.at("text_embed.codec_embed").values("weight", &[config.num_embeds + 1, emb])?;
        let codes = ops.read(&project(embedding, mel + enc, emb, None)?);

        let encoder = SpeakerEncoder::load(&input.at("spk_encoder"), &config.speaker)?;
        let bias = input.at("proj").vector("bias", hidden)?;
        let mut rows = Vec::new();
        for voice in voices {
            // Without guidance the encoder gets zeros, as long as the voice's spectrogram.
            for by in [1.0, 0.0] {
                let heard = HostRows { width: mel, data: voice.reference_mel.clone() }.map(|value| by * value);
                let encoded = project(encoder.forward(ops, &heard), mel, enc, None)?;
                let of_voice = voice.conditioning.iter().map(|value| by * value).collect();
                let of_voice = project(of_voice, mel + enc + emb, own, Some(&bias))?;
                rows.extend(ops.read(&ops.add(of_voice, &encoded)));
            }
        }

        let times = times(ops, w, at_times, hidden)?;
        let layer = |at: usize| {
            let w = w.at("transformer_blocks").at(at).at("attn_norm.linear");
            modulation((ops, &w), &times, hidden, part::COUNT, &[part::SCALE_ATTENTION, part::SCALE_MLP])
        };
        Ok(Self {
            mel: columns(&proj, width, 0, mel),
            codes,
            voices: rows,
            layers: (0..config.num_hidden_layers).map(layer).collect::<Result<_, _>>()?,
            // In the last norm the scale comes first.
            last: modulation((ops, &w.at("norm_out.linear")), &times, hidden, LAST_PARTS, &[0])?,
        })
    }
}
