//! What an opcode means, before its operands are known.

use super::convert::Convert;
use super::lanes::{Map1, Map2, Map3, Map4};
use crate::ptx::{Space, Ty};

/// An opcode's meaning.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    /// One number to one.
    Map1(Map1, Ty, [Ty; 1]),
    /// Two numbers to one.
    Map2(Map2, Ty, [Ty; 2]),
    /// Three numbers to one.
    Map3(Map3, Ty, [Ty; 3]),
    /// Four numbers to one.
    Map4(Map4, Ty, [Ty; 4]),
    /// A comparison, and what joins it with a further predicate.
    Compare(Map2, Ty, Option<Map2>),
    /// `mov`, which also packs and unpacks.
    Move(Ty),
    /// `cvt` of one number.
    Convert(Convert),
    /// `cvta`: an address between a space and the generic one.
    Window(Space, bool),
    /// `ld` of so many elements.
    Load(Space, Ty, usize),
    /// `st` of so many elements.
    Store(Space, Ty, usize),
    /// `atom` and `red`; the latter returns nothing.
    Atomic {
        /// Where.
        space: Space,
        /// What is done, with the old value first.
        update: Map3,
        /// Of what.
        ty: Ty,
        /// Whether there is a third operand.
        compares: bool,
        /// Whether the old value is wanted.
        returns: bool,
    },
    /// `bra`.
    Branch,
    /// `ret` and `exit`.
    Exit,
    /// `trap`.
    Trap,
    /// `bar.sync`.
    Barrier,
    /// `bar.red`: a predicate over the block.
    BarrierReduce(Reduce),
    /// `bar.warp.sync`.
    WarpBarrier,
    /// `membar` and `fence`: nothing, where everything happens in order.
    Fence,
    /// `shfl.sync`.
    Shuffle(Shuffle),
    /// `vote.sync`.
    Vote(Vote),
    /// `redux.sync`.
    Redux(Map2, Ty),
    /// `activemask`.
    ActiveMask,
    /// `ldmatrix`: so many matrices, transposed or not.
    LoadMatrix(usize, bool),
    /// `mma.sync.m16n8k16` of bf16 with f32 sums.
    Mma,
    /// `cp.async` of at most so many bytes.
    CopyAsync(u64),
    /// `cp.async.commit_group`.
    CopyCommit,
    /// `cp.async.wait_group`, or `wait_all`.
    CopyWait(bool),
}

/// How `bar.red` joins predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Whether all are true.
    And,
    /// Whether one is true.
    Or,
    /// How many are true.
    Count,
}

/// Where `shfl.sync` takes a value from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shuffle {
    /// A lane further down.
    Up,
    /// A lane further up.
    Down,
    /// The lane with some bits turned over.
    Butterfly,
    /// A given lane.
    Index,
}

/// What `vote.sync` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vote {
    /// Whether all are true.
    All,
    /// Whether one is true.
    Any,
    /// Whether all are equal.
    Uniform,
    /// A bit for each lane.
    Ballot,
}
