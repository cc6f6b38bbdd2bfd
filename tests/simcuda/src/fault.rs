//! What goes wrong on the device, and the code that CUDA answers with.

/// A fault's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// An address outside of every allocation, or beyond the end of one.
    OutOfBounds,
    /// An address that is no multiple of the access's width.
    Misaligned,
    /// An allocation that was freed before.
    UseAfterFree,
    /// Bytes that nobody has written since they were allocated.
    Uninitialised,
    /// Two threads touch a byte of shared memory between the same two barriers, and one of them writes.
    Race,
    /// Threads of a block stand at different barriers, or only some of a warp at one.
    DivergentBarrier,
    /// A warp-wide instruction names lanes that do not carry it out.
    AbsentLanes,
    /// Shared memory is touched while an asynchronous copy into it is under way.
    PendingCopy,
    /// The kernel ends itself with `trap`.
    Trap,
    /// The kernel does not end.
    Timeout,
    /// Host memory that a copy needs is no longer there.
    HostMemory,
}

impl FaultKind {
    /// The `CUresult` for it. What hardware would not notice is a failed launch.
    pub fn code(self) -> u32 {
        match self {
            Self::OutOfBounds | Self::UseAfterFree => 700,
            Self::Timeout => 702,
            Self::Misaligned => 716,
            _ => 719,
        }
    }
}

/// A fault with all that is known of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?}: {text}")]
pub struct Fault {
    /// Its class.
    pub kind: FaultKind,
    /// What happened, and where.
    pub text: String,
}

impl Fault {
    /// A fault of a class.
    pub fn new(kind: FaultKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// The same fault with the place before its text.
    pub fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.text = format!("{place}: {}", self.text);
        self
    }
}
