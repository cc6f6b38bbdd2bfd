//! Rows by index.

use super::support::Device;
use super::{Kernel, NO_ROW, TwinResult, compare, each, numbers};

const GATHER: &[(&str, &str)] = &[
    ("row == NO_ROW ? 0.0f : widen", "widen"),
    ("widen(from[(size_t)row * columns + i % columns])", "widen(from[(size_t)row * columns + (i + 1) % columns])"),
    ("at[i / columns];\n  to[i] = row", "at[i % columns];\n  to[i] = row"),
];

pub const KERNELS: &[Kernel] = &[
    Kernel { name: "gather_rows_f32", file: "rows.cu", check: |ptx| gather(ptx, false), planted: GATHER },
    Kernel { name: "gather_rows_bf16", file: "rows.cu", check: |ptx| gather(ptx, true), planted: GATHER },
    Kernel {
        name: "overlay_rows_f32",
        file: "rows.cu",
        check: overlay,
        planted: &[
            ("if (row != NO_ROW) to[i] = from[", "to[i] = from["),
            ("to[i] = from[(size_t)row * columns + i % columns]", "to[i] += from[(size_t)row * columns + i % columns]"),
        ],
    },
    Kernel {
        name: "hold_rows_f32",
        file: "rows.cu",
        check: hold,
        planted: &[
            ("to == NO_ROW || bits[", "bits["),
            ("(size_t)row * words + column / 32", "(size_t)to * words + column / 32"),
            (">> column % 32 & 1", ">> column / 32 & 1"),
            ("x[(size_t)to * columns + column] += penalty", "x[(size_t)row * columns + column] += penalty"),
        ],
    },
    Kernel {
        name: "scatter_rows_f32",
        file: "rows.cu",
        check: scatter,
        planted: &[
            ("if (row != NO_ROW) to[(size_t)row", "to[(size_t)row"),
            (
                "to[(size_t)row * columns + i % columns] = from[i]",
                "to[(size_t)row * columns + i % columns] = from[i / 2]",
            ),
        ],
    },
    Kernel {
        name: "narrow_f32",
        file: "rows.cu",
        check: narrow,
        planted: &[
            ("* columns + start + i % length", "* columns + i % length"),
            ("(i / length) * columns", "(i / columns) * columns"),
        ],
    },
    Kernel {
        name: "place_columns_f32",
        file: "rows.cu",
        check: place_columns,
        planted: &[
            ("* width + start + i % columns", "* width + i % columns"),
            ("(size_t)(i / columns) * width", "(size_t)(i / columns) * columns"),
        ],
    },
    Kernel {
        name: "clear_rows_u8",
        file: "rows.cu",
        check: clear,
        planted: &[
            ("if (slot != NO_ROW) flags", "flags"),
            ("flags[(size_t)slot * columns", "flags[(size_t)(slot ^ 1) * columns"),
        ],
    },
];

const ROWS: usize = 8;
const COLUMNS: usize = 5;
const AT: [u32; 6] = [7, NO_ROW, 0, 3, NO_ROW, 5];

fn exact(values: &[f32]) -> impl Iterator<Item = (f64, f64)> {
    values.iter().map(|value| (f64::from(*value), 0.0))
}

fn gather(ptx: &str, is_bf16: bool) -> TwinResult {
    let mut device = Device::load(ptx);
    let x = numbers(1, ROWS * COLUMNS);
    let count = AT.len() * COLUMNS;
    let params = [device.weight(is_bf16, &x), device.u32s(&AT), device.fresh(count), COLUMNS as u64, count as u64];
    each(&mut device, if is_bf16 { "gather_rows_bf16" } else { "gather_rows_f32" }, count, &params)?;
    let wanted: Vec<f32> = AT
        .iter()
        .flat_map(|&row| (0..COLUMNS).map(move |c| (row, c)))
        .map(|(row, c)| if row == NO_ROW { 0.0 } else { x[row as usize * COLUMNS + c] })
        .collect();
    Ok(compare(&device.read_f32s(params[2], count)?, exact(&wanted)))
}

fn overlay(ptx: &str) -> TwinResult {
    let mut device = Device::load(ptx);
    let (from, mut to) = (numbers(1, ROWS * COLUMNS), numbers(2, AT.len() * COLUMNS));
    let params = [device.f32s(&from), device.u32s(&AT), device.f32s(&to), COLUMNS as u64, to.len() as u64];
    each(&mut device, "overlay_rows_f32", to.len(), &params)?;
    for (to, row) in to.chunks_mut(COLUMNS).zip(AT).filter(|(_, row)| *row != NO_ROW) {
        to.copy_from_slice(&from[row as usize * COLUMNS..][..COLUMNS]);
    }
    Ok(compare(&device.read_f32s(params[2], to.len())?, exact(&to)))
}

