//! Upload of weights to the device.
//!
//! Two page-locked staging buffers alternate on a stream of their own: one is copied while the other is filled from the memory-mapped file.
//! So disk and bus work in parallel, and the host never holds a whole matrix.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::CudaEvent;

use super::driver::{Device, Number, word};
use super::launch::{TILE_THREADS, bits};
use super::memory::{DeviceMemory, PinnedBuffer};
use super::stream::DeviceStream;
use crate::part::RandomDraw;
use crate::weight::KernelError;

/// Least number of copies of a matrix, so that filling and copying overlap; then the bounds of a copy's bytes.
const PARTS: usize = 8;
const LEAST: usize = 64 << 10;
const MOST: usize = 8 << 20;

/// Staging buffers, allocated with the first matrix. Clones share them.
#[derive(Clone, Default)]
pub struct StagingBuffers(Arc<Mutex<Option<Buffers>>>);

struct Buffers {
    queue: DeviceStream,
    halves: [Half; 2],
}

struct Half {
    pinned: Option<PinnedBuffer>,
    /// Event behind its last copy.
    copied: CudaEvent,
}

impl Buffers {
    fn new(device: &Arc<Device>) -> Self {
        let queue = DeviceStream::new(device.clone()).unwrap_or_else(|error| panic!("{error}"));
        let half = || Half { pinned: None, copied: device.event() };
        Self { halves: [half(), half()], queue }
    }

    /// Fills and copies rows; see [`WeightLoader::rows`].
    fn rows(&mut self, to: u64, count: usize, row_bytes: usize, mut fill: impl FnMut(Range<usize>, &mut [u8])) {
        let part = (count * row_bytes / PARTS).clamp(LEAST, MOST);
        let each = (part / row_bytes.max(1)).max(1);
        for (turn, first) in (0..count).step_by(each).enumerate() {
            let rows = first..count.min(first + each);
            let bytes = rows.len() * row_bytes;
            let Half { pinned, copied } = &mut self.halves[turn % 2];
            // Its last copy may still be running.
            self.queue.device().wait(copied);
            let fits = pinned.take().filter(|pinned| pinned.bytes().len() >= bytes);
            let pinned =
                pinned.insert(fits.unwrap_or_else(|| PinnedBuffer::new(self.queue.device(), bytes.div_ceil(4))));
            fill(rows, &mut pinned.bytes_mut()[..bytes]);
            self.queue.upload_bytes(to + (first * row_bytes) as u64, pinned, bytes);
            self.queue.record(copied);
        }
        // Other streams use the matrix next.
        self.queue.synchronize();
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // A fill that panicked has left a copy in progress.
        self.queue.synchronize_ignoring_errors();
    }
}

/// Allocates and fills the memory of weights.
pub struct WeightLoader<'a> {
    pub(super) queue: &'a DeviceStream,
    pub(super) stager: &'a StagingBuffers,
}

impl WeightLoader<'_> {
    /// Allocates uninitialised memory for the weight `name`. Fails if the device has too little.
    pub(super) fn memory(&self, name: &str, bytes: usize) -> Result<DeviceMemory, KernelError> {
        DeviceMemory::try_new(self.queue.device(), bytes).map_err(|free| {
            let mib = |bytes: usize| bytes.div_ceil(1 << 20);
            KernelError::Memory { name: name.to_owned(), needed: mib(bytes), free: mib(free) }
        })
    }

    /// Allocates memory and copies `numbers` to it.
    pub(super) fn numbers<N: Number>(&self, name: &str, numbers: &[N]) -> Result<DeviceMemory, KernelError> {
        let memory = self.memory(name, size_of_val(numbers))?;
        self.write(memory.at, numbers);
        Ok(memory)
    }

    /// Copies numbers to device memory that has room for them.
    pub(super) fn write<N: Number>(&self, to: u64, numbers: &[N]) {
        self.queue.write(to, numbers);
    }

    /// Uploads `count` rows of `row_bytes` bytes, in parts that `fill` writes, and waits.
    pub(super) fn rows(&self, to: u64, count: usize, row_bytes: usize, fill: impl FnMut(Range<usize>, &mut [u8])) {
        // The buffers stay usable after a fill that panicked.
        let mut buffers = self.stager.0.lock().unwrap_or_else(PoisonError::into_inner);
        buffers.get_or_insert_with(|| Buffers::new(self.queue.device())).rows(to, count, row_bytes, fill);
    }

    /// Draws `rows` rows of `columns` numbers as bf16, `pitch` apart and padded with zeros.
    pub(super) fn draw(&self, to: u64, rows: usize, draw: RandomDraw, (columns, pitch): (usize, usize)) {
        let args = &mut [to, draw.seed, bits(draw.mean), bits(draw.spread), word(columns).into(), word(pitch).into()];
        self.queue.launch(&self.queue.kernels().draw_bf16, (rows, 1), TILE_THREADS, 0, args);
    }

    /// Draws `count` times 64 random bits.
    pub(super) fn draw_integers(&self, to: u64, count: usize, seed: u64) {
        let args = &mut [to, seed, count as u64];
        self.queue.launch(
            &self.queue.kernels().draw_integers,
            (count.div_ceil(TILE_THREADS), 1),
            TILE_THREADS,
            0,
            args,
        );
    }

    /// Waits for the draws: other streams use them next.
    pub(super) fn settle(&self) {
        self.queue.synchronize();
    }
}
