//! Tensor operations for models, and their CPU implementation.
//!
//! - [`ops`]: the device trait [`Ops`]; [`shapes`], [`batch`], [`step`]: its plain values
//! - [`weight`]: number formats and layouts of weights; [`part`]: the tensors of a weight, stored or drawn at random; [`packed`]: those
//!   stored as integers; [`checked_parts`]: tensors that fit their layout
//! - [`row_spec`]: the host's inputs of a step, uploaded at once
//! - [`cpu`]: the implementation for a processor, vectorised for its instructions at run time
//! - `cuda` (feature `cuda`): the implementation for a CUDA device
//! - [`random`]: counter-based random numbers, a pure function of (seed, response, step, codebook)
//!
//! A model is a set of plain functions over [`Ops`] and names no device type. Activations are packed `[rows, columns]`, with the rows of
//! several sessions one below the other. An output row depends only on its own inputs, summed in an order that the weight's shape alone
//! decides. So a result does not depend on the batch, the chunks or the neighbouring rows.

pub mod batch;
pub mod checked_parts;
pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod ops;
pub mod packed;
pub mod part;
pub mod random;
pub mod row_spec;
pub mod shapes;
pub mod step;
pub mod weight;

pub use batch::{AttentionBatch, SequenceRows};
pub use checked_parts::CheckedParts;
pub use ops::{Ops, StepFn, StepOutputs};
pub use packed::{GroupScales, PackedTensor, Packing, SUPER_BLOCK};
pub use part::{RandomDraw, RandomTensor, WeightPart};
pub use row_spec::{NO_ROW, RowSpec, SpecLayout, StreamRows};
pub use shapes::{Activation, AttentionShape, FILTER_TAPS, NO_ID, RouterShape, SampleParams, SegmentShape, StateSpec};
pub use step::{ReadBack, StepKey, StreamLevel};
pub use weight::{DType, KernelError, RawTensor, WeightFormat, WeightLayout};
