//! A cascade: models in a row that serve as one. The language model's text is spoken by a second model, whose stages
//! follow its own; so both run in one tick loop, under one planner and one account of memory, and a session knows no
//! difference.
//!
//! - [`voice`]: joins a language model and a model that speaks given text
//! - [`error`]: errors of models that do not join
//! - `bridge`: the stage between them
//! - `later_stage`: stages that the session's prompt does not reach

mod bridge;
pub mod error;
pub mod later_stage;
pub mod voice;
