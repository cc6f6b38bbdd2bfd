//! Attacks by telephone calls over media streams: calls without end or beginning, and messages that are none.

use std::io::Write as _;

use anyhow::Result;

use super::victim::{TEXT, Victim, drain, frame};

const PATH: &str = "/v1/telephony/media-stream";

/// First messages of a call.
fn begin(number: usize) -> [String; 2] {
    let format = r#"{"encoding":"audio/x-mulaw","sampleRate":8000,"channels":1}"#;
    let start = format!(
        r#""accountSid":"AC1","streamSid":"MZ{number}","callSid":"CA{number}","tracks":["inbound"],"mediaFormat":{format},"customParameters":{{}}"#
    );
    [
        r#"{"event":"connected","protocol":"Call","version":"1.0.0"}"#.to_owned(),
        format!(r#"{{"event":"start","sequenceNumber":"1","streamSid":"MZ{number}","start":{{{start}}}}}"#),
    ]
}

/// Sound of `bytes` bytes, in one message.
fn media(bytes: usize) -> String {
    let payload = "/w8A".repeat(bytes / 3);
    format!(r#"{{"event":"media","media":{{"track":"inbound","timestamp":"1","payload":"{payload}"}}}}"#)
}

/// Calls that begin and break at once, send sound faster than time, garbage or nothing.
pub fn media_streams(victim: &Victim) -> Result<()> {
    let messages = |texts: &[String]| texts.iter().flat_map(|text| frame(TEXT, text.as_bytes())).collect::<Vec<u8>>();
    let second = messages(&[media(8_000)]);
    let torn = messages(&[r#"{"event":"media","media":{"payload":""#.to_owned(), "[".repeat(60_000), media(60_000)]);
    victim.repeat(16, |victim, number| {
        let mut socket = victim.websocket_at(PATH)?;
        drain(&socket)?;
        match number % 4 {
            // The caller hangs up before the call has begun.
            0 => socket.write_all(&messages(&begin(number)[..1]))?,
            1 => {
                socket.write_all(&messages(&begin(number)))?;
                while !victim.is_over() {
                    socket.write_all(&second)?;
                }
            }
            2 => socket.write_all(&torn)?,
            _ => {
                socket.write_all(&messages(&begin(number)))?;
                socket.write_all(&torn)?;
            }
        }
        Ok(())
    });
    Ok(())
}
