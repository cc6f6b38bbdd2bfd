//! Model families: one folder each, named and structured like its published checkpoint.
//!
//! A family is one entry of [`FAMILIES`]: it claims checkpoints and loads one into a [`Model`]. Nothing outside its
//! folder knows its sizes, ids or stages. A family brings:
//! - an audio input, if it takes audio: a front end (samples to windows) and an encoder (windows to rows), or a recogniser
//!   (samples to text), which may be all that it brings;
//! - a prompt template: the history as prompt positions, and its template of tools;
//! - stages with typed edges, from the prompt to samples. A language model is a `CausalLm` of the stage
//!   [`parts::autoregressive::Autoregressive`], which has prefix reuse, sampling, limits and stops;
//! - voices, the geometry of its codec, and the bytes of a slot in all stages ([`SlotBytes`](parts::memory::SlotBytes)).
//!
//! [`parts`] holds code that several families share: a thinker is a [`LanguageModel`](parts::language_model::LanguageModel), a
//! talker a [`TalkerModel`](parts::talker::model::TalkerModel), and [`parts::config`] has sections of config.json.
//! [`smart_turn`] and [`turn_net`] are built of them too, but are no families: they judge turns for the gateway.

pub mod cosyvoice3;
pub mod covo_audio;
pub mod dynin_omni;
pub mod family;
pub mod fun_audio_chat;
pub mod kokoro;
pub mod lfm2_audio;
pub mod licence;
pub mod load_error;
pub mod mimo_audio;
pub mod ming;
pub mod parts;
pub mod qwen2_5_omni;
pub mod qwen3_omni_moe;
pub mod qwen3_tts;
pub mod smart_turn;
pub mod text_decoder;
pub mod turn_net;
pub mod unserved;
pub mod whisper;

use std::sync::Arc;

use repartee_engine_api::WakeSignal;
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::{Cpu, SharedWeights};

use self::family::{Family, claimed};
use self::licence::{LicenceError, RestrictedLicence};
use self::load_error::LoadError;
use crate::cascade::parts::{CascadeParts, join_parts};
use crate::cascade::remote_model::RemoteModel;
use crate::checkpoint::Checkpoint;
use crate::config::EngineConfig;
use crate::device::{DeviceChoice, DeviceError};
use crate::model::{Hearing, Model};

/// All supported families.
pub const FAMILIES: &[Family] = &[
    qwen3_omni_moe::FAMILY,
    qwen2_5_omni::FAMILY,
    qwen3_tts::FAMILY,
    cosyvoice3::FAMILY,
    covo_audio::FAMILY,
    dynin_omni::FAMILY,
    fun_audio_chat::FAMILY,
    kokoro::FAMILY,
    lfm2_audio::FAMILY,
    mimo_audio::FAMILY,
    ming::FAMILY,
    text_decoder::FAMILY,
    whisper::FAMILY,
];

/// Licences of families whose weights not everybody may use.
const LICENCES: [RestrictedLicence; 1] = [covo_audio::LICENCE];

/// Checks that the licences of these checkpoints' weights are accepted, and no others.
///
/// # Errors
///
/// A licence is not accepted, or an accepted one is of none of them.
pub fn check_licences<'a>(
    checkpoints: impl IntoIterator<Item = &'a Checkpoint>,
    accepted: &[String],
) -> Result<(), LicenceError> {
    let family = |checkpoint: &Checkpoint| {
        let (family, _) = claimed(FAMILIES, checkpoint).ok()?;
        Some((family.name, checkpoint.drawn().is_some()))
    };
    licence::check(&LICENCES, checkpoints.into_iter().filter_map(family), accepted)
}

/// Loads a checkpoint on the configured device, by the family that claims it.
pub fn load_model(checkpoint: &Checkpoint, config: &EngineConfig) -> Result<Model, LoadError> {
    load_model_sharing(checkpoint, config, None)
}

/// The processor as the settings say, with a pool; the weights that are equal to `shared` ones lie in their memory.
fn processor(config: &EngineConfig, pool: Option<Arc<Pool>>, shared: Option<&SharedWeights>) -> Cpu {
    let cpu = Cpu::default().with_kv(config.kv_cache.into()).on(pool);
    match shared {
        Some(shared) => cpu.sharing(shared.clone()),
        None => cpu,
    }
}

/// Loads a checkpoint as [`load_model`] does, for one of several tick loops if there are `shared` weights.
pub fn load_model_sharing(
    checkpoint: &Checkpoint,
    config: &EngineConfig,
    shared: Option<&SharedWeights>,
) -> Result<Model, LoadError> {
    check_licences([checkpoint], &config.accept_licence)?;
    // The steps of a tick run in parallel on a pool, on any device.
    let pool = worker_pool(config.threads());
    match cuda::open(config.device)? {
        #[cfg(feature = "cuda")]
        Some(device) => {
            let (family, variant) = claimed(FAMILIES, checkpoint)?;
            cuda::check(&device, config, checkpoint.weight_bytes())?;
            validated((family.assemble_cuda)(device, checkpoint, variant, config)?.build(config)?, pool)
        }
        #[cfg(not(feature = "cuda"))]
        Some(device) => match device {},
        None => load_on(processor(config, pool.clone(), shared), pool, checkpoint, config),
    }
}

