//! `ResidualCouplingBlock`, backwards: four couplings, each of which takes from one half of the channels a function of the
//! other half. Before each, all channels are reversed; reversed orders are put into the matrices at load.

use repartee_kernels::{Activation, Ops, WeightLayout};

use super::config::VitsConfig;
use super::layers::{Affine, add_to_all, linear, pointwise};
use crate::models::load_error::LoadError;
use crate::models::parts::lists::one_segment;
use crate::models::parts::vocoder::segment_conv::SegmentConv;
use crate::models::parts::weights::Weights;

/// Layers of a coupling, and taps of their convolutions.
const LAYERS: usize = 4;
const TAPS: usize = 5;
/// Couplings by their place among the flows, backwards.
const COUPLINGS: [usize; 4] = [6, 4, 2, 0];

/// The couplings with loaded weights, in the order of drawing.
pub struct CouplingFlow<O: Ops> {
    couplings: Vec<Coupling<O>>,
    latent: usize,
    hidden: usize,
}

struct Coupling<O: Ops> {
    before: Affine<O>,
    /// Style to what is added in each layer.
    style: Affine<O>,
    layers: Vec<(SegmentConv<O>, Affine<O>)>,
    after: Affine<O>,
}

impl<O: Ops> Coupling<O> {
    /// Loads a coupling, which finds the channels reversed if `reversed`.
    fn load(w: &Weights<'_, O>, config: &VitsConfig, reversed: bool) -> Result<Self, LoadError> {
        let (half, hidden, waves) = (config.latent / 2, config.hidden, w.at("enc"));
        let (mut before, mut after) =
            (w.values("pre.weight", &[hidden, half, 1])?, w.values("post.weight", &[half, hidden, 1])?);
        let mut shift = w.values("post.bias", &[half])?;
        if reversed {
            before.chunks_exact_mut(half).for_each(<[f32]>::reverse);
            after = after.chunks_exact(hidden).rev().flatten().copied().collect();
            shift.reverse();
        }
        let layer = |at: usize| {
            let out = if at + 1 < LAYERS { 2 * hidden } else { hidden };
            Ok((
                SegmentConv::load_normed(&waves.at("in_layers").at(at), 2 * hidden, hidden, TAPS, 1)?,
                pointwise(&waves.at("res_skip_layers").at(at), out, hidden)?,
            ))
        };
        let matrix = |name, values: &[f32], shape: [usize; 2]| w.made(name, WeightLayout::Linear, values, &shape);
        Ok(Self {
            before: (matrix("pre.weight", &before, [hidden, half])?, w.vector("pre.bias", hidden)?),
            style: pointwise(&waves.at("cond_layer"), 2 * hidden * LAYERS, config.style)?,
            layers: (0..LAYERS).map(layer).collect::<Result<_, LoadError>>()?,
            after: (
                matrix("post.weight", &after, [half, hidden])?,
                w.made("post.bias", WeightLayout::Vector, &shift, &[half])?,
            ),
        })
    }

    /// Function of one half, which is taken from the other.
    fn shift(&self, ops: &O, first: &O::T, style: &O::T, hidden: usize) -> O::T {
        let (styles, segment) = (linear(ops, style, &self.style), one_segment(ops, ops.rows(first)));
        let mut x = linear(ops, first, &self.before);
        let mut total: Option<O::T> = None;
        for (at, (gate, out)) in self.layers.iter().enumerate() {
            let own = ops.narrow(&styles, at * 2 * hidden, 2 * hidden);
            let both = add_to_all(ops, gate.forward(ops, &x, &segment), &own);
            let wave = ops.activation(ops.narrow(&both, 0, hidden), Activation::Tanh);
            let gated = ops.sigmoid_mul(&ops.concat_columns(&[&wave, &ops.narrow(&both, hidden, hidden)]));
            let mut made = linear(ops, &gated, out);
            if at + 1 < LAYERS {
                x = ops.add(x, &ops.narrow(&made, 0, hidden));
                made = ops.narrow(&made, hidden, hidden);
            }
            total = Some(match total {
                Some(total) => ops.add(total, &made),
                None => made,
            });
        }
        // There are layers.
        linear(ops, &total.unwrap_or(x), &self.after)
    }
}

impl<O: Ops> CouplingFlow<O> {
    /// Loads the flow; `w` is the prefix of its list.
    pub fn load(w: &Weights<'_, O>, config: &VitsConfig) -> Result<Self, LoadError> {
        // The first one, the third and so on find the channels reversed.
        let coupling = |(order, at): (usize, usize)| Coupling::load(&w.at(at), config, order.is_multiple_of(2));
        let couplings = COUPLINGS.into_iter().enumerate().map(coupling).collect::<Result<_, LoadError>>()?;
        Ok(Self { couplings, latent: config.latent, hidden: config.hidden })
    }

    /// Number of couplings.
    pub fn couplings(&self) -> usize {
        self.couplings.len()
    }

    /// Applies a coupling, in the order of drawing.
    pub fn undo(&self, ops: &O, at: usize, x: &O::T, style: &O::T) -> O::T {
        let half = self.latent / 2;
        let halves = [ops.narrow(x, 0, half), ops.narrow(x, half, half)];
        // Reversed channels begin with the second half.
        let (seen, moved) = if at.is_multiple_of(2) { (1, 0) } else { (0, 1) };
        let shift = self.couplings[at].shift(ops, &halves[seen], style, self.hidden);
        let moved = ops.add(ops.scale_all(shift, -1.0), &halves[moved]);
        if seen == 1 { ops.concat_columns(&[&moved, &halves[1]]) } else { ops.concat_columns(&[&halves[0], &moved]) }
    }
}
