//! Element-wise functions and norms. Elementary functions are polynomials that the compiler can vectorise, accurate to a few units in the
//! last place over a network's range.

use super::simd::{dispatch, multiply_add};
use crate::shapes::Activation;

/// Exponential `eˣ`; 0 below -87, capped above 88.
#[inline(always)]
pub fn exp<const FUSED: bool>(x: f32) -> f32 {
    let (rest, power) = exp_parts::<FUSED>(x);
    (rest + 1.0) * power
}

/// `eˣ - 1` with all its digits near 0; -1 below -87, capped above 88.
#[inline(always)]
fn exp_minus_one<const FUSED: bool>(x: f32) -> f32 {
    let (rest, power) = exp_parts::<FUSED>(x);
    multiply_add::<FUSED>(rest, power, power - 1.0)
}

/// Parts of `eˣ = 2ⁿ eʳ` with |r| <= ln 2 / 2: `eʳ - 1`, and `2ⁿ`.
#[inline(always)]
fn exp_parts<const FUSED: bool>(x: f32) -> (f32, f32) {
    // ln 2 in two parts so that r keeps its digits.
    let x = x.clamp(-87.3, 88.0);
    let rounded = multiply_add::<FUSED>(x, std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = multiply_add::<FUSED>(n, -0.693_359_4, x);
    let r = multiply_add::<FUSED>(n, 2.121_944_4e-4, r);
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_5e-2, 1.666_666_5e-1, 0.5] {
        p = multiply_add::<FUSED>(p, r, c);
    }
    // The lowest bits of `rounded` are n. They move to the exponent without a conversion or a check, which would prevent vectorisation.
    (multiply_add::<FUSED>(p * r, r, r), f32::from_bits((rounded.to_bits() << 23).wrapping_add(127 << 23)))
}

/// Adding and subtracting this rounds to a whole number: 1.5 * 2^23.
const ROUND: f32 = 12_582_912.0;

/// Returns `sin²(x)`, for |x| up to some ten thousands.
#[inline(always)]
pub(super) fn sin_squared<const FUSED: bool>(x: f32) -> f32 {
    // sin² has period pi: r = x - n pi lies within half a period of 0, pi in three parts.
    let n = multiply_add::<FUSED>(x, std::f32::consts::FRAC_1_PI, ROUND) - ROUND;
    let r = multiply_add::<FUSED>(n, -3.140_625, x);
    let r = multiply_add::<FUSED>(n, -9.670_257_6e-4, r);
    let r = multiply_add::<FUSED>(n, -6.277_114e-7, r);
    let q = r * r;
    let mut p = -2.388_985_9e-8;
    for c in [2.752_557e-6, -1.984_087_4e-4, 8.333_331e-3, -1.666_666_7e-1] {
        p = multiply_add::<FUSED>(p, q, c);
    }
    let s = multiply_add::<FUSED>(p * q, r, r);
    s * s
}

/// The error function, by the rational approximation 7.1.26 of Abramowitz and Stegun (absolute error below 1.5e-7).
#[inline(always)]
fn erf<const FUSED: bool>(x: f32) -> f32 {
    let a = x.abs();
    let t = 1.0 / multiply_add::<FUSED>(0.327_591_1, a, 1.0);
    let mut p = 1.061_405_4;
    for c in [-1.453_152_1, 1.421_413_8, -0.284_496_74, 0.254_829_6] {
        p = multiply_add::<FUSED>(p, t, c);
    }
    let y = multiply_add::<FUSED>(-(p * t), exp::<FUSED>(-a * a), 1.0);
    y.copysign(x)
}

#[inline(always)]
pub(super) fn sigmoid<const FUSED: bool>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<FUSED>(-x))
}

#[inline(always)]
fn silu_mul_loop<const FUSED: bool>(x: &[f32], out: &mut [f32], width: usize) {
    for (row, out) in x.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
        let (gate, up) = row.split_at(width);
        for ((o, &g), &u) in out.iter_mut().zip(gate).zip(up) {
            *o = g * sigmoid::<FUSED>(g) * u;
        }
    }
}

