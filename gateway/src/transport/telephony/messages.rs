//! Messages of the Media Streams protocol, as Twilio publishes them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Sample rate of a telephone, in Hz.
pub const RATE: u32 = 8_000;
/// Encoding of the sound, mu-law.
const ENCODING: &str = "audio/x-mulaw";

/// Message of the provider. Unknown fields are ignored.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum ProviderMessage {
    /// First message of a connection.
    Connected,
    /// Description of the call.
    Start {
        /// Call and its parameters.
        start: StreamStart,
    },
    /// Sound of the caller.
    Media {
        /// Sound.
        media: Media,
    },
    /// Key that the caller pressed.
    Dtmf {
        /// The key.
        dtmf: Dtmf,
    },
    /// Mark that came back: the sound before it has played, or was cleared.
    Mark {
        /// Mark.
        mark: Mark,
    },
    /// End of the call, or of the stream.
    Stop,
    /// Message of a later version.
    #[serde(other)]
    Unknown,
}

/// Description of a call.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StreamStart {
    /// Id of the stream; every message to the provider names it.
    pub stream_sid: String,
    /// Id of the call at the provider.
    #[serde(default)]
    pub call_sid: String,
    /// Parameters that the call's script gives.
    #[serde(default)]
    pub custom_parameters: BTreeMap<String, String>,
    /// Format of the sound.
    #[serde(default)]
    pub media_format: MediaFormat,
}

/// Format of the sound.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MediaFormat {
    /// MIME type; `audio/x-mulaw` is served.
    pub encoding: String,
    /// Sample rate, in Hz.
    pub sample_rate: u32,
    /// Number of channels.
    pub channels: u32,
}

impl Default for MediaFormat {
    fn default() -> Self {
        Self { encoding: ENCODING.to_owned(), sample_rate: RATE, channels: 1 }
    }
}

/// Sound of a message.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Media {
    /// `inbound` for the caller.
    #[serde(default)]
    pub track: String,
    /// mu-law, in base64.
    pub payload: String,
}

/// Key that the caller pressed, of a message.
#[derive(Debug, PartialEq, Deserialize)]
pub struct Dtmf {
    /// `0` to `9`, `*`, `#`, `A` to `D`.
    pub digit: char,
}

/// Mark in the sound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// Name of the mark.
    pub name: String,
}

/// Message to the provider.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum StreamMessage {
    /// Sound to play after what waits.
    Media {
        /// Sound.
        media: Payload,
    },
    /// Mark after the sound so far.
    Mark {
        /// Mark.
        mark: Mark,
    },
    /// Drops the sound that waits at the provider, whose marks come back at once.
    Clear,
}

/// Sound in base64.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Payload {
    /// mu-law, in base64.
    pub payload: String,
}

/// Message to the provider with its stream.
#[derive(Debug, Serialize)]
struct Addressed<'a> {
    #[serde(flatten)]
    message: &'a StreamMessage,
    #[serde(rename = "streamSid")]
    stream: &'a str,
}

impl StreamMessage {
    /// Writes the message for a stream.
    pub fn text(&self, stream: &str) -> String {
        // Serialisation of this type cannot fail.
        serde_json::to_string(&Addressed { message: self, stream }).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(message: Value) -> ProviderMessage {
        serde_json::from_str(&message.to_string()).unwrap()
    }

    #[test]
    fn published_messages_are_read() {
        assert_eq!(
            read(json!({"event": "connected", "protocol": "Call", "version": "1.0.0"})),
            ProviderMessage::Connected
        );
        let start = json!({"event": "start", "sequenceNumber": "1", "streamSid": "MZ18ad3ab5a668481ce02b83e7395059f0",
            "start": {"accountSid": "AC1", "streamSid": "MZ18ad3ab5a668481ce02b83e7395059f0",
                "callSid": "CA123", "tracks": ["inbound"], "customParameters": {"voice": "amy"},
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}});
        let ProviderMessage::Start { start } = read(start) else { panic!("no start") };
        assert_eq!((&*start.stream_sid, &*start.call_sid), ("MZ18ad3ab5a668481ce02b83e7395059f0", "CA123"));
        assert_eq!((&*start.custom_parameters["voice"], start.media_format), ("amy", MediaFormat::default()));
        let media = json!({"event": "media", "sequenceNumber": "3", "streamSid": "MZ1",
            "media": {"track": "inbound", "chunk": "1", "timestamp": "5", "payload": "//8="}});
        let expected = Media { track: "inbound".to_owned(), payload: "//8=".to_owned() };
        assert_eq!(read(media), ProviderMessage::Media { media: expected });
        let dtmf = json!({"event": "dtmf", "streamSid": "MZ1", "dtmf": {"track": "inbound_track", "digit": "#"}});
        assert_eq!(read(dtmf), ProviderMessage::Dtmf { dtmf: Dtmf { digit: '#' } });
        let mark = Mark { name: "a".to_owned() };
        assert_eq!(read(json!({"event": "mark", "mark": {"name": "a"}})), ProviderMessage::Mark { mark });
        assert_eq!(read(json!({"event": "stop", "stop": {"callSid": "CA1"}})), ProviderMessage::Stop);
        assert_eq!(read(json!({"event": "later", "later": 1})), ProviderMessage::Unknown);
    }

    #[test]
    fn messages_have_their_published_form() {
        let form = |message: StreamMessage| serde_json::from_str::<Value>(&message.text("MZ1")).unwrap();
        let media = StreamMessage::Media { media: Payload { payload: "//8=".to_owned() } };
        assert_eq!(form(media), json!({"event": "media", "streamSid": "MZ1", "media": {"payload": "//8="}}));
        let mark = StreamMessage::Mark { mark: Mark { name: "a".to_owned() } };
        assert_eq!(form(mark), json!({"event": "mark", "streamSid": "MZ1", "mark": {"name": "a"}}));
        assert_eq!(form(StreamMessage::Clear), json!({"event": "clear", "streamSid": "MZ1"}));
    }
}
