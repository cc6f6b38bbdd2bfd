//! Model families: one folder each, named and structured like its published checkpoint.
//!
//! A family is one entry of [`FAMILIES`]: it claims checkpoints and loads one into a [`Model`]. Nothing outside its
//! folder knows its sizes, ids or stages. A family brings:
//! - ears, if it takes audio: a front end (samples to windows) and an encoder (windows to rows);
//! - a script: the history as prompt positions, and its template of tools;
//! - stages with typed edges, from the prompt to samples. A language model is a `CausalLm` of the stage
//!   [`parts::autoregressive::Autoregressive`], which has prefix reuse, sampling, limits and stops;
//! - voices, the geometry of its codec, and the bytes of a slot in all stages ([`SlotBytes`]).
//!
//! [`parts`] holds code that several families share: a thinker is a [`ThinkerModel`](parts::thinker_stage::ThinkerModel), a talker
//! a [`TalkerModel`](parts::talker_stage::TalkerModel), and [`parts::raw_config`] has sections of config.json.

pub mod parts;
pub mod qwen2_5_omni;
pub mod qwen3_omni_moe;
pub mod qwen3_tts;

use std::sync::Arc;

use repartee_kernels::KernelError;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::pool::Pool;
use thiserror::Error;

use crate::checkpoint::{BadValue, CONFIG, Checkpoint, CheckpointError};
use crate::config::{ConfigError, EngineConfig};
use crate::device::{DeviceChoice, DeviceError};
use crate::model::{Model, SlotCounts, TopologyError};

/// Variant of a family that a checkpoint is; each family has its own names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyVariant(pub &'static str);

/// Function that loads a claimed checkpoint onto a device.
pub type LoadFn<D> = fn(D, &Checkpoint, FamilyVariant, &EngineConfig) -> Result<Model, LoadError>;

/// A model family: its claim on checkpoints and its loaders.
pub struct Family {
    /// Name for messages: the `architectures` entry of its config.json, or the published name.
    pub name: &'static str,
    /// Returns the variant if the checkpoint is of this family: by config.json's `architectures`, else by the files'
    /// contents.
    pub claims: fn(&Checkpoint) -> Option<FamilyVariant>,
    /// Loads a claimed checkpoint on the CPU.
    pub load_cpu: LoadFn<Cpu>,
    /// Loads a claimed checkpoint on a CUDA device.
    #[cfg(feature = "cuda")]
    pub load_cuda: LoadFn<repartee_kernels::cuda::Cuda>,
}

/// All supported families.
pub const FAMILIES: &[Family] = &[qwen3_omni_moe::FAMILY, qwen2_5_omni::FAMILY, qwen3_tts::FAMILY];

/// Claims a checkpoint by the first of config.json's `architectures`.
fn claims_named(checkpoint: &Checkpoint, names: &[&str], variant: FamilyVariant) -> Option<FamilyVariant> {
    let first = checkpoint.architectures().into_iter().next()?;
    names.contains(&&first[..]).then_some(variant)
}

/// Memory of one slot in all stages together, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotBytes {
    /// Bytes for each position of the context: keys and values, encoded audio, rows on their way to later stages.
    pub position: usize,
    /// Bytes that do not depend on the context: further positions of later stages, convolution tails, rings, masks.
    pub fixed: usize,
}

/// Computes the slots that fit into the configured memory. Each has room for a whole context: `context` positions, or
/// `session_tokens` if that is less. Fewer sessions than configured is a warning.
///
/// # Errors
///
/// If not even one slot fits.
pub fn fit_slots(config: &EngineConfig, context: usize, bytes: SlotBytes) -> Result<SlotCounts, ConfigError> {
    let context = context.min(config.session_tokens);
    let each = context * bytes.position + bytes.fixed;
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
    Ok(SlotCounts { sessions, out_of_band, context })
}

