//! Mimi, a codec of speech: 12.5 frames of codes a second.
//!
//! - [`encoder`]: samples to codes, for recordings

pub mod encoder;
