//! Flow matching over chunks of frames: each chunk is solved once, because its frames attend to their own chunk and to
//! earlier ones alone, at every time of the solve. After CosyVoice's `flow` with `streaming=True`.
//!
//! Keys and values are kept for each time of the solve and each row of the guidance's pair. So are the frames before a
//! chunk that its convolutions reach, at each time, as numbers on the host.
//!
//! The reference attends to everything before a frame, and solves the last chunk of a response with attention in both
//! directions, because its last call does not ask for streaming. Here every chunk sees its own frames and those before
//! it: the voice's recording and a number of chunks of the response.
//!
//! - [`config`]: sizes of its layers
//! - [`dit`], [`sections`]: one evaluation, and its sections of the row spec
//! - [`voice`]: a voice's recording, and its speaker's row
//! - [`recordings`]: places of recordings in the cache
//! - [`stage`]: codes to frames, a chunk at a time

pub mod config;
pub mod dit;
pub mod recordings;
pub mod sections;
pub mod stage;
pub mod voice;
