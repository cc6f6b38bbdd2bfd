//! Peak loop of plain code, and the sizes of all peak loops.

use std::hint::black_box;

/// Registers that are summed together: enough to hide an instruction's latency, few enough for sixteen registers.
pub const SUMS: usize = 12;
/// Multiply-adds on each register in one task.
pub const ROUNDS: usize = 1 << 18;

/// Runs multiply-adds of four numbers at a time, as the compiler vectorises them.
pub fn plain(x: f32) {
    let mut sums = [[x; 4]; SUMS];
    let (factor, term) = (x * 0.999, x * 0.001);
    for _ in 0..ROUNDS {
        for value in sums.as_flattened_mut() {
            *value = *value * factor + term;
        }
    }
    black_box(sums);
}
