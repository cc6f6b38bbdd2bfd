//! Device memory, pools of reused buffers, and page-locked host memory.
//!
//! An arena belongs to one stream. It may reuse a returned buffer while kernels still use it, because the next user's work comes later on
//! the same stream.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, DriverError, result, sys};

use super::device::{Device, DeviceStream, Number, check};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An allocation of device memory, freed on drop.
pub struct DeviceMemory {
    pub(super) at: u64,
    device: Arc<Device>,
}

impl DeviceMemory {
    /// Allocates uninitialised memory, at least one byte.
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Self {
        device.bind();
        // SAFETY: nothing reads it before a write: operations write their tensors and lists, and state is cleared.
        let at = check(unsafe { result::malloc_sync(bytes.max(1)) }, "an allocation");
        Self { at, device: device.clone() }
    }

    /// Allocates like [`DeviceMemory::new`]; on failure returns the free bytes.
    pub(super) fn try_new(device: &Arc<Device>, bytes: usize) -> Result<Self, usize> {
        device.bind();
        // SAFETY: as for `new`.
        match unsafe { result::malloc_sync(bytes.max(1)) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(device.info().map_or(0, |info| info.free)),
            at => Ok(Self { at: check(at, "an allocation"), device: device.clone() }),
        }
    }

    /// Allocates memory and copies `numbers` to it.
    pub(super) fn of<N: Number>(queue: &DeviceStream, numbers: &[N]) -> Self {
        let memory = Self::new(queue.device(), size_of_val(numbers));
        queue.write(memory.at, numbers);
        memory
    }

    /// Allocates zeroed memory.
    pub(super) fn zeros(queue: &DeviceStream, bytes: usize) -> Self {
        let memory = Self::new(queue.device(), bytes);
        queue.clear(memory.at, bytes);
        // Another stream may use it next.
        queue.synchronize();
        memory
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        // Errors are ignored here: the next wait reports an earlier failure.
        if self.device.is_bound() {
            // SAFETY: it came from `malloc_sync`, and this is its last handle; freeing waits for kernels that still use it.
            let _ = unsafe { result::free_sync(self.at) };
        }
    }
}

/// Pool of device buffers; a buffer returns when it is dropped. Clones share them.
///
/// The free buffer with the lowest number is taken, in whatever order buffers returned: from an empty step on, the same operations get the
/// same buffers. The largest step so far bounds the memory.
#[derive(Clone)]
pub struct Arena {
    queue: Arc<DeviceStream>,
    /// Shelves by capacity in words.
    shelves: Arc<Mutex<BTreeMap<usize, SizeClass>>>,
}

/// Buffers of one capacity, by number; `None` while one is in use.
type SizeClass = Vec<Option<DeviceMemory>>;

/// Words on the device: floats or row indices.
pub struct Buffer {
    /// Always present until it is dropped.
    memory: Option<DeviceMemory>,
    /// Capacity and number.
    place: (usize, usize),
    home: Arena,
}

impl Arena {
    pub(super) fn new(queue: Arc<DeviceStream>) -> Self {
        Self { queue, shelves: Arc::default() }
    }

    /// Number of buffers in use.
    pub(super) fn in_use(&self) -> usize {
        lock(&self.shelves).values().flatten().filter(|place| place.is_none()).count()
    }

    /// Returns `len` uninitialised words.
    pub(super) fn words(&self, len: usize) -> Buffer {
        const LEAST: usize = 16;
        // Eight steps to a power of two, so that little is unused.
        let capacity = len.max(LEAST).next_multiple_of((len.next_power_of_two() / 8).max(1));
        let mut shelves = lock(&self.shelves);
        let shelf = shelves.entry(capacity).or_default();
        let free = shelf.iter_mut().enumerate().find_map(|(number, place)| Some((number, place.take()?)));
        let (number, memory) = free.unwrap_or_else(|| {
            // Allocated before the shelf changes: a failure leaves nothing behind.
            let memory = DeviceMemory::new(self.queue.device(), capacity * size_of::<u32>());
            shelf.push(None);
            (shelf.len() - 1, memory)
        });
        Buffer { memory: Some(memory), place: (capacity, number), home: self.clone() }
    }
}

impl Buffer {
    /// Address on the device.
    pub(super) fn at(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.at)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let (capacity, number) = self.place;
        if let Some(place) = lock(&self.home.shelves).get_mut(&capacity).and_then(|shelf| shelf.get_mut(number)) {
            *place = self.memory.take();
        }
    }
}

/// Page-locked host memory, for asynchronous copies.
pub struct PinnedBuffer {
    at: *mut u32,
    len: usize,
    device: Arc<Device>,
}

// SAFETY: it is plain memory with one owner.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// Allocates `len` zeroed words.
    pub(super) fn new(device: &Arc<Device>, len: usize) -> Self {
        device.bind();
        // SAFETY: the allocation is used as words, and a page is aligned for them.
        let at = unsafe { result::malloc_host(len.max(1) * size_of::<u32>(), 0) };
        let at: *mut u32 = check(at, "page-locked memory").cast();
        // SAFETY: the allocation has room for this many.
        unsafe { at.write_bytes(0, len.max(1)) };
        Self { at, len, device: device.clone() }
    }

    pub(super) fn words(&self) -> &[u32] {
        // SAFETY: `new` allocated this many words; writing needs `&mut self`.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    pub(super) fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as for `words`.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl PinnedBuffer {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: as for `words`; bytes may have any bits.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.len * size_of::<u32>()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; writing needs `&mut self`.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.len * size_of::<u32>()) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // Errors are ignored: a drop cannot report them.
        if self.device.is_bound() {
            // SAFETY: it came from `malloc_host`, and its owner has waited for its copies.
            let _ = unsafe { result::free_host(self.at.cast::<c_void>()) };
        }
    }
}

/// Pool of page-locked memory for steps; clones share it.
#[derive(Clone, Default)]
pub struct HostPool(Arc<Mutex<Vec<PinnedBuffer>>>);

impl HostPool {
    /// Takes memory with room for `len` words.
    pub(super) fn take(&self, device: &Arc<Device>, len: usize) -> PinnedBuffer {
        let mut free = lock(&self.0);
        let fits = free.iter().enumerate().filter(|(_, one)| one.len >= len).min_by_key(|(_, one)| one.len);
        if let Some(at) = fits.map(|(at, _)| at) {
            return free.swap_remove(at);
        }
        drop(free);
        PinnedBuffer::new(device, len.next_power_of_two())
    }

    /// Returns memory to the pool.
    pub(super) fn give(&self, one: PinnedBuffer) {
        lock(&self.0).push(one);
    }
}

/// Pool of events for steps; clones share it.
#[derive(Clone, Default)]
pub struct EventPool(Arc<Mutex<Vec<CudaEvent>>>);

impl EventPool {
    /// Takes an unused event, or creates one.
    pub(super) fn take(&self, device: &Device) -> CudaEvent {
        let free = lock(&self.0).pop();
        free.unwrap_or_else(|| device.event())
    }

    /// Returns an event to the pool.
    pub(super) fn give(&self, one: CudaEvent) {
        lock(&self.0).push(one);
    }
}
