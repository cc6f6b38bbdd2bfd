//! Products on tensor cores: rows of f32, in two parts of bf16 each, with weights of bf16.

use super::products::{EXPERTS, Pairs};
use super::support::Device;
use super::{Kernel, TwinResult, compare, compile, numbers, random, sum};
use repartee_simcuda::decode::half::{bf16, of_bf16};

/// A planted fault: a text of the kernel and its replacement.
type Planted = (&'static str, &'static str);

/// Faults of every tile.
const ALL: [Planted; 7] = [
    ("number == whole ? 0.0f : number - whole", "number - whole"),
    ("part = PARTS; part-- > 0;", "part = PARTS - 1; part-- > 0;"),
    ("sums[i] += products[i]", "sums[i] = products[i]"),
    ("if (r < rows && n < outputs)", "if (n < outputs)"),
    ("lane / 4 + i / 2 * 8] = sums", "lane / 4 + (1 - i / 2) * 8] = sums"),
    ("tile.sums[2][r][n] + tile.sums[3][r][n]", "tile.sums[2][r][n]"),
    ("const Put &put) {\n  __syncthreads();", "const Put &put) {"),
];
/// Faults of tiles in registers.
const DIRECT: [Planted; 6] = [
    ("n < outputs && k < columns ? load_operand", "n < outputs ? load_operand"),
    ("n < outputs && k < columns ? load_operand", "k < columns ? load_operand"),
    ("own < rows && k < columns ? row", "own < rows ? row"),
    ("threadIdx.x / 32 * K + lane % 4 * 4;", "threadIdx.x / 64 * K + lane % 4 * 4;"),
    ("start += A * TILE_WARPS * K", "start += (A + 1) * TILE_WARPS * K"),
    ("own + 8 * half", "own + 8 * (1 - half)"),
];
/// Faults of the tile of several groups of rows.
const GROUPS: [Planted; 2] = [
    ("if (g * 8 >= rows) continue;", "if (g * 8 + 8 >= rows) continue;"),
    ("store_sums(tile, 0, g * 8, sums[g])", "store_sums(tile, 0, (G - 1 - g) * 8, sums[g])"),
];
/// Faults of the tile in shared memory.
const SHARED: [Planted; 9] = [
    ("half * 8 + lane / 4) * T::PITCH", "(1 - half) * 8 + lane / 4) * T::PITCH"),
    ("load_operand(tile.rows[part] + at)", "load_operand(tile.rows[part / 2] + at)"),
    ("k + warp * K + lane", "k + warp / 2 * K + lane"),
    ("n < outputs && k < pitch", "k < pitch"),
    ("r < rows && k < columns ? row(r, k)", "k < columns ? row(r, k)"),
    ("\"n\"(T::STAGES - 1)", "\"n\"(T::STAGES)"),
    ("// The previous stage was read.\n", "if (0)\n"),
    ("(T::STAGES - 1) : \"memory\");\n    __syncthreads();", "(T::STAGES - 1) : \"memory\");"),
    ("// The last stage was read: sums take its place.\n", "if (0)\n"),
];
const PRODUCT: [Planted; 3] = [
    ("sum + (bias ? bias[output + n] : 0.0f)", "sum"),
    ("weight + (size_t)output * pitch", "weight + (size_t)output * columns"),
    ("y[(size_t)(row + r) * outputs", "y[(size_t)r * outputs"),
];
const FEW_PRODUCT: &[Planted] = &joined::<16>(&[&ALL, &DIRECT, &PRODUCT]);
const SOME_PRODUCT: &[Planted] = &joined::<18>(&[&ALL, &DIRECT, &GROUPS, &PRODUCT]);
const MANY_PRODUCT: &[Planted] = &joined::<19>(&[&ALL, &SHARED, &PRODUCT]);
const EXPERT_PRODUCT: [Planted; 7] = [
    ("x + (size_t)(pairs[first + r] / divide)", "x + (size_t)pairs[first + r]"),
    ("((size_t)expert * outputs + output) * pitch", "((size_t)(expert ^ 1) * outputs + output) * pitch"),
    ("y[(size_t)pairs[first + r] * outputs + output + n]", "y[(size_t)pairs[first] * outputs + output + n]"),
    ("chosen ? chosen[blockIdx.y] : blockIdx.y", "blockIdx.y"),
    ("pairs[0] != blockIdx.y", "pairs[0] == blockIdx.y"),
    ("rows - first, weight", "rows, weight"),
    ("/* The sums of the tile before have been read. */", "if (0)"),
];
const FEW_EXPERTS: &[Planted] = &joined::<9>(&[&EXPERT_PRODUCT, &[ALL[1], DIRECT[2]]]);
const MANY_EXPERTS: &[Planted] = &joined::<9>(&[&EXPERT_PRODUCT, &[ALL[1], SHARED[4]]]);