/// Hyperbolic tangent; beyond 10 it is 1.
#[inline(always)]
pub(super) fn tanh<const FUSED: bool>(x: f32) -> f32 {
    let magnitude = if x.abs() > 10.0 { 10.0 } else { x.abs() };
    let e = exp_minus_one::<FUSED>(2.0 * magnitude);
    (e / (e + 2.0)).copysign(x)
}

/// `x tanh(ln(1 + eˣ))`: with `n = eˣ (eˣ + 2)` it is `x n / (n + 2)`; beyond 20 it is x.
#[inline(always)]
fn mish<const FUSED: bool>(x: f32) -> f32 {
    let e = exp::<FUSED>(if x > 20.0 { 20.0 } else { x });
    let n = e * (e + 2.0);
    x * (n / (n + 2.0))
}

#[inline(always)]
fn activation_loop<const FUSED: bool>(x: &mut [f32], function: Activation) {
    /// Twice the square root of 2 / pi: 0.5 (1 + tanh(z)) is the sigmoid of 2z.
    const TWICE: f32 = 1.595_769;
    #[inline(always)]
    fn each(x: &mut [f32], function: impl Fn(f32) -> f32) {
        for v in x {
            *v = function(*v);
        }
    }
    match function {
        Activation::Silu => each(x, |v| v * sigmoid::<FUSED>(v)),
        Activation::Gelu => each(x, |v| 0.5 * v * (1.0 + erf::<FUSED>(v * std::f32::consts::FRAC_1_SQRT_2))),
        Activation::GeluTanh => {
            each(x, |v| v * sigmoid::<FUSED>(TWICE * multiply_add::<FUSED>(0.044_715, v * v * v, v)));
        }
        Activation::Relu => each(x, |v| if v < 0.0 { 0.0 } else { v }),
        Activation::LeakyRelu { slope } => each(x, |v| if v < 0.0 { slope * v } else { v }),
        Activation::Elu => each(x, |v| if v < 0.0 { exp_minus_one::<FUSED>(v) } else { v }),
        Activation::Mish => each(x, mish::<FUSED>),
        Activation::Tanh => each(x, tanh::<FUSED>),
        Activation::Exp => each(x, exp::<FUSED>),
        Activation::Abs => each(x, f32::abs),
    }
}

#[inline(always)]
fn sigmoid_mul_loop<const FUSED: bool>(x: &[f32], out: &mut [f32], width: usize) {
    for (row, out) in x.chunks_exact(2 * width).zip(out.chunks_exact_mut(width)) {
        let (value, gate) = row.split_at(width);
        for ((o, &v), &g) in out.iter_mut().zip(value).zip(gate) {
            *o = v * sigmoid::<FUSED>(g);
        }
    }
}

/// Numbers of some rows' parameters that fit the stack: all rows of which the sixteenths are whole, for at most 32 columns.
const REPEATED: usize = 32 * 16;

#[inline(always)]
fn snake_loop<const FUSED: bool>(x: &mut [f32], frequency: &[f32], magnitude: &[f32]) {
    let columns = frequency.len();
    // Rows of few columns would leave lanes empty: so many rows together fill them that no lane is left.
    let rows = 16 >> columns.trailing_zeros().min(4);
    let (mut frequencies, mut magnitudes) = ([0.0; REPEATED], [0.0; REPEATED]);
    let (frequencies, magnitudes) = if rows * columns <= REPEATED && x.len() >= 4 * rows * columns {
        for (to, from) in [(&mut frequencies, frequency), (&mut magnitudes, magnitude)] {
            to[..rows * columns].chunks_exact_mut(columns.max(1)).for_each(|row| row.copy_from_slice(from));
        }
        (&frequencies[..rows * columns], &magnitudes[..rows * columns])
    } else {
        (frequency, magnitude)
    };
    let mut groups = x.chunks_exact_mut(frequencies.len().max(1));
    for group in &mut groups {
        snake_of::<FUSED>(group, frequencies, magnitudes);
    }
    for row in groups.into_remainder().chunks_exact_mut(columns.max(1)) {
        snake_of::<FUSED>(row, frequency, magnitude);
    }
}

