//! `setp` and `selp`.

use super::form::Opcode;
use super::kind::Operation;
use super::lanes::{Map2, lanes};
use crate::ptx::Ty::{self, B, F, Pred, S, U};

macro_rules! ordered {
    ($ty:expr, |$a:ident, $b:ident| $body:expr) => {
        match $ty {
            B(16) | U(16) => lanes!(|$a: u16, $b: u16| $body),
            B(32) | U(32) => lanes!(|$a: u32, $b: u32| $body),
            B(64) | U(64) => lanes!(|$a: u64, $b: u64| $body),
            S(16) => lanes!(|$a: i16, $b: i16| $body),
            S(32) => lanes!(|$a: i32, $b: i32| $body),
            S(64) => lanes!(|$a: i64, $b: i64| $body),
            F(32) => lanes!(|$a: f32, $b: f32| $body),
            F(64) => lanes!(|$a: f64, $b: f64| $body),
            _ => return None,
        }
    };
}

macro_rules! floats {
    ($ty:expr, |$a:ident, $b:ident| $body:expr) => {
        match $ty {
            F(32) => lanes!(|$a: f32, $b: f32| $body),
            F(64) => lanes!(|$a: f64, $b: f64| $body),
            _ => return None,
        }
    };
}

/// Decodes a `setp`; `None` if it is not covered.
#[allow(clippy::neg_cmp_op_on_partial_ord, reason = "the comparisons with `u` are true for NaN")]
#[allow(clippy::double_comparisons, reason = "unlike `!=`, false for NaN")]
#[allow(clippy::nonminimal_bool, reason = "the comparisons with `u` are true for NaN")]
#[allow(clippy::eq_op, reason = "only NaN differs from itself")]
pub fn comparison(form: &Opcode) -> Option<Operation> {
    let ty = form.ty()?;
    let map: Map2 = match *form.modifiers.first()? {
        "eq" => ordered!(ty, |a, b| a == b),
        // A comparison that is true for NaN is `neu`.
        "ne" if matches!(ty, F(_)) => floats!(ty, |a, b| a < b || a > b),
        "ne" => ordered!(ty, |a, b| a != b),
        "lt" | "lo" => ordered!(ty, |a, b| a < b),
        "le" | "ls" => ordered!(ty, |a, b| a <= b),
        "gt" | "hi" => ordered!(ty, |a, b| a > b),
        "ge" | "hs" => ordered!(ty, |a, b| a >= b),
        "equ" => floats!(ty, |a, b| !(a < b || a > b)),
        "neu" => floats!(ty, |a, b| a != b),
        "ltu" => floats!(ty, |a, b| !(a >= b)),
        "leu" => floats!(ty, |a, b| !(a > b)),
        "gtu" => floats!(ty, |a, b| !(a <= b)),
        "geu" => floats!(ty, |a, b| !(a < b)),
        "num" => floats!(ty, |a, b| a == a && b == b),
        "nan" => floats!(ty, |a, b| a != a || b != b),
        _ => return None,
    };
    Some(Operation::Compare(map, ty, join(form)))
}

fn join(form: &Opcode) -> Option<Map2> {
    Some(match *form.modifiers.get(1)? {
        "and" => lanes!(|a: bool, b: bool| a & b),
        "or" => lanes!(|a: bool, b: bool| a | b),
        "xor" => lanes!(|a: bool, b: bool| a ^ b),
        _ => return None,
    })
}

/// Decodes a `selp` of type `ty`.
pub fn selection(ty: Ty) -> Operation {
    Operation::Map3(lanes!(|a: u64, b: u64, c: bool| if c { a } else { b }), ty, [ty, ty, Pred])
}
