//! Device memory, and page-locked host memory.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{DriverError, result, sys};

use super::driver::{Device, check};

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

/// Page-locked host memory, for asynchronous copies.
pub struct PinnedBuffer {
    at: *mut u32,
    pub(super) len: usize,
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
