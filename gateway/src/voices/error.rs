//! Errors of the voice store.

use std::io;

use repartee_engine_api::EnrolError;
use repartee_media::sound_file::SoundFileError;
use thiserror::Error;

/// Error of the voice store.
#[derive(Debug, Error)]
pub enum VoiceError {
    /// A field has an invalid value.
    #[error("{problem}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Description of the problem, for the client.
        problem: String,
    },
    /// No consent has this id.
    #[error("there is no consent `{0}`: make one with POST /v1/audio/voice_consents")]
    UnknownConsent(String),
    /// No enrolled voice has this id.
    #[error("there is no voice `{0}` made from a recording")]
    UnknownVoice(String),
    /// The limit `voices.most` is reached.
    #[error("there are {most} {what} already: delete one, or raise voices.most")]
    Full {
        /// `voices` or `consents`.
        what: &'static str,
        /// The limit `voices.most`.
        most: usize,
    },
    /// The model refused the recording.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// No random id could be generated.
    #[error("no random id could be generated: {0}")]
    Random(#[from] getrandom::Error),
    /// The folder cannot be written.
    #[error("the voice cannot be saved: {0}")]
    Io(#[from] io::Error),
}

/// Names the field of a sound file in its error.
pub(super) fn readable<T>(field: &'static str, read: Result<T, SoundFileError>) -> Result<T, VoiceError> {
    read.map_err(|error| VoiceError::Field { field, problem: error.to_string() })
}