/// Applies the activation to numbers with a frequency and a magnitude each, sixteen at a time.
#[inline(always)]
fn snake_of<const FUSED: bool>(x: &mut [f32], frequencies: &[f32], magnitudes: &[f32]) {
    let one = |v: &mut f32, f: f32, m: f32| *v = multiply_add::<FUSED>(m, sin_squared::<FUSED>(*v * f), *v);
    let (x, rest) = x.as_chunks_mut::<16>();
    let ((frequencies, f_rest), (magnitudes, m_rest)) = (frequencies.as_chunks::<16>(), magnitudes.as_chunks::<16>());
    for ((x, f), m) in x.iter_mut().zip(frequencies).zip(magnitudes) {
        for lane in 0..16 {
            one(&mut x[lane], f[lane], m[lane]);
        }
    }
    for ((v, &f), &m) in rest.iter_mut().zip(f_rest).zip(m_rest) {
        one(v, f, m);
    }
}

#[inline(always)]
fn sigmoid_gate_loop<const FUSED: bool>(y: &mut [f32], gate: &[f32]) {
    let width = y.len() / gate.len().max(1);
    for (row, &g) in y.chunks_exact_mut(width.max(1)).zip(gate) {
        let by = sigmoid::<FUSED>(g);
        for v in row {
            *v *= by;
        }
    }
}

/// Sums over lanes in a fixed order, so that the length alone decides the rounding.
#[inline(always)]
pub fn sum_by<const FUSED: bool>(n: usize, term: impl Fn(usize, f32) -> f32) -> f32 {
    let mut lanes = [0.0f32; 16];
    let whole = n - n % 16;
    for start in (0..whole).step_by(16) {
        for (lane, sum) in lanes.iter_mut().enumerate() {
            *sum = term(start + lane, *sum);
        }
    }
    for i in whole..n {
        lanes[i - whole] = term(i, lanes[i - whole]);
    }
    let mut half = 8;
    while half > 0 {
        for i in 0..half {
            lanes[i] += lanes[i + half];
        }
        half /= 2;
    }
    lanes[0]
}

#[inline(always)]
fn rms_norm_loop<const FUSED: bool>(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
    let n = weight.len();
    for (row, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        let square = sum_by::<FUSED>(n, |i, s| multiply_add::<FUSED>(row[i], row[i], s));
        let by = 1.0 / (square / n as f32 + eps).sqrt();
        for ((o, &v), &w) in out.iter_mut().zip(row).zip(weight) {
            *o = w * (v * by);
        }
    }
}

#[inline(always)]
fn layer_norm_loop<const FUSED: bool>(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) {
    let n = weight.len();
    for (row, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        let mean = sum_by::<FUSED>(n, |i, s| s + row[i]) / n as f32;
        let square = sum_by::<FUSED>(n, |i, s| multiply_add::<FUSED>(row[i] - mean, row[i] - mean, s));
        let by = 1.0 / (square / n as f32 + eps).sqrt();
        for (((o, &v), &w), &b) in out.iter_mut().zip(row).zip(weight).zip(bias) {
            *o = multiply_add::<FUSED>((v - mean) * by, w, b);
        }
    }
}

/// Norm of `x` as a whole, with weight and bias by column.
#[inline(always)]
fn segment_norm_loop<const FUSED: bool>(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]) {
    let n = weight.len();
    // Sums of rows are added in double precision: a segment may have many.
    let mut total = 0.0f64;
    for row in x.chunks_exact(n) {
        total += f64::from(sum_by::<FUSED>(n, |i, s| s + row[i]));
    }
    let mean = (total / x.len() as f64) as f32;
    let mut total = 0.0f64;
    for row in x.chunks_exact(n) {
        total += f64::from(sum_by::<FUSED>(n, |i, s| multiply_add::<FUSED>(row[i] - mean, row[i] - mean, s)));
    }
    let square = (total / x.len() as f64) as f32;
    let by = 1.0 / (square + eps).sqrt();
    for (row, out) in x.chunks_exact(n).zip(out.chunks_exact_mut(n)) {
        for (((o, &v), &w), &b) in out.iter_mut().zip(row).zip(weight).zip(bias) {
            *o = multiply_add::<FUSED>((v - mean) * by, w, b);
        }
    }
}

