//! [`Ops`](crate::Ops) on a CUDA device, over `cudarc` and the kernels of `kernels/cuda`.
//!
//! - `device`: the driver, the kernel module, and launches; `kernels`: their names
//! - `memory`: device memory, pools of reused buffers, and page-locked host memory
//! - `tensor`: activations, lists, batches and state
//! - `weight`: layouts of weights; `arrange`: their reordering; `loading`: their upload
//! - `graphs`: capture of steps as graphs, and replay
//! - `ops`, `step`, `conv`, `experts`, `segments`: the operations
//!
//! Activations, keys and values are in single precision. Matrices are bf16 if the checkpoint's are, else f32 or integers. Products are
//! summed in f32, in an order that the weight's shape alone decides, so a row gets the same bits with any neighbouring rows.
//!
//! The driver library is loaded when a device is opened, so one binary runs with and without it. Work goes to the device's own stream, and
//! read-backs wait for it. After a failed launch no result can be trusted: it panics, and so does every later call.

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
mod weight_order;

use std::fmt;
use std::sync::Arc;

use thiserror::Error;

pub use device::DeviceInfo;
use device::{Device, DeviceStream};
use graphs::Graphs;
use loading::{StagingBuffers, WeightLoader};
use memory::{Arena, EventPool, HostPool};
pub use step::LaunchedStep;
pub use tensor::{CudaBatch, CudaIndex, CudaState, Tensor};
pub use weight::Weight;

/// Reason for which a CUDA device cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CudaError {
    /// The driver library is missing.
    #[error("there is no NVIDIA driver on this machine (libcuda.so is not found): install it, or use the device `cpu`")]
    NoDriver,
    /// There is no device with this ordinal.
    #[error("there is no device cuda:{ordinal}; this machine has {count}: choose another, or use the device `cpu`")]
    NoDevice {
        /// Ordinal that was asked for.
        ordinal: usize,
        /// Number of devices.
        count: usize,
    },
    /// The device's compute capability is too low for the kernels.
    #[error("{name} has compute capability {major}.{minor}, and 8.0 is needed: use the device `cpu`")]
    TooOld {
        /// Name of the device.
        name: String,
        /// Major compute capability.
        major: i32,
        /// Minor compute capability.
        minor: i32,
    },
    /// The device has too little free memory; sizes in MiB.
    #[error(
        "{name} has {free} MiB free, and {needed} MiB are needed: use a smaller model or context, or the device `cpu`"
    )]
    Memory {
        /// Name of the device.
        name: String,
        /// MiB that are needed.
        needed: usize,
        /// MiB that are free.
        free: usize,
    },
    /// A driver call failed.
    #[error("the CUDA driver fails at {doing}: {error}")]
    Driver {
        /// Description of the call.
        doing: &'static str,
        /// Error text of the driver.
        error: String,
    },
}

/// A CUDA device.
///
/// Clones share their buffers and their stream. A stage that runs concurrently has a device of its own
/// ([`Ops::with_own_buffers`](crate::Ops::with_own_buffers)) with a stream of its own; explicit waits order its work with that of others.
#[derive(Clone)]
pub struct Cuda {
    queue: Arc<DeviceStream>,
    arena: Arena,
    host: HostPool,
    events: EventPool,
    stager: StagingBuffers,
    /// Captured graphs; `None` if every step is launched eagerly.
    graphs: Option<Graphs>,
}

impl Cuda {
    /// Opens the device with this ordinal.
    pub fn open(ordinal: usize) -> Result<Self, CudaError> {
        Self::on(Device::open(ordinal)?, StagingBuffers::default())
    }

    fn on(device: Arc<Device>, stager: StagingBuffers) -> Result<Self, CudaError> {
        let queue = Arc::new(DeviceStream::new(device)?);
        let (arena, host, events) = (Arena::new(queue.clone()), HostPool::default(), EventPool::default());
        Ok(Self { arena, host, events, stager, graphs: None, queue })
    }

    /// Captures each step as a graph at its first launch, and replays it from then on.
    #[must_use]
    pub fn with_graphs(self) -> Self {
        Self { graphs: Some(Graphs::new(Arena::new(self.queue.clone()))), ..self }
    }

    fn loader(&self) -> WeightLoader<'_> {
        WeightLoader { queue: &self.queue, stager: &self.stager }
    }

    /// Returns the device's name and memory.
    pub fn info(&self) -> Result<DeviceInfo, CudaError> {
        self.queue.device().info()
    }

    /// Fails with [`CudaError::Memory`] if fewer than `bytes` bytes are free.
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
