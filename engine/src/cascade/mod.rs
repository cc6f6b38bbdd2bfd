//! A cascade: models in a row that serve as one. A recogniser hears the caller as text of the language model's prompts.
//! The language model's text is spoken by a third model, whose stages follow its own. All run in one tick loop, under
//! one planner and one account of memory, and a session knows no difference.
//!
//! - [`voice`]: joins a language model and a model that speaks given text
//! - [`hearing`]: puts a recogniser before a model
//! - [`parts`]: the parts of a cascade, and their order
//! - [`error`]: errors of models that do not join
//! - [`remote_model`]: a language model behind a server
//! - `bridge`: the stage between them
//! - `read_aloud`: a given text passes the language model by
//! - `later_stage`: stages that the session's prompt does not reach
//! - `remote_stage`: the stage of a language model behind a server
//! - `remote_vocabulary`, `remote_messages`: the conversation as ids, and back as messages

mod bridge;
pub mod error;
pub mod hearing;
pub mod later_stage;
pub mod parts;
mod read_aloud;
mod remote_messages;
pub mod remote_model;
mod remote_stage;
mod remote_vocabulary;
pub mod voice;