#[inline(always)]
fn exponentials_loop<const FUSED: bool>(x: &mut [f32]) -> (f32, f32) {
    let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    for v in x.iter_mut() {
        *v = exp::<FUSED>(*v - top);
    }
    let values = &*x;
    (top, sum_by::<FUSED>(values.len(), |i, s| s + values[i]))
}

#[inline(always)]
fn softmax_loop<const FUSED: bool>(x: &mut [f32]) {
    let (_, total) = exponentials_loop::<FUSED>(x);
    for v in x.iter_mut() {
        *v /= total;
    }
}

#[inline(always)]
fn softmax_of_loop<const FUSED: bool>(x: &mut [f32], of: (f32, f32)) {
    let (top, total) = of;
    for v in x.iter_mut() {
        *v = exp::<FUSED>(*v - top) / total;
    }
}

dispatch!(/// Applies a function to each number.
    pub fn activation = activation_loop(x: &mut [f32], function: Activation));
dispatch!(/// `out = silu(gate) * up` for rows `[gate | up]` of twice `width`.
    pub fn silu_mul = silu_mul_loop(x: &[f32], out: &mut [f32], width: usize));
dispatch!(/// `out = value * sigmoid(gate)` for rows `[value | gate]` of twice `width`.
    pub fn sigmoid_mul = sigmoid_mul_loop(x: &[f32], out: &mut [f32], width: usize));
dispatch!(/// `x += magnitude * sin²(x * frequency)`, both per column.
    pub fn snake = snake_loop(x: &mut [f32], frequency: &[f32], magnitude: &[f32]));
dispatch!(/// Multiplies each row of `y` by the sigmoid of its gate.
    pub fn sigmoid_gate = sigmoid_gate_loop(y: &mut [f32], gate: &[f32]));
dispatch!(/// Root-mean-square norm over groups of `weight.len()` columns.
    pub fn rms_norm = rms_norm_loop(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]));
dispatch!(/// Layer norm over groups of `weight.len()` columns.
    pub fn layer_norm = layer_norm_loop(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]));
dispatch!(/// Norm over all numbers of a segment, with weight and bias by column.
    pub fn segment_norm = segment_norm_loop(x: &[f32], weight: &[f32], bias: &[f32], eps: f32, out: &mut [f32]));
dispatch!(/// `x = softmax(x)` over the whole slice.
    pub fn softmax = softmax_loop(x: &mut [f32]));
dispatch!(/// `x = exp(x - top)` with the largest of the slice as `top`; returns it and the sum.
    pub fn exponentials = exponentials_loop(x: &mut [f32]) -> (f32, f32));
dispatch!(/// `x = exp(x - top) / sum`, with the largest number and the sum that [`exponentials`] returned.
    pub fn softmax_of = softmax_of_loop(x: &mut [f32], of: (f32, f32)));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_accurate_over_its_range() {
        for exp in [exp::<true>, exp::<false>] {
            for x in (0..=4000).map(|i| -80.0 + 160.0 * i as f32 / 4000.0) {
                let truth = f64::from(x).exp();
                assert!((f64::from(exp(x)) / truth - 1.0).abs() < 3e-7, "{x}");
            }
            assert!(exp(-1000.0) < 1e-37);
        }
    }

    #[test]
    fn many_rows_of_snake_have_equal_bits() {
        for columns in [1, 3, 12, 16, 24, 33, 48, 100] {
            let number = |at: usize| ((at * 7_919 % 1_009) as f32 - 504.0) / 317.0;
            let parameters = |from: usize| (0..columns).map(|at| number(at + from)).collect::<Vec<_>>();
            let (frequency, magnitude) = (parameters(1), parameters(500));
            let mut many: Vec<f32> = (0..67 * columns).map(number).collect();
            let mut each = many.clone();
            snake_loop::<true>(&mut many, &frequency, &magnitude);
            each.chunks_exact_mut(columns).for_each(|row| snake_loop::<true>(row, &frequency, &magnitude));
            assert_eq!(many, each, "{columns} columns");
        }
    }
}
