//! Integer, bit and address operations.

use super::form::Opcode;
use super::kind::Operation;
use super::lanes::{Map1, Map2, Map3, Map4, lanes};
use crate::ptx::Ty::{self, B, Pred, S, U};

/// Expands to the function of an integer type, the same for both signs.
macro_rules! any_sign {
    ($ty:expr, |$($name:ident),+| $body:expr) => {
        match $ty {
            B(16) | U(16) | S(16) => lanes!(|$($name: u16),+| $body),
            B(32) | U(32) | S(32) => lanes!(|$($name: u32),+| $body),
            B(64) | U(64) | S(64) => lanes!(|$($name: u64),+| $body),
            _ => return None,
        }
    };
}

/// Expands to the function of an integer type, by sign.
macro_rules! by_sign {
    ($ty:expr, |$($name:ident),+| $body:expr) => {
        match $ty {
            B(16) | U(16) => lanes!(|$($name: u16),+| $body),
            B(32) | U(32) => lanes!(|$($name: u32),+| $body),
            B(64) | U(64) => lanes!(|$($name: u64),+| $body),
            S(16) => lanes!(|$($name: i16),+| $body),
            S(32) => lanes!(|$($name: i32),+| $body),
            S(64) => lanes!(|$($name: i64),+| $body),
            _ => return None,
        }
    };
}

/// Decodes an integer opcode; `None` if it is not covered.
pub fn kind(form: &Opcode) -> Option<Operation> {
    let ty = form.ty()?;
    unary(form, ty).or_else(|| binary(form, ty)).or_else(|| ternary(form, ty)).or_else(|| quaternary(form, ty))
}

fn unary(form: &Opcode, ty: Ty) -> Option<Operation> {
    let mut to = ty;
    let map: Map1 = match form.base {
        "neg" => any_sign!(ty, |a| a.wrapping_neg()),
        "abs" => match ty {
            S(16) => lanes!(|a: i16| a.wrapping_abs()),
            S(32) => lanes!(|a: i32| a.wrapping_abs()),
            S(64) => lanes!(|a: i64| a.wrapping_abs()),
            _ => return None,
        },
        "not" if ty == Pred => lanes!(|a: bool| !a),
        "not" => any_sign!(ty, |a| !a),
        "brev" => any_sign!(ty, |a| a.reverse_bits()),
        "popc" | "clz" => {
            to = U(32);
            match (form.base, ty) {
                ("popc", _) => any_sign!(ty, |a| a.count_ones()),
                _ => any_sign!(ty, |a| a.leading_zeros()),
            }
        }
        _ => return None,
    };
    Some(Operation::Map1(map, to, [ty]))
}

