//! Mixture of experts: reads the weights of chosen experts only.

use super::device::Cuda;
use super::driver::word;
use super::launch::{Args, Tile, WARP, WARPS};
use super::matrix::{Matrix, MatrixKind, outputs};
use super::tensor::Tensor;
use crate::cpu::quantised::IntegerFormat;
use crate::ops::Ops;
use crate::shapes::RouterShape;

/// Limits of the kernel's bits and lanes: experts, and choices of a row.
const MOST_EXPERTS: usize = 1024;
const MOST_CHOICES: usize = 32;

impl Cuda {
    pub(super) fn mixture(
        &self,
        x: &Tensor,
        router: &[Matrix],
        gate_up: (&Matrix, usize),
        down: (&Matrix, usize),
        spec: RouterShape,
    ) -> Tensor {
        let (kernels, experts, top_k) = (self.queue.kernels(), gate_up.1, spec.top_k);
        assert!(
            experts <= MOST_EXPERTS && (1..=MOST_CHOICES.min(experts)).contains(&top_k),
            "{experts} experts, {top_k} chosen"
        );
        assert_eq!((outputs(router), down.1), (experts, experts), "experts differ in number");
        let logits = self.product(x, router, 0);
        let pairs = x.rows * top_k;
        let (chosen, weights) = (self.uninit_words(pairs), self.uninit_words(pairs));
        let normalise = u64::from(spec.normalise);
        let sizes = [x.rows as u64, experts as u64, top_k as u64, normalise];
        let args = &mut [logits.at(), chosen.at(), weights.at(), sizes[0], sizes[1], sizes[2], sizes[3]];
        self.queue.launch(&kernels.route_rows, (x.rows.div_ceil(WARPS), 1), WARPS * WARP, 0, args);

        let (lists, counts) = (self.uninit_words(experts * pairs), self.uninit_words(experts));
        if pairs > 0 {
            let args = &mut [chosen.at(), lists.at(), counts.at(), pairs as u64];
            self.queue.launch(&kernels.list_experts, (experts, 1), WARP, 0, args);
        }
        let product = |x: &Tensor, divide: usize, weight: &Matrix| {
            assert_eq!(x.columns, weight.columns, "the experts have another input");
            let out = self.uninit_tensor(pairs, weight.outputs);
            // By the average rows of an expert; only the device knows the real number.
            let few = pairs.div_ceil(experts) <= Tile::FEW.rows;
            let (kernel, of_block) = match &weight.kind {
                MatrixKind::F32 => (&kernels.expert_product_f32, WARPS),
                MatrixKind::Bf16 if few => (&kernels.expert_product_bf16, Tile::FEW.outputs),
                MatrixKind::Bf16 => (&kernels.expert_product_rows_bf16, Tile::MANY.outputs),
                MatrixKind::Integers(IntegerFormat::Eight, _) => (&kernels.expert_product_i8, WARPS),
                MatrixKind::Integers(IntegerFormat::Four, _) => (&kernels.expert_product_i4, WARPS),
            };
            let sizes = [divide, pairs, weight.columns, weight.pitch, weight.outputs].map(|n| u64::from(word(n)));
            let mut args = Args::of(&[x.at(), lists.at(), counts.at(), weight.memory.at]);
            let scales = weight.kind.scales();
            args.extend(scales.map(|scales| scales.memory.at).as_slice());
            args.extend(&[out.at()]);
            args.extend(&sizes);
            args.extend(scales.map(|scales| scales.scaling.into()).as_slice());
            let blocks = if pairs > 0 { weight.outputs.div_ceil(of_block) } else { 0 };
            // Blocks for each expert, or for each pair if they are fewer: most experts then have none.
            let by_pair = weight.kind.is_bf16() && pairs < experts;
            if weight.kind.is_bf16() {
                args.extend(&[if by_pair { chosen.at() } else { 0 }]);
            }
            self.queue.launch(kernel, (blocks, if by_pair { pairs } else { experts }), WARPS * WARP, 0, args.all());
            out
        };
        let wide = product(x, top_k, gate_up.0);
        let narrow = self.silu_mul(&wide);
        let result = product(&narrow, 1, down.0);
        let out = self.uninit_tensor(x.rows, down.0.outputs);
        let args = [result.at(), weights.at(), out.at(), top_k as u64, out.columns as u64];
        self.each(&kernels.combine_experts, out.len(), &args);
        out
    }
}
