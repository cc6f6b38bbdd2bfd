//! Products and tables of integers, with every kind of scales and minimums.

use repartee_simcuda::decode::half::{bf16, f16, of_bf16, of_f16};
use repartee_simcuda::fault::Fault;

use super::products::{EXPERTS, Pairs, dot};
use super::support::Device;
use super::{Kernel, NO_ROW, TwinResult, compare, each, numbers, sum};

/// Parameter of the kernels: the power of two of inputs that share a scale, and flags.
const HALF: usize = 32;
const MINIMUM: usize = HALF | 64;
const SUPER: usize = MINIMUM | 128;
/// Inputs of a super-block.
const SUPER_BLOCK: usize = 256;

/// Faults of kernels of either size.
const INTEGERS: &[(&str, &str)] = &[
    ("(column >> shared)", "(column >> shared >> 1)"),
    ("((pitch - 1) >> shared) + 1", "((pitch - 1) >> shared)"),
    ("scaling & HALF ?", "scaling & 16 ?"),
    ("return scaling & MINIMUM;", "return false;"),
    ("numbers[2 * group + 1]", "numbers[2 * group]"),
    ("(bytes >> 8)", "(bytes & 255)"),
    ("2 * (column >> 8)", "0 * (column >> 8)"),
];
const PRODUCT: &[(&str, &str)] = &[
    ("numbers + output * (scales.pitch / LOAD)", "numbers + (output ^ 1) * (scales.pitch / LOAD)"),
    ("if (start + i >= columns) break;", ""),
    ("fmaf(parts[r], by.x, sums[r])", "fmaf(parts[r], by.x, 0.0f)"),
    ("sums[r] + parts[r] :", "parts[r] :"),
    ("fmaf(w.z, by.x, by.y)", "w.z * by.x"),
    ("bias ? bias[output] : 0.0f", "0.0f"),
    ("(size_t)(first + r) * width", "(size_t)(first + r) * outputs"),
];
const EIGHT: (&str, &str) = ("((int)(word << 24) >> 24)", "(word & 255u)");
const FOUR: (&str, &str) = ("(MINIMUM ? 0 : 8)", "(MINIMUM ? 0 : 7)");
const FOUR_UNSIGNED: (&str, &str) = ("(MINIMUM ? 0 : 8)", "8");
/// Eight-bit kernels read a word's integers without a shift, so the shift's fault is left out.
const SHIFT: (&str, &str) = (">> i % WORD * BITS", ">> i % WORD");
const PRODUCT8: &[(&str, &str)] = &[
    INTEGERS[0],
    INTEGERS[1],
    INTEGERS[2],
    INTEGERS[3],
    INTEGERS[4],
    INTEGERS[5],
    INTEGERS[6],
    PRODUCT[0],
    PRODUCT[1],
    PRODUCT[2],
    PRODUCT[3],
    PRODUCT[4],
    PRODUCT[5],
    PRODUCT[6],
    EIGHT,
];
const PRODUCT4: &[(&str, &str)] = &[
    INTEGERS[0],
    INTEGERS[1],
    INTEGERS[2],
    INTEGERS[3],
    INTEGERS[4],
    INTEGERS[5],
    INTEGERS[6],
    PRODUCT[0],
    PRODUCT[1],
    PRODUCT[2],
    PRODUCT[3],
    PRODUCT[4],
    PRODUCT[5],
    PRODUCT[6],
    SHIFT,
    FOUR,
    FOUR_UNSIGNED,
];
const EXPERT: &[(&str, &str)] = &[
    ("pairs[min(first + r, rows - 1)] / divide", "pairs[min(first + r, rows - 1)]"),
    ("(size_t)expert * outputs + output, columns", "(size_t)(expert ^ 1) * outputs + output, columns"),
    INTEGERS[1],
    INTEGERS[3],
    PRODUCT[1],
];
const GATHER: &[(&str, &str)] = &[
    ("if (row == NO_ROW) {", "if (row == NO_ROW - 1) {"),
    ("(size_t)row * (scales.pitch * BITS / 8)", "(size_t)row * (columns * BITS / 8)"),
    ("__fadd_rn(number, by.y)", "number"),
    INTEGERS[0],
    INTEGERS[1],
    INTEGERS[2],
    INTEGERS[4],
    INTEGERS[5],
];
const GATHER8: &[(&str, &str)] =
    &[GATHER[0], GATHER[1], GATHER[2], GATHER[3], GATHER[4], GATHER[5], GATHER[6], GATHER[7], EIGHT];
