//! Conversions between number types, `cvt`.

use super::conversion::{Convert, Rounding};
use super::form::Opcode;
use super::half;
use super::kind::Operation;
use super::lanes::lanes;
use crate::ptx::Ty::{self, B, F, Pair};

/// Decodes a `cvt`; `None` if it is not covered.
pub fn kind(form: &Opcode) -> Option<Operation> {
    let [.., to, from] = form.modifiers.as_slice() else { return None };
    let (to, from) = (Ty::named(to)?, Ty::named(from)?);
    if to == Pair {
        let map = if form.has("bf16x2") {
            lanes!(|a: f32, b: f32| u32::from(half::bf16(a)) << 16 | u32::from(half::bf16(b)))
        } else {
            lanes!(|a: f32, b: f32| u32::from(half::f16(a, true)) << 16 | u32::from(half::f16(b, true)))
        };
        return Some(Operation::Map2(map, B(32), [F(32); 2]));
    }
    let rounding = match form.modifiers.first()? {
        &"rz" | &"rzi" => Rounding::Zero,
        &"rmi" => Rounding::Down,
        &"rpi" => Rounding::Up,
        _ => Rounding::Nearest,
    };
    Some(Operation::Convert(Convert { to, from, rounding, saturates: form.has("sat") }))
}
