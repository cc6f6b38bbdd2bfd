//! CUDA's codes.

use crate::fault::Fault;

/// The `CUresult`s that this library gives besides those of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CuResult {
    /// `CUDA_ERROR_INVALID_VALUE`
    InvalidValue = 1,
    /// `CUDA_ERROR_OUT_OF_MEMORY`
    OutOfMemory = 2,
    /// `CUDA_ERROR_INVALID_DEVICE`
    InvalidDevice = 101,
    /// `CUDA_ERROR_INVALID_PTX`
    InvalidPtx = 218,
    /// `CUDA_ERROR_INVALID_HANDLE`
    InvalidHandle = 400,
    /// `CUDA_ERROR_ILLEGAL_STATE`
    IllegalState = 401,
    /// `CUDA_ERROR_NOT_FOUND`
    NotFound = 500,
    /// `CUDA_ERROR_NOT_READY`
    NotReady = 600,
    /// `CUDA_ERROR_NOT_SUPPORTED`
    NotSupported = 801,
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`
    CaptureUnsupported = 900,
    /// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`
    CaptureInvalidated = 901,
    /// `CUDA_ERROR_STREAM_CAPTURE_UNMATCHED`
    CaptureUnmatched = 903,
    /// `CUDA_ERROR_STREAM_CAPTURE_UNJOINED`
    CaptureUnjoined = 904,
    /// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION`
    CaptureIsolation = 905,
    /// `CUDA_ERROR_CAPTURED_EVENT`
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

/// A code's name and description, both NUL-terminated.
pub fn names(code: u32) -> Option<(&'static str, &'static str)> {
    NAMES.iter().find(|(known, ..)| *known == code).map(|(_, name, text)| (*name, *text))
}

/// Why a call is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {text}")]
pub struct Failure {
    /// The `CUresult`.
    pub code: u32,
    /// The reason.
    pub text: String,
}

impl Failure {
    /// A refusal.
    pub fn new(code: CuResult, text: impl Into<String>) -> Self {
        Self { code: code as u32, text: text.into() }
    }

    /// What a fault on the device becomes.
    pub fn of_fault(fault: &Fault) -> Self {
        Self { code: fault.kind.code(), text: fault.to_string() }
    }
}
