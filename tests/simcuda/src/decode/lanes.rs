//! Register values of the 32 lanes of a warp, and functions over all lanes.

/// Lanes of a warp.
pub const WARP: usize = 32;

/// Bits of a register in each lane; the unused upper ones are 0. One width for all registers keeps the interpreter small, and the compiler
/// vectorises loops over lanes.
pub type Lanes = [u64; WARP];

/// Function of one register.
pub type Map1 = fn(&Lanes) -> Lanes;
/// Function of two registers.
pub type Map2 = fn(&Lanes, &Lanes) -> Lanes;
/// Function of three registers.
pub type Map3 = fn(&Lanes, &Lanes, &Lanes) -> Lanes;
/// Function of four registers.
pub type Map4 = fn(&Lanes, &Lanes, &Lanes, &Lanes) -> Lanes;

/// A number type of registers.
pub trait Value: Copy {
    /// Returns the number with these bits; upper ones are ignored.
    fn of(bits: u64) -> Self;
    /// Returns its bits; the upper ones are 0.
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($signed:ty, $unsigned:ty);+) => {$(
        impl Value for $signed {
            fn of(bits: u64) -> Self { bits as Self }
            fn bits(self) -> u64 { self as $unsigned as u64 }
        }
        impl Value for $unsigned {
            fn of(bits: u64) -> Self { bits as Self }
            fn bits(self) -> u64 { self as u64 }
        }
    )+};
}
integers!(i8, u8; i16, u16; i32, u32; i64, u64);

impl Value for f32 {
    fn of(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }
    fn bits(self) -> u64 {
        u64::from(self.to_bits())
    }
}

impl Value for f64 {
    fn of(bits: u64) -> Self {
        Self::from_bits(bits)
    }
    fn bits(self) -> u64 {
        self.to_bits()
    }
}

impl Value for bool {
    fn of(bits: u64) -> Self {
        bits & 1 != 0
    }
    fn bits(self) -> u64 {
        u64::from(self)
    }
}

/// Expands to a function over lanes of one to four registers, from an expression over numbers.
macro_rules! lanes {
    (|$($name:ident: $ty:ty),+| $body:expr) => {{
        fn all($($name: &$crate::decode::lanes::Lanes),+) -> $crate::decode::lanes::Lanes {
            std::array::from_fn(|lane| {
                $(let $name = <$ty as $crate::decode::lanes::Value>::of($name[lane]);)+
                $crate::decode::lanes::Value::bits($body)
            })
        }
        all
    }};
}
pub(crate) use lanes;
