//! Operations of opcodes.

use super::form::{self, Opcode};
use super::kind::{Operation, Reduce, Shuffle, Vote};
use super::lanes::{Map2, Map3, lanes};
use super::{compare, convert, float, integer};
use crate::ptx::Ty::{self, F, S, U};

/// Decodes an opcode; `None` if it is not covered.
pub fn decode(opcode: &str) -> Option<Operation> {
    if !form::covered().contains(opcode) {
        return None;
    }
    let form = &Opcode::of(opcode);
    let memory = |make: fn(_, _, _) -> Operation| Some(make(form.space(), form.ty()?, form.elements()));
    match form.base {
        "ld" => memory(Operation::Load),
        "st" => memory(Operation::Store),
        "atom" | "red" => atomic(form),
        "mov" => Some(Operation::Move(form.ty()?)),
        "cvt" => convert::kind(form),
        "cvta" => Some(Operation::Window(form.space(), form.has("to"))),
        "setp" => compare::comparison(form),
        "selp" => Some(compare::selection(form.ty()?)),
        "bra" => Some(Operation::Branch),
        "ret" | "exit" => Some(Operation::Exit),
        "trap" => Some(Operation::Trap),
        "membar" | "fence" => Some(Operation::Fence),
        "activemask" => Some(Operation::ActiveMask),
        "bar" | "barrier" => Some(barrier(form)),
        "shfl" => Some(Operation::Shuffle(match form.modifiers[1] {
            "up" => Shuffle::Up,
            "down" => Shuffle::Down,
            "bfly" => Shuffle::Butterfly,
            _ => Shuffle::Index,
        })),
        "vote" => Some(Operation::Vote(match form.modifiers[1] {
            "all" => Vote::All,
            "any" => Vote::Any,
            "uni" => Vote::Uniform,
            _ => Vote::Ballot,
        })),
        "redux" => Some(Operation::Redux(redux(form)?, form.ty()?)),
        "ldmatrix" => {
            let count = ["x1", "x2", "x4"].iter().position(|count| form.has(count))?;
            Some(Operation::LoadMatrix(1 << count, form.has("trans")))
        }
        "mma" => Some(Operation::Mma),
        "cp" if form.has("commit_group") => Some(Operation::CopyCommit),
        "cp" if form.has("wait_group") || form.has("wait_all") => Some(Operation::CopyWait(form.has("wait_all"))),
        "cp" => Some(Operation::CopyAsync(if form.has("cg") { 16 } else { 4 })),
        _ if matches!(form.ty()?, F(_)) => float::kind(form),
        _ => integer::kind(form),
    }
}

fn barrier(form: &Opcode) -> Operation {
    if form.has("warp") {
        Operation::WarpBarrier
    } else if !form.has("red") {
        Operation::Barrier
    } else if form.has("and") {
        Operation::BarrierReduce(Reduce::And)
    } else if form.has("or") {
        Operation::BarrierReduce(Reduce::Or)
    } else {
        Operation::BarrierReduce(Reduce::Count)
    }
}

/// Returns the function of two numbers that a reduction uses.
fn joining(name: &str, ty: Ty) -> Option<Map2> {
    Some(match (name, ty) {
        ("add", F(32)) => lanes!(|a: f32, b: f32| a + b),
        ("add", U(64)) => lanes!(|a: u64, b: u64| a.wrapping_add(b)),
        ("add", _) => lanes!(|a: u32, b: u32| a.wrapping_add(b)),
        ("min", S(32)) => lanes!(|a: i32, b: i32| a.min(b)),
        ("min", S(_)) => lanes!(|a: i64, b: i64| a.min(b)),
        ("max", S(32)) => lanes!(|a: i32, b: i32| a.max(b)),
        ("max", S(_)) => lanes!(|a: i64, b: i64| a.max(b)),
        ("min", _) => lanes!(|a: u64, b: u64| a.min(b)),
        ("max", _) => lanes!(|a: u64, b: u64| a.max(b)),
        ("and", _) => lanes!(|a: u64, b: u64| a & b),
        ("or", _) => lanes!(|a: u64, b: u64| a | b),
        ("xor", _) => lanes!(|a: u64, b: u64| a ^ b),
        _ => return None,
    })
}

fn redux(form: &Opcode) -> Option<Map2> {
    joining(form.modifiers.get(1)?, form.ty()?)
}

fn atomic(form: &Opcode) -> Option<Operation> {
    let ty = form.ty()?;
    let name = *form.modifiers.iter().rev().nth(1)?;
    // Takes the old value, the operand, and the second operand that only `cas` has.
    let update: Map3 = match (name, ty) {
        ("exch", _) => lanes!(|_a: u64, b: u64, _c: u64| b),
        ("cas", _) => lanes!(|a: u64, b: u64, c: u64| if a == b { c } else { a }),
        ("add", F(32)) => lanes!(|a: f32, b: f32, _c: u64| a + b),
        ("add", U(64)) => lanes!(|a: u64, b: u64, _c: u64| a.wrapping_add(b)),
        ("add", _) => lanes!(|a: u32, b: u32, _c: u64| a.wrapping_add(b)),
        ("min", S(32)) => lanes!(|a: i32, b: i32, _c: u64| a.min(b)),
        ("min", S(_)) => lanes!(|a: i64, b: i64, _c: u64| a.min(b)),
        ("max", S(32)) => lanes!(|a: i32, b: i32, _c: u64| a.max(b)),
        ("max", S(_)) => lanes!(|a: i64, b: i64, _c: u64| a.max(b)),
        ("min", _) => lanes!(|a: u64, b: u64, _c: u64| a.min(b)),
        ("max", _) => lanes!(|a: u64, b: u64, _c: u64| a.max(b)),
        ("and", _) => lanes!(|a: u64, b: u64, _c: u64| a & b),
        ("or", _) => lanes!(|a: u64, b: u64, _c: u64| a | b),
        ("xor", _) => lanes!(|a: u64, b: u64, _c: u64| a ^ b),
        _ => return None,
    };
    Some(Operation::Atomic { space: form.space(), update, ty, compares: name == "cas", returns: form.base == "atom" })
}
