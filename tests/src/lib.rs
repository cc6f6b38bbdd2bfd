//! Helpers shared by the end-to-end tests.
//!
//! - [`server`]: a server in this process; [`demo`]: the one with the demo model
//! - [`questions`]: what is asked, in voices that the demo model never heard; [`rate`]: how much of it is rightly answered;
//!   [`card`]: how much the model claims; [`binomial`]: what a count may be
//! - [`recording_engine`]: an engine that keeps what the model said
//! - [`asr`]: what an independent recogniser makes of a recording; [`spectral_similarity`]: how much of a sound is in it
//! - [`interruptions`]: callers, echoes and backchannels over a playing answer
//! - [`side_by_side`]: measuring beside a reference implementation
//! - [`word_errors`]: errors of a word estimator
//! - [`tools`]: the programs that drive the server from outside, and where they are
//! - [`conformance`]: the conversation that every stock client must be able to have
//! - [`workspace`]: the crates and the edges between them; [`sources`]: what their sources name

pub mod asr;
pub mod binomial;
pub mod model_card;
pub mod conformance;
pub mod demo;
pub mod interruptions;
pub mod questions;
pub mod answer_rate;
pub mod recording_engine;
pub mod server;
pub mod side_by_side;
pub mod sources;
pub mod spectral_similarity;
pub mod tools;
pub mod word_errors;
pub mod workspace;
