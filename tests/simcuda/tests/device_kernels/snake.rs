//! Snake activation, at the rows' own rate and at twice the rate.

use super::elementwise::{COLUMNS, COUNT, in_place, large, wide};
use super::support::Device;
use super::{Kernel, SEGMENT_ROWS, SEGMENTS, TwinResult, compare, each, numbers, segment_of};

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "snake_f32",
        file: "snake.cu",
        check: snake,
        planted: &[
            ("fmaf(magnitude[column], sin_squared", "fmaf(frequency[column], sin_squared"),
            ("  r = fmaf(turns, -9.6702576e-4f, r);\n", ""),
            ("const unsigned column = i % columns;", "const unsigned column = i / columns % columns;"),
        ],
    },
    Kernel {
        name: "segment_snake_f32",
        file: "snake.cu",
        check: segments,
        planted: &[
            ("HALF_TAPS / 2, rows - 1)", "HALF_TAPS / 2, rows)"),
            ("- 1 - odd - 2 * k]", "- 1 - 2 * k]"),
            ("(HALF_TAPS - 1), 2 * rows - 1)", "(HALF_TAPS - 1), 2 * rows)"),
            ("window[t] = window[t + 2]", "window[t] = window[t + 1]"),
            ("same = row - segment.first < segment.rows", "same = row > first"),
            ("2.0f * filter", "filter"),
        ],
    },
];

/// Frequencies and magnitudes have both signs.
fn snake(ptx: &str) -> TwinResult {
    let (x, frequency, magnitude) = (large(1, COUNT), large(2, COLUMNS), numbers(3, COLUMNS));
    in_place(ptx, "snake_f32", &[&x, &frequency, &magnitude], &[COLUMNS as u64], |i| {
        let angle = wide(x[i]) * wide(frequency[i % COLUMNS]);
        let magnitude = wide(magnitude[i % COLUMNS]);
        let wanted = wide(x[i]) + magnitude * angle.sin().powi(2);
        (wanted, (magnitude.abs() * (4.0 + 4.0 * angle.abs()) + 2.0 * wanted.abs()) * f64::powi(2.0, -24))
    })
}

/// Computes it as a resampler is defined: zeros between the numbers, the filter, the snake, the filter, every other
/// number.
fn segments(ptx: &str) -> TwinResult {
    const TAPS: usize = 12;
    const HALF_UNIT: f64 = 1.0 / (1 << 24) as f64;
    for columns in [3, 70] {
        let mut device = Device::load(ptx);
        let x: Vec<f32> = numbers(1, SEGMENT_ROWS * columns).iter().map(|value| value * 2.0).collect();
        let (frequency, magnitude, filter) = (numbers(2, columns), numbers(3, columns), numbers(4, TAPS));
        let count = SEGMENT_ROWS * columns;
        let params = [
            device.f32s(&x),
            device.f32s(&frequency),
            device.f32s(&magnitude),
            device.f32s(&filter),
            device.fresh(count),
            device.u32s(&SEGMENTS),
            SEGMENTS.len() as u64,
            SEGMENT_ROWS as u64,
            columns as u64,
        ];
        each(&mut device, "segment_snake_f32", SEGMENT_ROWS.div_ceil(8) * columns, &params)?;
        let wanted = (0..count).map(|i| {
            let (row, column) = (i / columns, i % columns);
            let Some(segment) = segment_of(row) else { return (0.0, 0.0) };
            let (first, rows) = (segment.start, segment.len() as i64);
            let (frequency, magnitude) = (wide(frequency[column]), wide(magnitude[column]));
            // An activation and its tolerance.
            let activation = |at: i64| {
                let at = at.clamp(0, 2 * rows - 1);
                let (mut sum, mut size) = (0.0, 0.0);
                for (tap, by) in filter.iter().enumerate() {
                    // Fifteen numbers are cut off, and five rows were added before the first one.
                    let from = at + 15 - tap as i64;
                    if from % 2 == 0 {
                        let from = first + (from / 2 - 5).clamp(0, rows - 1) as usize;
                        let term = 2.0 * wide(*by) * wide(x[from * columns + column]);
                        (sum, size) = (sum + term, size + term.abs());
                    }
                }
                let angle = sum * frequency;
                let value = sum + magnitude * angle.sin().powi(2);
                let steepness = (magnitude * frequency).abs();
                let off = 8.0 * size * (1.0 + steepness) + magnitude.abs() * (4.0 + 4.0 * angle.abs());
                (value, off + 2.0 * value.abs())
            };
            let (mut sum, mut off) = (0.0, 0.0);
            for (tap, by) in filter.iter().enumerate() {
                let (value, by_value) = activation(2 * (row - first) as i64 + tap as i64 - 5);
                sum += wide(*by) * value;
                off += wide(*by).abs() * (by_value + TAPS as f64 * value.abs());
            }
            (sum, off * HALF_UNIT + 1e-30)
        });
        if let Some(wrong) = compare(&device.read_f32s(params[4], count)?, wanted) {
            return Ok(Some(format!("{columns} columns: {wrong}")));
        }
    }
    Ok(None)
}
