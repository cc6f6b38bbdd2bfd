//! Element-wise functions, and norms.

use super::support::Device;
use super::{Kernel, SEGMENT_ROWS, SEGMENTS, TwinResult, compare, each, numbers, segment_of};

const RMS_NORM: &[(&str, &str)] = &[
    ("own.sum(square) / columns + epsilon", "own.sum(square) / (columns + 1) + epsilon"),
    ("if (own.group >= groups) return;", ""),
    ("gain[i] * (kept[i] * by)", "gain[0] * (kept[i] * by)"),
    ("k += own.threads) square = fmaf", "k += 2 * own.threads) square = fmaf"),
    ("k += own.threads) out[k] = weight[k] * (x[k] * by)", "k += own.threads) out[k] = weight[k] * x[k]"),
];
const LAYER_NORM: &[(&str, &str)] = &[
    ("const float mean = own.sum(sum) / columns;", "const float mean = sum / columns;"),
    ("weight[k], bias[k])", "weight[k], 0.0f)"),
    ("x[k] - mean, x[k] - mean, square", "x[k], x[k], square"),
];

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "add_f32",
        file: "elementwise.cu",
        check: add,
        planted: &[("x[i] += y[i]", "x[i] += y[i ^ 1]"), ("if (i < count) x[i] += y[i];", "x[i] += y[i];")],
    },
    Kernel {
        name: "mul_f32",
        file: "elementwise.cu",
        check: mul,
        planted: &[("x[i] *= y[i]", "x[i] *= y[i ^ 1]"), ("if (i < count) x[i] *= y[i];", "x[i] *= y[i];")],
    },
    Kernel {
        name: "scale_f32",
        file: "elementwise.cu",
        check: scale,
        planted: &[("by[i % columns]", "by[i / columns % columns]"), ("by[i % columns]", "by[(i + 1) % columns]")],
    },
    Kernel {
        name: "scale_all_f32",
        file: "elementwise.cu",
        check: scale_all,
        planted: &[("if (i < count) x[i] *= by;", "x[i] *= by;"), ("x[i] *= by;", "x[i] += by;")],
    },
    Kernel {
        name: "clamp_f32",
        file: "elementwise.cu",
        check: clamp,
        planted: &[("value < low ? low", "value < low ? high"), ("value > high ? high : value", "fminf(value, high)")],
    },
    Kernel {
        name: "activation_f32",
        file: "elementwise.cu",
        check: activation,
        planted: &[
            ("case SILU: return x * sigmoid(x)", "case SILU: return x * sigmoid(-x)"),
            ("case SILU: return x * sigmoid(x)", "case SILU: return sigmoid(x)"),
            ("0.70710678f", "0.7070f"),
            ("return 0.5f * x", "return 0.4999f * x"),
            ("1.5957691f", "1.5959f"),
            ("0.044715f", "0.04472f"),
            ("x * x * x, x", "x * x, x"),
            ("case RELU: return x < 0.0f ? 0.0f : x", "case RELU: return fmaxf(x, 0.0f)"),
            ("case LEAKY_RELU: return x < 0.0f ? slope * x : x", "case LEAKY_RELU: return x < 0.0f ? slope + x : x"),
            ("case ELU: return x < 0.0f", "case ELU: return x < -1.0f"),
            ("fmaf(e.rest, e.power, e.power - 1.0f)", "(e.rest + 1.0f) * e.power - 1.0f"),
            ("n = e * (e + 2.0f)", "n = e * (e + 1.0f)"),
            ("exponential(x > 20.0f ? 20.0f : x)", "exponential(x)"),
            (
                "exponential_minus_one(2.0f * (magnitude > 10.0f ? 10.0f : magnitude))",
                "exponential_minus_one(2.0f * fminf(magnitude, 10.0f))",
            ),
            ("return copysignf(e / (e + 2.0f), x)", "return e / (e + 2.0f)"),
            ("case EXP: return exponential(x)", "case EXP: return exponential(-x)"),
            ("default: return fabsf(x)", "default: return x"),
            ("if (i < count) x[i] = activation(", "x[i] = activation("),
        ],
    },
    Kernel {
        name: "sigmoid_mul_f32",
        file: "elementwise.cu",
        check: sigmoid_mul,
        planted: &[
            ("half[0] * sigmoid(half[columns])", "half[columns] * sigmoid(half[0])"),
            ("half[0] * sigmoid(half[columns])", "half[0] * sigmoid(half[columns - 1])"),
        ],
    },
    Kernel {
        name: "silu_mul_f32",
        file: "elementwise.cu",
        check: silu_mul,
        planted: &[
            ("* gate[columns];", "* gate[columns - 1];"),
            ("* 2 * columns + i % columns", "* columns + i % columns"),
        ],
    },
    Kernel {
        name: "sigmoid_gate_f32",
        file: "elementwise.cu",
        check: sigmoid_gate,
        planted: &[("gate[i / columns]", "gate[i % columns]"), ("gate[i / columns]", "gate[i / columns / 2]")],
    },
    Kernel { name: "rms_norm_f32", file: "norm.cu", check: |ptx| rms_norm(ptx, "rms_norm_f32", 4), planted: RMS_NORM },
    Kernel {
        name: "rms_norm_wide_f32",
        file: "norm.cu",
        check: |ptx| rms_norm(ptx, "rms_norm_wide_f32", 1),
        planted: RMS_NORM,
    },
    Kernel {
        name: "add_norm_f32",
        file: "norm.cu",
        check: add_norm,
        planted: &[
            ("x[k] += y[k]", "x[k] -= y[k]"),
            ("y += (size_t)blockIdx.x * columns;", ""),
            ("rms_norm(own, x - (size_t)blockIdx.x * columns", "rms_norm(own, x"),
        ],
    },
    Kernel {
        name: "layer_norm_f32",
        file: "norm.cu",
        check: |ptx| layer_norm(ptx, "layer_norm_f32", 4),
        planted: LAYER_NORM,
    },
    Kernel {
        name: "layer_norm_wide_f32",
        file: "norm.cu",
        check: |ptx| layer_norm(ptx, "layer_norm_wide_f32", 1),
        planted: LAYER_NORM,
    },
    Kernel {
        name: "segment_norm_f32",
        file: "norm.cu",
        check: segment_norm,
        planted: &[
            ("for (unsigned s = 0; s < blockIdx.x; ++s)", "for (unsigned s = 1; s < blockIdx.x; ++s)"),
            ("block_sum(sum, scratch) / size", "block_sum(sum, scratch) / columns"),
            ("block_sum(square, scratch) / size + epsilon", "block_sum(square, scratch) / size"),
            ("weight[k % columns], bias[k % columns]", "weight[k % columns], bias[0]"),
            ("weight[k % columns], bias[k % columns]", "weight[k / columns % columns], bias[k % columns]"),
            ("if (blockIdx.x == count) {", "if (blockIdx.x > count) {"),
        ],
    },
];

