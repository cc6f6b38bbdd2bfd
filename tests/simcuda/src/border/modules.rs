//! Modules, kernels and launches.

use std::ffi::{c_char, c_int, c_uint, c_void};

use super::calls::{Status, text, thread, with, write_out};
use crate::driver::{CuResult, Failure};

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(to: *mut u64, image: *const c_void) -> Status {
    with(|driver| {
        // SAFETY: the border's invariant. An image of machine code is not text, and its first byte differs from that of
        // PTX.
        let first = unsafe { image.cast::<u8>().as_ref() };
        if first.is_none_or(|first| *first == 0x7f || *first == 0x50) {
            return Err(Failure::new(CuResult::InvalidPtx, "only PTX text can be loaded, no machine code"));
        }
        // SAFETY: PTX text ends with NUL.
        let module = driver.load_module(unsafe { text(image.cast()) }?, thread())?;
        // SAFETY: the border's invariant.
        unsafe { write_out(to, module) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleUnload(module: u64) -> Status {
    with(|driver| driver.unload_module(module))
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(to: *mut u64, module: u64, name: *const c_char) -> Status {
    with(|driver| {
        // SAFETY: the border's invariant.
        let function = driver.function(module, unsafe { text(name) }?)?;
        // SAFETY: the border's invariant.
        unsafe { write_out(to, function) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetGlobal_v2(to: *mut u64, size: *mut usize, module: u64, name: *const c_char) -> Status {
    with(|driver| {
        // SAFETY: the border's invariant.
        let (address, bytes) = driver.global(module, unsafe { text(name) }?)?;
        // SAFETY: the border's invariant; either pointer may be null.
        unsafe {
            if !to.is_null() {
                write_out(to, address)?;
            }
            if size.is_null() { Ok(()) } else { write_out(size, bytes) }
        }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncGetAttribute(to: *mut c_int, attribute: c_uint, function: u64) -> Status {
    with(|driver| {
        let value = driver.function_attribute(function, attribute)?;
        // SAFETY: the border's invariant.
        unsafe { write_out(to, value) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuFuncSetAttribute(function: u64, attribute: c_uint, value: c_int) -> Status {
    with(|driver| driver.set_function_attribute(function, attribute, value))
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: u64,
    grid_x: c_uint,
    grid_y: c_uint,
    grid_z: c_uint,
    block_x: c_uint,
    block_y: c_uint,
    block_z: c_uint,
    shared: c_uint,
    stream: u64,
    params: *const *const c_void,
    extra: *const *const c_void,
) -> Status {
    with(|driver| {
        let sizes = driver.param_sizes(function)?;
        if !extra.is_null() || (params.is_null() && !sizes.is_empty()) {
            return Err(Failure::new(CuResult::InvalidValue, "parameters come as an array of pointers"));
        }
        let value = |(index, size): (usize, &usize)| {
            // SAFETY: the array has a pointer for each parameter of the kernel, to as many bytes as the parameter has.
            unsafe { std::slice::from_raw_parts((*params.add(index)).cast::<u8>(), *size).to_vec() }
        };
        let values: Vec<Vec<u8>> = sizes.iter().enumerate().map(value).collect();
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        driver.launch(function, grid, block, shared as usize, stream, &values)
    })
}
