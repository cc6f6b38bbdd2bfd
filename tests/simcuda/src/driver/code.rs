//! Result codes of CUDA.

use crate::fault::Fault;

/// `CUresult`s of this library, except those of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CuResult {
    /// `CUDA_ERROR_INVALID_VALUE`: an argument is invalid.
    InvalidValue = 1,
    /// `CUDA_ERROR_OUT_OF_MEMORY`: the device's memory is full.
    OutOfMemory = 2,
    /// `CUDA_ERROR_INVALID_DEVICE`: there is no such device.
    InvalidDevice = 101,
    /// `CUDA_ERROR_INVALID_PTX`: the PTX is wrong or not covered.
    InvalidPtx = 218,
    /// `CUDA_ERROR_INVALID_HANDLE`: the handle is unknown.
    InvalidHandle = 400,
    /// `CUDA_ERROR_ILLEGAL_STATE`: the object is in the wrong state.
    IllegalState = 401,
    /// `CUDA_ERROR_NOT_FOUND`: there is no such name.
    NotFound = 500,
    /// `CUDA_ERROR_NOT_READY`: the event is not complete.
    NotReady = 600,
    /// `CUDA_ERROR_NOT_SUPPORTED`: the function is not supported.
    NotSupported = 801,
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`: not allowed during a capture.
    CaptureUnsupported = 900,
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`: an earlier error ended the capture.
    CaptureInvalidated = 901,
    /// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`: the stream did not begin the capture.
    CaptureUnmatched = 903,
    /// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`: a forked stream did not join again.
    CaptureUnjoined = 904,
    /// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`: a dependency crosses the capture's border.
    CaptureIsolation = 905,
    /// `CUDA_ERROR_CAPTURED_EVENT`: the event was recorded in a capture.
    CapturedEvent = 907,
}

/// Names and descriptions of codes; NUL-terminated, because C reads them.
const NAMES: &[(u32, &str, &str)] = &[
    (0, "CUDA_SUCCESS\0", "no error\0"),
    (1, "CUDA_ERROR_INVALID_VALUE\0", "invalid argument\0"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY\0", "out of memory\0"),
    (101, "CUDA_ERROR_INVALID_DEVICE\0", "invalid device ordinal\0"),
    (218, "CUDA_ERROR_INVALID_PTX\0", "a PTX JIT compilation failed\0"),
    (400, "CUDA_ERROR_INVALID_HANDLE\0", "invalid resource handle\0"),
    (401, "CUDA_ERROR_ILLEGAL_STATE\0", "the operation cannot be performed in the present state\0"),
    (500, "CUDA_ERROR_NOT_FOUND\0", "named symbol not found\0"),
    (600, "CUDA_ERROR_NOT_READY\0", "device not ready\0"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS\0", "an illegal memory access was encountered\0"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT\0", "the launch timed out and was terminated\0"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS\0", "misaligned address\0"),
    (719, "CUDA_ERROR_LAUNCH_FAILED\0", "unspecified launch failure\0"),
    (801, "CUDA_ERROR_NOT_SUPPORTED\0", "operation not supported\0"),
    (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED\0", "operation not permitted when stream is capturing\0"),
    (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED\0", "operation failed due to a previous error during capture\0"),
    (903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED\0", "capture was not ended in the same stream as it began\0"),
    (904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED\0", "capturing stream has unjoined work\0"),
    (905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION\0", "dependency created on uncaptured work in another stream\0"),
    (907, "CUDA_ERROR_CAPTURED_EVENT\0", "operation not permitted on an event last recorded in a capturing stream\0"),
];

/// Returns a code's name and description, both NUL-terminated.
pub fn names(code: u32) -> Option<(&'static str, &'static str)> {
    NAMES.iter().find(|(known, ..)| *known == code).map(|(_, name, text)| (*name, *text))
}

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct Failure {
    /// Code of the failure, a `CUresult`.
    pub code: u32,
    /// Reason of the failure.
    pub text: String,
}

impl Failure {
    /// Creates a failure with a reason.
    pub fn new(code: CuResult, text: impl Into<String>) -> Self {
        Self { code: code as u32, text: text.into() }
    }

    /// Converts a fault on the device.
    pub fn of_fault(fault: &Fault) -> Self {
        Self { code: fault.kind.code(), text: fault.to_string() }
    }
}