const GATHER4: &[(&str, &str)] = &[
    GATHER[0],
    GATHER[1],
    GATHER[2],
    GATHER[3],
    GATHER[4],
    GATHER[5],
    GATHER[6],
    GATHER[7],
    FOUR,
    FOUR_UNSIGNED,
    (">> column * BITS % 8", ""),
];

pub const KERNELS: &[Kernel] = &[
    Kernel { name: "product_i8", file: "product.cu", check: |ptx| product(ptx, "product_i8", 1, 8), planted: PRODUCT8 },
    Kernel {
        name: "product4_i8",
        file: "product.cu",
        check: |ptx| product(ptx, "product4_i8", 4, 8),
        planted: PRODUCT8,
    },
    Kernel { name: "product_i4", file: "product.cu", check: |ptx| product(ptx, "product_i4", 1, 4), planted: PRODUCT4 },
    Kernel {
        name: "product4_i4",
        file: "product.cu",
        check: |ptx| product(ptx, "product4_i4", 4, 4),
        planted: PRODUCT4,
    },
    Kernel {
        name: "expert_product_i8",
        file: "experts.cu",
        check: |ptx| expert_product(ptx, "expert_product_i8", 8),
        planted: EXPERT,
    },
    Kernel {
        name: "expert_product_i4",
        file: "experts.cu",
        check: |ptx| expert_product(ptx, "expert_product_i4", 4),
        planted: EXPERT,
    },
    Kernel { name: "gather_rows_i8", file: "rows.cu", check: |ptx| gather(ptx, "gather_rows_i8", 8), planted: GATHER8 },
    Kernel { name: "gather_rows_i4", file: "rows.cu", check: |ptx| gather(ptx, "gather_rows_i4", 4), planted: GATHER4 },
];

/// Integers in groups with a scale each, and a minimum if there are minimums.
struct Integers {
    /// Packed integers of all rows.
    bytes: Vec<u8>,
    /// Bits of the scales, each followed by its minimum if there are minimums.
    scales: Vec<u8>,
    /// Dequantised numbers in two roundings, `columns` for each row.
    numbers: Vec<f32>,
    pitch: usize,
}

