//! Published chat templates.
//!
//! - `chat_template`: the compiled template and its bounds
//! - `chat_input`: what a template is given
//! - `error`: typed errors
//! - `find`: the template in a checkpoint's files
//! - `json`: JSON as Python writes it
//! - `prompt`: the rendered prompt in segments, and its growth
//! - `python`: functions, filters and methods that published templates expect of Python
//! - `repr`: values as Python's `repr` writes them
//! - `reserved`: characters that stand for special tokens in the output
//! - `source`: changes to a template's source before it is compiled
//! - `special_tokens`: special tokens in a template's source and in its output
//! - `time`: the clock of `strftime_now`

mod chat_input;
mod chat_template;
mod error;
pub mod find;
mod json;
mod prompt;
mod python;
mod repr;
mod reserved;
mod source;
mod special_tokens;
mod time;

pub use chat_input::{ChatContent, ChatInput, ChatMessage, ChatValue};
pub use chat_template::{ChatTemplate, TemplateTokens};
pub use error::TemplateError;
pub use prompt::{Prompt, PromptChange, Segment};
pub use time::CivilTime;