/// Not a multiple of a block or of a row's columns.
pub const COUNT: usize = 150;
pub const COLUMNS: usize = 6;

pub fn large(stream: u64, count: usize) -> Vec<f32> {
    numbers(stream, count).iter().map(|value| value * 9.0).collect()
}

/// Runs a kernel that changes its first parameter; `inputs` are its addresses, `sizes` the parameters before the count.
pub fn in_place(
    ptx: &str,
    name: &str,
    inputs: &[&[f32]],
    sizes: &[u64],
    twin: impl Fn(usize) -> (f64, f64),
) -> TwinResult {
    let mut device = Device::load(ptx);
    let mut params: Vec<u64> = inputs.iter().map(|input| device.f32s(input)).collect();
    let count = inputs[0].len();
    params.extend_from_slice(sizes);
    params.push(count as u64);
    each(&mut device, name, count, &params)?;
    let found = device.read_f32s(params[0], count)?;
    Ok(compare(&found, (0..count).map(twin)))
}

pub fn wide(value: f32) -> f64 {
    f64::from(value)
}

fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-wide(x)).exp())
}

/// Tolerance of `count` half units of single precision.
fn units(wanted: f64, count: f64) -> (f64, f64) {
    (wanted, wanted.abs() * count * f64::powi(2.0, -24) + 1e-30)
}

