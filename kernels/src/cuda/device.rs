//! The CUDA device: its stream, buffers and graphs, and what operations share.

use std::fmt;
use std::sync::Arc;

use cudarc::driver::CudaFunction;

use super::arena::{Arena, Buffer, EventPool, HostPool};
use super::driver::{Device, DeviceInfo, word};
use super::error::CudaError;
use super::graphs::Graphs;
use super::launch::{TILE_THREADS, WARP, WARPS, WIDE, WIDE_THREADS};
use super::loading::{StagingBuffers, WeightLoader};
use super::matrix::{Matrix, MatrixKind};
use super::stream::DeviceStream;
use super::tensor::{CudaIndex, Tensor};
use crate::cpu::quantised::IntegerFormat;
use crate::ops::Ops;

/// A CUDA device.
///
/// Clones share their buffers and their stream. A stage that runs concurrently has a device of its own
/// ([`Ops::with_own_buffers`]) with a stream of its own; explicit waits order its work with that of others.
#[derive(Clone)]
pub struct Cuda {
    pub(super) queue: Arc<DeviceStream>,
    pub(super) arena: Arena,
    pub(super) host: HostPool,
    pub(super) events: EventPool,
    pub(super) stager: StagingBuffers,
    /// Captured graphs; `None` if every step is launched eagerly.
    pub(super) graphs: Option<Graphs>,
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

    pub(super) fn loader(&self) -> WeightLoader<'_> {
        WeightLoader { queue: &self.queue, stager: &self.stager }
    }

    /// Returns the same device with a stream and buffers of its own.
    pub(super) fn with_own_stream(&self) -> Self {
        // The driver made a stream of this device before, so a failure now means that the machine has too little memory.
        let own = Self::on(Arc::clone(self.queue.device()), self.stager.clone());
        let own = own.unwrap_or_else(|error| panic!("{error}"));
        if self.graphs.is_some() { own.with_graphs() } else { own }
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

impl Cuda {
    /// Returns an uninitialised tensor.
    pub(super) fn uninit_tensor(&self, rows: usize, columns: usize) -> Tensor {
        Tensor::new(self.arena.words(rows * columns), rows, columns)
    }

    /// Returns uninitialised words.
    pub(super) fn uninit_words(&self, len: usize) -> Buffer {
        self.arena.words(len)
    }

    /// Launches a kernel with a thread for each of `count` numbers; `count` is its last parameter.
    pub(super) fn each(&self, kernel: &CudaFunction, count: usize, args: &[u64]) {
        let mut all = [0; 8];
        all[..args.len()].copy_from_slice(args);
        all[args.len()] = u64::from(word(count));
        self.queue.launch(kernel, (count.div_ceil(TILE_THREADS), 1), TILE_THREADS, 0, &mut all[..=args.len()]);
    }

    /// Launches a norm: the kernel with a warp for each group, or the one with a block for each wide one. `groups` is their number and the
    /// numbers of each, which alone decide.
    pub(super) fn norm_groups(
        &self,
        kernels: (&CudaFunction, &CudaFunction),
        groups: (usize, usize),
        args: &mut [u64],
    ) {
        if groups.1 >= WIDE {
            self.queue.launch(kernels.1, (groups.0, 1), WIDE_THREADS, 0, args);
        } else {
            self.queue.launch(kernels.0, (groups.0.div_ceil(WARPS), 1), WARPS * WARP, 0, args);
        }
    }

    /// Launches a kernel that computes one number of each pair in the two halves of the columns.
    pub(super) fn halves(&self, kernel: &CudaFunction, x: &Tensor) -> Tensor {
        let out = self.uninit_tensor(x.rows, x.columns / 2);
        self.each(kernel, out.len(), &[x.at(), out.at(), out.columns as u64]);
        out
    }

    /// Gathers rows of a table or of state by index.
    pub(super) fn gathered(&self, from: u64, is_bf16: bool, columns: usize, at: &CudaIndex) -> Tensor {
        let kernels = self.queue.kernels();
        let kernel = if is_bf16 { &kernels.gather_rows_bf16 } else { &kernels.gather_rows_f32 };
        let out = self.uninit_tensor(at.len, columns);
        self.each(kernel, out.len(), &[from, at.at(), out.at(), columns as u64]);
        out
    }

    /// Looks up entries of a table of any format.
    pub(super) fn entries(&self, table: &Matrix, ids: &CudaIndex) -> Tensor {
        let kernels = self.queue.kernels();
        let (kernel, scales) = match &table.kind {
            MatrixKind::F32 | MatrixKind::Bf16 => {
                // A matrix has padded rows, a table has not.
                let rows = self.gathered(table.memory.at, table.kind.is_bf16(), table.pitch, ids);
                return if table.pitch == table.columns { rows } else { self.narrow(&rows, 0, table.columns) };
            }
            MatrixKind::Integers(IntegerFormat::Eight, scales) => (&kernels.gather_rows_i8, scales),
            MatrixKind::Integers(IntegerFormat::Four, scales) => (&kernels.gather_rows_i4, scales),
        };
        let out = self.uninit_tensor(ids.len, table.columns);
        let sizes = [table.columns as u64, table.pitch as u64, scales.scaling.into()];
        let args = [table.memory.at, scales.memory.at, ids.at(), out.at(), sizes[0], sizes[1], sizes[2]];
        self.each(kernel, out.len(), &args);
        out
    }
}
