//! Whisper-like audio encoders: windows of log-mel frames in, rows out. What tells published encoders apart is their
//! [`shape`].
//!
//! Attention reaches no further than a window, so a closed window is final.
//!
//! | file | content |
//! |---|---|
//! | [`shape`] | sizes and variants of an encoder |
//! | [`tower`] | the encoder: windows to rows |
//! | `convolutions` | mel frames to the rows of the first layer |
//! | [`layer`] | a transformer layer |
//! | [`pieces`] | units of work of a window |
//! | `unfinished` | a window unit by unit |
//! | [`pool`] | attention that pools rows into one |
//! | [`front_end`] | spectrogram and encoder as the audio input of a model |

mod convolutions;
pub mod front_end;
pub mod layer;
pub mod pieces;
pub mod pool;
pub mod shape;
pub mod tower;
mod unfinished;
