//! Depth models: all codes of a frame but the first.

pub mod code_predictor;
