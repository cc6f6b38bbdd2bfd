//! Device memory, buffers that are handed out again, and page-locked host memory.
//!
//! An arena belongs to one stream. A buffer that goes back may be handed out while kernels still use it: whoever gets it uses it behind
//! them, on the same stream.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::{CudaEvent, DriverError, result, sys};

use super::device::{Device, Number, DeviceStream, check};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory on the device.
pub struct DeviceMemory {
    pub(super) at: u64,
    device: Arc<Device>,
}

impl DeviceMemory {
    /// So many bytes, at least one.
    pub(super) fn new(device: &Arc<Device>, bytes: usize) -> Self {
        device.bind();
        // SAFETY: nothing reads it before it is written: tensors and lists are written by what makes them, state is cleared.
        let at = check(unsafe { result::malloc_sync(bytes.max(1)) }, "an allocation");
        Self { at, device: device.clone() }
    }

    /// The same where the device may have no more; then the bytes that are free.
    pub(super) fn try_new(device: &Arc<Device>, bytes: usize) -> Result<Self, usize> {
        device.bind();
        // SAFETY: as for `new`.
        match unsafe { result::malloc_sync(bytes.max(1)) } {
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => Err(device.info().map_or(0, |info| info.free)),
            at => Ok(Self { at: check(at, "an allocation"), device: device.clone() }),
        }
    }

    /// These numbers.
    pub(super) fn of<N: Number>(queue: &DeviceStream, numbers: &[N]) -> Self {
        let memory = Self::new(queue.device(), size_of_val(numbers));
        queue.write(memory.at, numbers);
        memory
    }

    /// Zeros.
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
        // An error has nobody to go to: what failed before is reported where it is waited for.
        if self.device.is_bound() {
            // SAFETY: it came from `malloc_sync`, and its last handle goes; freeing waits for kernels that still use it.
            let _ = unsafe { result::free_sync(self.at) };
        }
    }
}

/// Gives buffers out and takes them back as they are dropped; clones share them.
///
/// The free buffer with the lowest number is taken, whatever was given back last: from an empty step on, the same operations get the same
/// buffers. What it keeps is bounded by the largest step so far.
#[derive(Clone)]
pub struct Arena {
    queue: Arc<DeviceStream>,
    /// By capacity in words.
    shelves: Arc<Mutex<BTreeMap<usize, SizeClass>>>,
}

/// The buffers of one capacity, by their numbers; `None` while one is in use.
type SizeClass = Vec<Option<DeviceMemory>>;

/// Words on the device: floats or numbers of rows.
pub struct Buffer {
    /// `None` only while it is dropped.
    memory: Option<DeviceMemory>,
    /// Capacity and number.
    place: (usize, usize),
    home: Arena,
}

impl Arena {
    pub(super) fn new(queue: Arc<DeviceStream>) -> Self {
        Self { queue, shelves: Arc::default() }
    }

    /// Buffers that have not come back.
    pub(super) fn in_use(&self) -> usize {
        lock(&self.shelves).values().flatten().filter(|place| place.is_none()).count()
    }

    /// `len` words of which nothing is known.
    pub(super) fn words(&self, len: usize) -> Buffer {
        const LEAST: usize = 16;
        // Eight steps to a power of two, so that little is left empty.
        let capacity = len.max(LEAST).next_multiple_of((len.next_power_of_two() / 8).max(1));
        let mut shelves = lock(&self.shelves);
        let shelf = shelves.entry(capacity).or_default();
        let free = shelf.iter_mut().enumerate().find_map(|(number, place)| Some((number, place.take()?)));
        let (number, memory) = free.unwrap_or_else(|| {
            // Before it has a place: where it fails nothing is left behind.
            let memory = DeviceMemory::new(self.queue.device(), capacity * size_of::<u32>());
            shelf.push(None);
            (shelf.len() - 1, memory)
        });
        Buffer { memory: Some(memory), place: (capacity, number), home: self.clone() }
    }
}

impl Buffer {
    /// Its address on the device.
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

/// Page-locked host memory, which copies reach while the host goes on.
pub struct PinnedBuffer {
    at: *mut u32,
    len: usize,
    device: Arc<Device>,
}

// SAFETY: it is memory like any other, and has one owner.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    /// So many zeros.
    pub(super) fn new(device: &Arc<Device>, len: usize) -> Self {
        device.bind();
        // SAFETY: what it gives is used as words, to which a page is aligned.
        let at = unsafe { result::malloc_host(len.max(1) * size_of::<u32>(), 0) };
        let at: *mut u32 = check(at, "page-locked memory").cast();
        // SAFETY: the allocation has room for as many.
        unsafe { at.write_bytes(0, len.max(1)) };
        Self { at, len, device: device.clone() }
    }

    pub(super) fn words(&self) -> &[u32] {
        // SAFETY: `new` made as many words; `&mut self` is needed to write them.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    pub(super) fn words_mut(&mut self) -> &mut [u32] {
        // SAFETY: as for `words`.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl PinnedBuffer {
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: as for `words`; any bits are bytes.
        unsafe { std::slice::from_raw_parts(self.at.cast(), self.len * size_of::<u32>()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as for `bytes`; `&mut self` is needed to write them.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.len * size_of::<u32>()) }
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // An error has nobody to go to.
        if self.device.is_bound() {
            // SAFETY: it came from `malloc_host`; whoever held it has waited for its copies.
            let _ = unsafe { result::free_host(self.at.cast::<c_void>()) };
        }
    }
}

/// Page-locked memory that steps use one after the other; clones share it.
#[derive(Clone, Default)]
pub struct HostPool(Arc<Mutex<Vec<PinnedBuffer>>>);

impl HostPool {
    /// One with room for so many words.
    pub(super) fn take(&self, device: &Arc<Device>, len: usize) -> PinnedBuffer {
        let mut free = lock(&self.0);
        let fits = free.iter().enumerate().filter(|(_, one)| one.len >= len).min_by_key(|(_, one)| one.len);
        if let Some(at) = fits.map(|(at, _)| at) {
            return free.swap_remove(at);
        }
        drop(free);
        PinnedBuffer::new(device, len.next_power_of_two())
    }

    /// Takes one back.
    pub(super) fn give(&self, one: PinnedBuffer) {
        lock(&self.0).push(one);
    }
}

/// Events that steps use one after the other; clones share them.
#[derive(Clone, Default)]
pub struct EventPool(Arc<Mutex<Vec<CudaEvent>>>);

impl EventPool {
    /// One that nobody waits for.
    pub(super) fn take(&self, device: &Device) -> CudaEvent {
        let free = lock(&self.0).pop();
        free.unwrap_or_else(|| device.event())
    }

    /// Takes one back.
    pub(super) fn give(&self, one: CudaEvent) {
        lock(&self.0).push(one);
    }
}
