//! The values of a register in the 32 lanes of a warp, and functions over all of them at once.

/// Lanes of a warp.
pub const WARP: usize = 32;

/// A register's bits in each lane, the unused upper ones 0. One width for all registers keeps the interpreter small; the
/// compiler vectorises the loops over lanes.
pub type Lanes = [u64; WARP];

/// A function of one register.
pub type Map1 = fn(&Lanes) -> Lanes;
/// A function of two registers.
pub type Map2 = fn(&Lanes, &Lanes) -> Lanes;
/// A function of three registers.
pub type Map3 = fn(&Lanes, &Lanes, &Lanes) -> Lanes;
/// A function of four registers.
pub type Map4 = fn(&Lanes, &Lanes, &Lanes, &Lanes) -> Lanes;

/// A number that a register can hold.
pub trait Value: Copy {
    /// The number with these bits; upper ones are ignored.
    fn of(bits: u64) -> Self;
    /// Its bits, the upper ones 0.
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

/// A function over lanes of one to four registers, from an expression over numbers.
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