impl Integers {
    fn new(bits: usize, scaling: usize, outputs: usize, columns: usize) -> Self {
        let pitch = columns.next_multiple_of(32);
        let (shared, minimum) = (1 << (scaling % HALF), scaling & MINIMUM == MINIMUM);
        let in_row = pitch.div_ceil(shared);
        let half = f32::from(1u8 << (bits - 1));
        let mut integers: Vec<i8> =
            numbers(2, outputs * pitch).iter().map(|v| (v * half).floor().min(half - 1.0) as i8).collect();
        // Padding counts as zero.
        integers.chunks_mut(pitch).for_each(|row| row[columns..].fill(0));
        // Four bits have 8 added: without minimums that is no part of the number.
        let added = if bits == 4 { 8 } else { 0 };
        let integer = |i: usize| f32::from(integers[i] + if minimum { added } else { 0 });
        // Scales that bf16 has no room for, some of them subnormal.
        let drawn = numbers(4, 2 * outputs * in_row.max(pitch.div_ceil(SUPER_BLOCK)));
        let narrow: Vec<u16> = if scaling & HALF != 0 {
            let small = |i: usize| if i.is_multiple_of(7) { 1e-5 } else { 1.0 };
            drawn.iter().enumerate().map(|(i, v)| f16((v + 0.001) * small(i), true)).collect()
        } else {
            drawn.iter().map(|v| bf16(*v)).collect()
        };
        let widen = |bits: u16| if scaling & HALF != 0 { of_f16(bits) } else { of_bf16(bits) };
        let super_blocks = (scaling & SUPER == SUPER).then_some(pitch.div_ceil(SUPER_BLOCK));
        // Scales and minimums of six bits.
        let bytes_of = |group: usize| [(group * 29 + 11) % 64, (group * 37 + 5) % 64].map(|byte| byte as u8);
        let number = |i: usize| {
            let group = i / pitch * in_row + i % pitch / shared;
            if let Some(blocks) = super_blocks {
                let pair = 2 * (i / pitch * blocks + i % pitch / SUPER_BLOCK);
                let [scale, minimum] =
                    [0, 1].map(|at: usize| widen(narrow[pair + at]) * f32::from(bytes_of(group)[at]));
                integer(i) * scale + minimum
            } else if minimum {
                integer(i) * widen(narrow[2 * group]) + widen(narrow[2 * group + 1])
            } else {
                integer(i) * widen(narrow[group])
            }
        };
        let numbers = (0..outputs * columns).map(|i| number(i / columns * pitch + i % columns)).collect();
        let bytes = if bits == 8 {
            integers.iter().map(|integer| *integer as u8).collect()
        } else {
            let nibble = |integer: i8| (integer + added) as u8;
            integers.chunks(2).map(|pair| nibble(pair[0]) | nibble(pair[1]) << 4).collect()
        };
        let le = |bits: &[u16]| bits.iter().flat_map(|bits| bits.to_le_bytes()).collect::<Vec<u8>>();
        let scales = match super_blocks {
            // Of each row the bytes of its groups, then the pairs of its super-blocks.
            Some(blocks) => (0..outputs)
                .flat_map(|row| {
                    let mut of_row: Vec<u8> = (0..in_row).flat_map(|group| bytes_of(row * in_row + group)).collect();
                    of_row.extend(le(&narrow[2 * row * blocks..][..2 * blocks]));
                    of_row
                })
                .collect(),
            None => le(&narrow[..outputs * in_row * if minimum { 2 } else { 1 }]),
        };
        Self { bytes, scales, numbers, pitch }
    }
}

/// Parameters of scales: of bf16 for 32 inputs, of half precision for the fewest inputs, for 32 and 128 with minimums, for the row, and of six
/// bits in super-blocks.
fn scalings(bits: usize) -> [usize; 6] {
    [5, HALF | if bits == 8 { 4 } else { 5 }, MINIMUM | 5, MINIMUM | 7, 11, SUPER | 5]
}

fn product(ptx: &str, name: &str, rows_each: usize, bits: usize) -> TwinResult {
    let [plain, half, minimum, wide, row, super_blocks] = scalings(bits);
    for (rows, columns, outputs, with_bias, scaling) in [
        (1, 5, 3, true, plain),
        (1, 256, 10, false, plain),
        (6, 45, 10, true, plain),
        (5, 1100, 4, true, plain),
        (4, 4, 2, false, plain),
        (6, 96, 6, true, half),
        (3, 45, 5, false, minimum),
        (5, 1100, 2, true, minimum),
        (2, 300, 3, true, wide),
        (2, 70, 3, false, row),
        (3, 45, 5, true, super_blocks),
        (2, 700, 3, false, super_blocks),
    ] {
        let mut device = Device::load(ptx);
        let (x, bias) = (numbers(1, rows * columns), numbers(3, outputs));
        let weight = Integers::new(bits, scaling, outputs, columns);
        let bias_at = if with_bias { device.f32s(&bias) } else { 0 };
        // More outputs than this weight's.
        let width = outputs + rows % 3;
        let params = [
            device.f32s(&x),
            device.bytes(&weight.bytes),
            device.bytes(&weight.scales),
            bias_at,
            device.fresh(rows * width),
            rows as u64,
            columns as u64,
            weight.pitch as u64,
            outputs as u64,
            scaling as u64,
            width as u64,
        ];
        let grid = [rows.div_ceil(rows_each) as u32, outputs.div_ceil(4) as u32, 1];
        device.launch(name, grid, [128, 1, 1], 0, &params)?;
        for row in 0..rows {
            let wanted = (0..outputs).map(|output| {
                let terms = dot(&x[row * columns..][..columns], &weight.numbers[output * columns..][..columns]);
                sum(terms.chain(with_bias.then_some(f64::from(bias[output]))))
            });
            let at = params[4] + (row * width * 4) as u64;
            if let Some(wrong) = compare(&device.read_f32s(at, outputs)?, wanted) {
                return Ok(Some(format!("row {row} of {rows}, {columns} {outputs} {scaling}: {wrong}")));
            }
        }
    }
    Ok(None)
}

