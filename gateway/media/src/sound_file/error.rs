//! Errors of sound files.

use thiserror::Error;

use crate::resample::ResampleError;

/// Formats that are read, for errors.
const ACCEPTED: &str = "send wav, flac, mp3, m4a (AAC), or ogg or webm with Opus or Vorbis";

/// Error of reading a sound file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SoundFileError {
    /// Container that is not read.
    #[error("{container} is not read here: {ACCEPTED}")]
    Container {
        /// Name of the container.
        container: &'static str,
    },
    /// Codec that is not read.
    #[error("{container} with {codec} is not read here: {ACCEPTED}")]
    Codec {
        /// Name of the container.
        container: &'static str,
        /// Name of the codec, or its number in the container.
        codec: String,
    },
    /// File that breaks the rules of its container or codec.
    #[error("the {container} file is damaged: {problem}")]
    Damaged {
        /// Name of the container.
        container: &'static str,
        /// Description of the damage.
        problem: String,
    },
    /// Sample rate that is not supported.
    #[error("the file has {0} samples a second: send 8000 to 384000")]
    Rate(u32),
    /// Number of channels that is not supported.
    #[error("the file has {0} channels: send 1 to 32")]
    Channels(usize),
    /// Number among the samples that is infinite or none.
    #[error("the file holds samples that are not finite numbers")]
    NotFinite,
    /// File without samples.
    #[error("the file holds no audio")]
    Empty,
    /// File over the length limit.
    #[error("the file holds more audio than the limit of {limit} s")]
    TooLong {
        /// Maximum length in seconds.
        limit: u64,
    },
    /// The caller gave up.
    #[error("the decoding was abandoned")]
    Abandoned,
    /// Failure to convert the sample rate.
    #[error(transparent)]
    Resample(#[from] ResampleError),
}
