//! Layers that several parts have.

use repartee_kernels::{Ops, WeightLayout};

use crate::models::load_error::LoadError;
use crate::models::parts::lists::list;
use crate::models::parts::weights::Weights;

/// Number added to a variance in norms: torch's default.
pub const EPSILON: f32 = 1e-5;

/// Weight and bias.
pub type Affine<O> = (<O as Ops>::Weight, <O as Ops>::Weight);

/// Loads a convolution of one tap as a matrix, in single precision.
pub fn pointwise<O: Ops>(w: &Weights<'_, O>, out: usize, input: usize) -> Result<Affine<O>, LoadError> {
    let weight = w.normed("weight", &[out, input, 1])?;
    Ok((w.made("pointwise", WeightLayout::Linear, &weight, &[out, input])?, w.vector("bias", out)?))
}

/// Loads a norm over channels.
pub fn norm<O: Ops>(w: &Weights<'_, O>, width: usize) -> Result<Affine<O>, LoadError> {
    Ok((w.vector("GAMMA", width)?, w.vector("BETA", width)?))
}

/// Applies a matrix.
pub fn linear<O: Ops>(ops: &O, x: &O::T, (weight, bias): &Affine<O>) -> O::T {
    ops.linear(x, weight, Some(bias))
}

/// Adds the one row of `to_all` to every row of `x`.
pub fn add_to_all<O: Ops>(ops: &O, x: O::T, to_all: &O::T) -> O::T {
    let first = vec![0; ops.rows(&x)];
    let repeated = ops.gather_at(to_all, &list(ops, &first));
    ops.add(x, &repeated)
}
