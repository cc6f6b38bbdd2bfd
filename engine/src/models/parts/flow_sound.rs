//! Sound of codes by a flow over chunks and a causal vocoder, for families that speak by both.

use repartee_kernels::Ops;

use super::config::ConfigSection;
use super::config::limits::RATE;
use super::flow_matching::chunked::config::ChunkDitConfig;
use super::flow_matching::chunked::dit::ChunkDit;
use super::flow_matching::chunked::stage::{ChunkFlowPart, solver};
use super::flow_matching::chunked::voice::{FlowVoice, SpeakerProjection};
use super::shared_voices::SharedVoices;
use super::vocoder::hift::Hift;
use super::vocoder::hift::config::HiftConfig;
use super::vocoder::hift::stage::HiftPart;
use super::weights::Weights;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::config::EngineConfig;
use crate::model::Codec;
use crate::models::load_error::LoadError;
use crate::weight_policy::WeightPolicy;

/// Files of the flow, the published name first.
pub const FLOW: [&str; 2] = ["flow.pt", "flow.safetensors"];
/// Files of the vocoder.
const HIFT: [&str; 2] = ["hift.pt", "hift.safetensors"];

/// Sizes of the flow and of the vocoder.
#[derive(Debug, Clone, PartialEq)]
pub struct FlowSoundConfig {
    /// The flow: codes to a spectrogram.
    pub flow: ChunkDitConfig,
    /// The vocoder: a spectrogram to samples.
    pub hift: HiftConfig,
}

impl FlowSoundConfig {
    /// Reads the sections `flow` and `hift`, and `sample_rate`.
    pub fn read(top: &ConfigSection<'_>) -> Result<Self, CheckpointError> {
        let flow = ChunkDitConfig::read(&top.section("flow")?)?;
        let hift = HiftConfig::read(&top.section("hift")?, flow.mel)?;
        let rate = top.size("sample_rate", 24_000, RATE)?;
        top.check("sample_rate", rate, rate == hift.sampling_rate as usize, "equal to hift.sampling_rate")?;
        Ok(Self { flow, hift })
    }

    /// Rate of the sound, and samples of a code.
    pub fn codec(&self) -> Codec {
        let samples = self.flow.token_mel_ratio * self.hift.samples_per_frame();
        Codec { sample_rate: self.hift.sampling_rate, frame_samples: (samples as u32, 1) }
    }
}

/// The flow and the vocoder with loaded weights.
pub struct FlowSound<O: Ops> {
    /// Weights of `flow.pt`.
    pub flow: ChunkDit<O>,
    /// Weights of `hift.pt`.
    pub hift: Hift<O>,
}

impl<O: Ops> FlowSound<O> {
    /// Loads both from a folder, with matrices of the flow in the formats of `policy`. `once` runs the computations of load
    /// time. Returns the projection of speakers' vectors, too.
    ///
    /// # Errors
    /// A file or tensor is missing or wrong.
    pub fn load<E: Ops>(
        (ops, once): (&O, &E),
        folder: &Checkpoint,
        config: &FlowSoundConfig,
        policy: WeightPolicy,
    ) -> Result<(Self, SpeakerProjection<E>), LoadError> {
        let (flow, hift) = (folder.weights_of(&FLOW)?, folder.weights_of(&HIFT)?);
        // Training kept the vocoder inside of a larger model.
        let mut of_hift = Weights::new(ops, &hift);
        if of_hift.has("generator.conv_pre.bias") {
            of_hift = of_hift.at("generator");
        }
        let once = Weights::new(once, &flow);
        let of_flow = Weights::new(ops, &flow).with_policy(policy);
        let sound = Self {
            flow: ChunkDit::load(&of_flow, &once, &config.flow, &solver().times())?,
            hift: Hift::load(&of_hift, &config.hift)?,
        };
        Ok((sound, SpeakerProjection::load(&once, &config.flow)?))
    }

    /// Makes both parts of a pipeline: the flow with its voices, to which others are enrolled if it `clones`, and the vocoder.
    /// A response has at most `most_codes` codes.
    pub fn parts(
        self,
        codec: Codec,
        (voices, clones): (SharedVoices<FlowVoice>, bool),
        most_codes: usize,
        settings: &EngineConfig,
    ) -> (ChunkFlowPart<O>, HiftPart<O>) {
        let (code, frames) = (codec.frame(), self.flow.config().token_mel_ratio);
        let vocoder = HiftPart { hift: self.hift, frame: code / frames as u32, most_frames: most_codes * frames };
        (ChunkFlowPart::new(self.flow, (voices, clones), (code, most_codes), settings), vocoder)
    }
}
