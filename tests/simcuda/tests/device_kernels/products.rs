//! Products of rows with weights, and mixtures of experts.

use super::support::Device;
use super::{Kernel, NO_ROW, TwinResult, compare, each, numbers, sum};

const PRODUCT: &[(&str, &str)] = &[
    ("bias ? bias[output] : 0.0f", "0.0f"),
    ("numbers + output * pitch", "numbers + output * columns"),
    ("weight.products(from, output, columns, sums)", "weight.products(from, output ^ 1, columns, sums)"),
    ("if (first + r < rows) y", "if (first + r < rows + 1) y"),
    ("if (output >= outputs) return;", ""),
];
/// Faults of kernels for several rows.
const PRODUCT4: &[(&str, &str)] = &[
    ("bias ? bias[output] : 0.0f", "0.0f"),
    ("min(first + r, rows - 1)", "min(first, rows - 1)"),
    ("min(first + r, rows - 1)", "(first + r)"),
    ("if (first + r < rows) y", "y"),
];
const EXPERT_PRODUCT: &[(&str, &str)] = &[
    ("pairs[min(first + r, rows - 1)] / divide", "pairs[min(first + r, rows - 1)]"),
    ("(size_t)expert * outputs + output, columns", "(size_t)(expert ^ 1) * outputs + output, columns"),
    ("pairs[first + r] * outputs", "pairs[first] * outputs"),
    ("pairs += (size_t)expert * count;", ""),
];

pub const KERNELS: &[Kernel] = &[
    Kernel {
        name: "product_f32",
        file: "product.cu",
        check: |ptx| product(ptx, "product_f32", 1),
        planted: &[PRODUCT[0], PRODUCT[1], PRODUCT[2], PRODUCT[4]],
    },
    Kernel {
        name: "product4_f32",
        file: "product.cu",
        check: |ptx| product(ptx, "product4_f32", 4),
        planted: PRODUCT4,
    },
    Kernel {
        name: "route_rows",
        file: "experts.cu",
        check: route,
        planted: &[
            ("p == most && other < best", "p == most && other > best"),
            ("__shfl_sync(0xffffffffu, mine, choice) < mine", "__shfl_sync(0xffffffffu, mine, choice) > mine"),
            ("normalise ? own / total : own", "own"),
            ("taken |= 1u << (best / 32)", "taken |= 2u << (best / 32)"),
        ],
    },
    Kernel {
        name: "list_experts",
        file: "experts.cu",
        check: list,
        planted: &[("found += __popc(those);", "found = __popc(those);"), ("(1u << lane) - 1", "(2u << lane) - 1")],
    },
    Kernel { name: "expert_product_f32", file: "experts.cu", check: expert_product, planted: EXPERT_PRODUCT },
    Kernel {
        name: "combine_experts",
        file: "experts.cu",
        check: combine,
        planted: &[
            ("weights[pair], sum", "weights[row], sum"),
            ("pair < (row + 1) * top_k", "pair < (row + 1) * top_k - 1"),
        ],
    },
];

fn wide(value: f32) -> f64 {
    f64::from(value)
}

/// Yields the products of a row's numbers with a weight's.
pub fn dot(x: &[f32], w: &[f32]) -> impl Iterator<Item = f64> {
    x.iter().zip(w).map(|(a, b)| wide(*a) * wide(*b))
}

/// Pads rows with zeros.
fn pitched(values: &[f32], columns: usize) -> (Vec<f32>, usize) {
    let pitch = columns.next_multiple_of(4);
    let fill = |row: &[f32]| [row, &[0.0; 4][..pitch - columns]].concat();
    (values.chunks(columns).flat_map(fill).collect(), pitch)
}

fn product(ptx: &str, name: &str, rows_each: usize) -> TwinResult {
    for (rows, columns, outputs, with_bias) in
        [(1, 5, 3, true), (1, 256, 9, false), (6, 45, 10, true), (9, 264, 5, true), (4, 4, 1, false)]
    {
        let mut device = Device::load(ptx);
        let (x, weight, bias) = (numbers(1, rows * columns), numbers(2, outputs * columns), numbers(3, outputs));
        let (packed, pitch) = pitched(&weight, columns);
        let bias_at = if with_bias { device.f32s(&bias) } else { 0 };
        let params = [
            device.f32s(&x),
            device.f32s(&packed),
            bias_at,
            device.fresh(rows * outputs),
            rows as u64,
            columns as u64,
            pitch as u64,
            outputs as u64,
        ];
        let grid = [rows.div_ceil(rows_each) as u32, outputs.div_ceil(4) as u32, 1];
        device.launch(name, grid, [128, 1, 1], 0, &params)?;
        let wanted = (0..rows * outputs).map(|i| {
            let terms = dot(&x[i / outputs * columns..][..columns], &weight[i % outputs * columns..][..columns]);
            sum(terms.chain(with_bias.then_some(wide(bias[i % outputs]))))
        });
        if let Some(wrong) = compare(&device.read_f32s(params[3], rows * outputs)?, wanted) {
            return Ok(Some(format!("{rows} {columns} {outputs}: {wrong}")));
        }
    }
    Ok(None)
}

