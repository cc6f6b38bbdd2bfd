//! [`Ops`](crate::Ops) on a CUDA device, over `cudarc` and the kernels of `kernels/cuda`.
//!
//! - `device`: the driver, the module of kernels, and launches; `kernels`: their names
//! - `memory`: device memory, buffers that are handed out again, and page-locked host memory
//! - `tensor`: activations, lists, batches and state
//! - `weight`: how weights lie; `arrange`: their numbers in that order; `loading`: how they get there
//! - `graphs`: steps that are captured and replayed
//! - `ops`, `step`, `conv`, `experts`, `segments`: the operations
//!
//! Activations, keys and values are in single precision. Matrices are bf16 where the checkpoint has them so, f32 or integers otherwise; products
//! are summed in f32, in an order that the weight's shape alone decides, so that a row's result is the same bits with any rows beside it.
//!
//! The driver's library is looked for when a device is opened, so that one binary runs with and without it. Work goes to a stream of the
//! device's own and is waited for where numbers are read back. A launch that fails leaves nothing that could be trusted: it panics,
//! and so does everything after it.

mod weight_order;
mod conv;
mod device;
mod experts;
mod graphs;
mod kernels;
mod loading;
mod memory;
mod ops;
mod segments;
mod step;
mod tensor;
mod weight;

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

pub use device::DeviceInfo;
use device::{Device, DeviceStream};
use graphs::Graphs;
use loading::{WeightLoader, StagingBuffers};
use memory::{Arena, EventPool, HostPool};
pub use step::LaunchedStep;
pub use tensor::{CudaBatch, CudaIndex, CudaState, Tensor};
pub use weight::Weight;

/// Why a CUDA device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CudaError {
    /// No driver library.
    #[error("there is no NVIDIA driver on this machine (libcuda.so is not found): install it, or use the device `cpu`")]
    NoDriver,
    /// No such device.
    #[error("there is no device cuda:{ordinal}; this machine has {count}: choose another, or use the device `cpu`")]
    NoDevice {
        /// What was asked for.
        ordinal: usize,
        /// How many there are.
        count: usize,
    },
    /// The device is older than the kernels.
    #[error("{name} has compute capability {major}.{minor}, and 8.0 is needed: use the device `cpu`")]
    TooOld {
        /// The device's name.
        name: String,
        /// Its compute capability.
        major: i32,
        /// Its compute capability.
        minor: i32,
    },
    /// The device's memory is too small for what is asked of it. MiB.
    #[error(
        "{name} has {free} MiB free, and {needed} MiB are needed: use a smaller model or context, or the device `cpu`"
    )]
    Memory {
        /// The device's name.
        name: String,
        /// What is needed.
        needed: usize,
        /// What is free.
        free: usize,
    },
    /// The driver refuses something.
    #[error("the CUDA driver fails at {doing}: {error}")]
    Driver {
        /// What was asked of it.
        doing: &'static str,
        /// Its answer.
        error: String,
    },
}

/// A CUDA device.
///
/// Clones share their buffers and their stream. A stage that runs beside others has a device of its own
/// ([`Ops::with_own_buffers`](crate::Ops::with_own_buffers)): its work is ordered among itself, and with that of others by what is waited for.
#[derive(Clone)]
pub struct Cuda {
    queue: Arc<DeviceStream>,
    arena: Arena,
    host: HostPool,
    events: EventPool,
    stager: StagingBuffers,
    /// `None` if every step is put on the stream operation by operation.
    graphs: Option<Graphs>,
}

impl Cuda {
    /// Opens the device with this number.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        Self::on(Device::open(ordinal)?, StagingBuffers::default())
    }

    fn on(device: Arc<Device>, stager: StagingBuffers) -> Result<Self, CudaError> {
        let queue = Arc::new(DeviceStream::new(device)?);
        let (arena, host, events) = (Arena::new(queue.clone()), HostPool::default(), EventPool::default());
        Ok(Self { arena, host, events, stager, graphs: None, queue })
    }

    /// The same device, whose steps are captured as graphs when they are launched first, and replayed from then on.
    #[must_use]
    pub fn with_graphs(self) -> Self {
        Self { graphs: Some(Graphs::new(Arena::new(self.queue.clone()))), ..self }
    }

    fn loader(&self) -> WeightLoader<'_> {
        WeightLoader { queue: &self.queue, stager: &self.stager }
    }

    /// The device's name and memory.
    pub fn info(&self) -> Result<DeviceInfo, CudaError> {
        self.queue.device().info()
    }

    /// Refuses to go on where fewer bytes than these are free.
    pub fn check_memory(&self, bytes: usize) -> Result<(), CudaError> {
        let DeviceInfo { name, free, .. } = self.info()?;
        let mib = |bytes: usize| bytes.div_ceil(1 << 20);
        if free >= bytes { Ok(()) } else { Err(CudaError::Memory { name, needed: mib(bytes), free: mib(free) }) }
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Cuda")
    }
}
