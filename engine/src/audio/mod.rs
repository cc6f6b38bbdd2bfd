//! Audio front end of the models.

pub mod kaldi_mel;
pub mod log_mel;
pub mod mel_filters;
pub mod recording_mel;
pub mod resample;
