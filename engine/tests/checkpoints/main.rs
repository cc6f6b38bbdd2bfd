//! Checkpoints: loading, refusals, integer weights, tokenizers, random weights.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod bad_checkpoints;
mod bad_files;
mod compressed;
mod config_integers;
mod forms;
mod load;
mod summaries;
mod synthetic;
mod tokenizer_files;
mod weights;
