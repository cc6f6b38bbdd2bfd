//! Products on tensor cores: rows of f32, in two parts of bf16 each, with weights of bf16.

use super::products::{EXPERTS, Pairs};
use super::support::Device;
use super::{Kernel, TwinResult, compare, compile, numbers, random, sum};
use repartee_simcuda::decode::half::{bf16, of_bf16};

/// Faults of every tile.
const TILE: [(&str, &str); 16] = [
    ("* T::PITCH + column + lane / 16 * 8)", "* T::PITCH + column + (1 - lane / 16) * 8)"),
    ("lane / 8 % 2 * 8", "(1 - lane / 8 % 2) * 8"),
    ("tile.rows[lane / 16]", "tile.rows[0]"),
    ("multiply(sums[m][n], a[m], b[2], b[3])", "multiply(sums[m][n], a[m], b[0], b[1])"),
    ("number == whole ? 0.0f : number - whole", "number - whole"),
    ("k + warp * K", "k + warp / 2 * K"),
    ("n < outputs && k < pitch", "k < pitch"),
    ("r < rows && k < columns ? row(r, k)", "k < columns ? row(r, k)"),
    ("if (r < rows && n < outputs)", "if (n < outputs)"),
    ("lane / 4 + i / 2 * 8] = sums", "lane / 4 + (1 - i / 2) * 8] = sums"),
    ("tile.sums[2][r][n] + tile.sums[3][r][n]", "tile.sums[2][r][n]"),
    ("\"n\"(T::STAGES - 1)", "\"n\"(T::STAGES)"),
    ("// The previous stage was read.\n", "if (0)\n"),
    ("(T::STAGES - 1) : \"memory\");\n    __syncthreads();", "(T::STAGES - 1) : \"memory\");"),
    ("// The last stage was read: sums take its place.\n", "if (0)\n"),
    ("= sums[m][n][i];\n    }\n  }\n  __syncthreads();", "= sums[m][n][i];\n    }\n  }\n"),
];
const PRODUCT: &[(&str, &str)] = &{
    let mut all = [("sum + (bias ? bias[output + n] : 0.0f)", "sum"); TILE.len() + 3];
    let mut i = 0;
    while i < TILE.len() {
        all[i + 1] = TILE[i];
        i += 1;
    }
    all[TILE.len() + 1] = ("weight + (size_t)output * pitch", "weight + (size_t)output * columns");
    all[TILE.len() + 2] = ("y[(size_t)(row + r) * outputs", "y[(size_t)r * outputs");
    all
};
const EXPERT_PRODUCT: &[(&str, &str)] = &[
    ("x + (size_t)(pairs[first + r] / divide)", "x + (size_t)pairs[first + r]"),
    ("((size_t)expert * outputs + output) * pitch", "((size_t)(expert ^ 1) * outputs + output) * pitch"),
    ("y[(size_t)pairs[first + r] * outputs + output + n]", "y[(size_t)pairs[first] * outputs + output + n]"),
    ("pairs += (size_t)expert * count;  ", "                                 "),
    ("rows - first, weight", "rows, weight"),
    ("/* The sums of the tile before have been read. */", "if (0)"),
    TILE[2],
    TILE[10],
];

pub const KERNELS: &[Kernel] = &[
    Kernel { name: "product_bf16", file: "product.cu", check: |ptx| product(ptx, Tile::FEW), planted: PRODUCT },
    Kernel { name: "product_rows_bf16", file: "product.cu", check: |ptx| product(ptx, Tile::MANY), planted: PRODUCT },
    Kernel {
        name: "expert_product_bf16",
        file: "experts.cu",
        check: |ptx| expert_product(ptx, Tile::FEW),
        planted: EXPERT_PRODUCT,
    },
    Kernel {
        name: "expert_product_rows_bf16",
        file: "experts.cu",
        check: |ptx| expert_product(ptx, Tile::MANY),
        planted: EXPERT_PRODUCT,
    },
];

/// Tile of a block, and its kernels.
pub struct Tile {
    rows: usize,
    outputs: usize,
    product: &'static str,
    expert_product: &'static str,
}

impl Tile {
    const FEW: Self = Self { rows: 8, outputs: 16, product: "product_bf16", expert_product: "expert_product_bf16" };
    const MANY: Self =
        Self { rows: 64, outputs: 32, product: "product_rows_bf16", expert_product: "expert_product_rows_bf16" };
}

/// Threads of a block.
pub const BLOCK: [u32; 3] = [128, 1, 1];

/// Numbers in `[-1, 1)` with all the digits of f32.
pub fn fine(stream: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|i| random::uniform(13, stream, i, 0) * 2.0 - 1.0).collect()
}

/// Splits a number into its rounding to bf16 and the rounding of the remainder, as the kernels do.
pub fn parts(number: f32) -> [f64; 2] {
    let high = of_bf16(bf16(number));
    let low = if number == high { 0.0 } else { of_bf16(bf16(number - high)) };
    let [number, high, low] = [number, high, low].map(f64::from);
    assert!((number - high - low).abs() <= number.abs() * f64::powi(2.0, -17) || !number.is_finite());
    [high, low]
}

