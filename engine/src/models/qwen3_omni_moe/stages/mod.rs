//! The family's models as [`Stage`](crate::stage::Stage)s.

mod code2wav;
mod talker;
mod thinker;

pub use code2wav::Code2WavStage;
pub use talker::TalkerStage;
pub use thinker::ThinkerStage;

use repartee_engine_api::Sampling;
use repartee_kernels::{SampleParams, random::uniform};

use crate::stage::Answer;

/// Positions in a block of a key-value cache.
const BLOCK: usize = 16;

/// One row's choice: random numbers depend on the answer's seed and number, the step and the codebook alone. Text counts as
/// codebook 0 and the talker's codebook `c` as `c + 1`.
fn sample_params(slot: usize, sampling: &Sampling, answer: &Answer, step: usize, codebook: usize) -> SampleParams {
    SampleParams {
        slot,
        repetition_penalty: sampling.repetition_penalty,
        temperature: sampling.temperature,
        top_k: sampling.top_k as usize,
        top_p: sampling.top_p,
        uniform: uniform(answer.seed, answer.response, step as u64, codebook as u64),
    }
}
