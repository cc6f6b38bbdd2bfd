//! The form of a transcription session on the wire: what it hears and how, and nothing about responses.

use serde::Serialize;

use super::literal;
use super::session::{AudioInput, SessionExtension, Session, SessionKind};

literal!(
    /// The `object` of a transcription session.
    ObjectKind = "realtime.transcription_session"
);

/// A [`Session`] of the kind [`SessionKind::Transcription`] as it is written.
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
    /// The written form of `session`.
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
