//! Memory, copies, and device attributes.

use std::ffi::{c_int, c_uchar, c_uint, c_void};

use super::calls::{Status, thread, with, write_out};
use crate::driver::{DEFAULT_STREAM, HostRange, SHARED, SHARED_OPT_IN, StreamWork, THREADS, UploadSource};

/// Value of a `CUdevice_attribute`, as on an H200 if a program may depend on it.
pub fn attribute(number: c_int) -> Option<c_int> {
    Some(match number {
        1 => THREADS as c_int,
        2 | 3 => 1024,
        4 => 64,
        5 => c_int::MAX,
        6 | 7 => 65_535,
        8 => SHARED as c_int,
        9 => 64 * 1024,
        10 => 32,
        12 => 65_536,
        // Multiprocessors.
        16 => 132,
        // Unified addresses, memory pools.
        41 | 115 => 1,
        // Compute capability.
        75 => 9,
        76 => 0,
        81 => 228 * 1024,
        97 => SHARED_OPT_IN as c_int,
        _ => return None,
    })
}

/// A range of host memory from C.
fn host(address: *const c_void, length: usize) -> HostRange {
    // SAFETY: the border's invariant: CUDA requires the same of the caller.
    unsafe { HostRange::new(address.expose_provenance(), length) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceTotalMem_v2(bytes: *mut usize, _device: c_int) -> Status {
    // SAFETY: the border's invariant.
    with(|driver| unsafe { write_out(bytes, driver.memory_info().1) })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Status {
    with(|driver| {
        let (left, all) = driver.memory_info();
        // SAFETY: the border's invariant.
        unsafe { write_out(free, left).and_then(|()| write_out(total, all)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(to: *mut u64, size: usize) -> Status {
    with(|driver| {
        let address = driver.alloc(size, thread())?;
        // SAFETY: the border's invariant.
        unsafe { write_out(to, address) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAllocAsync(to: *mut u64, size: usize, stream: u64) -> Status {
    with(|driver| {
        let address = driver.alloc_async(size, stream)?;
        // SAFETY: the border's invariant.
        unsafe { write_out(to, address) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> Status {
    with(|driver| driver.free(address, thread()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: u64, stream: u64) -> Status {
    with(|driver| driver.free_async(address, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(to: *mut *mut c_void, size: usize, _flags: c_uint) -> Status {
    with(|driver| {
        let address = driver.alloc_pinned(size);
        // SAFETY: the border's invariant.
        unsafe { write_out(to, std::ptr::with_exposed_provenance_mut(address)) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: *mut c_void) -> Status {
    with(|driver| driver.free_pinned(address.addr()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, length: usize) -> Status {
    let from = host(from, length);
    with(|driver| driver.run_synchronously(StreamWork::Upload { to, from: UploadSource::Bytes(from.read()) }, thread()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: *const c_void, length: usize, stream: u64) -> Status {
    with(|driver| driver.upload(to, host(from, length), stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, length: usize) -> Status {
    with(|driver| {
        driver.run_synchronously(StreamWork::Download { to: host(to, length), from, pinned: false }, thread())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: u64, length: usize, stream: u64) -> Status {
    with(|driver| driver.download(host(to, length), from, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, length: usize) -> Status {
    with(|driver| driver.run_synchronously(StreamWork::Copy { to, from, length }, thread()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, length: usize, stream: u64) -> Status {
    with(|driver| driver.submit(stream, StreamWork::Copy { to, from, length }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8_v2(to: u64, value: c_uchar, length: usize) -> Status {
    with(|driver| driver.submit(DEFAULT_STREAM, StreamWork::Fill { to, value, length }))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: c_uchar, length: usize, stream: u64) -> Status {
    with(|driver| driver.submit(stream, StreamWork::Fill { to, value, length }))
}
