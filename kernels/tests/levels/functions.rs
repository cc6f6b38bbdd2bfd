//! Element-wise functions and norms, against their formulas in double precision; and the choice of experts.

use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{Cpu, math};
use repartee_kernels::{Activation, DType, Ops, RawTensor, RouterShape, WeightLayout};
use repartee_kernels_testkit::host::HostOps;

use crate::numbers;

/// A function in double precision.
type Formula = fn(f64) -> f64;

fn grid(low: f32, high: f32) -> Vec<f32> {
    (0..=4000).map(|i| low + (high - low) * i as f32 / 4000.0).collect()
}

fn sigmoid(x: f32) -> f64 {
    1.0 / (1.0 + (-f64::from(x)).exp())
}

#[track_caller]
fn assert_close(ours: f32, truth: f64, tolerance: f64) {
    assert!((f64::from(ours) - truth).abs() < tolerance, "{ours} instead of {truth}");
}

pub fn snake_matches_its_formula(level: SimdLevel) {
    for x in grid(-300.0, 300.0) {
        let mut y = [x; 17];
        math::snake(level, &mut y, &[0.7; 17], &[1.3; 17]);
        assert_close(y[16], f64::from(x) + 1.3 * f64::from(x * 0.7).sin().powi(2), 4e-5);
    }
}

pub fn gelu_matches_a_series(level: SimdLevel) {
    fn erf64(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / f64::from(n);
            sum += term / f64::from(2 * n + 1);
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }
    for x in grid(-5.0, 5.0) {
        let mut y = [x; 3];
        math::activation(level, &mut y, Activation::Gelu);
        let x = f64::from(x);
        assert_close(y[0], 0.5 * x * (1.0 + erf64(x / 2f64.sqrt())), 1e-6);
    }
}

pub fn gelu_tanh_matches_its_formula(level: SimdLevel) {
    for x in grid(-8.0, 8.0) {
        let mut y = [x; 3];
        math::activation(level, &mut y, Activation::GeluTanh);
        let x = f64::from(x);
        let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        assert_close(y[0], 0.5 * x * (1.0 + z.tanh()), 2e-6);
    }
}

pub fn silu_and_gates_match_the_sigmoid(level: SimdLevel) {
    let xs = grid(-20.0, 20.0);
    let mut silu = xs.clone();
    math::activation(level, &mut silu, Activation::Silu);
    let gated: Vec<f32> = xs.iter().flat_map(|&x| [x, 0.5]).collect();
    let mut silu_mul = vec![0.0; xs.len()];
    math::silu_mul(level, &gated, &mut silu_mul, 1);
    let gated: Vec<f32> = xs.iter().flat_map(|&x| [0.5, x]).collect();
    let mut sigmoid_mul = vec![0.0; xs.len()];
    math::sigmoid_mul(level, &gated, &mut sigmoid_mul, 1);
    let mut gate = vec![3.0; 2 * xs.len()];
    math::sigmoid_gate(level, &mut gate, &xs);
    for (i, &x) in xs.iter().enumerate() {
        assert_close(silu[i], f64::from(x) * sigmoid(x), 5e-6);
        assert_close(silu_mul[i], 0.5 * f64::from(x) * sigmoid(x), 5e-6);
        assert_close(sigmoid_mul[i], 0.5 * sigmoid(x), 1e-6);
        assert_close(gate[2 * i + 1], 3.0 * sigmoid(x), 1e-6);
    }
}

/// Applies a function to each of `xs`.
fn activated(level: SimdLevel, xs: &[f32], function: Activation) -> Vec<f32> {
    let mut values = xs.to_vec();
    math::activation(level, &mut values, function);
    values
}

