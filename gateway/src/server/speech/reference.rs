//! Fields of a speech request that bring a recording: the text is read in its voice.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_protocol::{ErrorBody, ErrorKind};
use serde::Deserialize;

/// Names of the fields.
pub(super) const AUDIO: &str = "ref_audio";
pub(super) const TEXT: &str = "ref_text";
const CONSENT: &str = "consent";

/// Error of a field.
pub(super) fn refuse<T>(param: &str, message: impl Into<String>) -> Result<T, ErrorBody> {
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
}

/// Fields as they were sent.
#[derive(Debug, Default, Deserialize)]
pub(super) struct ReferenceFields {
    /// A sound file in base64, or as a `data:` address.
    ref_audio: Option<String>,
    ref_text: Option<String>,
    consent: Option<String>,
}

/// Recording of a voice for one request.
#[derive(Debug, PartialEq)]
pub(super) struct Reference {
    /// Sound file of any supported format.
    pub recording: Vec<u8>,
    /// Transcript; may be empty.
    pub text: String,
    /// Id of the speaker's consent.
    pub consent: String,
}

impl ReferenceFields {
    /// True if a recording was sent.
    pub fn is_sent(&self) -> bool {
        self.ref_audio.is_some()
    }

    /// Decodes the recording; `None` if none was sent.
    pub fn read(self) -> Result<Option<Reference>, ErrorBody> {
        let Some(audio) = self.ref_audio else {
            return match (self.ref_text, self.consent) {
                (Some(_), _) => refuse(TEXT, "a transcript belongs to a recording: send it as ref_audio"),
                (None, Some(_)) => refuse(CONSENT, "a consent belongs to a recording: send it as ref_audio"),
                (None, None) => Ok(None),
            };
        };
        let Some(consent) = self.consent else {
            return refuse(CONSENT, "a voice needs its speaker's consent: make one with POST /v1/audio/voice_consents");
        };
        let encoded = match audio.strip_prefix("data:") {
            Some(address) => match address.split_once(";base64,") {
                Some((_, encoded)) => encoded,
                None => return refuse(AUDIO, "a data address of a recording is data:TYPE;base64,..."),
            },
            None => &audio,
        };
        let Ok(recording) = STANDARD.decode(encoded.trim()) else {
            return refuse(AUDIO, "a recording is a sound file in base64; addresses are not fetched");
        };
        Ok(Some(Reference { recording, text: self.ref_text.unwrap_or_default(), consent }))
    }
}
