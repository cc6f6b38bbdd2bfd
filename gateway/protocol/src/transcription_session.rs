//! Wire form of a session by its kind. A transcription session has input settings only, without the fields about responses.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::literal::literal;
use super::session::{AudioInput, Session, SessionExtension, SessionKind};

literal!(
    /// The `object` field of a transcription session.
    ObjectKind = "realtime.transcription_session"
);

/// Serialized form of a [`Session`] of the kind [`SessionKind::Transcription`].
#[derive(Debug, Serialize)]
pub struct TranscriptionSession<'a> {
    #[serde(rename = "type")]
    kind: SessionKind,
    object: ObjectKind,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    audio: Audio<'a>,
    include: Option<&'a [String]>,
    #[serde(skip_serializing_if = "SessionExtension::is_empty")]
    repartee: &'a SessionExtension,
}

#[derive(Debug, Serialize)]
struct Audio<'a> {
    input: &'a AudioInput,
}

impl<'a> TranscriptionSession<'a> {
    /// Borrows the fields of `session` that a transcription session has.
    pub fn of(session: &'a Session) -> Self {
        Self {
            kind: session.kind,
            object: ObjectKind::Value,
            id: &session.id,
            expires_at: session.expires_at,
            audio: Audio { input: &session.audio.input },
            include: session.include.as_deref(),
            repartee: &session.repartee,
        }
    }
}

impl Serialize for Session {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.kind {
            SessionKind::Realtime => Self::serialize(self, serializer),
            SessionKind::Transcription => TranscriptionSession::of(self).serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Session {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn transcription_sessions_have_no_response_fields() {
        let session = Session { kind: SessionKind::Transcription, id: "sess_1".into(), ..Session::default() };
        let written = serde_json::to_value(&session).unwrap();
        assert_eq!(
            written,
            json!({"type": "transcription", "object": "realtime.transcription_session", "id": "sess_1", "include": null,
                "audio": {"input": {"format": {"type": "audio/pcm", "rate": 24_000}, "noise_reduction": null,
                    "transcription": null, "turn_detection": null}}})
        );
        let read: Session = serde_json::from_value(written).unwrap();
        assert_eq!(read, session);
        let realtime = serde_json::to_value(Session::default()).unwrap();
        assert_eq!((&realtime["type"], &realtime["object"]), (&json!("realtime"), &json!("realtime.session")));
        assert!(realtime["audio"]["output"].is_object());
    }
}
