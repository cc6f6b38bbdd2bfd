//! Patches to rows of a language model: layers over a learnt row and the latents of a patch, of which the first row is
//! taken.

use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Ops, RowSpec, SpecLayout};

use super::config::PatchLayersConfig;
use super::layers::{Affine, PatchLayers, PatchSequences, affine};
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// The aggregator's weights.
pub struct PatchAggregator<O: Ops> {
    /// Latents of a patch, and the numbers of each.
    patch: (usize, usize),
    /// The learnt row.
    word: O::Weight,
    input: Affine<O>,
    layers: PatchLayers<O>,
}

/// Sections of the row spec for some patches.
pub struct AggregatorSections {
    latents: SpecSection,
    word: SpecSection,
    /// Rows of the sequences, out of the learnt row and the latents.
    order: SpecSection,
    sequences: PatchSequences,
    /// First row of each sequence.
    firsts: SpecSection,
}

impl<O: Ops> PatchAggregator<O> {
    /// Loads the aggregator of patches of so many latents of so many numbers, to rows of `out` numbers.
    pub fn load(
        w: &Weights<'_, O>,
        config: &PatchLayersConfig,
        patch: (usize, usize),
        out: usize,
    ) -> Result<Self, LoadError> {
        let width = config.hidden_size;
        Ok(Self {
            patch,
            word: w.table("word_embedder.weight", 1, width)?,
            input: affine(w, "x_embedder", width, patch.1)?,
            layers: PatchLayers::load(w, config, out)?,
        })
    }

    /// Reserves sections for `patches` patches.
    pub fn layout(&self, layout: &mut SpecLayout, patches: usize) -> AggregatorSections {
        let (patch, latent) = self.patch;
        AggregatorSections {
            latents: layout.list(patches * patch * latent),
            word: layout.list(1),
            order: layout.list(patches * (1 + patch)),
            sequences: PatchSequences::layout(layout, patches, 1 + patch),
            firsts: layout.list(patches),
        }
    }

    /// Fills a row spec; each patch has its latents one after the other.
    pub fn fill<'a>(
        &self,
        spec: &mut RowSpec,
        sections: &AggregatorSections,
        patches: impl ExactSizeIterator<Item = &'a [f32]>,
    ) {
        let (patch, count) = (self.patch.0, patches.len());
        spec.set_floats_each(sections.latents, patches.flatten().copied());
        spec.set(sections.word, &[0]);
        let latents = |at: usize| (1 + at * patch..1 + (at + 1) * patch).map(|row| row as u32);
        spec.set_each(sections.order, (0..count).flat_map(|at| std::iter::once(0).chain(latents(at))));
        sections.sequences.fill(spec, count);
        spec.set_each(sections.firsts, (0..count).map(|at| (at * (1 + patch)) as u32));
    }

    /// Returns one row for each patch.
    pub fn forward(&self, ops: &O, (spec, sections): (&O::Spec, &AggregatorSections)) -> O::T {
        let index = |section| ops.index(spec, section);
        let latents = ops.floats(spec, sections.latents, self.patch.1);
        let latents = ops.linear(&latents, &self.input.0, Some(&self.input.1));
        let word = ops.embed_at(&self.word, &index(sections.word));
        let rows = ops.gather_at(&ops.concat(&[&word, &latents]), &index(sections.order));
        let rows = self.layers.forward(ops, rows, (spec, &sections.sequences));
        self.layers.finish(ops, &ops.gather_at(&rows, &index(sections.firsts)))
    }
}
