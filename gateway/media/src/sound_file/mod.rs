//! Decoder of sound files of many formats, from bytes in memory to mono samples.
//!
//! | file | contents |
//! |---|---|
//! | `decode` | the entry: a file's samples at its own rate, or at another |
//! | `container` | the container, by the file's first bytes |
//! | `riff` | wav files: our own reader |
//! | `packets` | the other containers, read by `symphonia`; Opus packets by our own decoder |
//! | `vorbis_setup` | bounds of a Vorbis stream's code books |
//! | `bounded_source` | a source that ends work without progress |
//! | `sink` | downmix, resampling and the limit of duration |
//! | `error` | the errors |
//!
//! A file is untrusted: memory is bounded by its own size and by the longest accepted duration, and work by both.

mod bounded_source;
mod container;
mod decode;
mod error;
mod packets;
mod riff;
mod sink;
#[cfg(test)]
mod tests;
mod vorbis_setup;

pub use decode::{SoundFile, decode, read, read_in_pieces, read_stream};
pub use error::SoundFileError;
