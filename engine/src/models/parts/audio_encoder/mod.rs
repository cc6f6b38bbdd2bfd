//! Whisper-like audio encoders: windows of log-mel frames in, rows out.
//!
//! | file | content |
//! |---|---|
//! | [`front_end`] | the spectrogram before an encoder |
//! | [`layer`] | a transformer layer |

pub mod front_end;
pub mod layer;
