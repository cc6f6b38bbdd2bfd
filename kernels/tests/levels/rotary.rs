//! Rotary embedding against the reference's formula in single precision, bit for bit, and the caching of its angles.

use repartee_kernels::cpu::Cpu;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::{Ops, SequenceRows};
use repartee_kernels_testkit::host::HostOps;

use crate::numbers;

/// Computes the angles anew for every head.
fn plain_rotary(x: &mut [f32], positions: &[usize], head_dim: usize, theta: f32) {
    let half = head_dim / 2;
    let width = x.len() / positions.len();
    for (row, &position) in x.chunks_exact_mut(width).zip(positions) {
        for head in row.chunks_exact_mut(head_dim) {
            for i in 0..half {
                let frequency = 1.0 / theta.powf((2 * i) as f32 / head_dim as f32);
                let (sin, cos) = (position as f32 * frequency).sin_cos();
                let (a, b) = (head[i], head[i + half]);
                (head[i], head[i + half]) = (a * cos - b * sin, b * cos + a * sin);
            }
        }
    }
}

/// Layers with queries and keys of different widths, several sequences, and a position twice in a row.
pub fn rotary_computes_angles_once_a_batch(level: SimdLevel) {
    let ops = Cpu::with_level(level);
    for head_dim in [2, 24, 32, 128] {
        let sequences =
            [(7000, 3), (12, 1), (12, 1), (0, 5)].map(|(position, rows)| SequenceRows { table: &[0], position, rows });
        let positions: Vec<usize> = sequences.iter().flat_map(|s| s.position..s.position + s.rows).collect();
        let batch = ops.batch(&sequences);
        let [frequencies, others] = [1e6, 1e4].map(|theta| ops.rotary_weight(head_dim, theta).unwrap());
        for layer in 0..4 {
            for heads in [4, 2] {
                let width = heads * head_dim;
                let x = numbers(positions.len() * width, 3.0, layer);
                let mut expected = x.clone();
                plain_rotary(&mut expected, &positions, head_dim, 1e6);
                let ours = ops.read(&ops.rotary(ops.tensor(x, width), &batch, &frequencies));
                assert!(ours == expected, "other numbers with heads of {head_dim}");
            }
        }
        assert_eq!(batch.computed_angles(), 1, "every layer shares the batch's angles");
        let x = numbers(positions.len() * head_dim, 3.0, 9);
        let mut expected = x.clone();
        plain_rotary(&mut expected, &positions, head_dim, 1e4);
        assert!(ops.read(&ops.rotary(ops.tensor(x, head_dim), &batch, &others)) == expected, "another base");
        // The one frequency of a head of two numbers is 1 with every base.
        let bases = if head_dim == 2 { 1 } else { 2 };
        assert_eq!(batch.computed_angles(), bases, "another base has its own angles");
    }
}