fn route(ptx: &str) -> TwinResult {
    for (rows, experts, top_k, normalise) in [(5, 3, 2, true), (9, 40, 4, false), (6, 70, 32, true)] {
        let mut device = Device::load(ptx);
        // Ties, because there are few different numbers.
        let logits: Vec<f32> = numbers(1, rows * experts).iter().map(|v| (v * 6.0).round() / 2.0).collect();
        let (chosen, weights) = (device.fresh(rows * top_k), device.fresh(rows * top_k));
        let sizes = [rows as u64, experts as u64, top_k as u64, u64::from(normalise)];
        let params = [device.f32s(&logits), chosen, weights, sizes[0], sizes[1], sizes[2], sizes[3]];
        device.launch("route_rows", [rows.div_ceil(4) as u32, 1, 1], [128, 1, 1], 0, &params)?;
        let (chosen, weights) = (device.read_u32s(chosen, rows * top_k)?, device.read_f32s(weights, rows * top_k)?);
        let mut wanted = Vec::new();
        for (row, logits) in logits.chunks(experts).enumerate() {
            let total: f64 = logits.iter().map(|logit| wide(*logit).exp()).sum();
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
            order.truncate(top_k);
            let of_all: f64 = order.iter().map(|e| wide(logits[*e]).exp() / total).sum();
            order.sort_unstable();
            let found: Vec<usize> = chosen[row * top_k..][..top_k].iter().map(|e| *e as usize).collect();
            if found != order {
                return Ok(Some(format!("row {row} of {rows}: {found:?} for {order:?}")));
            }
            let share = |e: &usize| wide(logits[*e]).exp() / total / if normalise { of_all } else { 1.0 };
            wanted.extend(order.iter().map(share).map(|weight| (weight, weight * 1e-5)));
        }
        if let Some(wrong) = compare(&weights, wanted.into_iter()) {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

pub const EXPERTS: usize = 4;

/// Chosen expert of each pair; expert 2 is never chosen.
fn choices(count: usize) -> Vec<u32> {
    numbers(7, count)
        .iter()
        .map(|v| {
            if *v < 0.0 {
                0
            } else if *v < 0.5 {
                1
            } else {
                3
            }
        })
        .collect()
}

/// Choices of pairs, and each expert's pairs.
pub struct Pairs {
    pub chosen: Vec<u32>,
    pub lists: Vec<u32>,
    pub counts: [u32; EXPERTS],
}

impl Pairs {
    pub fn new(pairs: usize) -> Self {
        let chosen = choices(pairs);
        let (mut lists, mut counts) = (vec![NO_ROW; EXPERTS * pairs], [0; EXPERTS]);
        for (pair, &expert) in chosen.iter().enumerate() {
            let expert = expert as usize;
            lists[expert * pairs + counts[expert] as usize] = pair as u32;
            counts[expert] += 1;
        }
        Self { chosen, lists, counts }
    }
}

fn list(ptx: &str) -> TwinResult {
    for count in [3, 75] {
        let mut device = Device::load(ptx);
        let chosen = choices(count);
        let params = [device.u32s(&chosen), device.fresh(EXPERTS * count), device.fresh(EXPERTS), count as u64];
        device.launch("list_experts", [EXPERTS as u32, 1, 1], [32, 1, 1], 0, &params)?;
        let counts = device.read_u32s(params[2], EXPERTS)?;
        for (expert, &found) in counts.iter().enumerate() {
            let wanted: Vec<u32> = (0..count as u32).filter(|pair| chosen[*pair as usize] == expert as u32).collect();
            let at = params[1] + (expert * count * 4) as u64;
            if found as usize != wanted.len() || device.read_u32s(at, wanted.len())? != wanted {
                return Ok(Some(format!("expert {expert} of {count} pairs")));
            }
        }
    }
    Ok(None)
}

fn expert_product(ptx: &str) -> TwinResult {
    for (pairs, divide, columns, outputs) in [(3, 1, 5, 3), (22, 2, 36, 6)] {
        let mut device = Device::load(ptx);
        let Pairs { chosen, lists, counts } = Pairs::new(pairs);
        let x = numbers(1, pairs.div_ceil(divide) * columns);
        let weight = numbers(2, EXPERTS * outputs * columns);
        let (packed, pitch) = pitched(&weight, columns);
        // The weights of unchosen experts are never written: reading them is a fault.
        let size = outputs * pitch * 4;
        let weights = device.memory.alloc(EXPERTS * size).unwrap();
        for expert in (0..EXPERTS).filter(|expert| counts[*expert] > 0) {
            let part = device.f32s(&packed[expert * outputs * pitch..][..outputs * pitch]);
            device.memory.copy(weights + (expert * size) as u64, part, size)?;
        }
        let out = device.fresh(pairs * outputs);
        let mut params = vec![device.f32s(&x), device.u32s(&lists), device.u32s(&counts), weights];
        params.extend([out, divide as u64, pairs as u64, columns as u64, pitch as u64, outputs as u64]);
        device.launch(
            "expert_product_f32",
            [outputs.div_ceil(4) as u32, EXPERTS as u32, 1],
            [128, 1, 1],
            0,
            &params,
        )?;
        let wanted = (0..pairs * outputs).map(|i| {
            let (pair, output) = (i / outputs, i % outputs);
            let row = &weight[(chosen[pair] as usize * outputs + output) * columns..][..columns];
            sum(dot(&x[pair / divide * columns..][..columns], row))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, pairs * outputs)?, wanted) {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

fn combine(ptx: &str) -> TwinResult {
    let (rows, top_k, columns) = (7, 3, 11);
    let mut device = Device::load(ptx);
    let (result, weights) = (numbers(1, rows * top_k * columns), numbers(2, rows * top_k));
    let count = rows * columns;
    let out = device.fresh(count);
    let params = [device.f32s(&result), device.f32s(&weights), out, top_k as u64, columns as u64, count as u64];
    each(&mut device, "combine_experts", count, &params)?;
    let wanted = (0..count).map(|i| {
        let row = i / columns;
        sum((row * top_k..(row + 1) * top_k)
            .map(|pair| wide(result[pair * columns + i % columns]) * wide(weights[pair])))
    });
    Ok(compare(&device.read_f32s(out, count)?, wanted))
}