fn expert_product(ptx: &str, name: &str, bits: usize) -> TwinResult {
    let [plain, half, minimum, wide, _, super_blocks] = scalings(bits);
    for (pairs, divide, columns, outputs, scaling) in [
        (3, 1, 5, 3, plain),
        (22, 2, 36, 6, plain),
        (22, 2, 36, 6, half),
        (7, 1, 70, 3, minimum),
        (3, 1, 140, 3, wide),
        (3, 1, 300, 3, super_blocks),
    ] {
        let mut device = Device::load(ptx);
        let Pairs { chosen, lists, counts } = Pairs::new(pairs);
        let x = numbers(1, pairs.div_ceil(divide) * columns);
        let weight = Integers::new(bits, scaling, EXPERTS * outputs, columns);
        // The weights of unchosen experts are never written: reading them is a fault.
        let mut upload = |bytes: &[u8]| -> Result<u64, Fault> {
            let size = bytes.len() / EXPERTS;
            let all = device.memory.alloc(bytes.len()).unwrap();
            for expert in (0..EXPERTS).filter(|expert| counts[*expert] > 0) {
                let part = device.bytes(&bytes[expert * size..][..size]);
                device.memory.copy(all + (expert * size) as u64, part, size)?;
            }
            Ok(all)
        };
        let (integers, scales) = (upload(&weight.bytes)?, upload(&weight.scales)?);
        let out = device.fresh(pairs * outputs);
        let mut params = vec![device.f32s(&x), device.u32s(&lists), device.u32s(&counts), integers, scales, out];
        params.extend([divide, pairs, columns, weight.pitch, outputs, scaling].map(|size| size as u64));
        device.launch(name, [outputs.div_ceil(4) as u32, EXPERTS as u32, 1], [128, 1, 1], 0, &params)?;
        let wanted = (0..pairs * outputs).map(|i| {
            let (pair, output) = (i / outputs, i % outputs);
            let row = &weight.numbers[(chosen[pair] as usize * outputs + output) * columns..][..columns];
            sum(dot(&x[pair / divide * columns..][..columns], row))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, pairs * outputs)?, wanted) {
            return Ok(Some(format!("{pairs} {columns} {outputs} {scaling}: {wrong}")));
        }
    }
    Ok(None)
}

fn gather(ptx: &str, name: &str, bits: usize) -> TwinResult {
    const AT: [u32; 6] = [7, NO_ROW, 0, 3, NO_ROW, 5];
    for (columns, scaling) in scalings(bits).into_iter().flat_map(|scaling| [(45, scaling), (160, scaling)]) {
        let mut device = Device::load(ptx);
        let table = Integers::new(bits, scaling, 8, columns);
        let count = AT.len() * columns;
        let params = [
            device.bytes(&table.bytes),
            device.bytes(&table.scales),
            device.u32s(&AT),
            device.fresh(count),
            columns as u64,
            table.pitch as u64,
            scaling as u64,
            count as u64,
        ];
        each(&mut device, name, count, &params)?;
        let wanted = (0..count).map(|i| match AT[i / columns] {
            NO_ROW => (0.0, 0.0),
            row => (f64::from(table.numbers[row as usize * columns + i % columns]), 0.0),
        });
        if let Some(wrong) = compare(&device.read_f32s(params[3], count)?, wanted) {
            return Ok(Some(format!("{columns} {scaling}: {wrong}")));
        }
    }
    Ok(None)
}
