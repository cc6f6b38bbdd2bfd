//! Integer dot products of sixteen columns: with widening products, and with dot products of bytes.

use std::arch::aarch64::*;
use std::arch::asm;

use super::lanes::NeonLanes;
use crate::cpu::simd::dots::Dots;

/// Four inputs of sixteen columns, four columns in each register.
type Quad = [int8x16_t; 4];

/// Loads 64 bytes.
///
/// # Safety
/// `from` is readable for 64 bytes.
#[inline(always)]
unsafe fn load_line(from: *const u8) -> Quad {
    // SAFETY: NEON is in every processor of the architecture; the caller guarantees the bytes.
    std::array::from_fn(|i| unsafe { vld1q_s8(from.cast::<i8>().add(16 * i)) })
}

/// Loads 64 bytes of four-bit integers, which have 8 added or a minimum: the first half is in the low bits.
///
/// # Safety
/// `from` is readable for 64 bytes.
#[inline(always)]
unsafe fn load_nibbles(from: *const u8) -> [Quad; 2] {
    // SAFETY: as above.
    unsafe {
        let line = load_line(from).map(|bytes| vreinterpretq_u8_s8(bytes));
        let low = line.map(|bytes| vreinterpretq_s8_u8(vandq_u8(bytes, vdupq_n_u8(0xf))));
        [low, line.map(|bytes| vreinterpretq_s8_u8(vshrq_n_u8::<4>(bytes)))]
    }
}

/// Four inputs, repeated.
#[inline(always)]
fn repeated(x: i32) -> int8x16_t {
    // SAFETY: NEON is in every processor of the architecture.
    unsafe { vreinterpretq_s8_s32(vdupq_n_s32(x)) }
}

/// Converts sums of sixteen columns to single precision, without what was added to each.
#[inline(always)]
fn converted(sums: [int32x4_t; 4], added: i32) -> NeonLanes {
    // SAFETY: as above.
    NeonLanes(sums.map(|sums| unsafe { vcvtq_f32_s32(vsubq_s32(sums, vdupq_n_s32(added))) }))
}

/// Products of int8 by widening multiplications.
///
/// Two products of a byte from -128 to 127 and one from -127 to 127 fit sixteen bits, so neighbours are added there.
#[derive(Clone, Copy)]
pub struct NeonInt8([int32x4_t; 4]);

impl Dots for NeonInt8 {
    const STEP: usize = 128;
    const ADDED: i32 = 0;
    const STORED_ADDED: bool = false;
    type Sums = NeonLanes;
    type Quad = Quad;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is in every processor of the architecture.
        unsafe { Self([vdupq_n_s32(0); 4]) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [Quad; 2] {
        // SAFETY: the caller guarantees 128 readable bytes.
        unsafe { [load_line(from), load_line(from.add(64))] }
    }
    #[inline(always)]
    unsafe fn add(self, weights: Quad, x: i32) -> Self {
        let x = repeated(x);
        // SAFETY: as above.
        Self(std::array::from_fn(|i| unsafe {
            let low = vmull_s8(vget_low_s8(weights[i]), vget_low_s8(x));
            let pairs = vpaddq_s16(low, vmull_high_s8(weights[i], x));
            vpadalq_s16(self.0[i], pairs)
        }))
    }
    #[inline(always)]
    unsafe fn finish(self, _added: i32) -> NeonLanes {
        // SAFETY: as above.
        NeonLanes(self.0.map(|sums| unsafe { vcvtq_f32_s32(sums) }))
    }
}

/// Products of int4 by widening multiplications. Weights have 8 added, as they are stored.
///
/// Products stay in sixteen bits for a whole group: eight times at most 15 times 127 is below 2¹⁵.
#[derive(Clone, Copy)]
pub struct NeonInt4([[int16x8_t; 2]; 4]);

impl Dots for NeonInt4 {
    const STEP: usize = 64;
    const ADDED: i32 = 8;
    const STORED_ADDED: bool = true;
    type Sums = NeonLanes;
    type Quad = Quad;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is in every processor of the architecture.
        unsafe { Self([[vdupq_n_s16(0); 2]; 4]) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [Quad; 2] {
        // SAFETY: the caller guarantees 64 readable bytes.
        unsafe { load_nibbles(from) }
    }
    #[inline(always)]
    unsafe fn add(self, weights: Quad, x: i32) -> Self {
        let x = repeated(x);
        // SAFETY: as above.
        Self(std::array::from_fn(|i| unsafe {
            let low = vmlal_s8(self.0[i][0], vget_low_s8(weights[i]), vget_low_s8(x));
            [low, vmlal_high_s8(self.0[i][1], weights[i], x)]
        }))
    }
    #[inline(always)]
    unsafe fn finish(self, added: i32) -> NeonLanes {
        // Pairs could overflow sixteen bits, so they are widened as they are added.
        // SAFETY: as above.
        let sums = self.0.map(|[low, high]| unsafe { vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)) });
        converted(sums, added)
    }
}

