//! Relative positions of the FastConformer encoder: attention by rotary positions equals sums written out in double precision.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::path::Path;

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::conformer::attention::{PositionTable, Positions, RelativeAttention};
use repartee_engine::internals::conformer::shape::ConformerShape;
use repartee_engine::internals::weights::Weights;
use repartee_kernels::Ops;
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::uniform;
use repartee_kernels::{SequenceRows, SpecLayout};
use repartee_kernels_testkit::host::HostOps;

const WIDTH: usize = 24;
const HEADS: usize = 3;
const HEAD: usize = WIDTH / HEADS;
/// Rows of the recording, far enough apart that wavelengths wrap.
const ROWS: usize = 90;

fn numbers(seed: u64, count: usize, size: f32) -> Vec<f32> {
    (0..count).map(|i| size * (2.0 * uniform(seed, i as u64, 0, 0) - 1.0)).collect()
}

/// The weights by name: matrices and biases of four layers, the positions' matrix, and both biases of heads.
fn tensors() -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let mut all = Vec::new();
    for (seed, name) in ["linear_q", "linear_k", "linear_v", "linear_out"].into_iter().enumerate() {
        all.push((format!("{name}.weight"), vec![WIDTH, WIDTH], numbers(seed as u64, WIDTH * WIDTH, 0.4)));
        all.push((format!("{name}.bias"), vec![WIDTH], numbers(10 + seed as u64, WIDTH, 0.4)));
    }
    all.push(("linear_pos.weight".to_owned(), vec![WIDTH, WIDTH], numbers(20, WIDTH * WIDTH, 0.4)));
    for (seed, name) in [(21, "pos_bias_u"), (22, "pos_bias_v")] {
        all.push((name.to_owned(), vec![HEADS, HEAD], numbers(seed, WIDTH, 0.7)));
    }
    all
}

fn product(matrix: &[f32], x: &[f64]) -> Vec<f64> {
    matrix.chunks_exact(WIDTH).map(|row| row.iter().zip(x).map(|(a, b)| f64::from(*a) * b).sum()).collect()
}

/// Attention written out: each score is a sum over the head's numbers with the row of the distance.
fn plain(x: &[f32]) -> Vec<f64> {
    let tensors = tensors();
    let tensor = |name: &str| &tensors.iter().find(|(other, ..)| other == name).unwrap().2[..];
    let rows: Vec<Vec<f64>> =
        x.chunks_exact(WIDTH).map(|row| row.iter().map(|number| f64::from(*number)).collect()).collect();
    let linear = |name: &str, row: &[f64]| -> Vec<f64> {
        let bias = tensor(&format!("{name}.bias"));
        product(tensor(&format!("{name}.weight")), row).iter().zip(bias).map(|(a, b)| a + f64::from(*b)).collect()
    };
    let all = |name: &str| rows.iter().map(|row| linear(name, row)).collect::<Vec<_>>();
    let (q, k, v) = (all("linear_q"), all("linear_k"), all("linear_v"));
    // Sines at even numbers, cosines at odd ones.
    let distance = |distance: f64| -> Vec<f64> {
        let at = |at: usize| {
            let angle = distance * 10_000f64.powf(-((at / 2 * 2) as f64) / WIDTH as f64);
            if at.is_multiple_of(2) { angle.sin() } else { angle.cos() }
        };
        product(tensor("linear_pos.weight"), &(0..WIDTH).map(at).collect::<Vec<_>>())
    };
    let (u, of_v) = (tensor("pos_bias_u"), tensor("pos_bias_v"));
    let attended = |i: usize| {
        let mut out = vec![0.0; WIDTH];
        for head in 0..HEADS {
            let numbers = head * HEAD..(head + 1) * HEAD;
            let score = |j: usize| {
                let p = distance(i as f64 - j as f64);
                let sum = numbers
                    .clone()
                    .map(|n| (q[i][n] + f64::from(u[n])) * k[j][n] + (q[i][n] + f64::from(of_v[n])) * p[n]);
                (sum.sum::<f64>() / (HEAD as f64).sqrt()).exp()
            };
            let scores: Vec<f64> = (0..ROWS).map(score).collect();
            let total: f64 = scores.iter().sum();
            for n in numbers {
                out[n] = scores.iter().enumerate().map(|(j, score)| score / total * v[j][n]).sum();
            }
        }
        linear("linear_out", &out)
    };
    (0..ROWS).flat_map(attended).collect()
}

#[test]
fn rotary_positions_equal_relative_ones() {
    let ops = Cpu::default();
    let checkpoint = Checkpoint::converted(Path::new("random"), tensors());
    let w = Weights::new(&ops, &checkpoint);
    let shape = ConformerShape {
        bins: 8,
        width: WIDTH,
        layers: 1,
        heads: HEADS,
        inner: 8,
        taps: 3,
        channels: 2,
        scales_rows: false,
        adapter: vec![8],
    };
    let attention = RelativeAttention::load(&w, &shape).unwrap();
    let table = PositionTable::new(&w, WIDTH).unwrap();
    let x = numbers(30, ROWS * WIDTH, 1.0);
    let batch = ops.batch(&[SequenceRows { table: &[0], position: 0, rows: ROWS }]);
    let keys = table.keys(&ops, &ops.list(&[0; ROWS]), &batch);
    let mut layout = SpecLayout::default();
    let section = layout.segments(ROWS, 1);
    let mut spec = layout.spec();
    spec.set_segments(section, &[ROWS]);
    let segments = ops.index(&ops.upload(&spec), section.words());
    let at = Positions { batch: &batch, segments: &segments, keys: &keys, frequencies: table.frequencies() };
    let ours = ops.read(&attention.forward(&ops, &ops.tensor(x.clone(), WIDTH), &at));
    let truth = plain(&x);
    let largest = truth.iter().fold(0.0f64, |most, number| most.max(number.abs()));
    let off = ours.iter().zip(&truth).fold(0.0f64, |most, (ours, truth)| most.max((f64::from(*ours) - truth).abs()));
    assert!(off < 2e-5 * largest, "{off} of {largest}");
}
