//! Random weights for measurements.

use super::support::Device;
use super::{Kernel, TwinResult, random};

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "draw_bf16",
        file: "draw.cu",
        check: numbers,
        planted: &[
            ("blockIdx.x * columns + k", "blockIdx.x * pitch + k"),
            ("bits >> 40", "bits >> 39"),
            ("k < columns ? ", "k <= columns ? "),
            ("__fadd_rn(mean, __fmul_rn(spread, even))", "fmaf(spread, even, mean) * 1.01f"),
        ],
    },
    Kernel {
        name: "draw_integers",
        file: "draw.cu",
        check: integers,
        planted: &[("index * 0x9e3779b97f4a7c15ull", "index"), ("if (i < count) to[i]", "to[i]")],
    },
];

/// Computes the bits of kernels/src/part.rs.
fn drawn_bits(seed: u64, index: u64) -> u64 {
    random::mix(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn numbers(ptx: &str) -> TwinResult {
    let (seed, mean, spread): (u64, f32, f32) = (0xdead_beef_0123, 0.3, 1.7);
    for (rows, columns, pitch) in [(3, 150, 152), (2, 4, 4), (5, 1, 4)] {
        let mut device = Device::load(ptx);
        let to = device.memory.alloc(rows * pitch * 2).unwrap();
        let params = [to, seed, mean.to_bits().into(), spread.to_bits().into(), columns as u64, pitch as u64];
        device.launch("draw_bf16", [rows as u32, 1, 1], [128, 1, 1], 0, &params)?;
        let mut found = vec![0; rows * pitch * 2];
        device.memory.read(to, &mut found)?;
        for (at, found) in found.as_chunks().0.iter().enumerate() {
            let (row, k) = (at / pitch, at % pitch);
            let even = (drawn_bits(seed, (row * columns + k) as u64) >> 40) as f32 / 8_388_608.0 - 1.0;
            let wanted = if k < columns { (mean + spread * even).to_bits() >> 16 } else { 0 };
            if u32::from(u16::from_le_bytes(*found)) != wanted {
                return Ok(Some(format!("{found:?} for {wanted:x} at {row}, {k}")));
            }
        }
    }
    Ok(None)
}

fn integers(ptx: &str) -> TwinResult {
    let (seed, count) = (77, 150);
    let mut device = Device::load(ptx);
    let to = device.memory.alloc(count * 8).unwrap();
    device.launch("draw_integers", [2, 1, 1], [128, 1, 1], 0, &[to, seed, count as u64])?;
    let found = device.read(to, count);
    let wrong = (0..count).find(|&i| found[i] != drawn_bits(seed, i as u64));
    Ok(wrong.map(|at| format!("{:x} at {at}", found[at])))
}
