//! Conversion of one number to another type.

use super::half;
use crate::ptx::Ty::{self, Bf16, F, S, U};

/// A conversion of one number.
#[derive(Clone, Copy, Debug)]
pub struct Convert {
    /// Type of the result.
    pub to: Ty,
    /// Type of the source.
    pub from: Ty,
    pub(super) rounding: Rounding,
    pub(super) saturates: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    Nearest,
    Zero,
    Down,
    Up,
}

impl Convert {
    /// Converts one lane's number; the source register may be wider than the type. The result is extended to 64 bits, by its sign if it is
    /// signed.
    pub fn apply(&self, bits: u64) -> u64 {
        match (self.from, self.to) {
            (U(_) | S(_), U(_) | S(_)) => self.integer(widened(bits, self.from)) as u64,
            (U(_) | S(_), F(32)) => u64::from((widened(bits, self.from) as f32).to_bits()),
            (U(_) | S(_), _) => (widened(bits, self.from) as f64).to_bits(),
            (F(16), _) => u64::from(half::of_f16(bits as u16).to_bits()),
            (F(32), F(16)) => u64::from(half::f16(single(bits), self.rounding == Rounding::Nearest)),
            (F(32), Bf16) if self.rounding == Rounding::Nearest => u64::from(half::bf16(single(bits))),
            (F(32), Bf16) => u64::from(half::bf16_cut(single(bits))),
            (F(32), F(32)) if self.saturates => {
                // NaN becomes 0, and so does -0.
                let value = single(bits);
                u64::from(if value > 0.0 { value.min(1.0) } else { 0.0 }.to_bits())
            }
            (F(32), F(32)) => u64::from((self.whole(f64::from(single(bits))) as f32).to_bits()),
            (F(32), F(_)) => f64::from(single(bits)).to_bits(),
            (F(_), F(_)) => u64::from((f64::from_bits(bits) as f32).to_bits()),
            (F(32), _) => self.integer_of(f64::from(single(bits))),
            (_, _) => self.integer_of(f64::from_bits(bits)),
        }
    }

    fn whole(&self, value: f64) -> f64 {
        match self.rounding {
            Rounding::Nearest => value.round_ties_even(),
            Rounding::Zero => value.trunc(),
            Rounding::Down => value.floor(),
            Rounding::Up => value.ceil(),
        }
    }

    /// Rounds and clamps to the type's range; NaN gives 0.
    fn integer_of(&self, value: f64) -> u64 {
        let whole = self.whole(value);
        match self.to {
            U(16) => u64::from(whole as u16),
            U(32) => u64::from(whole as u32),
            S(16) => whole as i16 as u64,
            S(32) => whole as i32 as u64,
            S(_) => whole as i64 as u64,
            _ => whole as u64,
        }
    }

    fn integer(&self, value: i128) -> i128 {
        let bits = self.to.bits();
        let (least, most) = match self.to {
            S(_) => (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1),
            _ => (0, (1i128 << bits) - 1),
        };
        if self.saturates {
            return value.clamp(least, most);
        }
        let cut = value & ((1i128 << bits) - 1);
        if matches!(self.to, S(_)) && cut > most { cut - (1i128 << bits) } else { cut }
    }
}

fn single(bits: u64) -> f32 {
    f32::from_bits(bits as u32)
}

/// Widens the type's lower bits, by sign for signed types.
fn widened(bits: u64, ty: Ty) -> i128 {
    let width = ty.bits();
    let value = i128::from(bits) & ((1i128 << width) - 1);
    if matches!(ty, S(_)) && value >> (width - 1) != 0 { value - (1i128 << width) } else { value }
}