fn scatter(ptx: &str) -> TwinResult {
    let mut device = Device::load(ptx);
    let (from, mut to) = (numbers(1, AT.len() * COLUMNS), numbers(2, ROWS * COLUMNS));
    let params = [device.f32s(&from), device.u32s(&AT), device.f32s(&to), COLUMNS as u64, from.len() as u64];
    each(&mut device, "scatter_rows_f32", from.len(), &params)?;
    for (from, row) in from.chunks(COLUMNS).zip(AT).filter(|(_, row)| *row != NO_ROW) {
        to[row as usize * COLUMNS..][..COLUMNS].copy_from_slice(from);
    }
    Ok(compare(&device.read_f32s(params[2], to.len())?, exact(&to)))
}

fn hold(ptx: &str) -> TwinResult {
    let (mut device, columns, words, penalty) = (Device::load(ptx), 70, 3, -1e30_f32);
    let mut x = numbers(1, ROWS * columns);
    let bits: Vec<u32> = (1..=(AT.len() * words) as u32).map(|at| at.wrapping_mul(0x9e37_79b9)).collect();
    let count = AT.len() * columns;
    let numbers = [u64::from(penalty.to_bits()), columns as u64, words as u64, count as u64];
    let [penalty_bits, columns_word, words_word, count_word] = numbers;
    let places = [device.u32s(&bits), device.u32s(&AT), device.f32s(&x)];
    let [bits_at, at, x_at] = places;
    let params = [bits_at, at, x_at, penalty_bits, columns_word, words_word, count_word];
    each(&mut device, "hold_rows_f32", count, &params)?;
    for (place, row) in AT.into_iter().enumerate().filter(|(_, row)| *row != NO_ROW) {
        for (column, number) in x[row as usize * columns..][..columns].iter_mut().enumerate() {
            if bits[place * words + column / 32] >> (column % 32) & 1 == 0 {
                *number += penalty;
            }
        }
    }
    Ok(compare(&device.read_f32s(params[2], x.len())?, exact(&x)))
}

fn narrow(ptx: &str) -> TwinResult {
    let mut device = Device::load(ptx);
    let (start, length) = (2, 3);
    let x = numbers(1, ROWS * COLUMNS * 4);
    let count = ROWS * 4 * length;
    let params = [device.f32s(&x), device.fresh(count), COLUMNS as u64, start as u64, length as u64, count as u64];
    each(&mut device, "narrow_f32", count, &params)?;
    let wanted: Vec<f32> = x.chunks(COLUMNS).flat_map(|row| row[start..start + length].to_vec()).collect();
    Ok(compare(&device.read_f32s(params[1], count)?, exact(&wanted)))
}

fn place_columns(ptx: &str) -> TwinResult {
    let mut device = Device::load(ptx);
    let (start, width) = (2, COLUMNS + 4);
    let (x, mut to) = (numbers(1, ROWS * COLUMNS), numbers(2, ROWS * width));
    let params = [device.f32s(&x), device.f32s(&to), COLUMNS as u64, start as u64, width as u64, x.len() as u64];
    each(&mut device, "place_columns_f32", x.len(), &params)?;
    for (to, x) in to.chunks_mut(width).zip(x.chunks(COLUMNS)) {
        to[start..start + COLUMNS].copy_from_slice(x);
    }
    Ok(compare(&device.read_f32s(params[1], ROWS * width)?, exact(&to)))
}

fn clear(ptx: &str) -> TwinResult {
    let mut device = Device::load(ptx);
    // A row of flags is not a whole number of words.
    let columns = 70;
    let flags = device.bytes(&vec![1; ROWS * columns]);
    let count = AT.len() * columns;
    let params = [flags, device.u32s(&AT), columns as u64, count as u64];
    each(&mut device, "clear_rows_u8", count, &params)?;
    let mut found = vec![0; ROWS * columns];
    device.memory.read(flags, &mut found)?;
    let found: Vec<f32> = found.into_iter().map(f32::from).collect();
    let wanted = (0..ROWS * columns).map(|i| (f64::from(u8::from(!AT.contains(&((i / columns) as u32)))), 0.0));
    Ok(compare(&found, wanted))
}
