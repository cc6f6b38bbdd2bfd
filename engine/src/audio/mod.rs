//! Sound on its way into a model.

pub mod log_mel;
mod mel_filters;
