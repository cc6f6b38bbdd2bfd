//! Stage of a causal language model: prefix reuse, prefill and decode in one step, sampling, limits and stops, for many
//! slots at once. A [`CausalLm`] defines the input of a position and the use of a sample.
//!
//! A step is one launch: the host fills a row spec, the device runs the same operations for every step of a
//! [`StepShape`], and the host reads the sampled ids back.
//!
//! The stage that reads the prompt keeps the longest common prefix of a new prompt and the cached one; it truncates its
//! sequence there and prefills the rest. This one rule serves every change of the history.

mod causal_lm;
mod stage;

pub use self::causal_lm::{
    BLOCK, CausalLm, Decoding, SampleOutcome, Sampler, SlotState, StepContext, StepInput, StepShape,
};
pub use self::stage::Autoregressive;
