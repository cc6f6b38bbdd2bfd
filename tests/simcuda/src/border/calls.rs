//! Calls from C: the one driver behind them, and their parameters.

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::driver::{CuResult, Driver, Failure};

/// Result code, a `CUresult`.
pub type Status = u32;

static DRIVER: Mutex<Option<Driver>> = Mutex::new(None);
/// Text of the last call that failed.
pub static LAST_FAULT: Mutex<Option<CString>> = Mutex::new(None);
thread_local! {
    /// Context of this thread; 0 for none.
    pub static CURRENT: Cell<usize> = const { Cell::new(0) };
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Id of this thread, by which captures tell threads apart.
pub fn thread() -> u64 {
    // Each thread has its own cell.
    CURRENT.with(|cell| std::ptr::from_ref(cell).addr() as u64)
}

/// Calls the driver, and stores the text of a failure.
pub fn with(call: impl FnOnce(&mut Driver) -> Result<(), Failure>) -> Status {
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
pub unsafe fn write_out<T>(to: *mut T, value: T) -> Result<(), Failure> {
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
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::new(CuResult::InvalidValue, "a null pointer where a string belongs"));
    }
    // SAFETY: the caller guarantees it.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::new(CuResult::InvalidValue, "a string that is not UTF-8"))
}
