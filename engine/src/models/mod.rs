//! Model families: one folder each, named and structured like its published checkpoint.
//!
//! A family is one entry of [`FAMILIES`]: which checkpoints it claims and how it loads them into a
//! [`Model`]. Nothing outside its folder knows its sizes, ids or stages.

pub mod parts;
pub mod qwen3_omni_moe;

use repartee_kernels::KernelError;
use repartee_kernels::cpu::{Cpu, Tensor};
use thiserror::Error;

use crate::checkpoint::{BadValue, Checkpoint, CheckpointError};
use crate::config::{ConfigError, EngineConfig};
use crate::stage::{Model, Slots};

/// A model family.
pub struct Family {
    /// The `architectures` entry that it claims.
    pub architecture: &'static str,
    /// Loads it on the CPU.
    pub load_cpu: fn(Cpu, &Checkpoint, &EngineConfig) -> Result<Model<Tensor>, LoadError>,
}

/// All families.
pub const FAMILIES: &[Family] =
    &[Family { architecture: qwen3_omni_moe::config::ARCHITECTURE, load_cpu: qwen3_omni_moe::load::<Cpu> }];

/// The slots that fit into the configured memory, each with room for a whole context: `context` positions (the settings may
/// lower it) of `position_bytes` each, in all stages together. Fewer sessions than configured is no error; none is.
pub fn slots(config: &EngineConfig, context: usize, position_bytes: usize) -> Result<Slots, ConfigError> {
    let context = context.min(config.session_tokens);
    let each = context * position_bytes;
    let affordable = (config.cache_mib << 20) / each.max(1);
    if affordable == 0 {
        let needed = each.div_ceil(1 << 20);
        let allowed =
            format!("one session of {context} tokens takes {needed} MiB: allow more, or lower session_tokens");
        return Err(ConfigError::new("cache_mib", config.cache_mib, allowed));
    }
    // Sessions matter more than out-of-band responses, which get at most a third of the slots.
    let out_of_band = config.out_of_band.min(affordable / 3);
    let sessions = config.sessions.min(affordable - out_of_band);
    if sessions < config.sessions {
        tracing::warn!(
            sessions,
            asked = config.sessions,
            "engine.cache_mib has room for fewer sessions of {context} tokens ({} KiB each)",
            each >> 10
        );
    }
    Ok(Slots { sessions, out_of_band, context })
}

/// Why a checkpoint could not be loaded. Every message names the file and the field or tensor.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file, field or tensor.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A setting that this model does not support.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A tensor that the device cannot take.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// preprocessor_config.json.
    #[error("{file}: {value}")]
    Mel {
        /// The file.
        file: String,
        /// The field.
        value: BadValue,
    },
}

/// Loads a checkpoint on the CPU.
pub fn load(checkpoint: &Checkpoint, config: &EngineConfig) -> Result<Model<Tensor>, LoadError> {
    let found = checkpoint.architecture()?;
    let known = || FAMILIES.iter().map(|family| family.architecture).collect::<Vec<_>>().join(", ");
    let family = FAMILIES.iter().find(|family| family.architecture == found).ok_or_else(|| {
        CheckpointError::UnknownArchitecture { file: checkpoint.label("config.json"), known: known(), found }
    })?;
    (family.load_cpu)(Cpu::default(), checkpoint, config)
}
