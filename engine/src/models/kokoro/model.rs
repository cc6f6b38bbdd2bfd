//! Weights of all parts, under the names of the reference's modules.

use repartee_kernels::Ops;

use super::config::{Config, SAMPLE_RATE};
use super::decoder::DecoderTrunk;
use super::predictor::ProsodyPredictor;
use super::text_encoder::TextEncoder;
use crate::checkpoint::Checkpoint;
use crate::models::load_error::LoadError;
use crate::models::parts::albert::Albert;
use crate::models::parts::vocoder::istft_net::IstftNet;
use crate::models::parts::vocoder::istft_net::source::{HARMONICS, HarmonicSource};
use crate::models::parts::vocoder::stft::{InverseStft, hann};
use crate::models::parts::weights::Weights;
use crate::weight_policy::WeightPolicy;

/// Models of this family, one field for each part.
pub struct Kokoro<O: Ops> {
    /// Configuration from config.json.
    pub config: Config,
    /// PL-BERT, which reads phonemes for the predictor.
    pub bert: Albert<O>,
    /// Linear layer after PL-BERT: weight and bias.
    pub bert_encoder: (O::Weight, O::Weight),
    /// Durations, pitch and loudness.
    pub predictor: ProsodyPredictor<O>,
    /// Rows of phonemes for the decoder.
    pub text_encoder: TextEncoder<O>,
    /// The decoder before its generator.
    pub trunk: DecoderTrunk<O>,
    /// The decoder's generator.
    pub generator: IstftNet<O>,
    /// Source of the generator.
    pub source: HarmonicSource,
    /// Inverse transform of the generator's spectra.
    pub inverse: InverseStft,
}

impl<O: Ops> Kokoro<O> {
    /// Loads all parts, with matrices in the formats of `policy`.
    ///
    /// # Errors
    /// A file, field or tensor is missing or wrong.
    pub fn load(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint)?;
        let all = Weights::new(ops, checkpoint).with_policy(policy);
        // The published file has names of torch's wrapper for several devices.
        let part = |name: &str| {
            let wrapped = checkpoint.tensor_names().any(|tensor| tensor.starts_with(&format!("{name}.module.")));
            if wrapped { all.at(name).at("module") } else { all.at(name) }
        };
        let (bert_encoder, decoder) = (part("bert_encoder"), part("decoder"));
        let generator = decoder.at("generator");
        let linear = generator.at("m_source.l_linear");
        let factors = linear.values("weight", &[1, HARMONICS])?;
        let bias = linear.values("bias", &[1])?[0];
        let (fft, hop) = (config.istftnet.gen_istft_n_fft, config.istftnet.gen_istft_hop_size);
        Ok(Self {
            bert: Albert::load(&part("bert"), &config.plbert)?,
            bert_encoder: (
                bert_encoder.linear("weight", config.hidden_dim, config.plbert.hidden_size)?,
                bert_encoder.vector("bias", config.hidden_dim)?,
            ),
            predictor: ProsodyPredictor::load(&part("predictor"), &config)?,
            text_encoder: TextEncoder::load(&part("text_encoder"), &config)?,
            trunk: DecoderTrunk::load(&decoder, &config)?,
            generator: IstftNet::load(&generator, &config.istftnet)?,
            source: HarmonicSource::new(&config.istftnet, SAMPLE_RATE, factors, bias),
            inverse: InverseStft::new(hann(fft), hop, fft / 2),
            config,
        })
    }
}