fn add(ptx: &str) -> TwinResult {
    let (x, y) = (numbers(1, COUNT), numbers(2, COUNT));
    in_place(ptx, "add_f32", &[&x, &y], &[], |i| (wide(x[i] + y[i]), 0.0))
}

fn mul(ptx: &str) -> TwinResult {
    let (x, y) = (numbers(1, COUNT), numbers(2, COUNT));
    in_place(ptx, "mul_f32", &[&x, &y], &[], |i| (wide(x[i] * y[i]), 0.0))
}

fn scale(ptx: &str) -> TwinResult {
    let (x, by) = (numbers(1, COUNT), numbers(2, COLUMNS));
    in_place(ptx, "scale_f32", &[&x, &by], &[COLUMNS as u64], |i| (wide(x[i] * by[i % COLUMNS]), 0.0))
}

fn scale_all(ptx: &str) -> TwinResult {
    let x = numbers(1, COUNT);
    in_place(ptx, "scale_all_f32", &[&x], &[u64::from(0.3f32.to_bits())], |i| (wide(x[i] * 0.3), 0.0))
}

fn clamp(ptx: &str) -> TwinResult {
    let mut x = numbers(1, COUNT);
    x[70] = f32::NAN;
    let limits = [-0.25f32, 0.5].map(|limit| u64::from(limit.to_bits()));
    in_place(ptx, "clamp_f32", &[&x], &limits, |i| (wide(x[i].clamp(-0.25, 0.5)), 0.0))
}

/// Computes the error function by Simpson's rule.
fn erf(x: f64) -> f64 {
    const STEPS: usize = 400;
    let width = x / STEPS as f64;
    let at = |i: usize| (-(i as f64 * width).powi(2)).exp();
    let inner: f64 = (1..STEPS).map(|i| at(i) * if i % 2 == 1 { 4.0 } else { 2.0 }).sum();
    (at(0) + inner + at(STEPS)) * width / 3.0 * std::f64::consts::FRAC_2_SQRT_PI
}

/// Value of a function and its tolerance.
type Formula = fn(f64) -> (f64, f64);

/// Half a unit of one.
const HALF_UNIT: f64 = 1.0 / (1 << 24) as f64;

/// Functions by their number in the kernel; the slope of the leaky one is a tenth.
const FUNCTIONS: [Formula; 10] = [
    |x| units(x / (1.0 + (-x).exp()), 8.0),
    // One plus the error function loses small digits beside one.
    |x| (0.5 * x * (1.0 + erf(x / std::f64::consts::SQRT_2)), x.abs() * 4.0 * HALF_UNIT),
    |x| {
        let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        // The error of an exponential grows with its argument.
        units(0.5 * x * (1.0 + z.tanh()), 8.0 + 8.0 * z.abs())
    },
    |x| (if x < 0.0 { 0.0 } else { x }, 0.0),
    |x| if x < 0.0 { units(wide(0.1) * x, 1.0) } else { (x, 0.0) },
    |x| if x < 0.0 { units(x.exp_m1(), 8.0) } else { (x, 0.0) },
    |x| units(x * x.exp().ln_1p().tanh(), 16.0),
    |x| units(x.tanh(), 12.0),
    |x| units(x.exp(), 8.0),
    |x| (x.abs(), 0.0),
];

fn activation(ptx: &str) -> TwinResult {
    for (function, formula) in FUNCTIONS.iter().enumerate() {
        let mut x: Vec<f32> = large(1, COUNT).iter().map(|value| value / 2.0).collect();
        x[..4].copy_from_slice(&[f32::NAN, 0.0, -80.0, 60.0]);
        // Numbers near zero keep their digits.
        x[4..40].iter_mut().for_each(|value| *value *= 1e-3);
        if function == 1 {
            // The twin's error function is a sum over the whole way.
            x[2..4].copy_from_slice(&[-4.0, 4.0]);
        }
        let sizes = [function as u64, u64::from(0.1f32.to_bits())];
        let found = in_place(ptx, "activation_f32", &[&x], &sizes, |i| formula(wide(x[i])))?;
        if let Some(wrong) = found {
            return Ok(Some(format!("function {function}: {wrong}")));
        }
    }
    Ok(None)
}

