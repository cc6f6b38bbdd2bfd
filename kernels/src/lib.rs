//! Tensor operations that the models are written over, and their CPU implementation.
//!
//! - [`ops`]: the trait [`Ops`] and the plain values that cross it: weight layouts, batches, sampling rows
//! - [`part`]: the tensors that make a weight, stored or drawn at random; [`packed`]: those that are stored as integers
//! - [`row_spec`]: what a step needs from the host, uploaded at once; [`step_ops`]: the operations that read it on the device
//! - [`cpu`]: the implementation for a processor, vectorised for what the machine offers at run time
//! - `cuda` (feature `cuda`): the implementation for a CUDA device
//! - [`random`]: counter-based random numbers, a pure function of (seed, response, step, codebook)
//! - [`recording`]: an `Ops` that notes what is called, to prove that shapes alone fix the sequence of operations
//! - [`replay`]: an `Ops` that repeats recorded steps without calling them again
//!
//! A model is a set of plain functions over [`Ops`]; no type of a device appears in it. Activations are packed
//! `[rows, columns]`: rows of several sessions stand one under the other, and an output row depends only on its own
//! inputs, summed in an order that the weight's shape alone decides. So a result does not change with the batch, the
//! chunk or the neighbours.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod ops;
pub mod packed;
pub mod part;
pub mod random;
pub mod recording;
pub mod replay;
pub mod row_spec;
pub mod step_ops;

pub use ops::{
    AttentionShape, AttentionBatch, DType, WeightFormat, KernelError, WeightLayout, NO_ID, Ops, RawTensor, RouterShape, SampleParams,
    SequenceRows, StateSpec,
};
pub use packed::{PackedTensor, Packing};
pub use part::{RandomDraw, RandomTensor, WeightPart};
pub use row_spec::{NO_ROW, RowSpec, SpecLayout, StreamRows};
pub use step_ops::{FILTER_TAPS, StepOutputs, ReadBack, StepFn, StepKey, StepOps, StreamLevel};
