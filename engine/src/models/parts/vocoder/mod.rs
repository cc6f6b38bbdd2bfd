//! Vocoders: codes or a spectrogram to samples.
//!
//! - [`code2wav`], [`code2wav_stage`]: codec frames to samples, with carried state
//! - [`bigvgan`], [`bigvgan_stage`], [`resampled_snake`]: a spectrogram to samples, in overlapping windows
//! - [`config`]: sizes

pub mod bigvgan;
pub mod bigvgan_stage;
pub mod code2wav;
pub mod code2wav_stage;
pub mod config;
pub mod resampled_snake;
