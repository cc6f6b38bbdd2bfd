//! GGUF files as checkpoints: everything that other forms have in several files stands in one.
//!
//! Their metadata become the configuration of the published architecture, and their tensors take its names, so that a
//! family reads them as any other checkpoint.
//!
//! - `architecture`: the architectures that are served, and the names of their tensors
//! - `config`: the configuration, out of the metadata
//! - `matrix`: matrices with the file's own integers
//! - `vocabulary`: the tokenizer's fields

pub(super) mod architecture;
pub(super) mod config;
pub(super) mod matrix;
pub(super) mod vocabulary;
