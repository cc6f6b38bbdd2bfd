//! A language model that speaks a clause at a time, as latents: each of its steps solves a patch of them inside the step, the
//! patch becomes the next position, and a head says when the utterance ends.
//!
//! - [`model`]: sizes and weights
//! - [`limits`]: lengths of utterances
//! - [`stage`]: clauses to latents; a family brings the rows of a prompt ([`stage::UtterancePrompt`])

pub mod limits;
pub mod model;
pub mod stage;
