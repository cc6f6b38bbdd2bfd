//! Tensor operations for models, and their CPU implementation.
//!
//! - [`ops`]: the trait [`Ops`] and its plain values: weight layouts, batches, sampling parameters
//! - [`part`]: the tensors of a weight, stored or drawn at random; [`packed`]: those stored as integers
//! - [`row_spec`]: the host's inputs of a step, uploaded at once; [`step_ops`]: the operations that read them on the device
//! - [`cpu`]: the implementation for a processor, vectorised for its instructions at run time
//! - `cuda` (feature `cuda`): the implementation for a CUDA device
//! - [`random`]: counter-based random numbers, a pure function of (seed, response, step, codebook)
//! - [`recording`]: an `Ops` that records its calls; tests prove with it that shapes alone fix the sequence of operations
//! - [`replay`]: an `Ops` that replays recorded steps without calling them again
//!
//! A model is a set of plain functions over [`Ops`] and names no device type. Activations are packed `[rows, columns]`, with the rows of
//! several sessions one below the other. An output row depends only on its own inputs, summed in an order that the weight's shape alone
//! decides. So a result does not depend on the batch, the chunks or the neighbouring rows.

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
    AttentionBatch, AttentionShape, DType, KernelError, NO_ID, Ops, RawTensor, RouterShape, SampleParams, SequenceRows,
    StateSpec, WeightFormat, WeightLayout,
};
pub use packed::{PackedTensor, Packing};
pub use part::{RandomDraw, RandomTensor, WeightPart};
pub use row_spec::{NO_ROW, RowSpec, SpecLayout, StreamRows};
pub use step_ops::{FILTER_TAPS, ReadBack, StepFn, StepKey, StepOps, StepOutputs, StreamLevel};
