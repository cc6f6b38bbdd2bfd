//! [`Ops`]: each operation is a kernel or a copy on the stream. Numbers from the host become a row spec of their own.

use std::sync::Arc;

use super::memory::{Buffer, DeviceMemory};
use super::tensor::{CudaBatch, CudaIndex, CudaState, Tensor};
use super::weight::{Matrix, MatrixKind, Weight};
use super::{Cuda, device};
use crate::cpu::quantised::IntegerFormat;
use crate::ops::{
    AttentionShape, KernelError, Ops, RawTensor, RouterShape, SampleParams, SequenceRows, StateSpec, WeightFormat,
    WeightLayout,
};
use crate::part::WeightPart;
use crate::row_spec::SpecLayout;
use crate::step_ops::StepOps;

/// Threads of a block of element-wise kernels.
pub(super) const TILE_THREADS: usize = 128;
/// Warps of a block in kernels with one output or group for each warp.
pub(super) const WARPS: usize = 4;
pub(super) const WARP: usize = 32;
/// Bytes of a number.
const SIZE: usize = size_of::<f32>();
/// Threads of a block that samples an id.
const SAMPLE_THREADS: usize = 256;

/// Tile of a block of [`TILE_THREADS`] on tensor cores: rows and outputs, as in `kernels/cuda/mma.cuh`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) outputs: usize,
}

impl Tile {
    pub(super) const FEW: Self = Self { rows: 8, outputs: 16 };
    pub(super) const MANY: Self = Self { rows: 64, outputs: 32 };

    /// Returns the tile for `rows` rows; both tiles give a row the same bits.
    pub(super) fn of(rows: usize) -> Self {
        if rows <= Self::FEW.rows { Self::FEW } else { Self::MANY }
    }

    /// Grid with one block for each tile.
    pub(super) fn grid(self, rows: usize, outputs: usize) -> (usize, usize) {
        (rows.div_ceil(self.rows), outputs.div_ceil(self.outputs))
    }
}

impl Cuda {
    /// Returns an uninitialised tensor.
    pub(super) fn uninit_tensor(&self, rows: usize, columns: usize) -> Tensor {
        Tensor::new(self.arena.words(rows * columns), rows, columns)
    }

    /// Returns uninitialised words.
    pub(super) fn uninit_words(&self, len: usize) -> Buffer {
        self.arena.words(len)
    }

    /// Launches a kernel with a thread for each of `count` numbers; `count` is its last parameter.
    pub(super) fn each(&self, kernel: &cudarc::driver::CudaFunction, count: usize, args: &[u64]) {
        let mut all = [0; 8];
        all[..args.len()].copy_from_slice(args);
        all[args.len()] = u64::from(device::word(count));
        self.queue.launch(kernel, (count.div_ceil(TILE_THREADS), 1), TILE_THREADS, 0, &mut all[..=args.len()]);
    }

    /// Computes `x Wᵀ + b`; `bias` is an address, 0 for none.
    pub(super) fn product(&self, x: &Tensor, weight: &Matrix, bias: u64) -> Tensor {
        let kernels = self.queue.kernels();
        assert_eq!(x.columns, weight.columns, "the weight has another input");
        let out = self.uninit_tensor(x.rows, weight.outputs);
        // One row or four for each warp, or one tile for each block: the kernels for few rows and for many sum in the same order.
        let (few, many) = match &weight.kind {
            MatrixKind::F32 => (&kernels.product_f32, &kernels.product4_f32),
            MatrixKind::Bf16 => (&kernels.product_bf16, &kernels.product_rows_bf16),
            MatrixKind::Integers(IntegerFormat::Eight, _) => (&kernels.product_i8, &kernels.product4_i8),
            MatrixKind::Integers(IntegerFormat::Four, _) => (&kernels.product_i4, &kernels.product4_i4),
        };
        let (kernel, grid) = if weight.kind.is_bf16() {
            let tile = Tile::of(x.rows);
            (if tile == Tile::FEW { few } else { many }, tile.grid(x.rows, weight.outputs))
        } else {
            let (kernel, rows) = if x.rows <= 1 { (few, 1) } else { (many, 4) };
            (kernel, (x.rows.div_ceil(rows), weight.outputs.div_ceil(WARPS)))
        };
        let sizes = [x.rows, x.columns, weight.pitch, weight.outputs].map(|n| n as u64);
        let mut args = Args::of(&[x.at(), weight.memory.at]);
        args.extend(weight.kind.scales().as_slice());
        args.extend(&[bias, out.at()]);
        args.extend(&sizes);
        self.queue.launch(kernel, grid, WARPS * WARP, 0, args.all());
        out
    }