/// Adds the products of four inputs of each of four columns.
///
/// # Safety
/// The processor has dot products of bytes.
#[inline(always)]
unsafe fn dot(mut sums: int32x4_t, weights: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: the caller guarantees the instruction, which touches registers alone.
    unsafe {
        asm!("sdot {sums:v}.4s, {weights:v}.16b, {x:v}.16b", sums = inlateout(vreg) sums, weights = in(vreg) weights,
            x = in(vreg) x, options(pure, nomem, nostack, preserves_flags));
    }
    sums
}

/// Products of int8 by dot products of bytes.
#[derive(Clone, Copy)]
pub struct DotInt8(pub(super) [int32x4_t; 4]);

impl Dots for DotInt8 {
    const STEP: usize = 128;
    const ADDED: i32 = 0;
    const STORED_ADDED: bool = false;
    type Sums = NeonLanes;
    type Quad = Quad;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is in every processor of the architecture.
        unsafe { Self([vdupq_n_s32(0); 4]) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [Quad; 2] {
        // SAFETY: the caller guarantees 128 readable bytes.
        unsafe { [load_line(from), load_line(from.add(64))] }
    }
    #[inline(always)]
    unsafe fn add(self, weights: Quad, x: i32) -> Self {
        let x = repeated(x);
        // SAFETY: the caller guarantees dot products.
        Self(std::array::from_fn(|i| unsafe { dot(self.0[i], weights[i], x) }))
    }
    #[inline(always)]
    unsafe fn finish(self, _added: i32) -> NeonLanes {
        // SAFETY: as above.
        NeonLanes(self.0.map(|sums| unsafe { vcvtq_f32_s32(sums) }))
    }
}

/// Products of int4 by dot products of bytes. Weights have 8 added, as they are stored.
#[derive(Clone, Copy)]
pub struct DotInt4(pub(super) [int32x4_t; 4]);

impl Dots for DotInt4 {
    const STEP: usize = 64;
    const ADDED: i32 = 8;
    const STORED_ADDED: bool = true;
    type Sums = NeonLanes;
    type Quad = Quad;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is in every processor of the architecture.
        unsafe { Self([vdupq_n_s32(0); 4]) }
    }
    #[inline(always)]
    unsafe fn load(from: *const u8) -> [Quad; 2] {
        // SAFETY: the caller guarantees 64 readable bytes.
        unsafe { load_nibbles(from) }
    }
    #[inline(always)]
    unsafe fn add(self, weights: Quad, x: i32) -> Self {
        let x = repeated(x);
        // SAFETY: the caller guarantees dot products.
        Self(std::array::from_fn(|i| unsafe { dot(self.0[i], weights[i], x) }))
    }
    #[inline(always)]
    unsafe fn finish(self, added: i32) -> NeonLanes {
        converted(self.0, added)
    }
}