fn sigmoid_mul(ptx: &str) -> TwinResult {
    let mut device = Device::load(ptx);
    let (x, rows) = (large(1, 2 * COUNT), COUNT / COLUMNS);
    let params = [device.f32s(&x), device.fresh(COUNT), COLUMNS as u64, COUNT as u64];
    each(&mut device, "sigmoid_mul_f32", COUNT, &params)?;
    let wanted = (0..rows * COLUMNS).map(|i| {
        let at = i / COLUMNS * 2 * COLUMNS + i % COLUMNS;
        units(wide(x[at]) * sigmoid(x[at + COLUMNS]), 8.0)
    });
    Ok(compare(&device.read_f32s(params[1], COUNT)?, wanted))
}

fn silu_mul(ptx: &str) -> TwinResult {
    let mut device = Device::load(ptx);
    let x = large(1, 2 * COUNT);
    let (from, out) = (device.f32s(&x), device.fresh(COUNT));
    each(&mut device, "silu_mul_f32", COUNT, &[from, out, COLUMNS as u64, COUNT as u64])?;
    let found = device.read_f32s(out, COUNT)?;
    let wanted = (0..COUNT).map(|i| {
        let at = i / COLUMNS * 2 * COLUMNS + i % COLUMNS;
        units(wide(x[at]) * sigmoid(x[at]) * wide(x[at + COLUMNS]), 10.0)
    });
    Ok(compare(&found, wanted))
}

fn sigmoid_gate(ptx: &str) -> TwinResult {
    let (x, gate) = (numbers(1, COUNT), large(2, COUNT / COLUMNS));
    in_place(ptx, "sigmoid_gate_f32", &[&x, &gate], &[COLUMNS as u64], |i| {
        units(wide(x[i]) * sigmoid(gate[i / COLUMNS]), 8.0)
    })
}

/// Groups and their columns, of sizes that are no multiples of each other.
const GROUPS: [(usize, usize); 5] = [(3, 5), (7, 64), (6, 75), (2, 600), (2, 2500)];