fn binary(form: &Opcode, ty: Ty) -> Option<Operation> {
    if form.base == "mul" && form.has("wide") {
        let (map, to): (Map2, Ty) = match ty {
            U(16) => (lanes!(|a: u16, b: u16| u32::from(a) * u32::from(b)), U(32)),
            S(16) => (lanes!(|a: i16, b: i16| i32::from(a) * i32::from(b)), S(32)),
            U(32) => (lanes!(|a: u32, b: u32| u64::from(a) * u64::from(b)), U(64)),
            S(32) => (lanes!(|a: i32, b: i32| i64::from(a) * i64::from(b)), S(64)),
            _ => return None,
        };
        return Some(Operation::Map2(map, to, [ty; 2]));
    }
    let mut second = ty;
    let map: Map2 = match form.base {
        "add" => any_sign!(ty, |a, b| a.wrapping_add(b)),
        "sub" => any_sign!(ty, |a, b| a.wrapping_sub(b)),
        "mul" if form.has("lo") => any_sign!(ty, |a, b| a.wrapping_mul(b)),
        "mul" if form.has("hi") => high(ty)?,
        "min" => by_sign!(ty, |a, b| a.min(b)),
        "max" => by_sign!(ty, |a, b| a.max(b)),
        // The manual leaves division by zero undefined; hardware gives all ones, and the dividend as the remainder.
        "div" => match ty {
            U(_) => by_sign!(ty, |a, b| a.checked_div(b).unwrap_or(!0)),
            _ => by_sign!(ty, |a, b| if b == 0 { !0 } else { a.wrapping_div(b) }),
        },
        "rem" => by_sign!(ty, |a, b| if b == 0 { a } else { a.wrapping_rem(b) }),
        "and" if ty == Pred => lanes!(|a: bool, b: bool| a & b),
        "or" if ty == Pred => lanes!(|a: bool, b: bool| a | b),
        "xor" if ty == Pred => lanes!(|a: bool, b: bool| a ^ b),
        "and" => any_sign!(ty, |a, b| a & b),
        "or" => any_sign!(ty, |a, b| a | b),
        "xor" => any_sign!(ty, |a, b| a ^ b),
        "shl" => {
            second = U(32);
            match ty.bits() {
                16 => lanes!(|a: u16, b: u32| a.checked_shl(b).unwrap_or(0)),
                32 => lanes!(|a: u32, b: u32| a.checked_shl(b).unwrap_or(0)),
                _ => lanes!(|a: u64, b: u32| a.checked_shl(b).unwrap_or(0)),
            }
        }
        "shr" => {
            second = U(32);
            match ty {
                S(16) => lanes!(|a: i16, b: u32| a >> b.min(15)),
                S(32) => lanes!(|a: i32, b: u32| a >> b.min(31)),
                S(64) => lanes!(|a: i64, b: u32| a >> b.min(63)),
                B(16) | U(16) => lanes!(|a: u16, b: u32| a.checked_shr(b).unwrap_or(0)),
                B(32) | U(32) => lanes!(|a: u32, b: u32| a.checked_shr(b).unwrap_or(0)),
                _ => lanes!(|a: u64, b: u32| a.checked_shr(b).unwrap_or(0)),
            }
        }
        _ => return None,
    };
    Some(Operation::Map2(map, ty, [ty, second]))
}

/// Returns the upper half of a product.
fn high(ty: Ty) -> Option<Map2> {
    Some(match ty {
        U(16) => lanes!(|a: u16, b: u16| ((u32::from(a) * u32::from(b)) >> 16) as u16),
        S(16) => lanes!(|a: i16, b: i16| ((i32::from(a) * i32::from(b)) >> 16) as i16),
        U(32) => lanes!(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
        S(32) => lanes!(|a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as i32),
        U(64) => lanes!(|a: u64, b: u64| ((u128::from(a) * u128::from(b)) >> 64) as u64),
        S(64) => lanes!(|a: i64, b: i64| ((i128::from(a) * i128::from(b)) >> 64) as i64),
        _ => return None,
    })
}

fn ternary(form: &Opcode, ty: Ty) -> Option<Operation> {
    if form.base == "mad" && form.has("wide") {
        let (map, to): (Map3, Ty) = match ty {
            U(16) => (lanes!(|a: u16, b: u16, c: u32| (u32::from(a) * u32::from(b)).wrapping_add(c)), U(32)),
            S(16) => (lanes!(|a: i16, b: i16, c: i32| (i32::from(a) * i32::from(b)).wrapping_add(c)), S(32)),
            U(32) => (lanes!(|a: u32, b: u32, c: u64| (u64::from(a) * u64::from(b)).wrapping_add(c)), U(64)),
            S(32) => (lanes!(|a: i32, b: i32, c: i64| (i64::from(a) * i64::from(b)).wrapping_add(c)), S(64)),
            _ => return None,
        };
        return Some(Operation::Map3(map, to, [ty, ty, to]));
    }
    let mut others = [ty, ty];
    let map: Map3 = match form.base {
        "mad" if form.has("lo") => any_sign!(ty, |a, b, c| a.wrapping_mul(b).wrapping_add(c)),
        "mad" if form.has("hi") => match ty {
            U(32) => lanes!(|a: u32, b: u32, c: u32| (((u64::from(a) * u64::from(b)) >> 32) as u32).wrapping_add(c)),
            S(32) => lanes!(|a: i32, b: i32, c: i32| (((i64::from(a) * i64::from(b)) >> 32) as i32).wrapping_add(c)),
            _ => return None,
        },
        "bfe" => {
            others = [U(32), U(32)];
            match ty {
                U(32) => lanes!(|a: u32, b: u32, c: u32| extract(u64::from(a), b, c, 32, false) as u32),
                S(32) => lanes!(|a: u32, b: u32, c: u32| extract(u64::from(a), b, c, 32, true) as u32),
                U(64) => lanes!(|a: u64, b: u32, c: u32| extract(a, b, c, 64, false)),
                _ => lanes!(|a: u64, b: u32, c: u32| extract(a, b, c, 64, true)),
            }
        }
        "prmt" => lanes!(|a: u32, b: u32, c: u32| permute(a, b, c)),
        "shf" => {
            others = [B(32), U(32)];
            match (form.has("l"), form.has("wrap")) {
                (true, true) => lanes!(|a: u32, b: u32, c: u32| funnel_left(a, b, c & 31)),
                (true, false) => lanes!(|a: u32, b: u32, c: u32| funnel_left(a, b, c.min(32))),
                (false, true) => lanes!(|a: u32, b: u32, c: u32| funnel_right(a, b, c & 31)),
                (false, false) => lanes!(|a: u32, b: u32, c: u32| funnel_right(a, b, c.min(32))),
            }
        }
        _ => return None,
    };
    Some(Operation::Map3(map, ty, [ty, others[0], others[1]]))
}

fn quaternary(form: &Opcode, ty: Ty) -> Option<Operation> {
    let (map, from): (Map4, [Ty; 4]) = match (form.base, ty) {
        ("bfi", B(32)) => (
            lanes!(|a: u32, b: u32, c: u32, d: u32| insert(u64::from(a), u64::from(b), c, d, 32) as u32),
            [ty, ty, U(32), U(32)],
        ),
        ("bfi", B(64)) => (lanes!(|a: u64, b: u64, c: u32, d: u32| insert(a, b, c, d, 64)), [ty, ty, U(32), U(32)]),
        ("lop3", B(32)) => (lanes!(|a: u32, b: u32, c: u32, d: u32| logic(a, b, c, d)), [ty, ty, ty, U(32)]),
        _ => return None,
    };
    Some(Operation::Map4(map, ty, from))
}

/// Implements `bfe`: extracts `length` bits from `position` on; a signed field is sign-extended.
fn extract(a: u64, position: u32, length: u32, width: u32, signed: bool) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    let bit = |at: u32| at < width && a >> at & 1 != 0;
    let sign = signed && length > 0 && bit((position + length - 1).min(width - 1));
    (0..width).fold(0, |out, at| {
        let set = if at < length && position + at < width { bit(position + at) } else { sign };
        out | u64::from(set) << at
    })
}

