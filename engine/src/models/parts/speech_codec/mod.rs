//! Mimi, a codec of speech: 12.5 frames of codes a second. Other codecs have its encoder.
//!
//! - [`encoder`]: samples to codes, for recordings
//! - [`decoder`]: codes to samples, over streams
//! - [`layer`]: a transformer layer of both

pub mod decoder;
pub mod encoder;
pub mod layer;
