//! LSTM layer in both directions, after `torch.nn.LSTM`.

use repartee_kernels::{Ops, WeightLayout};

use super::weights::Weights;
use crate::models::load_error::LoadError;

/// Layer whose result has the states of both directions, one after the other.
pub struct BidirectionalLstm<O: Ops> {
    forward: Direction<O>,
    backward: Direction<O>,
}

struct Direction<O: Ops> {
    input: O::Weight,
    /// Sum of the two biases of the file.
    bias: O::Weight,
    /// Recurrence, in single precision.
    hidden: O::Weight,
}

impl<O: Ops> BidirectionalLstm<O> {
    /// Loads a layer from rows of `input` numbers to `width` numbers of each direction.
    pub fn load(w: &Weights<'_, O>, input: usize, width: usize) -> Result<Self, LoadError> {
        let direction = |suffix: &str| -> Result<Direction<O>, LoadError> {
            let name = |part: &str| format!("{part}_l0{suffix}");
            let biases = [w.values(&name("bias_ih"), &[4 * width])?, w.values(&name("bias_hh"), &[4 * width])?];
            let bias: Vec<f32> = biases[0].iter().zip(&biases[1]).map(|(a, b)| a + b).collect();
            let (hidden, shape) = (name("weight_hh"), [4 * width, width]);
            Ok(Direction {
                input: w.linear(&name("weight_ih"), 4 * width, input)?,
                bias: w.made(&name("bias"), WeightLayout::Vector, &bias, &[4 * width])?,
                hidden: w.made(&hidden, WeightLayout::Linear, &w.values(&hidden, &shape)?, &shape)?,
            })
        };
        Ok(Self { forward: direction("")?, backward: direction("_reverse")? })
    }

    /// Computes the states after and before each row of a segment.
    pub fn forward(&self, ops: &O, x: &O::T, segments: &O::Index) -> O::T {
        let run = |direction: &Direction<O>, reverse| {
            let gates = ops.linear(x, &direction.input, Some(&direction.bias));
            ops.segment_lstm_at(&gates, &direction.hidden, segments, reverse)
        };
        ops.concat_columns(&[&run(&self.forward, false), &run(&self.backward, true)])
    }
}
