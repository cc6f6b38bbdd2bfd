//! The solve of a patch, as a part of the step that gives its condition: Euler's method with guidance by a pair of
//! evaluations, all of it on the device.
//!
//! An evaluation is a sequence: the condition with the time, earlier latents, and the noisy ones. Without guidance the
//! condition is zero.

use repartee_kernels::row_spec::SpecSection;
use repartee_kernels::{Ops, RowSpec, SpecLayout, WeightLayout};

use super::config::PatchFlowConfig;
use super::layers::{Affine, PatchLayers, PatchSequences, affine};
use crate::models::load_error::LoadError;
use crate::models::parts::flow_matching::modulation::time_rows;
use crate::models::parts::weights::Weights;

/// Start of a patch.
#[derive(Debug, Clone, Copy)]
pub struct PatchStart<'a> {
    /// Earlier latents, `[history, latent]`.
    pub history: &'a [f32],
    /// Noise, `[patch, latent]`.
    pub noise: &'a [f32],
}

/// The flow's weights, with a table for its times.
pub struct PatchFlow<O: Ops> {
    config: PatchFlowConfig,
    /// Projection of latents.
    input: Affine<O>,
    /// Projection of the condition.
    condition: O::Weight,
    /// Row of each step's time, with the bias of the condition.
    times: Vec<O::Weight>,
    /// Length of each step.
    lengths: Vec<f32>,
    layers: PatchLayers<O>,
}

/// Sections of the row spec for some patches.
pub struct PatchFlowSections {
    patches: usize,
    history: SpecSection,
    noise: SpecSection,
    /// Row of each evaluation's condition: those with guidance, then none for the others.
    conditions: SpecSection,
    /// Rows of the sequences, out of conditions, history and noisy latents.
    order: SpecSection,
    sequences: PatchSequences,
    /// Rows of noisy latents, with guidance and without.
    guided: SpecSection,
    null: SpecSection,
}

impl<O: Ops> PatchFlow<O> {
    /// Loads the flow. `once` has the same weights on a device for the computations of load time.
    pub fn load<E: Ops>(
        w: &Weights<'_, O>,
        once: &Weights<'_, E>,
        config: &PatchFlowConfig,
    ) -> Result<Self, LoadError> {
        let (width, condition) = (config.layers.hidden_size, w.at("c_embedder.cond_embedder"));
        let points = config.points();
        let bias = condition.values("bias", &[width])?;
        let times = time_rows(once.ops(), &once.at("t_embedder.time_mlp"), &points[..config.steps], width)?;
        let rows = once.ops().read(&times);
        let with_bias = |row: &[f32]| {
            let row: Vec<f32> = row.iter().zip(&bias).map(|(time, bias)| time + bias).collect();
            w.made("times", WeightLayout::Vector, &row, &[width])
        };
        Ok(Self {
            input: affine(w, "x_embedder", width, config.latent)?,
            condition: condition.linear("weight", width, config.condition)?,
            times: rows.chunks_exact(width).map(with_bias).collect::<Result<_, LoadError>>()?,
            lengths: points.windows(2).map(|step| step[1] - step[0]).collect(),
            layers: PatchLayers::load(w, &config.layers, config.latent)?,
            config: config.clone(),
        })
    }

    /// Sizes of the solve.
    pub fn config(&self) -> &PatchFlowConfig {
        &self.config
    }

    /// Rows of an evaluation.
    fn length(&self) -> usize {
        1 + self.config.history + self.config.patch
    }

    /// Reserves sections for `patches` patches.
    pub fn layout(&self, layout: &mut SpecLayout, patches: usize) -> PatchFlowSections {
        let PatchFlowConfig { latent, patch, history, .. } = self.config;
        let length = self.length();
        PatchFlowSections {
            patches,
            history: layout.list(patches * history * latent),
            noise: layout.list(patches * patch * latent),
            conditions: layout.list(2 * patches),
            order: layout.list(2 * patches * length),
            sequences: PatchSequences::layout(layout, 2 * patches, length),
            guided: layout.list(patches * patch),
            null: layout.list(patches * patch),
        }
    }

    /// Fills a row spec with the starts of patches, in the order of the conditions' rows.
    pub fn fill(&self, spec: &mut RowSpec, sections: &PatchFlowSections, starts: &[PatchStart<'_>]) {
        let PatchFlowConfig { patch, history, .. } = self.config;
        let (all, count, length) = (sections.patches, starts.len(), self.length());
        spec.set_floats_each(sections.history, starts.iter().flat_map(|start| start.history.iter().copied()));
        spec.set_floats_each(sections.noise, starts.iter().flat_map(|start| start.noise.iter().copied()));
        // The rest of the list is no row: a condition of zeros.
        spec.set_each(sections.conditions, (0..all).map(|at| at as u32));
        let (past, now) = (2 * all, 2 * all + all * history);
        let order = (0..count).flat_map(|at| {
            [at, all + at].into_iter().flat_map(move |condition| {
                let past = (0..history).map(move |row| past + at * history + row);
                let now = (0..patch).map(move |row| now + at * patch + row);
                std::iter::once(condition).chain(past).chain(now)
            })
        });
        spec.set_each(sections.order, order.map(|row| row as u32));
        sections.sequences.fill(spec, 2 * count);
        for (list, way) in [(sections.guided, 0), (sections.null, 1)] {
            let first = |at: usize| (2 * at + way) * length + 1 + history;
            spec.set_each(list, (0..count).flat_map(|at| (first(at)..first(at) + patch).map(|row| row as u32)));
        }
    }

    /// Solves a patch for each row of `conditions`; returns the latents, `[patches * patch, latent]`.
    pub fn solve(&self, ops: &O, (spec, sections): (&O::Spec, &PatchFlowSections), conditions: &O::T) -> O::T {
        let index = |section| ops.index(spec, section);
        let floats = |section| ops.floats(spec, section, self.config.latent);
        let embed = |x: &O::T| ops.linear(x, &self.input.0, Some(&self.input.1));
        let conditions = ops.gather_at(conditions, &index(sections.conditions));
        let (order, guided, null) = (index(sections.order), index(sections.guided), index(sections.null));
        let history = embed(&floats(sections.history));
        let mut x = floats(sections.noise);
        let by = self.config.guidance;
        for (time, length) in self.times.iter().zip(&self.lengths) {
            let first = ops.linear(&conditions, &self.condition, Some(time));
            let rows = ops.gather_at(&ops.concat(&[&first, &history, &embed(&x)]), &order);
            let rows = self.layers.forward(ops, rows, (spec, &sections.sequences));
            let slope = |at: &O::Index| self.layers.finish(ops, &ops.gather_at(&rows, at));
            let away = ops.scale_all(slope(&null), -by * length);
            x = ops.add(ops.add(ops.scale_all(slope(&guided), (1.0 + by) * length), &away), &x);
        }
        x
    }
}
