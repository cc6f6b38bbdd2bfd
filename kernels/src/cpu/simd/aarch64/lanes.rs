//! Sixteen numbers in four registers.

use std::arch::aarch64::*;
use std::arch::asm;

use crate::cpu::simd::lanes::Lanes;

/// Four 128-bit registers.
#[derive(Clone, Copy)]
pub struct NeonLanes(pub(super) [float32x4_t; 4]);

/// Loads sixteen numbers of sixteen bits.
///
/// # Safety
/// `from` is readable for sixteen numbers.
#[inline(always)]
unsafe fn load_halves(from: *const u16) -> [uint16x8_t; 2] {
    // SAFETY: NEON is in every processor of the architecture; the caller guarantees the numbers.
    unsafe { [vld1q_u16(from), vld1q_u16(from.add(8))] }
}

/// Widens four numbers of half precision in the lower half of a register.
#[inline(always)]
fn widen_low(narrow: uint16x8_t) -> float32x4_t {
    let wide;
    // SAFETY: every processor of the architecture has the instruction, which touches registers alone.
    unsafe {
        asm!("fcvtl {wide:v}.4s, {narrow:v}.4h", wide = lateout(vreg) wide, narrow = in(vreg) narrow,
            options(pure, nomem, nostack, preserves_flags));
    }
    wide
}

/// Widens four numbers of half precision in the upper half of a register.
#[inline(always)]
fn widen_high(narrow: uint16x8_t) -> float32x4_t {
    let wide;
    // SAFETY: as above.
    unsafe {
        asm!("fcvtl2 {wide:v}.4s, {narrow:v}.8h", wide = lateout(vreg) wide, narrow = in(vreg) narrow,
            options(pure, nomem, nostack, preserves_flags));
    }
    wide
}

impl Lanes for NeonLanes {
    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: NEON is in every processor of the architecture.
        unsafe { Self([vdupq_n_f32(0.0); 4]) }
    }
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        // SAFETY: as above.
        unsafe { Self([vdupq_n_f32(x); 4]) }
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: as above; the caller guarantees sixteen readable numbers, four for each register.
        unsafe { Self([vld1q_f32(from), vld1q_f32(from.add(4)), vld1q_f32(from.add(8)), vld1q_f32(from.add(12))]) }
    }
    #[inline(always)]
    unsafe fn load_bf16(from: *const u16) -> Self {
        // SAFETY: as above; the caller guarantees sixteen readable numbers.
        unsafe {
            let [first, second] = load_halves(from);
            let wide = [
                vshll_n_u16::<16>(vget_low_u16(first)),
                vshll_high_n_u16::<16>(first),
                vshll_n_u16::<16>(vget_low_u16(second)),
                vshll_high_n_u16::<16>(second),
            ];
            Self(wide.map(|bits| vreinterpretq_f32_u32(bits)))
        }
    }
    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self {
        // SAFETY: the caller guarantees sixteen readable numbers.
        let [first, second] = unsafe { load_halves(from) };
        Self([widen_low(first), widen_high(first), widen_low(second), widen_high(second)])
    }
    #[inline(always)]
    unsafe fn load_bytes(from: *const u16) -> [Self; 2] {
        // SAFETY: as above; the caller guarantees sixteen readable numbers.
        unsafe {
            let pairs = load_halves(from);
            let lower = pairs.map(|pairs| vandq_u16(pairs, vdupq_n_u16(0xff)));
            let upper = pairs.map(|pairs| vshrq_n_u16::<8>(pairs));
            [lower, upper].map(|[first, second]| {
                let wide = [
                    vmovl_u16(vget_low_u16(first)),
                    vmovl_high_u16(first),
                    vmovl_u16(vget_low_u16(second)),
                    vmovl_high_u16(second),
                ];
                Self(wide.map(|number| vcvtq_f32_u32(number)))
            })
        }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: as above; the caller guarantees room for sixteen numbers, four of each register.
        unsafe {
            for (at, numbers) in self.0.into_iter().enumerate() {
                vst1q_f32(to.add(4 * at), numbers);
            }
        }
    }
    #[inline(always)]
    unsafe fn multiply_add(self, a: Self, b: Self) -> Self {
        // SAFETY: as above.
        Self(std::array::from_fn(|i| unsafe { vfmaq_f32(self.0[i], a.0[i], b.0[i]) }))
    }
    #[inline(always)]
    unsafe fn plus(self, b: Self) -> Self {
        // SAFETY: as above.
        Self(std::array::from_fn(|i| unsafe { vaddq_f32(self.0[i], b.0[i]) }))
    }
    #[inline(always)]
    unsafe fn times(self, b: Self) -> Self {
        // SAFETY: as above.
        Self(std::array::from_fn(|i| unsafe { vmulq_f32(self.0[i], b.0[i]) }))
    }
}