/// Reasons why a checkpoint cannot be loaded. Every message names the file and the field or tensor.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file, field or tensor is missing or wrong.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The model does not support a setting.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The device cannot take a tensor.
    #[error(transparent)]
    Kernel(#[from] KernelError),
    /// The device cannot be opened, or lacks memory.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The family's stages do not form a chain.
    #[error("this family is defective: {0}")]
    Topology(#[from] TopologyError),
    /// preprocessor_config.json has a wrong field.
    #[error("{file}: {value}")]
    Mel {
        /// Name of the file.
        file: String,
        /// The field, its value and the allowed values.
        value: BadValue,
    },
}

/// Loads a checkpoint on the configured device, by the family that claims it.
pub fn load_model(checkpoint: &Checkpoint, config: &EngineConfig) -> Result<Model, LoadError> {
    // The steps of a tick run in parallel on a pool, on any device.
    let pool = worker_pool(config.threads());
    match cuda::open(config.device)? {
        #[cfg(feature = "cuda")]
        Some(device) => {
            let (family, variant) = claimed(FAMILIES, checkpoint)?;
            if config.kv_cache != crate::weight_policy::KvCacheFormat::default() {
                return Err(ConfigError::new("kv_cache", "bf16", "a CUDA device has f32 alone").into());
            }
            // Refuse a model that cannot fit before anything is loaded.
            cuda::check_memory(&device, config, checkpoint.weight_bytes())?;
            validated((family.load_cuda)(device, checkpoint, variant, config)?, pool)
        }
        #[cfg(not(feature = "cuda"))]
        Some(device) => match device {},
        None => load_on(Cpu::default().with_kv(config.kv_cache.into()).on(pool.clone()), pool, checkpoint, config),
    }
}

/// Loads a checkpoint on a CPU device; its stages run on `pool`.
pub fn load_on(
    cpu: Cpu,
    pool: Option<Arc<Pool>>,
    checkpoint: &Checkpoint,
    config: &EngineConfig,
) -> Result<Model, LoadError> {
    let (family, variant) = claimed(FAMILIES, checkpoint)?;
    validated((family.load_cpu)(cpu, checkpoint, variant, config)?, pool)
}

/// Sets the model's pool, checks its chain of stages and prepares them, e.g. captures graphs.
fn validated(mut model: Model, pool: Option<Arc<Pool>>) -> Result<Model, LoadError> {
    model.pool = pool;
    model.check()?;
    model.stages.iter_mut().for_each(|stage| stage.prepare());
    Ok(model)
}

/// CUDA, in a binary that is built with it.
#[cfg(feature = "cuda")]
mod cuda {
    use repartee_kernels::cuda::{Cuda, CudaError};

    use super::{DeviceChoice, DeviceError, EngineConfig};
    use crate::weight_policy::WeightPolicy;

    /// Opens the device; `None` for the CPU.
    pub fn open(choice: DeviceChoice) -> Result<Option<Cuda>, DeviceError> {
        match choice {
            DeviceChoice::Cpu => Ok(None),
            DeviceChoice::Cuda(number) => {
                let device = Cuda::open(number).map_err(|error| DeviceError::Cuda { choice, error })?;
                Ok(Some(device.with_graphs()))
            }
            DeviceChoice::Auto => match Cuda::open(0) {
                Ok(device) => Ok(Some(device.with_graphs())),
                Err(error) => {
                    // Log the reason, except on a machine without a driver.
                    if error != CudaError::NoDriver {
                        tracing::warn!(%error, "engine.device is auto: the processor is used");
                    }
                    Ok(None)
                }
            },
        }
    }

    /// Refuses weights and sessions that the device's memory does not hold. Quantised weights count with their least
    /// size. If a weight then finds no memory, its load error names it.
    pub fn check_memory(device: &Cuda, config: &EngineConfig, weights: u64) -> Result<(), DeviceError> {
        // Tenths of a bit per number, scales included.
        let least = match config.weights {
            WeightPolicy::Bf16 => 160,
            WeightPolicy::Int8 => 85,
            WeightPolicy::Int4 | WeightPolicy::Mixed => 45,
        };
        let weights = weights / 160 * least;
        let needed = usize::try_from(weights).unwrap_or(usize::MAX).saturating_add(config.cache_mib << 20);
        device.check_memory(needed).map_err(|error| DeviceError::Cuda { choice: config.device, error })
    }
}

/// CUDA, in a binary that is built without it.
#[cfg(not(feature = "cuda"))]
mod cuda {
    use std::convert::Infallible;

    use super::{DeviceChoice, DeviceError};

    /// Returns `None` for the CPU.
    ///
    /// # Errors
    ///
    /// If a CUDA device is chosen.
    pub fn open(choice: DeviceChoice) -> Result<Option<Infallible>, DeviceError> {
        match choice {
            DeviceChoice::Cpu | DeviceChoice::Auto => Ok(None),
            DeviceChoice::Cuda(_) => Err(DeviceError::NotBuilt(choice)),
        }
    }
}

/// Worker pool; `None` with one thread, or if the system refuses threads.
pub fn worker_pool(threads: usize) -> Option<Arc<Pool>> {
    if threads < 2 {
        return None;
    }
    let pool = Pool::new(threads);
    let pool = pool.inspect_err(|error| tracing::warn!(%error, "no threads for the engine: it computes on one"));
    pool.ok().map(Arc::new)
}

/// Finds the one family that claims a checkpoint.
fn claimed<'a>(
    families: &'a [Family],
    checkpoint: &Checkpoint,
) -> Result<(&'a Family, FamilyVariant), CheckpointError> {
    let claims = families.iter().filter_map(|family| Some((family, (family.claims)(checkpoint)?)));
    match &claims.collect::<Vec<_>>()[..] {
        [claim] => Ok(*claim),
        [] => {
            let known = families.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
            // Without config.json this is an error about the missing file.
            let found = checkpoint.architecture()?;
            Err(CheckpointError::UnknownArchitecture { file: checkpoint.label(CONFIG), known, found })
        }
        several => {
            let families = several.iter().map(|(family, _)| family.name).collect::<Vec<_>>().join(", ");
            Err(CheckpointError::Ambiguous { folder: checkpoint.name().to_owned(), families })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Source;

    fn family(name: &'static str, claims: fn(&Checkpoint) -> Option<FamilyVariant>) -> Family {
        Family {
            name,
            claims,
            load_cpu: |_, _, _, _| Err(LoadError::Topology(TopologyError::Empty)),
            #[cfg(feature = "cuda")]
            load_cuda: |_, _, _, _| Err(LoadError::Topology(TopologyError::Empty)),
        }
    }

    fn open(files: &'static [(&'static str, &'static [u8])]) -> Checkpoint {
        Checkpoint::open(Source::Embedded { name: "test", files }).unwrap()
    }

    fn by_architecture(checkpoint: &Checkpoint) -> Option<FamilyVariant> {
        checkpoint.architectures().contains(&"One".to_owned()).then_some(FamilyVariant("one"))
    }

    fn by_files(checkpoint: &Checkpoint) -> Option<FamilyVariant> {
        (checkpoint.has_file("flow.safetensors") && checkpoint.has_file("lm.yaml")).then_some(FamilyVariant("two"))
    }

    #[test]
    fn a_family_claims_by_architecture_or_files() {
        let families = [family("One", by_architecture), family("two", by_files)];
        let one = open(&[("config.json", br#"{"architectures": ["One"]}"#)]);
        assert_eq!(claimed(&families, &one).unwrap().1, FamilyVariant("one"));
        let two = open(&[("lm.yaml", b""), ("flow.safetensors", b"")]);
        assert_eq!(claimed(&families, &two).unwrap().1, FamilyVariant("two"), "a family without config.json");
    }

    #[test]
    fn two_claims_are_an_error() {
        let families = [family("One", by_architecture), family("two", by_files)];
        let both =
            open(&[("config.json", br#"{"architectures": ["One"]}"#), ("lm.yaml", b""), ("flow.safetensors", b"")]);
        let error = claimed(&families, &both).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("One, two"), "{error}");
    }

    #[test]
    fn an_unclaimed_checkpoint_names_the_families() {
        let families = [family("One", by_architecture), family("two", by_files)];
        let other = open(&[("config.json", br#"{"architectures": ["Other"]}"#)]);
        let error = claimed(&families, &other).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("`Other`") && error.contains("One, two"), "{error}");
        let nothing = claimed(&families, &open(&[])).map(|_| ()).unwrap_err();
        assert!(matches!(nothing, CheckpointError::FileMissing { .. }), "{nothing}");
    }
}
