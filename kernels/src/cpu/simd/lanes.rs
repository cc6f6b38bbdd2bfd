//! Sixteen numbers in registers, and their plain implementation.

/// Numbers in the registers of [`Lanes`]: output columns in a panel of a weight.
pub const LANES: usize = 16;

/// Sixteen numbers in registers: one row of a packed panel.
pub trait Lanes: Copy {
    /// Returns sixteen zeros.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn zero() -> Self;
    /// Fills all lanes with `x`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn splat(x: f32) -> Self;
    /// Loads sixteen numbers, unaligned.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for sixteen numbers.
    unsafe fn load(from: *const f32) -> Self;
    /// Loads sixteen bfloat16, unaligned, and widens them exactly.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for sixteen numbers.
    unsafe fn load_bf16(from: *const u16) -> Self;
    /// Loads sixteen finite numbers of half precision, unaligned, and widens them exactly.
    ///
    /// # Safety
    /// The processor has the level's instructions, with AVX2 F16C too; `from` is readable for sixteen numbers.
    unsafe fn load_f16(from: *const u16) -> Self;
    /// Loads sixteen pairs of bytes, unaligned, and widens the lower and the upper ones.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for sixteen numbers.
    unsafe fn load_bytes(from: *const u16) -> [Self; 2];
    /// Loads the first `count` of sixteen numbers, unaligned; the others are zero.
    ///
    /// # Safety
    /// The processor has the level's instructions; `from` is readable for `count` numbers, at most sixteen.
    #[inline(always)]
    unsafe fn load_first(from: *const f32, count: usize) -> Self {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller's guarantees, and there are sixteen lanes.
        unsafe {
            copy_first(from, lanes.as_mut_ptr(), count);
            Self::load(lanes.as_ptr())
        }
    }
    /// Stores sixteen numbers, unaligned.
    ///
    /// # Safety
    /// The processor has the level's instructions; `to` is writable for sixteen numbers.
    unsafe fn store(self, to: *mut f32);
    /// Stores the first `count` numbers, unaligned.
    ///
    /// # Safety
    /// The processor has the level's instructions; `to` is writable for `count` numbers, at most sixteen.
    #[inline(always)]
    unsafe fn store_first(self, to: *mut f32, count: usize) {
        let mut lanes = [0.0; LANES];
        // SAFETY: the caller's guarantees, and there are sixteen lanes.
        unsafe {
            self.store(lanes.as_mut_ptr());
            copy_first(lanes.as_ptr(), to, count);
        }
    }
    /// Returns `self + a * b`, fused if the level has it.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self;
    /// Returns `self + b`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn plus(self, b: Self) -> Self;
    /// Returns `self * b`.
    ///
    /// # Safety
    /// The processor has the level's instructions.
    unsafe fn times(self, b: Self) -> Self;
}

/// Copies at most sixteen numbers, in fours: a call of `memcpy` takes longer.
///
/// # Safety
/// `from` is readable and `to` writable for `count` numbers, and they do not overlap.
#[inline(always)]
unsafe fn copy_first(from: *const f32, to: *mut f32, count: usize) {
    let fours = count / 4 * 4;
    // SAFETY: the caller guarantees `count` numbers, and no index is as large.
    unsafe {
        for at in (0..fours).step_by(4) {
            let four: [f32; 4] = std::ptr::read_unaligned(from.add(at).cast());
            std::ptr::write_unaligned(to.add(at).cast(), four);
        }
        for at in fours..count {
            *to.add(at) = *from.add(at);
        }
    }
}

/// Sixteen plain numbers, for any processor.
#[derive(Clone, Copy)]
pub struct ScalarLanes(pub(super) [f32; 16]);

impl Lanes for ScalarLanes {
    #[inline(always)]
    unsafe fn zero() -> Self {
        Self([0.0; 16])
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 16])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees sixteen readable numbers.
        Self(unsafe { std::ptr::read_unaligned(from.cast()) })
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: the caller guarantees sixteen readable numbers.
        let narrow: [u16; 16] = unsafe { std::ptr::read_unaligned(from.cast()) };
        Self(narrow.map(|bits| f32::from_bits(u32::from(bits) << 16)))
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        /// 2¹¹²: the difference of the exponents' biases.
        const REBIAS: f32 = f32::from_bits((127 + 112) << 23);
        // SAFETY: the caller guarantees sixteen readable numbers.
        let narrow: [u16; 16] = unsafe { std::ptr::read_unaligned(from.cast()) };
        // Exact, as a product with a power of two: small numbers of half precision become normal ones.
        Self(narrow.map(|bits| {
            let (sign, magnitude) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff) << 13);
            f32::from_bits((f32::from_bits(magnitude) * REBIAS).to_bits() | sign)
        }))
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u16) -> [Self; 2] {
        // SAFETY: the caller guarantees sixteen readable numbers.
        let pairs: [u16; 16] = unsafe { std::ptr::read_unaligned(from.cast()) };
        [Self(pairs.map(|pair| f32::from(pair & 0xff))), Self(pairs.map(|pair| f32::from(pair >> 8)))]
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees room for sixteen numbers.
        unsafe { std::ptr::write_unaligned(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        let mut sum = self.0;
        for ((sum, a), b) in sum.iter_mut().zip(a.0).zip(b.0) {
            *sum += a * b;
        }
        Self(sum)
    }
    #[inline(always)]
    unsafe fn plus(self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] + b.0[lane]))
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        Self(std::array::from_fn(|lane| self.0[lane] * b.0[lane]))
    }
}
