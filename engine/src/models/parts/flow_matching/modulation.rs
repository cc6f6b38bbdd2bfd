//! Time conditioning of the diffusion transformer: scales, shifts and gates of its norms, as tables.
//!
//! Every solve evaluates at the same few times, so all values that depend on the time alone are computed at load time.

use repartee_kernels::{Activation, Ops};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Numbers of a time before its projections; hard-coded in the reference.
pub(super) const TIME_FREQUENCIES: usize = 256;

/// Parts of a layer's modulation, in the reference's order.
pub(super) mod part {
    pub const SHIFT_ATTENTION: usize = 0;
    pub const SCALE_ATTENTION: usize = 1;
    pub const GATE_ATTENTION: usize = 2;
    pub const SHIFT_MLP: usize = 3;
    pub const SCALE_MLP: usize = 4;
    pub const GATE_MLP: usize = 5;
    pub const COUNT: usize = 6;
}

/// Number of parts of the last norm's modulation.
pub(super) const LAST_PARTS: usize = 2;

/// Embeds the times as rows, after `DiTTimestepEmbedding` and the activation that every layer first applies to it.
pub fn times<O: Ops>(ops: &O, w: &Weights<'_, O>, times: &[f32], hidden: usize) -> Result<O::T, LoadError> {
    Ok(ops.activation(time_rows(ops, &w.at("time_embed.time_mlp"), times, hidden)?, Activation::Silu))
}

/// Embeds the times as rows of `hidden` numbers by the two matrices below `w`.
pub fn time_rows<O: Ops>(ops: &O, w: &Weights<'_, O>, times: &[f32], hidden: usize) -> Result<O::T, LoadError> {
    let half = TIME_FREQUENCIES / 2;
    let falling = (10_000f64.ln() / (half - 1) as f64) as f32;
    let frequencies: Vec<f32> = (0..half).map(|i| (i as f32 * -falling).exp()).collect();
    let mut rows = Vec::with_capacity(times.len() * TIME_FREQUENCIES);
    for time in times {
        let angle = |frequency: &f32| 1000.0 * time * frequency;
        rows.extend(frequencies.iter().map(|frequency| angle(frequency).sin()));
        rows.extend(frequencies.iter().map(|frequency| angle(frequency).cos()));
    }
    projected_times(ops, w, rows, hidden)
}

/// Projects the numbers of times to rows of `hidden` numbers by the two matrices below `w`.
pub(super) fn projected_times<O: Ops>(
    ops: &O,
    w: &Weights<'_, O>,
    rows: Vec<f32>,
    hidden: usize,
) -> Result<O::T, LoadError> {
    let linear = |name: &str, x: &O::T, input| -> Result<O::T, LoadError> {
        let w = w.at(name);
        Ok(ops.linear(x, &w.linear("weight", hidden, input)?, Some(&w.vector("bias", hidden)?)))
    };
    let rows = ops.activation(linear("0", &ops.tensor(rows, TIME_FREQUENCIES), TIME_FREQUENCIES)?, Activation::Silu);
    linear("2", &rows, hidden)
}

/// Computes the table of a norm's linear layer `w`, `[time][part][hidden]`. Parts listed in `scales` get plus 1: they are the
/// norm's factors.
pub fn modulation<O: Ops>(
    (ops, w): (&O, &Weights<'_, O>),
    times: &O::T,
    hidden: usize,
    parts: usize,
    scales: &[usize],
) -> Result<Vec<f32>, LoadError> {
    let weight = w.linear("weight", parts * hidden, hidden)?;
    let mut values = ops.read(&ops.linear(times, &weight, Some(&w.vector("bias", parts * hidden)?)));
    for (_, row) in values.chunks_exact_mut(hidden).enumerate().filter(|(at, _)| scales.contains(&(at % parts))) {
        row.iter_mut().for_each(|scale| *scale += 1.0);
    }
    Ok(values)
}