/// Products of a row with a row of a weight.
fn dot(x: &[f32], w: &[f32]) -> impl Iterator<Item = f64> {
    x.iter().zip(w).flat_map(|(x, w)| parts(*x).map(|part| part * f64::from(*w)))
}

/// Pads rows with zeros to loads of 16 bytes.
pub fn pitched(values: &[f32], columns: usize) -> (Vec<f32>, usize) {
    let pitch = columns.next_multiple_of(8);
    let fill = |row: &[f32]| [row, &[0.0; 8][..pitch - columns]].concat();
    (values.chunks(columns).flat_map(fill).collect(), pitch)
}

/// Rows, columns, outputs, and true with a bias.
const SHAPES: [(usize, usize, usize, bool); 6] = [
    (1, 5, 3, true),
    (3, 8, 1, false),
    (8, 128, 16, true),
    (11, 45, 33, true),
    (66, 200, 34, false),
    (9, 600, 18, true),
];

fn launch(
    ptx: &str,
    tile: &Tile,
    x: &[f32],
    (rows, columns, outputs, with_bias): (usize, usize, usize, bool),
) -> Result<Vec<f32>, super::Fault> {
    let mut device = Device::load(ptx);
    let (packed, pitch) = pitched(&numbers(2, outputs * columns), columns);
    let bias = if with_bias { device.f32s(&numbers(3, outputs)) } else { 0 };
    let params = [device.f32s(x), device.weight(true, &packed), bias, device.fresh(rows * outputs)];
    let sizes = [rows, columns, pitch, outputs].map(|size| size as u64);
    let grid = [rows.div_ceil(tile.rows) as u32, outputs.div_ceil(tile.outputs) as u32, 1];
    device.launch(tile.product, grid, BLOCK, 0, &[&params[..], &sizes].concat())?;
    device.read_f32s(params[3], rows * outputs)
}

/// Rows of which one has infinity and one NaN.
fn rows_with_edges(rows: usize, columns: usize) -> Vec<f32> {
    let mut x = fine(1, rows * columns);
    if rows > 2 {
        x[columns / 2] = f32::INFINITY;
        x[2 * columns - 1] = f32::NAN;
    }
    x
}

fn product(ptx: &str, tile: Tile) -> TwinResult {
    for shape @ (rows, columns, outputs, with_bias) in SHAPES {
        let x = rows_with_edges(rows, columns);
        let (weight, bias) = (numbers(2, outputs * columns), numbers(3, outputs));
        let wanted = (0..rows * outputs).map(|i| {
            let terms = dot(&x[i / outputs * columns..][..columns], &weight[i % outputs * columns..][..columns]);
            sum(terms.chain(with_bias.then_some(f64::from(bias[i % outputs]))))
        });
        if let Some(wrong) = compare(&launch(ptx, &tile, &x, shape)?, wanted) {
            return Ok(Some(format!("{rows} {columns} {outputs}: {wrong}")));
        }
    }
    Ok(None)
}

fn expert_product(ptx: &str, tile: Tile) -> TwinResult {
    for (pairs, divide, columns, outputs) in [(3, 1, 5, 3), (150, 2, 36, 35), (20, 2, 264, 6)] {
        let mut device = Device::load(ptx);
        let all = Pairs::new(pairs);
        let x = fine(1, pairs.div_ceil(divide) * columns);
        let weight = numbers(2, EXPERTS * outputs * columns);
        let (packed, pitch) = pitched(&weight, columns);
        // The weights of unchosen experts are never written: reading them is a fault.
        let size = outputs * pitch;
        let weights = device.memory.alloc(EXPERTS * size * 2).unwrap();
        for expert in (0..EXPERTS).filter(|expert| all.counts[*expert] > 0) {
            let part = device.weight(true, &packed[expert * size..][..size]);
            device.memory.copy(weights + (expert * size * 2) as u64, part, size * 2)?;
        }
        let out = device.fresh(pairs * outputs);
        let params = [device.f32s(&x), device.u32s(&all.lists), device.u32s(&all.counts), weights, out];
        let sizes = [divide, pairs, columns, pitch, outputs].map(|size| size as u64);
        let grid = [outputs.div_ceil(tile.outputs) as u32, EXPERTS as u32, 1];
        device.launch(tile.expert_product, grid, BLOCK, 0, &[&params[..], &sizes].concat())?;
        let wanted = (0..pairs * outputs).map(|i| {
            let (pair, output) = (i / outputs, i % outputs);
            let row = &weight[(all.chosen[pair] as usize * outputs + output) * columns..][..columns];
            sum(dot(&x[pair / divide * columns..][..columns], row))
        });
        if let Some(wrong) = compare(&device.read_f32s(out, pairs * outputs)?, wanted) {
            return Ok(Some(wrong));
        }
    }
    Ok(None)
}

/// Holds on hardware too, because both add in one order.
#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn tiles_of_both_sizes_give_the_same_bits() {
    let ptx = compile("product.cu", |text| text);
    let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for shape @ (rows, columns, ..) in SHAPES {
        let x = fine(1, rows * columns);
        let [few, many] = [Tile::FEW, Tile::MANY].map(|tile| bits(launch(&ptx, &tile, &x, shape).unwrap()));
        assert_eq!(few, many, "{shape:?}");
    }
}