/// Loads the checkpoints of a cascade as one model on the configured device. `remote` is a language model behind a server,
/// in place of a checkpoint, and the signal for its text; `shared` has the weights of other tick loops.
pub fn load_cascade(
    parts: CascadeParts<&Checkpoint>,
    remote: Option<(RemoteModel, WakeSignal)>,
    config: &EngineConfig,
    shared: Option<&SharedWeights>,
) -> Result<Model, LoadError> {
    check_licences(parts.iter().copied(), &config.accept_licence)?;
    let pool = worker_pool(config.threads());
    #[cfg(feature = "cuda")]
    let bytes = parts.iter().map(|checkpoint| checkpoint.weight_bytes()).sum();
    let parts = parts.try_map(|checkpoint| claimed(FAMILIES, checkpoint).map(|claim| (checkpoint, claim)))?;
    match cuda::open(config.device)? {
        #[cfg(feature = "cuda")]
        Some(device) => {
            cuda::check(&device, config, bytes)?;
            let mut parts = parts.try_map(|(checkpoint, (family, variant))| {
                (family.assemble_cuda)(device.clone(), checkpoint, variant, config)
            })?;
            if let Some((remote, wake)) = remote {
                parts.think = Some(remote.assemble(&device, wake)?);
            }
            validated(join_parts(parts, &config.spoken_text)?.build(config)?, pool)
        }
        #[cfg(not(feature = "cuda"))]
        Some(device) => match device {},
        None => {
            let cpu = processor(config, pool.clone(), shared);
            // Packing weights takes most of the start, and most of it one thread.
            let mut parts =
                parts.map(|part| (part, cpu.clone())).try_map_at_once(|((checkpoint, (family, variant)), cpu)| {
                    (family.assemble_cpu)(cpu, checkpoint, variant, config)
                })?;
            if let Some((remote, wake)) = remote {
                parts.think = Some(remote.assemble(&cpu, wake)?);
            }
            validated(join_parts(parts, &config.spoken_text)?.build(config)?, pool)
        }
    }
}

/// Loads a checkpoint on a CPU device; its stages run on `pool`.
pub fn load_on(
    cpu: Cpu,
    pool: Option<Arc<Pool>>,
    checkpoint: &Checkpoint,
    config: &EngineConfig,
) -> Result<Model, LoadError> {
    check_licences([checkpoint], &config.accept_licence)?;
    let (family, variant) = claimed(FAMILIES, checkpoint)?;
    validated((family.assemble_cpu)(cpu, checkpoint, variant, config)?.build(config)?, pool)
}

/// Sets the model's pool, checks its chain of stages and prepares them, e.g. captures graphs.
fn validated(mut model: Model, pool: Option<Arc<Pool>>) -> Result<Model, LoadError> {
    model.pool = pool;
    model.check()?;
    model.stages.iter_mut().for_each(|stage| stage.prepare());
    if let Some(Hearing::Text(recogniser)) = &mut model.hearing {
        recogniser.prepare();
    }
    Ok(model)
}

/// CUDA, in a binary that is built with it.
#[cfg(feature = "cuda")]
mod cuda {
    use repartee_kernels::cuda::{Cuda, CudaError};

    use super::{DeviceChoice, DeviceError, EngineConfig, LoadError};
    use crate::config::ConfigError;
    use crate::weight_policy::{KvCacheFormat, WeightPolicy};

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

    /// Refuses, before anything is loaded, settings that the device lacks, and weights and sessions that its memory does
    /// not hold. Quantised weights count with their least size. If a weight then finds no memory, its load error names
    /// it.
    pub fn check(device: &Cuda, config: &EngineConfig, weights: u64) -> Result<(), LoadError> {
        if config.kv_cache != KvCacheFormat::default() {
            return Err(ConfigError::new("kv_cache", "bf16", "a CUDA device has f32 alone").into());
        }
        if config.loops > 1 {
            return Err(ConfigError::new("loops", config.loops, "a CUDA device has 1").into());
        }
        // Tenths of a bit per number, scales included.
        let least = match config.weights {
            WeightPolicy::Bf16 => 160,
            WeightPolicy::Int8 => 85,
            WeightPolicy::Int4 | WeightPolicy::Mixed => 45,
        };
        let weights = weights / 160 * least;
        let needed = usize::try_from(weights).unwrap_or(usize::MAX).saturating_add(config.cache_mib << 20);
        device.check_memory(needed).map_err(|error| DeviceError::Cuda { choice: config.device, error }.into())
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

/// Checks that the configured device can be opened.
///
/// # Errors
///
/// This build has no support for the device, or there is none.
pub fn check_device(choice: DeviceChoice) -> Result<(), DeviceError> {
    cuda::open(choice).map(drop)
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
