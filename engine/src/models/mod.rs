//! Model families: one folder each, named and structured like its published checkpoint.

pub mod qwen3_omni_moe;