/// Implements `bfi`: replaces `length` bits of `b` from `position` on with those of `a`.
fn insert(a: u64, b: u64, position: u32, length: u32, width: u32) -> u64 {
    let (position, length) = (position & 0xff, length & 0xff);
    (0..length).take_while(|at| position + at < width).fold(b, |out, at| {
        let place = position + at;
        out & !(1 << place) | (if at < 64 { a >> at & 1 } else { 0 }) << place
    })
}

/// Implements `prmt` in its default mode: selects four of eight bytes, each by four bits; their top bit repeats the byte's sign.
fn permute(a: u32, b: u32, chosen: u32) -> u32 {
    let bytes = u64::from(b) << 32 | u64::from(a);
    (0..4).fold(0, |out, at| {
        let choice = chosen >> (4 * at);
        let byte = (bytes >> (8 * (choice & 7))) as u8;
        let byte = if choice & 8 != 0 { (byte as i8 >> 7) as u8 } else { byte };
        out | u32::from(byte) << (8 * at)
    })
}

fn funnel_left(a: u32, b: u32, by: u32) -> u32 {
    ((u64::from(b) << 32 | u64::from(a)) << by >> 32) as u32
}

fn funnel_right(a: u32, b: u32, by: u32) -> u32 {
    ((u64::from(b) << 32 | u64::from(a)) >> by) as u32
}

/// Implements `lop3`: three bits index the table.
fn logic(a: u32, b: u32, c: u32, table: u32) -> u32 {
    (0..8).filter(|row| table >> row & 1 != 0).fold(0, |out, row: u32| {
        let side = |value: u32, bit: u32| if row >> bit & 1 != 0 { value } else { !value };
        out | side(a, 2) & side(b, 1) & side(c, 0)
    })
}
