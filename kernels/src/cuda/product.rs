//! Matrix products, and sampling from their logits.

use super::device::Cuda;
use super::launch::{Args, SIZE, Tile, WARP, WARPS};
use super::matrix::{Matrix, MatrixKind, outputs};
use super::tensor::{CudaIndex, CudaState, Tensor};
use super::weight::Weight;
use crate::cpu::quantised::IntegerFormat;

/// Threads of a block that samples an id.
const SAMPLE_THREADS: usize = 256;

impl Cuda {
    /// Computes `x Wᵀ + b` with matrices of one input, their outputs one after the other; `bias` is an address, 0 for none.
    pub(super) fn product(&self, x: &Tensor, weights: &[Matrix], bias: u64) -> Tensor {
        let out = self.uninit_tensor(x.rows, outputs(weights));
        let mut first = 0;
        for weight in weights {
            let at = (first * SIZE) as u64;
            self.product_part(x, weight, if bias == 0 { 0 } else { bias + at }, (out.at() + at, out.columns));
            first += weight.outputs;
        }
        out
    }

    /// Computes one matrix's outputs; `y` is the address of the first, and the numbers in a row of all outputs.
    fn product_part(&self, x: &Tensor, weight: &Matrix, bias: u64, (y, width): (u64, usize)) {
        let kernels = self.queue.kernels();
        assert_eq!(x.columns, weight.columns, "the weight has another input");
        // One row or four for each warp, or one tile for each block: the kernels for few rows and for many sum in the same order.
        let warps = |few, many| {
            let (kernel, rows) = if x.rows <= 1 { (few, 1) } else { (many, 4) };
            (kernel, (x.rows.div_ceil(rows), weight.outputs.div_ceil(WARPS)))
        };
        let (kernel, grid) = match &weight.kind {
            MatrixKind::F32 => warps(&kernels.product_f32, &kernels.product4_f32),
            MatrixKind::Bf16 => {
                let tile = Tile::of(x.rows, weight.outputs);
                let tiled = [&kernels.product_bf16, &kernels.product_some_bf16, &kernels.product_rows_bf16];
                (tile.kernel(tiled), tile.grid(x.rows, weight.outputs))
            }
            MatrixKind::Integers(IntegerFormat::Eight, _) => warps(&kernels.product_i8, &kernels.product4_i8),
            MatrixKind::Integers(IntegerFormat::Four, _) => warps(&kernels.product_i4, &kernels.product4_i4),
        };
        let sizes = [x.rows, x.columns, weight.pitch, weight.outputs].map(|n| n as u64);
        let mut args = Args::of(&[x.at(), weight.memory.at]);
        if let Some(scales) = weight.kind.scales() {
            args.extend(&[scales.memory.at, bias, y]);
            args.extend(&sizes);
            args.extend(&[scales.scaling.into(), width as u64]);
        } else {
            assert_eq!(width, weight.outputs, "only integers are joined");
            args.extend(&[bias, y]);
            args.extend(&sizes);
        }
        self.queue.launch(kernel, grid, WARPS * WARP, 0, args.all());
    }
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
