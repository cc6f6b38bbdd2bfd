//! Streams, events, captures and graphs.

use std::ffi::{c_int, c_uint, c_ulonglong};

use super::calls::{Status, thread, with, write_out};
use crate::driver::{CaptureMode, CuResult, Failure};

/// Stream flag `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

/// Writes a handle to an out-parameter.
fn handle(to: *mut u64, handle: u64) -> Result<(), Failure> {
    // SAFETY: the border's invariant.
    unsafe { write_out(to, handle) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(to: *mut u64, flags: c_uint) -> Status {
    with(|driver| handle(to, driver.create_stream(flags & NON_BLOCKING == 0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreateWithPriority(to: *mut u64, flags: c_uint, _priority: c_int) -> Status {
    cuStreamCreate(to, flags)
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: u64) -> Status {
    with(|driver| driver.destroy_stream(stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(stream: u64) -> Status {
    with(|driver| driver.synchronize(stream, thread()))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: u64, event: u64, _flags: c_uint) -> Status {
    with(|driver| driver.wait(stream, event))
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(stream: u64, mode: c_uint) -> Status {
    with(|driver| {
        let mode = match mode {
            0 => CaptureMode::Global,
            1 => CaptureMode::ThreadLocal,
            2 => CaptureMode::Relaxed,
            _ => return Err(Failure::new(CuResult::InvalidValue, format!("the capture mode {mode}"))),
        };
        driver.begin_capture(stream, mode, thread())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamEndCapture(stream: u64, to: *mut u64) -> Status {
    with(|driver| {
        let graph = driver.end_capture(stream)?;
        handle(to, graph)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamIsCapturing(stream: u64, to: *mut c_uint) -> Status {
    with(|driver| {
        let status = driver.capture_status(stream)?;
        // SAFETY: the border's invariant.
        unsafe { write_out(to, status) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(to: *mut u64, _flags: c_uint) -> Status {
    with(|driver| handle(to, driver.create_event()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: u64, stream: u64) -> Status {
    with(|driver| driver.record(event, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventQuery(event: u64) -> Status {
    with(|driver| driver.query(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(event: u64) -> Status {
    with(|driver| driver.synchronize_event(event, thread()))
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: u64) -> Status {
    with(|driver| driver.destroy_event(event))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphInstantiateWithFlags(to: *mut u64, graph: u64, _flags: c_ulonglong) -> Status {
    with(|driver| {
        let executable = driver.instantiate(graph)?;
        handle(to, executable)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(graph: u64, stream: u64) -> Status {
    with(|driver| driver.launch_graph(graph, stream))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphUpload(_graph: u64, _stream: u64) -> Status {
    0
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphDestroy(graph: u64) -> Status {
    with(|driver| driver.destroy_graph(graph))
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphExecDestroy(graph: u64) -> Status {
    with(|driver| driver.destroy_executable(graph))
}
