//! The family's models as [`Stage`](crate::stage::Stage)s.

mod talker;
mod thinker;

pub use talker::TalkerStage;
pub use thinker::ThinkerStage;

use repartee_engine_api::Sampling;
use repartee_kernels::{SampleParams, random::uniform};

use crate::stage::ResponseParams;

/// Positions in a block of a key-value cache.
const BLOCK: usize = 16;

/// Sampling parameters of one row. The random number depends on the response's seed and id, the step and the codebook alone;
/// text counts as codebook 0, the talker's codebook `c` as `c + 1`.
fn sample_params(
    slot: usize,
    sampling: &Sampling,
    params: &ResponseParams,
    step: usize,
    codebook: usize,
) -> SampleParams {
    SampleParams {
        slot,
        repetition_penalty: sampling.repetition_penalty,
        temperature: sampling.temperature,
        top_k: sampling.top_k as usize,
        top_p: sampling.top_p,
        uniform: uniform(params.seed, params.response, step as u64, codebook as u64),
    }
}
