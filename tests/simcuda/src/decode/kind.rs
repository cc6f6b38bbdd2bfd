//! Operations of opcodes, before their operands are bound.

use super::conversion::Convert;
use super::lanes::{Map1, Map2, Map3, Map4};
use crate::ptx::{Space, Ty};

/// Operation of an opcode.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// Function of one number.
    Map1(Map1, Ty, [Ty; 1]),
    /// Function of two numbers.
    Map2(Map2, Ty, [Ty; 2]),
    /// Function of three numbers.
    Map3(Map3, Ty, [Ty; 3]),
    /// Function of four numbers.
    Map4(Map4, Ty, [Ty; 4]),
    /// `setp`: a comparison, and the function that joins it with a further predicate.
    Compare(Map2, Ty, Option<Map2>),
    /// `mov`, which also packs and unpacks.
    Move(Ty),
    /// `cvt` of one number.
    Convert(Convert),
    /// `cvta` from (true: to) a state space's generic window.
    Window(Space, bool),
    /// `ld` with its number of elements.
    Load(Space, Ty, usize),
    /// `st` with its number of elements.
    Store(Space, Ty, usize),
    /// `atom` and `red`; the latter returns nothing.
    Atomic {
        /// State space of the address.
        space: Space,
        /// Update function; the old value comes first.
        update: Map3,
        /// Type of the number.
        ty: Ty,
        /// True if there is a third operand.
        compares: bool,
        /// True if the old value is returned.
        returns: bool,
    },
    /// Branch, `bra`, to the instruction's target.
    Branch,
    /// End of a thread: `ret` and `exit`.
    Exit,
    /// Abort of the kernel: `trap`.
    Trap,
    /// Block barrier, `bar.sync`.
    Barrier,
    /// Block barrier with a reduction of predicates, `bar.red`.
    BarrierReduce(Reduce),
    /// Warp barrier, `bar.warp.sync`.
    WarpBarrier,
    /// `membar` and `fence`: no effect, because execution is in order.
    Fence,
    /// Exchange between lanes, `shfl.sync`.
    Shuffle(Shuffle),
    /// Vote over lanes, `vote.sync`.
    Vote(Vote),
    /// Reduction over lanes, `redux.sync`.
    Redux(Map2, Ty),
    /// Mask of active lanes, `activemask`.
    ActiveMask,
    /// `ldmatrix` with its number of matrices; true if transposed.
    LoadMatrix(usize, bool),
    /// `mma.sync.m16n8k16` of bf16 with f32 sums.
    Mma,
    /// `cp.async` with its largest number of bytes.
    CopyAsync(u64),
    /// End of a copy group, `cp.async.commit_group`.
    CopyCommit,
    /// `cp.async.wait_group`; true for `wait_all`.
    CopyWait(bool),
}

/// Reduction of predicates by `bar.red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// True if all are true.
    And,
    /// True if one is true.
    Or,
    /// Number of true predicates.
    Count,
}

/// Source lane of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// A lane with a lower index.
    Up,
    /// A lane with a higher index.
    Down,
    /// The lane whose index has some bits flipped.
    Butterfly,
    /// A given lane.
    Index,
}

/// Question of `vote.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// True if all are true.
    All,
    /// True if one is true.
    Any,
    /// True if all are equal.
    Uniform,
    /// One bit for each lane.
    Ballot,
}
