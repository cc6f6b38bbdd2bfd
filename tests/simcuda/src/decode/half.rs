//! Floating-point numbers of 16 bits.

/// Rounds to bf16, to nearest, ties to even; NaN gives 0x7fff.
pub fn bf16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let bits = value.to_bits();
    let even = bits >> 16 & 1;
    // Even the bits of infinity do not overflow here.
    ((bits + 0x7fff + even) >> 16) as u16
}

/// Truncates to bf16; NaN gives 0x7fff.
pub fn bf16_cut(value: f32) -> u16 {
    if value.is_nan() { 0x7fff } else { (value.to_bits() >> 16) as u16 }
}

/// Widens a bf16, exactly.
pub fn of_bf16(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds to f16, to nearest (ties to even) or towards zero; NaN gives 0x7fff.
pub fn f16(value: f32, nearest: bool) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let sign = (value.to_bits() >> 16 & 0x8000) as u16;
    let size = value.abs();
    if size == f32::INFINITY {
        return sign | 0x7c00;
    }
    // Distance of neighbours: 2^-24 for the smallest, then 2^(exponent - 10).
    let exponent = ((size.to_bits() >> 23) as i32 - 127).max(-14);
    let steps = f64::from(size) * f64::from(10 - exponent).exp2();
    let steps = if nearest { steps.round_ties_even() } else { steps.trunc() } as u32;
    // A full mantissa carries into the exponent; the smallest exponent serves normal and subnormal numbers.
    let bits = ((exponent + 14) as u32) * 1024 + steps;
    let most = if nearest { 0x7c00 } else { 0x7bff };
    sign | bits.min(most) as u16
}

/// Widens an f16, exactly.
pub fn of_f16(bits: u16) -> f32 {
    let exponent = i32::from(bits >> 10 & 31);
    let mantissa = f32::from(bits & 1023);
    let size = match exponent {
        31 if mantissa > 0.0 => f32::NAN,
        31 => f32::INFINITY,
        0 => mantissa * (-24.0_f32).exp2(),
        _ => (1024.0 + mantissa) * ((exponent - 25) as f32).exp2(),
    };
    if bits >> 15 != 0 { -size } else { size }
}