fn rms_norm(ptx: &str, name: &str, groups_each: usize) -> TwinResult {
    for (groups, columns) in GROUPS {
        let mut device = Device::load(ptx);
        let (x, weight) = (numbers(1, groups * columns), numbers(2, columns));
        let params = [device.f32s(&x), device.f32s(&weight), device.fresh(groups * columns)];
        let sizes = [columns as u64, groups as u64, u64::from(1e-6f32.to_bits())];
        device.launch(
            name,
            [(groups.div_ceil(groups_each) + usize::from(groups_each == 1)) as u32, 1, 1],
            [128, 1, 1],
            0,
            &[&params[..], &sizes].concat(),
        )?;
        let found = device.read_f32s(params[2], groups * columns)?;
        let wanted = (0..groups * columns).map(|i| {
            let row = &x[i / columns * columns..][..columns];
            let square: f64 = row.iter().map(|v| wide(*v).powi(2)).sum();
            units(
                wide(weight[i % columns]) * wide(x[i]) / (square / columns as f64 + 1e-6).sqrt(),
                8.0 + columns as f64 / 16.0,
            )
        });
        if let Some(wrong) = compare(&found, wanted) {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

fn add_norm(ptx: &str) -> TwinResult {
    for (rows, columns) in GROUPS {
        let mut device = Device::load(ptx);
        let (x, y, weight) = (numbers(1, rows * columns), numbers(4, rows * columns), numbers(2, columns));
        let params = [device.f32s(&x), device.f32s(&y), device.f32s(&weight), device.fresh(rows * columns)];
        let sizes = [columns as u64, u64::from(1e-6f32.to_bits())];
        device.launch("add_norm_f32", [rows as u32, 1, 1], [128, 1, 1], 0, &[&params[..], &sizes].concat())?;
        let sums: Vec<f32> = x.iter().zip(&y).map(|(x, y)| x + y).collect();
        if let Some(wrong) =
            compare(&device.read_f32s(params[0], sums.len())?, sums.iter().map(|sum| (wide(*sum), 0.0)))
        {
            return Ok(Some(format!("sums: {wrong}")));
        }
        let wanted = (0..rows * columns).map(|i| {
            let square: f64 = sums[i / columns * columns..][..columns].iter().map(|v| wide(*v).powi(2)).sum();
            units(
                wide(weight[i % columns]) * wide(sums[i]) / (square / columns as f64 + 1e-6).sqrt(),
                8.0 + columns as f64 / 16.0,
            )
        });
        if let Some(wrong) = compare(&device.read_f32s(params[3], rows * columns)?, wanted) {
            return Ok(Some(format!("{rows} rows of {columns}: {wrong}")));
        }
    }
    Ok(None)
}

fn layer_norm(ptx: &str, name: &str, groups_each: usize) -> TwinResult {
    for (groups, columns) in GROUPS {
        let mut device = Device::load(ptx);
        let (x, weight, bias) = (numbers(1, groups * columns), numbers(2, columns), numbers(3, columns));
        let params = [device.f32s(&x), device.f32s(&weight), device.f32s(&bias), device.fresh(groups * columns)];
        let sizes = [columns as u64, groups as u64, u64::from(1e-5f32.to_bits())];
        device.launch(
            name,
            [(groups.div_ceil(groups_each) + usize::from(groups_each == 1)) as u32, 1, 1],
            [128, 1, 1],
            0,
            &[&params[..], &sizes].concat(),
        )?;
        let found = device.read_f32s(params[3], groups * columns)?;
        let wanted = (0..groups * columns).map(|i| {
            let row = &x[i / columns * columns..][..columns];
            let mean = row.iter().map(|v| wide(*v)).sum::<f64>() / columns as f64;
            let variance = row.iter().map(|v| (wide(*v) - mean).powi(2)).sum::<f64>() / columns as f64;
            let normed = (wide(x[i]) - mean) / (variance + 1e-5).sqrt();
            let wanted = normed * wide(weight[i % columns]) + wide(bias[i % columns]);
            (wanted, (normed.abs() + wanted.abs() + 1.0) * (8.0 + columns as f64 / 16.0) * f64::powi(2.0, -24))
        });
        if let Some(wrong) = compare(&found, wanted) {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

fn segment_norm(ptx: &str) -> TwinResult {
    let epsilon = 0.01f32;
    for columns in [3, 70] {
        let mut device = Device::load(ptx);
        let count = SEGMENT_ROWS * columns;
        let (x, weight, bias) = (numbers(1, count), numbers(2, columns), numbers(3, columns));
        let mut params = vec![device.f32s(&x), device.f32s(&weight), device.f32s(&bias), device.fresh(count)];
        params.push(device.u32s(&SEGMENTS));
        params.extend([SEGMENTS.len(), SEGMENT_ROWS, columns].map(|size| size as u64));
        params.push(u64::from(epsilon.to_bits()));
        let grid = [SEGMENTS.len() as u32 + 1, 1, 1];
        device.launch("segment_norm_f32", grid, [64, 1, 1], 2 * 4, &params)?;
        let wanted = (0..count).map(|i| {
            let Some(segment) = segment_of(i / columns) else { return (0.0, 0.0) };
            let mine = &x[segment.start * columns..segment.end * columns];
            let mean = mine.iter().map(|v| wide(*v)).sum::<f64>() / mine.len() as f64;
            let variance = mine.iter().map(|v| (wide(*v) - mean).powi(2)).sum::<f64>() / mine.len() as f64;
            let by = 1.0 / (variance + wide(epsilon)).sqrt();
            let (w, b) = (wide(weight[i % columns]), wide(bias[i % columns]));
            ((wide(x[i]) - mean) * by * w + b, (mine.len() as f64 + 16.0) * (by + 1.0) * HALF_UNIT)
        });
        if let Some(wrong) = compare(&device.read_f32s(params[3], count)?, wanted) {
            return Ok(Some(format!("{columns} columns: {wrong}")));
        }
    }
    Ok(None)
}
