//! C API: the functions of `libcuda.so`. All `unsafe` code of the crate is here.
//!
//! Every pointer comes from a program that calls a C function of CUDA's driver, and satisfies CUDA's documentation of that function. This
//! is the invariant of every block below; blocks that need more state it.
//!
//! `memory`, `streams` and `modules` hold the implemented functions, `unsupported` those that return "not supported".

mod memory;
mod modules;
mod streams;
mod unsupported;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{CuResult, Driver, Failure, HostRange, names};

/// Result code, a `CUresult`.
type Status = u32;

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);
/// Text of the last call that failed.
static LAST_FAULT: Mutex<Option<CString>> = Mutex::new(None);
/// Handle of the only context.
const CONTEXT: usize = 0x51;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Id of this thread, by which captures tell threads apart.
fn thread() -> u64 {
    // Each thread has its own cell.
    CURRENT.with(|cell| std::ptr::from_ref(cell).addr() as u64)
}

/// Calls the driver, and stores the text of a failure.
fn with(call: impl FnOnce(&mut Driver) -> Result<(), Failure>) -> Status {
    let result = call(lock(&DRIVER).get_or_insert_default());
    let Err(failure) = result else { return 0 };
    // "Not ready" is an answer, not a failure.
    if failure.code != CuResult::NotReady as u32 {
        eprintln!("simcuda: {failure}");
        *lock(&LAST_FAULT) = CString::new(failure.to_string()).ok();
    }
    failure.code
}

/// Writes a result to an out-parameter.
///
/// # Safety
/// `to` is valid for a write, or null.
unsafe fn write_out<T>(to: *mut T, value: T) -> Result<(), Failure> {
    if to.is_null() {
        return Err(Failure::new(CuResult::InvalidValue, "a null pointer where the result belongs"));
    }
    // SAFETY: the caller guarantees it.
    unsafe { to.write(value) };
    Ok(())
}

/// Reads a C string.
///
/// # Safety
/// `text` is a string that ends with NUL, or null.
///
/// # Safety
/// `text` is a string that ends with NUL, or null.
unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::new(CuResult::InvalidValue, "a null pointer where a string belongs"));
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::new(CuResult::InvalidValue, "a string that is not UTF-8"))
}

/// Reads a range of host memory.
pub fn read(range: HostRange) -> Vec<u8> {
    // A pointer of an empty range may be null.
    if range.length() == 0 {
        return Vec::new();
    }
    // SAFETY: the creator of the range guarantees that it is readable.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(range.address()), range.length()).to_vec() }
}

/// Writes a range of host memory.
pub fn write(range: HostRange, bytes: &[u8]) {
    let length = bytes.len().min(range.length());
    if length == 0 {
        return;
    }
    // SAFETY: the creator of the range guarantees that it is writable; `bytes` is our own.
    unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), std::ptr::with_exposed_provenance_mut(range.address()), length);
    }
}

/// Returns the text of the last failed call on any thread; null if there is none. Valid until this thread asks again.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_last_fault() -> *const c_char {
    thread_local! {
        static KEPT: Cell<Option<CString>> = const { Cell::new(None) };
    }
    let Some(fault) = lock(&LAST_FAULT).clone() else { return std::ptr::null() };
    let pointer = fault.as_ptr();
    KEPT.set(Some(fault));
    pointer
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> Status {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the module's invariant.
    with(|_| unsafe { write_out(version, 13_000) })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorName(code: u32, to: *mut *const c_char) -> Status {
    let Some((name, _)) = names(code) else { return CuResult::InvalidValue as u32 };
    // SAFETY: the module's invariant; names end with NUL.
    with(|_| unsafe { write_out(to, name.as_ptr().cast()) })
}

#[unsafe(no_mangle)]
extern "C" fn cuGetErrorString(code: u32, to: *mut *const c_char) -> Status {
    let Some((_, text)) = names(code) else { return CuResult::InvalidValue as u32 };
    // SAFETY: the module's invariant; texts end with NUL.
    with(|_| unsafe { write_out(to, text.as_ptr().cast()) })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(count: *mut c_int) -> Status {
    // SAFETY: the module's invariant.
    with(|_| unsafe { write_out(count, 1) })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(device: *mut c_int, ordinal: c_int) -> Status {
    with(|_| {
        if ordinal != 0 {
            return Err(Failure::new(CuResult::InvalidDevice, format!("there is no device {ordinal}")));
        }
        // SAFETY: the module's invariant.
        unsafe { write_out(device, 0) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(name: *mut c_char, length: c_int, _device: c_int) -> Status {
    const NAME: &[u8] = b"simcuda\0";
    with(|_| {
        if name.is_null() || usize::try_from(length).is_ok_and(|length| length < NAME.len()) {
            return Err(Failure::new(CuResult::InvalidValue, "too little room for the device's name"));
        }
        // SAFETY: the module's invariant, and there is room.
        unsafe { std::ptr::copy_nonoverlapping(NAME.as_ptr(), name.cast(), NAME.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(uuid: *mut [u8; 16], _device: c_int) -> Status {
    // SAFETY: the module's invariant.
    with(|_| unsafe { write_out(uuid, *b"simcuda-device-0") })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(value: *mut c_int, attribute: c_int, _device: c_int) -> Status {
    with(|_| {
        let found = memory::attribute(attribute);
        let missing =
            || Failure::new(CuResult::NotSupported, format!("the device's attribute {attribute} is not covered"));
        // SAFETY: the module's invariant.
        unsafe { write_out(value, found.ok_or_else(missing)?) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(context: *mut usize, _device: c_int) -> Status {
    // SAFETY: the module's invariant.
    with(|_| unsafe { write_out(context, CONTEXT) })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> Status {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: usize) -> Status {
    with(|_| {
        if context != CONTEXT && context != 0 {
            return Err(Failure::new(CuResult::InvalidHandle, format!("there is no context {context:#x}")));
        }
        CURRENT.set(context);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetCurrent(context: *mut usize) -> Status {
    // SAFETY: the module's invariant.
    with(|_| unsafe { write_out(context, CURRENT.get()) })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSynchronize() -> Status {
    with(|driver| driver.synchronize_context(thread()))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Status {
    // SAFETY: the module's invariant.
    with(|_| unsafe { write_out(least, 0).and_then(|()| write_out(greatest, 0)) })
}
