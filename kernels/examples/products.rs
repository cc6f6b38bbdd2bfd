//! Computes one product some times and nothing else: for counting its instructions in an emulator (docs/arm.md).
//!
//! Usage: products FORMAT ROWS TIMES, with FORMAT bf16, int8 or int4; `REPARTEE_SIMD` chooses the instructions.

use std::process::ExitCode;

use repartee_kernels::RandomDraw;
use repartee_kernels::cpu::gemm::{PackedWeight, StridedRows, multiply};
use repartee_kernels::cpu::quantised::{IntegerFormat, QuantisedWeight};
use repartee_kernels::cpu::simd::SimdLevel;

/// Inputs and output columns.
const SIZE: (usize, usize) = (256, 512);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ([format, rows, times], (k, columns)) = (&arguments[..], SIZE) else {
        eprintln!("usage: products bf16|int8|int4 ROWS TIMES");
        return ExitCode::FAILURE;
    };
    let (Ok(rows), Ok(times)) = (rows.parse::<usize>(), times.parse::<usize>()) else {
        eprintln!("products: ROWS and TIMES are numbers");
        return ExitCode::FAILURE;
    };
    let draw = RandomDraw { seed: 1, mean: 0.0, spread: 1.0 };
    let integers = |format| PackedWeight::quantised(QuantisedWeight::drawn(format, columns, k, draw), k);
    let weight = match format.as_str() {
        "bf16" => PackedWeight::new_bf16(columns, k, |c, i| (draw.number((c * k + i) as u64).to_bits() >> 16) as u16),
        "int8" => integers(IntegerFormat::Eight),
        "int4" => integers(IntegerFormat::Four),
        _ => {
            eprintln!("products: `{format}` is neither bf16, int8 nor int4");
            return ExitCode::FAILURE;
        }
    };
    let x: Vec<f32> = (0..rows * k).map(|at| draw.number(at as u64)).collect();
    let mut out = vec![0.0; rows * columns];
    for _ in 0..times {
        multiply(SimdLevel::detect(), StridedRows::dense(&x, k), &weight, None, &mut out);
    }
    println!("{:?}: {k} x {columns}, {rows} rows, {}", SimdLevel::detect(), out.iter().sum::<f32>());
    ExitCode::SUCCESS
}