/// Joins lists of `N` faults in all.
pub const fn joined<const N: usize>(lists: &[&[Planted]]) -> [Planted; N] {
    let mut all = [("", ""); N];
    let (mut list, mut at, mut to) = (0, 0, 0);
    while list < lists.len() {
        if at == lists[list].len() {
            (list, at) = (list + 1, 0);
        } else {
            all[to] = lists[list][at];
            (at, to) = (at + 1, to + 1);
        }
    }
    assert!(to == N);
    all
}

pub const KERNELS: &[Kernel] = &[
    Kernel { name: "product_bf16", file: "product.cu", check: |ptx| product(ptx, Tile::FEW), planted: FEW_PRODUCT },
    Kernel {
        name: "product_some_bf16",
        file: "product.cu",
        check: |ptx| product(ptx, Tile::SOME),
        planted: SOME_PRODUCT,
    },
    Kernel {
        name: "product_rows_bf16",
        file: "product.cu",
        check: |ptx| product(ptx, Tile::MANY),
        planted: MANY_PRODUCT,
    },
    Kernel {
        name: "expert_product_bf16",
        file: "experts.cu",
        check: |ptx| expert_product(ptx, Tile::FEW),
        planted: FEW_EXPERTS,
    },
    Kernel {
        name: "expert_product_rows_bf16",
        file: "experts.cu",
        check: |ptx| expert_product(ptx, Tile::MANY),
        planted: MANY_EXPERTS,
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
    /// No product of experts has it.
    const SOME: Self = Self { rows: 32, outputs: 16, product: "product_some_bf16", expert_product: "" };
    const MANY: Self =
        Self { rows: 64, outputs: 32, product: "product_rows_bf16", expert_product: "expert_product_rows_bf16" };
}

/// Threads of a block.
pub const BLOCK: [u32; 3] = [128, 1, 1];

/// Numbers in `[-1, 1)` with all the digits of f32.
pub fn fine(stream: u64, count: usize) -> Vec<f32> {
    (0..count as u64).map(|i| random::uniform(13, stream, i, 0) * 2.0 - 1.0).collect()
}

/// Splits a number into its rounding to bf16, the rounding of the remainder, and that of what is left, as the kernels do.
pub fn parts(number: f32) -> [f64; 3] {
    let mut left = number;
    let parts = [(); 3].map(|()| {
        let part = of_bf16(bf16(left));
        left = if left == part { 0.0 } else { left - part };
        f64::from(part)
    });
    assert!(
        (f64::from(number) - parts.iter().sum::<f64>()).abs() <= f64::from(number).abs() * f64::powi(2.0, -24)
            || !number.is_finite()
    );
    parts
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
const SHAPES: [(usize, usize, usize, bool); 7] = [
    (1, 5, 3, true),
    (3, 8, 1, false),
    (8, 128, 16, true),
    (11, 45, 33, true),
    (66, 200, 34, false),
    (9, 600, 18, true),
    (35, 1100, 17, false),
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
        // Blocks for each pair if there are fewer of them than experts.
        let by_pair = pairs < EXPERTS;
        let chosen = if by_pair { device.u32s(&all.chosen) } else { 0 };
        let grid = [outputs.div_ceil(tile.outputs) as u32, if by_pair { pairs } else { EXPERTS } as u32, 1];
        device.launch(tile.expert_product, grid, BLOCK, 0, &[&params[..], &sizes, &[chosen]].concat())?;
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

/// Holds on hardware too, because all add in one order.
#[test]
#[ignore = "needs the CUDA compiler: make test-cuda"]
fn tiles_of_all_sizes_give_the_same_bits() {
    let ptx = compile("product.cu", |text| text);
    let bits = |numbers: Vec<f32>| numbers.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    for shape @ (rows, columns, ..) in SHAPES {
        let x = fine(1, rows * columns);
        let [few, some, many] =
            [Tile::FEW, Tile::SOME, Tile::MANY].map(|tile| bits(launch(&ptx, &tile, &x, shape).unwrap()));
        assert_eq!((&few, &few), (&some, &many), "{shape:?}");
    }
}
