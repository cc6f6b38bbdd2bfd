//! The attacked server: connections, requests and websockets by hand, so that an attack can break every rule.

use std::io::{Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

/// Timeout of connecting, and of each read and write.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pause of a thread whose attack was refused.
pub const REFUSED: Duration = Duration::from_millis(50);
/// Most bytes of a response that are kept.
const MAX_RESPONSE: u64 = 1 << 20;

/// Opcode of a message's later frames.
pub const CONTINUATION: u8 = 0;
/// Opcode of a text message.
pub const TEXT: u8 = 1;
/// Opcode of a ping.
pub const PING: u8 = 9;

/// The attacked server.
#[derive(Debug, Clone)]
pub struct Victim {
    /// Address of the server.
    pub address: SocketAddr,
    /// Address of its calls over SIP; `None` if it takes none.
    pub sip: Option<SocketAddr>,
    /// Key of the attacker.
    pub key: String,
    /// Factor of the threads of an attack.
    pub times: usize,
    /// End of the attack.
    pub until: Instant,
}

impl Victim {
    /// True once the attack has to end.
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Waits until the end of the attack.
    pub fn hold(&self) {
        while !self.is_over() {
            thread::park_timeout(self.until.saturating_duration_since(Instant::now()));
        }
    }

    /// Repeats an attack in `threads` threads to its end; each gets its number.
    pub fn repeat(&self, threads: usize, attack: impl Fn(&Self, usize) -> Result<()> + Sync) {
        thread::scope(|scope| {
            for number in 0..threads * self.times {
                let attack = &attack;
                scope.spawn(move || {
                    while !self.is_over() {
                        if attack(self, number).is_err() {
                            thread::park_timeout(REFUSED);
                        }
                    }
                });
            }
        });
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The server does not accept it.
    pub fn connect(&self) -> Result<TcpStream> {
        let socket = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    /// Head of a request; `more` are further lines.
    pub fn head(&self, method: &str, path: &str, more: &str) -> String {
        let (address, key) = (self.address, &self.key);
        format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {key}\r\n{more}\r\n")
    }

    /// Sends a request with its whole body; returns the connection.
    ///
    /// # Errors
    /// The server does not take the body.
    pub fn send(&self, path: &str, kind: &str, body: &[u8]) -> Result<TcpStream> {
        let mut socket = self.connect()?;
        let more = format!("Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n", body.len());
        socket.write_all(self.head("POST", path, &more).as_bytes())?;
        socket.write_all(body)?;
        Ok(socket)
    }

    /// Posts and reads the response as text.
    ///
    /// # Errors
    /// The connection breaks, or the answer takes longer than ten seconds.
    pub fn post(&self, path: &str, kind: &str, body: &[u8]) -> Result<String> {
        let mut response = Vec::new();
        self.send(path, kind, body)?.take(MAX_RESPONSE).read_to_end(&mut response)?;
        Ok(String::from_utf8_lossy(&response).into_owned())
    }

    /// Opens a realtime websocket.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn websocket(&self) -> Result<TcpStream> {
        self.websocket_at("/v1/realtime")
    }

    /// Opens a websocket of a path.
    ///
    /// # Errors
    /// The server refuses it.
    pub fn websocket_at(&self, path: &str) -> Result<TcpStream> {
        let mut socket = self.connect()?;
        let more = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
                    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        socket.write_all(self.head("GET", path, more).as_bytes())?;
        let mut response = Vec::new();
        while !response.ends_with(b"\r\n\r\n") {
            let mut byte = [0; 1];
            socket.read_exact(&mut byte)?;
            response.push(byte[0]);
        }
        if !response.starts_with(b"HTTP/1.1 101") {
            bail!("the websocket was refused");
        }
        Ok(socket)
    }

    /// Requests an ephemeral key and returns the server as its holder sees it. While the server refuses, because of other attacks, it asks
    /// again, to the end of the attack.
    ///
    /// # Errors
    /// The server issues none until then.
    pub fn with_ephemeral_key(&self) -> Result<Self> {
        loop {
            match self.try_ephemeral_key() {
                Err(error) if self.is_over() => return Err(error),
                Err(_) => thread::park_timeout(REFUSED),
                victim => return victim,
            }
        }
    }

    fn try_ephemeral_key(&self) -> Result<Self> {
        let body = br#"{"expires_after":{"anchor":"created_at","seconds":600},"session":{"type":"realtime"}}"#;
        let response = self.post("/v1/realtime/client_secrets", "application/json", body)?;
        let (_, body) = response.split_once("\r\n\r\n").context("no body")?;
        let body: Value = serde_json::from_str(body).context("no JSON")?;
        let key = body["value"].as_str().context("no key")?.to_owned();
        Ok(Self { key, ..self.clone() })
    }
}

/// Masked websocket frame. The mask is zero, so the payload stays as it is.
pub fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match payload.len() {
        length @ 0..126 => frame.push(0x80 | length as u8),
        length @ 126..0x1_0000 => {
            frame.push(0x80 | 126);
            frame.extend((length as u16).to_be_bytes());
        }
        length => {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
    }
    frame.extend([0; 4]);
    frame.extend(payload);
    frame
}

/// Reads and drops everything on a thread of its own, until the connection ends.
///
/// # Errors
/// The socket cannot be shared.
pub fn drain(socket: &TcpStream) -> Result<()> {
    let mut reader = socket.try_clone()?;
    thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while matches!(reader.read(&mut buffer), Ok(1..)) {}
    });
    Ok(())
}

/// Byte string of `count` copies of `piece`, with commas in between.
pub fn list(piece: &str, count: usize) -> String {
    let mut list = format!("{piece},").repeat(count);
    list.pop();
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_length_of_their_payload() {
        assert_eq!(frame(PING, b"ab"), [0x89, 0x82, 0, 0, 0, 0, b'a', b'b']);
        assert_eq!(frame(TEXT, &[7; 300])[..4], [0x81, 0xfe, 1, 44]);
        assert_eq!(frame(TEXT, &[7; 70_000])[..10], [0x81, 0xff, 0, 0, 0, 0, 0, 1, 0x11, 0x70]);
        assert_eq!(list("0", 3), "0,0,0");
    }
}
