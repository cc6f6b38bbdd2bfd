//! Vocoders: codes or a spectrogram to samples.
//!
//! - [`frame_stage`]: the stage of a vocoder of codec frames
//! - [`code2wav`], [`code2wav_stage`]: codec frames to samples by convolutions
//! - [`bigvgan`], [`bigvgan_stage`], [`resampled_snake`]: a spectrogram to samples, in overlapping windows
//! - [`spectral`], [`layered`], [`stft`]: codec frames to spectra, without and with layers between, and the inverse transform over
//!   streams
//! - [`hift`]: a spectrogram to samples, causal
//! - [`istft_net`]: features and a pitch to spectra
//! - [`latent_codec`]: latents to spectra, through layers over a window
//! - [`rings`]: cache blocks of layers over a window
//! - [`segment_conv`]: convolutions centred on their rows
//! - [`stream_conv`]: convolutions over streams
//! - [`split_quantizer`]: codes to rows
//! - [`vits`]: units to samples, with durations that are drawn
//! - [`window_codec`]: codec frames to spectra in windows, for a codec that cannot be streamed
//! - [`config`]: sizes of BigVGAN

pub mod bigvgan;
pub mod bigvgan_stage;
pub mod code2wav;
pub mod code2wav_stage;
pub mod config;
pub mod frame_stage;
pub mod hift;
pub mod istft_net;
pub mod latent_codec;
pub mod layered;
pub mod resampled_snake;
pub mod rings;
pub mod segment_conv;
pub mod spectral;
pub mod split_quantizer;
pub mod stft;
pub mod stream_conv;
pub mod vits;
pub mod window_codec;
