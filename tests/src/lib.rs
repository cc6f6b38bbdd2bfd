//! Helpers of the end-to-end tests.
//!
//! - [`server`]: a server in this process; [`demo`]: the same with the demo model
//! - [`questions`]: held-out spoken questions; [`answer_rate`]: check of the rate of right answers; [`model_card`]: the rates that
//!   the model card claims; [`binomial`]: bounds of binomial counts
//! - [`recording_engine`]: an engine that records inputs and responses
//! - [`asr`]: transcripts by an independent speech recogniser; [`spectral_similarity`]: similarity of two recordings
//! - [`interruptions`]: simulated callers, echoes and backchannels during an answer
//! - [`interruption_starts`]: the judged starts of voices, by kind
//! - [`noise_scenes`]: frozen scenes of callers in noise, and of soft callers
//! - [`side_by_side`]: benchmarks beside a reference implementation
//! - [`word_errors`]: errors of a word estimator
//! - [`tools`]: external programs that drive the server
//! - [`conformance`]: the conversation that every stock client must complete
//! - [`workspace`]: the crates and their dependencies; [`sources`]: modules and words in their sources

pub mod answer_rate;
pub mod asr;
pub mod binomial;
pub mod conformance;
pub mod demo;
pub mod interruption_starts;
pub mod interruptions;
pub mod model_card;
pub mod noise_scenes;
pub mod questions;
pub mod recording_engine;
pub mod server;
pub mod side_by_side;
pub mod sources;
pub mod spectral_similarity;
pub mod tools;
pub mod word_errors;
pub mod workspace;
