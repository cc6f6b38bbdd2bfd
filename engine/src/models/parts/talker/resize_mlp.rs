//! Two linear layers that map rows to another width.

use repartee_kernels::{Activation, Ops};

use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// MLP of `linear_fc1`, silu and `linear_fc2`.
pub struct ResizeMlp<O: Ops> {
    fc1: (O::Weight, O::Weight),
    fc2: (O::Weight, O::Weight),
}

impl<O: Ops> ResizeMlp<O> {
    /// Loads the layers for rows of width `input`, with `inner` and `out` after the first and the second layer.
    pub fn load(w: &Weights<'_, O>, (input, inner, out): (usize, usize, usize)) -> Result<Self, LoadError> {
        Ok(Self {
            fc1: (w.linear("linear_fc1.weight", inner, input)?, w.vector("linear_fc1.bias", inner)?),
            fc2: (w.linear("linear_fc2.weight", out, inner)?, w.vector("linear_fc2.bias", out)?),
        })
    }

    /// Maps rows to the new width.
    pub fn forward(&self, ops: &O, x: &O::T) -> O::T {
        let h = ops.activation(ops.linear(x, &self.fc1.0, Some(&self.fc1.1)), Activation::Silu);
        ops.linear(&h, &self.fc2.0, Some(&self.fc2.1))
    }
}
