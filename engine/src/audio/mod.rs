//! Sound on its way into a model.

pub mod log_mel;
pub mod mel_filters;
