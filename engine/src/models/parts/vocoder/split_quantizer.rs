//! Entries of a codec's residual quantizer, of which the first codebook has a projection of its own: a frame's codes to a row.
//! After `SplitResidualVectorQuantizer` of moshi, whose tensors' names other codecs keep.

use repartee_kernels::{Ops, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Lower bound of the usage that divides an entry.
const LEAST_USAGE: f32 = 1e-5;

/// A table of entries, and its projection.
type Projected<W> = (W, W);

/// Codebooks of a quantizer.
pub struct SplitQuantizer<O: Ops> {
    codebooks: usize,
    entries: usize,
    /// The first codebook.
    first: Projected<O::Weight>,
    /// The others as one table.
    rest: Projected<O::Weight>,
}

impl<O: Ops> SplitQuantizer<O> {
    /// Loads the first `codebooks` codebooks, of `entries` numbers of width `width`, and projections to rows of width `out`.
    pub fn load(
        w: &Weights<'_, O>,
        (codebooks, entries): (usize, usize),
        (width, out): (usize, usize),
    ) -> Result<Self, LoadError> {
        let quantizer = |name: &str, codebooks: usize| -> Result<_, LoadError> {
            let w = w.at(name);
            // Grows with the tensors, whose shapes prove the sizes.
            let mut table = Vec::new();
            for codebook in 0..codebooks {
                let w = w.at(format_args!("vq.layers.{codebook}._codebook"));
                let sums = w.values("embedding_sum", &[entries, width])?;
                let usage = w.values("cluster_usage", &[entries])?;
                let entries = sums.chunks_exact(width).zip(usage);
                table.extend(entries.flat_map(|(sum, usage)| sum.iter().map(move |sum| sum / usage.max(LEAST_USAGE))));
            }
            let projection = w.values("output_proj.weight", &[out, width, 1])?;
            Ok((
                w.made("codebooks", WeightLayout::Table, &table, &[codebooks * entries, width])?,
                w.made("output_proj.weight", WeightLayout::Linear, &projection, &[out, width])?,
            ))
        };
        Ok(Self { codebooks, entries, first: quantizer("rvq_first", 1)?, rest: quantizer("rvq_rest", codebooks - 1)? })
    }

    /// First entry of a codebook in its table.
    pub fn base(&self, codebook: usize) -> u32 {
        (codebook.saturating_sub(1) * self.entries) as u32
    }

    /// Rows of frames; `code` gives each codebook's entries in its table.
    pub fn forward(&self, ops: &O, code: impl Fn(usize) -> O::Index) -> O::T {
        let first = ops.linear(&ops.embed_at(&self.first.0, &code(0)), &self.first.1, None);
        let rest = (1..self.codebooks).map(|codebook| ops.embed_at(&self.rest.0, &code(codebook)));
        match rest.reduce(|sum, entries| ops.add(sum, &entries)) {
            Some(rest) => ops.add(first, &ops.linear(&rest, &self.rest.1, None)),
            None => first,
        }
    }
}
