//! Pools of reused device buffers, page-locked memory and events.
//!
//! An arena belongs to one stream. It may reuse a returned buffer while kernels still use it, because the next user's work comes later on
//! the same stream.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cudarc::driver::CudaEvent;

use super::driver::Device;
use super::memory::{DeviceMemory, PinnedBuffer};
use super::stream::DeviceStream;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
