//! Floating-point operations.
//!
//! `.rn` operations round as IEEE 754 says. The approximations (`ex2`, `lg2`, `sin`, `cos`, `tanh`, `rsqrt`, `rcp`, `sqrt`, `div`) round a
//! double-precision result correctly. Hardware may differ by some units in the last place, so a test over them needs a tolerance.

use super::form::Opcode;
use super::kind::Operation;
use super::lanes::{Map1, Map2, lanes};
use crate::ptx::Ty::{self, F};

/// Expands to the function of a floating-point type.
macro_rules! both {
    ($ty:expr, |$($name:ident),+| $body:expr) => {
        match $ty {
            F(32) => lanes!(|$($name: f32),+| $body),
            F(64) => lanes!(|$($name: f64),+| $body),
            _ => return None,
        }
    };
}

/// Decodes a floating-point opcode; `None` if it is not covered.
pub fn kind(form: &Opcode) -> Option<Operation> {
    let ty = form.ty()?;
    if form.base == "fma" {
        return Some(Operation::Map3(both!(ty, |a, b, c| a.mul_add(b, c)), ty, [ty; 3]));
    }
    if let Some(map) = unary(form, ty) {
        return Some(Operation::Map1(map, ty, [ty]));
    }
    binary(form, ty).map(|map| Operation::Map2(map, ty, [ty; 2]))
}

/// Flushes a subnormal number to a zero of the same sign.
fn flushed(a: f32) -> f32 {
    if a.is_subnormal() { 0.0_f32.copysign(a) } else { a }
}

fn unary(form: &Opcode, ty: Ty) -> Option<Map1> {
    Some(match (form.base, form.has("ftz")) {
        // Works on bits, because a NaN's sign flips too.
        ("neg", _) => both!(ty, |a| -a),
        ("abs", _) => both!(ty, |a| a.abs()),
        ("sqrt", _) => both!(ty, |a| a.sqrt()),
        ("rcp", _) => both!(ty, |a| 1.0 / a),
        ("rsqrt", _) => lanes!(|a: f32| (1.0 / f64::from(a).sqrt()) as f32),
        ("sin", _) => lanes!(|a: f32| f64::from(a).sin() as f32),
        ("cos", _) => lanes!(|a: f32| f64::from(a).cos() as f32),
        ("tanh", _) => lanes!(|a: f32| f64::from(a).tanh() as f32),
        ("lg2", _) => lanes!(|a: f32| f64::from(a).log2() as f32),
        ("ex2", true) => lanes!(|a: f32| flushed(f64::from(flushed(a)).exp2() as f32)),
        ("ex2", false) => lanes!(|a: f32| f64::from(a).exp2() as f32),
        _ => return None,
    })
}

fn binary(form: &Opcode, ty: Ty) -> Option<Map2> {
    Some(match (form.base, form.has("NaN")) {
        ("add", _) => both!(ty, |a, b| a + b),
        ("sub", _) => both!(ty, |a, b| a - b),
        ("mul", _) => both!(ty, |a, b| a * b),
        ("div", _) => both!(ty, |a, b| a / b),
        // The sign comes from the first operand.
        ("copysign", _) => both!(ty, |a, b| b.copysign(a)),
        ("min", true) => lanes!(|a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { least(a, b) }),
        ("max", true) => lanes!(|a: f32, b: f32| if a.is_nan() || b.is_nan() { f32::NAN } else { -least(-a, -b) }),
        ("min", false) if ty == F(32) => lanes!(|a: f32, b: f32| least(a, b)),
        ("max", false) if ty == F(32) => lanes!(|a: f32, b: f32| -least(-a, -b)),
        ("min", false) => lanes!(|a: f64, b: f64| a.min(b)),
        ("max", false) => lanes!(|a: f64, b: f64| a.max(b)),
        _ => return None,
    })
}

/// Returns the lesser number, with -0 below +0; if one is NaN, the other.
fn least(a: f32, b: f32) -> f32 {
    if a == b { f32::from_bits(a.to_bits() | b.to_bits() & 1 << 31) } else { a.min(b) }
}
