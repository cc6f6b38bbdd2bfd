//! Flow matching: a spectrogram from noise, by a solver whose slopes a diffusion transformer evaluates.
//!
//! - [`config`]: sizes of the transformer
//! - [`dit`], `sections`: one evaluation, and its sections of the row spec
//! - [`prepared`], `modulation`, [`voice`]: tables that are computed at load time
//! - [`solver`], [`guidance`], [`window`], [`noise`]: the solve of a window
//! - [`stage`]: codes to frames, a block at a time
//! - [`chunked`]: another transformer, whose chunks of frames are each solved once
//! - [`windowed`]: one that attends to everything, in windows of codes
//! - [`patches`]: the solve of a few latents inside a language model's step

pub mod chunked;
pub mod config;
pub mod dit;
pub mod guidance;
mod modulation;
pub mod noise;
pub mod patches;
pub mod prepared;
mod sections;
pub mod solver;
pub mod stage;
pub mod voice;
pub mod window;
pub mod windowed;
