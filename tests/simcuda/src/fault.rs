//! Faults on the device, and their CUDA result codes.

/// Class of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An address outside of every allocation, or past the end of one.
    OutOfBounds,
    /// An address that is not a multiple of the access's width.
    Misaligned,
    /// Access to a freed allocation.
    UseAfterFree,
    /// Read of uninitialised bytes.
    Uninitialised,
    /// Two threads access a byte of shared memory between the same two barriers, and one of them writes.
    Race,
    /// Threads of a block wait at different barriers, or only some of a warp at one.
    DivergentBarrier,
    /// A warp-wide instruction names lanes that do not execute it.
    AbsentLanes,
    /// Access to shared memory while an asynchronous copy into it is pending.
    PendingCopy,
    /// The kernel aborts with `trap`.
    Trap,
    /// The kernel exceeds its instruction budget.
    Timeout,
    /// Host memory of a copy was freed.
    HostMemory,
}

impl FaultKind {
    /// Returns the `CUresult` of the fault. Faults that hardware does not detect become a failed launch.
    pub fn code(self) -> u32 {
        match self {
            Self::OutOfBounds | Self::UseAfterFree => 700,
            Self::Timeout => 702,
            Self::Misaligned => 716,
            _ => 719,
        }
    }
}

/// A fault with its class and description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?}: {text}")]
pub struct Fault {
    /// Class of the fault.
    pub kind: FaultKind,
    /// Description and location.
    pub text: String,
}

impl Fault {
    /// Creates a fault of a class.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Prefixes the text with a location.
    pub fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.text = format!("{place}: {}", self.text);
        self
    }
}