pub fn activations_match_their_formulas(level: SimdLevel) {
    let xs = [grid(-30.0, 30.0), grid(-0.01, 0.01), vec![-80.0, -0.0, 0.0, 80.0]].concat();
    let leaky = Activation::LeakyRelu { slope: 0.1 };
    let formulas: [(Activation, Formula); 7] = [
        (Activation::Relu, |x| x.max(0.0)),
        (leaky, |x| if x < 0.0 { f64::from(0.1f32) * x } else { x }),
        (Activation::Elu, |x| if x < 0.0 { x.exp_m1() } else { x }),
        (Activation::Mish, |x| x * x.exp().ln_1p().tanh()),
        (Activation::Tanh, f64::tanh),
        (Activation::Exp, f64::exp),
        (Activation::Abs, f64::abs),
    ];
    for (function, formula) in formulas {
        for (&x, y) in xs.iter().zip(activated(level, &xs, function)) {
            let truth = formula(f64::from(x));
            assert!(
                (f64::from(y) - truth).abs() <= 1e-6 * truth.abs() + 1e-35,
                "{function:?}({x}) is {y}, not {truth}"
            );
        }
        assert!(activated(level, &[f32::NAN], function)[0].is_nan(), "{function:?} loses a number that is not finite");
    }
}

pub fn norms_match_their_formulas(level: SimdLevel) {
    for width in [1, 7, 16, 33, 100] {
        let (x, w, b) = (numbers(3 * width, 4.0, 1), numbers(width, 1.0, 2), numbers(width, 1.0, 3));
        let (mut rms, mut layer) = (vec![0.0; x.len()], vec![0.0; x.len()]);
        math::rms_norm(level, &x, &w, 1e-5, &mut rms);
        math::layer_norm(level, &x, &w, &b, 1e-5, &mut layer);
        for (r, row) in x.chunks(width).enumerate() {
            let n = width as f64;
            let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
            let square = row.iter().map(|&v| f64::from(v).powi(2)).sum::<f64>() / n;
            let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
            for (i, &v) in row.iter().enumerate() {
                let (v, w, b) = (f64::from(v), f64::from(w[i]), f64::from(b[i]));
                assert_close(rms[r * width + i], v / (square + 1e-5).sqrt() * w, 1e-5);
                assert_close(layer[r * width + i], (v - mean) / (variance + 1e-5).sqrt() * w + b, 1e-5);
            }
        }
    }
}

pub fn softmax_sums_to_one_and_keeps_order(level: SimdLevel) {
    let mut x: Vec<f32> = (0..37).map(|i| (i % 7) as f32 * 3.0 - 50.0).collect();
    let before = x.clone();
    math::softmax(level, &mut x);
    assert!((x.iter().sum::<f32>() - 1.0).abs() < 1e-6);
    assert!((0..36).all(|i| (before[i] < before[i + 1]) == (x[i] < x[i + 1])));
}

/// A router with equal logits chooses the first experts.
pub fn experts_take_the_lower_of_equals(level: SimdLevel) {
    const HIDDEN: usize = 20;
    const INNER: usize = 9;
    let ops = Cpu::with_level(level);
    let weight = |layout, shape: &[usize], count: usize, by: f32| {
        let part = |part: usize| {
            let values = numbers(shape.iter().product(), by, part as u64);
            values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>()
        };
        let parts: Vec<Vec<u8>> = (0..count).map(part).collect();
        let raw = |bytes| RawTensor { name: "w", bytes, dtype: DType::F32, shape };
        ops.stored_weight(layout, &parts.iter().map(|bytes| raw(bytes)).collect::<Vec<_>>()).unwrap()
    };
    let mixture = |experts: usize| {
        let router = weight(WeightLayout::Linear, &[experts, HIDDEN], 1, 0.0);
        let gate_up = weight(WeightLayout::Experts { per_expert: 2 }, &[INNER, HIDDEN], 2 * experts, 1.0);
        let down = weight(WeightLayout::Experts { per_expert: 1 }, &[HIDDEN, INNER], experts, 1.0);
        let x = ops.tensor(numbers(3 * HIDDEN, 2.0, 99), HIDDEN);
        ops.read(&ops.experts(&x, &router, &gate_up, &down, RouterShape { top_k: 2, normalise: true }))
    };
    assert!(mixture(40) == mixture(2), "others than the first two were chosen");
}
