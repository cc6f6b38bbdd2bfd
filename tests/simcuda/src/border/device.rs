//! Start, errors, the device and its context.

use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_uint};

use super::calls::{CURRENT, LAST_FAULT, Status, lock, thread, with, write_out};
use super::memory;
use crate::driver::{CuResult, Failure, names};

/// Handle of the only context.
const CONTEXT: usize = 0x51;

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