    /// Gathers rows of a table or of state by index.
    pub(super) fn gathered(&self, from: u64, is_bf16: bool, columns: usize, at: &CudaIndex) -> Tensor {
        let kernels = self.queue.kernels();
        let kernel = if is_bf16 { &kernels.gather_rows_bf16 } else { &kernels.gather_rows_f32 };
        let out = self.uninit_tensor(at.len, columns);
        self.each(kernel, out.len(), &[from, at.at(), out.at(), columns as u64]);
        out
    }

    /// Uploads a list from the host.
    fn list(&self, numbers: &[u32]) -> CudaIndex {
        let buffer = self.uninit_words(numbers.len());
        self.queue.write(buffer.at(), numbers);
        CudaIndex::new(buffer, numbers.len())
    }
}

impl Ops for Cuda {
    type T = Tensor;
    type Ids = CudaIndex;
    type Weight = Weight;
    type State = CudaState;
    type Batch = CudaBatch;

    fn weight(&self, layout: WeightLayout, parts: &[RawTensor<'_>]) -> Result<Weight, KernelError> {
        self.weight_in_format(layout, WeightFormat::Float, parts)
    }

    fn weight_in_format(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[RawTensor<'_>],
    ) -> Result<Weight, KernelError> {
        self.weight_from_parts(layout, format, &parts.iter().copied().map(WeightPart::Stored).collect::<Vec<_>>())
    }

    fn weight_from_parts(
        &self,
        layout: WeightLayout,
        format: WeightFormat,
        parts: &[WeightPart<'_>],
    ) -> Result<Weight, KernelError> {
        Weight::new(&self.loader(), layout, format, parts)
    }

    fn with_own_buffers(&self) -> Self {
        // The driver made a stream of this device before, so a failure now means that the machine has too little memory.
        let own = Self::on(Arc::clone(self.queue.device()), self.stager.clone());
        let own = own.unwrap_or_else(|error| panic!("{error}"));
        if self.graphs.is_some() { own.with_graphs() } else { own }
    }

    fn state(&self, spec: StateSpec) -> CudaState {
        let zeros = |bytes| DeviceMemory::zeros(&self.queue, bytes);
        match spec {
            StateSpec::KeyValue { blocks, block_len, width } => {
                let bytes = blocks * block_len * width * SIZE;
                CudaState::KeyValue { keys: zeros(bytes), values: zeros(bytes), block_len, width }
            }
            StateSpec::Tail { slots, rows, columns } => {
                CudaState::Tail { data: zeros(slots * rows * columns * SIZE), rows, columns }
            }
            StateSpec::TokenMask { slots, vocabulary } => {
                CudaState::TokenMask { flags: zeros(slots * vocabulary), vocabulary }
            }
            StateSpec::Rows { rows, columns } => CudaState::Rows { data: zeros(rows * columns * SIZE), columns },
        }
    }

    fn reset(&self, state: &mut CudaState, slot: usize) {
        if let CudaState::TokenMask { flags, vocabulary } = state {
            self.queue.clear(flags.at + (slot * *vocabulary) as u64, *vocabulary);
        }
    }

    fn copy_block(&self, state: &mut CudaState, from: u32, to: u32) {
        let CudaState::KeyValue { keys, values, block_len, width } = state else {
            panic!("attention needs keys and values, got {}", state.kind())
        };
        let bytes = *block_len * *width * SIZE;
        for memory in [keys, values] {
            let at = |block: u32| memory.at + block as u64 * bytes as u64;
            self.queue.copy(at(to), at(from), bytes);
        }
    }

    fn batch(&self, sequences: &[SequenceRows<'_>]) -> CudaBatch {
        let mut layout = SpecLayout::default();
        let table = sequences.iter().map(|sequence| sequence.table.len()).max().unwrap_or(0);
        let at = layout.batch(sequences.iter().map(|sequence| sequence.rows).sum(), sequences.len(), table);
        let mut spec = layout.spec();
        spec.set_batch(at, sequences, 0);
        self.batch_at(&self.upload(&spec), at)
    }

    fn tensor(&self, values: Vec<f32>, columns: usize) -> Tensor {
        let rows = values.len().checked_div(columns).unwrap_or(0);
        assert_eq!(rows * columns, values.len(), "values do not fill whole rows");
        let tensor = self.uninit_tensor(rows, columns);
        self.queue.write(tensor.at(), &values);
        tensor
    }

    fn ids(&self, ids: &[u32]) -> CudaIndex {
        self.list(ids)
    }

    fn read(&self, x: &Tensor) -> Vec<f32> {
        let mut values = vec![0.0; x.len()];
        self.queue.read(x.at(), &mut values);
        values
    }

    fn read_ids(&self, ids: &CudaIndex) -> Vec<u32> {
        self.read_index(ids)
    }

    fn rows(&self, x: &Tensor) -> usize {
        x.rows
    }

    fn address(&self, x: &Tensor) -> usize {
        x.at() as usize
    }

    fn copy(&self, x: &Tensor) -> Tensor {
        let out = self.uninit_tensor(x.rows, x.columns);
        self.queue.copy(out.at(), x.at(), x.len() * SIZE);
        out
    }

    fn gather(&self, x: &Tensor, at: &[usize]) -> Tensor {
        let numbers: Vec<u32> = at.iter().map(|&row| device::word(row)).collect();
        self.gathered(x.at(), false, x.columns, &self.list(&numbers))
    }

    fn concat(&self, parts: &[&Tensor]) -> Tensor {
        let columns = parts.first().map_or(0, |part| part.columns);
        let out = self.uninit_tensor(parts.iter().map(|part| part.rows).sum(), columns);
        let mut at = out.at();
        for part in parts {
            assert_eq!(part.columns, columns, "widths differ");
            self.queue.copy(at, part.at(), part.len() * SIZE);
            at += (part.len() * SIZE) as u64;
        }
        out
    }

    fn embed(&self, table: &Weight, ids: &CudaIndex) -> Tensor {
        let table = table.table();
        self.gathered(table.memory.at, table.kind.is_bf16(), table.columns, ids)
    }

    fn linear(&self, x: &Tensor, weight: &Weight, bias: Option<&Weight>) -> Tensor {
        let weight = weight.linear();
        let bias = bias.map_or(0, |bias| {
            assert_eq!(bias.vector().len, weight.outputs, "the bias has another size");
            bias.vector().memory.at
        });
        self.product(x, weight, bias)
    }

    fn narrow(&self, x: &Tensor, start: usize, length: usize) -> Tensor {
        assert!(start + length <= x.columns, "columns that are not there");
        let out = self.uninit_tensor(x.rows, length);
        let sizes = [x.columns, start, length].map(|n| n as u64);
        self.each(&self.queue.kernels().narrow_f32, out.len(), &[x.at(), out.at(), sizes[0], sizes[1], sizes[2]]);
        out
    }

    fn add(&self, x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        self.each(&self.queue.kernels().add_f32, x.len(), &[x.at(), y.at()]);
        x
    }

    fn mul(&self, x: Tensor, y: &Tensor) -> Tensor {
        assert_eq!((x.rows, x.columns), (y.rows, y.columns), "shapes differ");
        self.each(&self.queue.kernels().mul_f32, x.len(), &[x.at(), y.at()]);
        x
    }

    fn scale(&self, x: Tensor, by: &Weight) -> Tensor {
        let by = by.vector();
        assert!(x.columns.is_multiple_of(by.len), "a scale of another width");
        self.each(&self.queue.kernels().scale_f32, x.len(), &[x.at(), by.memory.at, by.len as u64]);
        x
    }

    fn scale_all(&self, x: Tensor, by: f32) -> Tensor {
        self.each(&self.queue.kernels().scale_all_f32, x.len(), &[x.at(), bits(by)]);
        x
    }

    fn rms_norm(&self, x: &Tensor, weight: &Weight, eps: f32) -> Tensor {
        let weight = weight.vector();
        assert!(x.columns.is_multiple_of(weight.len), "a norm of another width");
        let (out, groups) = (self.uninit_tensor(x.rows, x.columns), x.len() / weight.len);
        let args = &mut [x.at(), weight.memory.at, out.at(), weight.len as u64, groups as u64, bits(eps)];
        let kernel = &self.queue.kernels().rms_norm_f32;
        self.queue.launch(kernel, (groups.div_ceil(WARPS), 1), WARPS * WARP, 0, args);
        out
    }

    fn layer_norm(&self, x: &Tensor, weight: &Weight, bias: &Weight, eps: f32) -> Tensor {
        let (weight, bias) = (weight.vector(), bias.vector());
        assert!(x.columns.is_multiple_of(weight.len) && bias.len == weight.len, "a norm of another width");
        let (out, groups) = (self.uninit_tensor(x.rows, x.columns), x.len() / weight.len);
        let sizes = [weight.len as u64, groups as u64, bits(eps)];
        let args = &mut [x.at(), weight.memory.at, bias.memory.at, out.at(), sizes[0], sizes[1], sizes[2]];
        let kernel = &self.queue.kernels().layer_norm_f32;
        self.queue.launch(kernel, (groups.div_ceil(WARPS), 1), WARPS * WARP, 0, args);
        out
    }

    fn silu(&self, x: Tensor) -> Tensor {
        self.each(&self.queue.kernels().silu_f32, x.len(), &[x.at()]);
        x
    }

    fn silu_mul(&self, x: &Tensor) -> Tensor {
        let out = self.uninit_tensor(x.rows, x.columns / 2);
        self.each(&self.queue.kernels().silu_mul_f32, out.len(), &[x.at(), out.at(), out.columns as u64]);
        out
    }

    fn gelu(&self, x: Tensor) -> Tensor {
        self.each(&self.queue.kernels().gelu_f32, x.len(), &[x.at()]);
        x
    }

    fn gelu_tanh(&self, x: Tensor) -> Tensor {
        self.each(&self.queue.kernels().gelu_tanh_f32, x.len(), &[x.at()]);
        x
    }

    fn snake(&self, x: Tensor, alpha: &Weight, beta: &Weight) -> Tensor {
        let (alpha, beta) = (alpha.vector(), beta.vector());
        assert!(alpha.len == x.columns && beta.len == x.columns, "a snake of another width");
        let args = [x.at(), alpha.memory.at, beta.memory.at, x.columns as u64];
        self.each(&self.queue.kernels().snake_f32, x.len(), &args);
        x
    }

    fn clamp(&self, x: Tensor, low: f32, high: f32) -> Tensor {
        self.each(&self.queue.kernels().clamp_f32, x.len(), &[x.at(), bits(low), bits(high)]);
        x
    }

    fn sigmoid_gate(&self, y: Tensor, gate: &Tensor) -> Tensor {
        let columns = y.len().checked_div(gate.len()).unwrap_or(0);
        assert_eq!(columns * gate.len(), y.len(), "a gate has one number a row");
        self.each(&self.queue.kernels().sigmoid_gate_f32, y.len(), &[y.at(), gate.at(), columns as u64]);
        y
    }

    fn rotary(&self, x: Tensor, batch: &CudaBatch, head_dim: usize, theta: f32) -> Tensor {
        let frequencies = self.queue.frequencies(head_dim, theta);
        let sizes = [batch.sequences, batch.stride, x.columns, head_dim].map(|n| n as u64);
        let args = &mut [x.at(), batch.words.at(), frequencies.at, sizes[0], sizes[1], sizes[2], sizes[3]];
        self.queue.launch(&self.queue.kernels().rotary_f32, (x.rows, 1), TILE_THREADS, 0, args);
        x
    }

    fn attention(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        cache: &mut CudaState,
        batch: &CudaBatch,
        shape: AttentionShape,
    ) -> Tensor {
        let CudaState::KeyValue { keys, values, block_len, width } = cache else {
            panic!("attention needs keys and values, got {}", cache.kind())
        };
        let kernels = self.queue.kernels();
        assert!(shape.head_dim <= MAX_HEAD_DIM, "a head has at most {MAX_HEAD_DIM} numbers");
        assert_eq!((k.columns, v.columns, q.columns), (*width, *width, shape.heads * shape.head_dim), "widths differ");
        let [sequences, stride] = [batch.sequences as u64, batch.stride as u64];
        let sizes = [*width as u64, *block_len as u64];
        let words = batch.words.at();
        let store = &mut [k.at(), v.at(), keys.at, values.at, words, sequences, stride, sizes[0], sizes[1]];
        self.queue.launch(&kernels.store_keys_f32, (k.rows, 1), TILE_THREADS, 0, store);
        let out = self.uninit_tensor(q.rows, q.columns);
        let group = (shape.heads / shape.kv_heads) as u64;
        let window = shape.window.map_or(u64::from(u32::MAX), |window| window as u64);
        let [dim, scale] = [shape.head_dim as u64, bits(scale(shape.head_dim))];
        let args = &mut [
            q.at(),
            keys.at,
            values.at,
            words,
            out.at(),
            sequences,
            stride,
            group,
            sizes[0],
            sizes[1],
            dim,
            window,
            scale,
        ];
        let shared = attention_bytes(shape.head_dim);
        self.queue.launch(&kernels.attention_f32, (q.rows, shape.heads), WARPS * WARP, shared, args);
        out
    }

    fn experts(&self, x: &Tensor, router: &Weight, gate_up: &Weight, down: &Weight, spec: RouterShape) -> Tensor {
        self.mixture(x, router.linear(), gate_up.experts(), down.experts(), spec)
    }

    fn conv2d(&self, x: &Tensor, images: usize, height: usize, width: usize, weight: &Weight, bias: &Weight) -> Tensor {
        self.pixels(x, images, (height, width), weight, bias)
    }

    fn reshape(&self, x: Tensor, columns: usize) -> Tensor {
        let rows = x.len() / columns;
        assert_eq!(rows * columns, x.len(), "values do not fill whole rows");
        Tensor::new(x.data, rows, columns)
    }

    fn sample(
        &self,
        logits: &Tensor,
        params: &[SampleParams],
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut CudaState>,
    ) -> CudaIndex {
        let mut layout = SpecLayout::default();
        let at = layout.samples(params.len());
        let mut spec = layout.spec();
        spec.set_samples(at, params);
        self.sample_at(logits, &self.index(&self.upload(&spec), at.words()), allowed_mask, output_mask)
    }
}

/// Largest head width: the kernel's register limit.
pub(super) const MAX_HEAD_DIM: usize = 256;

/// Factor of attention scores.
pub(super) fn scale(head_dim: usize) -> f32 {
    1.0 / (head_dim as f32).sqrt()
}

/// Bytes of shared memory of a block of attention.
pub(super) fn attention_bytes(head_dim: usize) -> usize {
    WARPS * (head_dim + 2) * SIZE
}

/// Parameters of a kernel, in order.
#[derive(Default)]
pub(super) struct Args {
    all: [u64; MOST_ARGS],
    count: usize,
}

/// Largest number of parameters of a kernel.
const MOST_ARGS: usize = 20;

impl Args {
    pub(super) fn of(some: &[u64]) -> Self {
        let mut args = Self::default();
        args.extend(some);
        args
    }

    pub(super) fn extend(&mut self, more: &[u64]) {
        self.all[self.count..][..more.len()].copy_from_slice(more);
        self.count += more.len();
    }

    pub(super) fn all(&mut self) -> &mut [u64] {
        &mut self.all[..self.count]
    }
}

/// Converts a float to a kernel parameter.
pub(super) fn bits(number: f32) -> u64 {
    u64::from(number.to_bits())
}

impl Cuda {
    /// Samples ids with the parameters of a row spec.
    pub(super) fn sample_ids(
        &self,
        logits: &Tensor,
        params: &CudaIndex,
        allowed_mask: Option<&Weight>,
        output_mask: Option<&mut CudaState>,
    ) -> CudaIndex {
        const PARAMS: usize = 6;
        // One row for each set of parameters: a bucket has them for all of its rows.
        let rows = logits.rows.min(params.len / PARAMS);
        let allowed = allowed_mask.map_or(0, |mask| {
            assert_eq!(mask.vector().len, logits.columns, "a mask of another vocabulary");
            mask.vector().memory.at
        });
        let history = output_mask.map_or(0, |state| {
            let (at, vocabulary) = state.mask();
            assert_eq!(vocabulary, logits.columns, "a history of another vocabulary");
            at
        });
        let (ids, work) = (self.uninit_words(rows), self.uninit_words(rows * logits.columns));
        let args = &mut [logits.at(), params.at(), allowed, history, work.at(), ids.at(), logits.columns as u64];
        let kernel = &self.queue.kernels().choose_rows;
        self.queue.launch(kernel, (rows, 1), SAMPLE_THREADS, SAMPLE_THREADS * SIZE, args);
        CudaIndex::new(ids, rows)
    }
}
