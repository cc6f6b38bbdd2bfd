//! Qwen2.5-Omni: audio tower, thinker, talker, token2wav.
//!
//! The model files read like the reference, `transformers` 5.23 `models/qwen2_5_omni`, and say where they follow which class. Vision is not
//! built: its weights are ignored.

pub mod audio_tower;
pub mod config;
mod raw_config;
pub mod talker;
pub mod talker_stage;
pub mod thinker;
mod validate;
pub mod voices;

use repartee_kernels::StepOps;

use self::audio_tower::AudioTower;
use self::config::Config;
use self::talker::Talker;
use self::thinker::Thinker;
use super::LoadError;
use super::parts::weights::Weights;
use crate::checkpoint::Checkpoint;
use crate::weight_policy::WeightPolicy;

/// The models of this family up to the codes, one field a part of the checkpoint.
pub struct Qwen25Omni<O: StepOps> {
    /// config.json
    pub config: Config,
    /// `thinker.audio_tower`
    pub audio_tower: AudioTower<O>,
    /// `thinker`
    pub thinker: Thinker<O>,
    /// `talker`
    pub talker: Talker<O>,
}

impl<O: StepOps> Qwen25Omni<O> {
    /// Loads all parts, with weights as in the checkpoint.
    pub fn load(ops: &O, checkpoint: &Checkpoint) -> Result<Self, LoadError> {
        Self::load_as(ops, checkpoint, WeightPolicy::default())
    }

    /// Loads all parts, with weights in formats after `policy`.
    pub fn load_as(ops: &O, checkpoint: &Checkpoint, policy: WeightPolicy) -> Result<Self, LoadError> {
        let config = Config::load(checkpoint)?;
        let weights = Weights::new(ops, checkpoint).with_policy(policy);
        let thinker = weights.at("thinker");
        Ok(Self {
            audio_tower: AudioTower::load(&thinker.at("audio_tower"), &config.thinker.audio)?,
            thinker: Thinker::load(&thinker, &config.thinker)?,
            talker: Talker::load(&weights.at("talker"), &config.talker, config.codes)?,
            config,
        })
    }
}
