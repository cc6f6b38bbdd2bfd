//! Model families: one folder each, named and structured like its published checkpoint.
//!
//! A family is one entry of [`FAMILIES`]: which checkpoints it claims and how it loads one into a [`Model`]. Nothing outside its
//! folder knows its sizes, ids or stages. What it brings:
//! - ears, if it hears: a front end (samples to windows) and an encoder (windows to rows);
//! - a script: the history as prompt positions, and its template of tools;
//! - stages with typed edges, from the prompt to samples. A language model is a `CausalLm` of the stage
//!   [`parts::autoregressive::Autoregressive`], which has prefix reuse, sampling, limits and stops;
//! - voices, the geometry of its codec, and the bytes that a slot takes in all stages ([`SlotBytes`]).
//!
//! [`parts`] holds what several families share: a thinker is a [`Thinks`](parts::thinker_stage::Thinks), a talker a
//! [`Talks`](parts::talker_stage::Talks), and sections of config.json are [`parts::raw_config`]'s.

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

/// Which of a family's variants a checkpoint is; each family has its own names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FamilyVariant(pub &'static str);

/// Loads a claimed checkpoint onto a device.
pub type LoadFn<D> = fn(D, &Checkpoint, FamilyVariant, &EngineConfig) -> Result<Model, LoadError>;

/// A model family.
pub struct Family {
    /// Its name, for messages: the `architectures` entry of its config.json, or the published name.
    pub name: &'static str,
    /// Whether a checkpoint is one of its own: by config.json's `architectures`, else by what the files hold.
    pub claims: fn(&Checkpoint) -> Option<FamilyVariant>,
    /// Loads a claimed checkpoint on the CPU.
    pub load_cpu: LoadFn<Cpu>,
    /// Loads a claimed checkpoint on a CUDA device.
    #[cfg(feature = "cuda")]
    pub load_cuda: LoadFn<repartee_kernels::cuda::Cuda>,
}

/// All families.
pub const FAMILIES: &[Family] = &[qwen3_omni_moe::FAMILY, qwen2_5_omni::FAMILY, qwen3_tts::FAMILY];

/// The claim of a family that goes by the first of config.json's `architectures`.
fn claims_named(checkpoint: &Checkpoint, names: &[&str], variant: FamilyVariant) -> Option<FamilyVariant> {
    let first = checkpoint.architectures().into_iter().next()?;
    names.contains(&&first[..]).then_some(variant)
}

/// Memory that one slot takes, in all stages together. Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SlotBytes {
    /// For each position of the context: keys and values, encoded audio, rows on their way to later stages.
    pub position: usize,
    /// Whatever the context: further positions of later stages, convolution tails, rings, masks.
    pub fixed: usize,
}

/// The slots that fit into the configured memory, each with room for a whole context: `context` positions, which the settings may
/// lower. Fewer sessions than configured is no error; none is.
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
    /// The device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The family's stages make no chain.
    #[error("this family is defective: {0}")]
    Topology(#[from] TopologyError),
    /// preprocessor_config.json.
    #[error("{file}: {value}")]
    Mel {
        /// The file.
        file: String,
        /// The field.
        value: BadValue,
    },
}

/// Loads a checkpoint on the configured device, by the family that claims it.
pub fn load_model(checkpoint: &Checkpoint, config: &EngineConfig) -> Result<Model, LoadError> {
    // The steps of a tick run side by side on a pool, whatever the device.
    let pool = worker_pool(config.threads());
    match cuda::open(config.device)? {
        #[cfg(feature = "cuda")]
        Some(device) => {
            let (family, variant) = claimed(FAMILIES, checkpoint)?;
            if config.kv_cache != crate::weight_policy::KvCacheFormat::default() {
                return Err(ConfigError::new("kv_cache", "bf16", "a CUDA device has f32 alone").into());
            }
            // What cannot fit is said before anything is loaded.
            cuda::check_memory(&device, config, checkpoint.weight_bytes())?;
            validated((family.load_cuda)(device, checkpoint, variant, config)?, pool)
        }
        #[cfg(not(feature = "cuda"))]
        Some(device) => match device {},
        None => load_on(Cpu::default().with_kv(config.kv_cache.into()).on(pool.clone()), pool, checkpoint, config),
    }
}

/// The same on a device that computes on `pool`.
pub fn load_on(
    cpu: Cpu,
    pool: Option<Arc<Pool>>,
    checkpoint: &Checkpoint,
    config: &EngineConfig,
) -> Result<Model, LoadError> {
    let (family, variant) = claimed(FAMILIES, checkpoint)?;
    validated((family.load_cpu)(cpu, checkpoint, variant, config)?, pool)
}

/// A loaded model whose stages make a chain, on its pool, with what a device captures ahead of the first call.
fn validated(mut model: Model, pool: Option<Arc<Pool>>) -> Result<Model, LoadError> {
    model.pool = pool;
    model.check()?;
    model.stages.iter_mut().for_each(|stage| stage.prepare());
    Ok(model)
}

/// CUDA in a binary that is built with it.
#[cfg(feature = "cuda")]
mod cuda {
    use repartee_kernels::cuda::{Cuda, CudaError};

    use super::{DeviceChoice, DeviceError, EngineConfig};
    use crate::weight_policy::WeightPolicy;

    /// The device; `None` for the processor.
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
                    // Somebody who has a device wants to know why it is not used.
                    if error != CudaError::NoDriver {
                        tracing::warn!(%error, "engine.device is auto: the processor is used");
                    }
                    Ok(None)
                }
            },
        }
    }

    /// Refuses weights and sessions that the device's memory does not hold. What is quantised counts with the least that it can take; a
    /// weight that finds no room after all is refused by its name.
    pub fn check_memory(device: &Cuda, config: &EngineConfig, weights: u64) -> Result<(), DeviceError> {
        // Tenths of a bit of each number, with the scales.
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

/// CUDA in a binary that is built without it.
#[cfg(not(feature = "cuda"))]
mod cuda {
    use std::convert::Infallible;

    use super::{DeviceChoice, DeviceError};

    /// `None` for the processor; there is no other device.
    pub fn open(choice: DeviceChoice) -> Result<Option<Infallible>, DeviceError> {
        match choice {
            DeviceChoice::Cpu | DeviceChoice::Auto => Ok(None),
            DeviceChoice::Cuda(_) => Err(DeviceError::NotBuilt(choice)),
        }
    }
}

/// So many threads, if they are more than one.
pub fn worker_pool(threads: usize) -> Option<Arc<Pool>> {
    if threads < 2 {
        return None;
    }
    let pool = Pool::new(threads);
    let pool = pool.inspect_err(|error| tracing::warn!(%error, "no threads for the engine: it computes on one"));
    pool.ok().map(Arc::new)
}

/// The one family that claims a checkpoint.
fn claimed<'a>(families: &'a [Family], checkpoint: &Checkpoint) -> Result<(&'a Family, FamilyVariant), CheckpointError> {
    let claims = families.iter().filter_map(|family| Some((family, (family.claims)(checkpoint)?)));
    match &claims.collect::<Vec<_>>()[..] {
        [claim] => Ok(*claim),
        [] => {
            let known = families.iter().map(|family| family.name).collect::<Vec<_>>().join(", ");
            // What config.json says is the most helpful thing to tell, if there is one.
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
