//! A relay between client and server that forwards bytes unchanged and records the websocket.

use std::io::Cursor;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::protocol::frame::FrameHeader;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

/// Recorded bytes of one direction.
type Bytes = Arc<Mutex<Vec<u8>>>;

/// Recorded bytes of one connection.
#[derive(Debug, Default)]
struct ConnectionCopy {
    from_client: Bytes,
    from_server: Bytes,
}

/// A recording relay; dropping it ends it.
#[derive(Debug)]
pub struct WebSocketTap {
    address: SocketAddr,
    connections: Arc<Mutex<Vec<ConnectionCopy>>>,
    task: JoinHandle<()>,
}

impl Drop for WebSocketTap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl WebSocketTap {
    /// Starts a relay to `server`.
    pub async fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let connections = Arc::new(Mutex::new(Vec::new()));
        let kept = connections.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                // A refusal by the server closes the client's connection.
                let Ok(server) = TcpStream::connect(server).await else { continue };
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(relay(client, server));
            }
        });
        Ok(Self { address, connections, task })
    }

    /// Returns the address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns all events that the server has sent over websockets.
    pub fn server_events(&self) -> Result<Vec<Value>> {
        self.events(|copies| &copies.from_server)
    }

    /// Returns all events that clients have sent over websockets.
    pub fn client_events(&self) -> Result<Vec<Value>> {
        self.events(|copies| &copies.from_client)
    }

    fn events(&self, side: impl Fn(&ConnectionCopy) -> &Bytes) -> Result<Vec<Value>> {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let mut events = Vec::new();
        for copies in connections.iter() {
            let upgraded =
                copies.from_server.lock().unwrap_or_else(PoisonError::into_inner).starts_with(b"HTTP/1.1 101");
            if upgraded {
                let bytes = side(copies).lock().unwrap_or_else(PoisonError::into_inner);
                for text in messages(&bytes)? {
                    events.push(serde_json::from_str(&text).with_context(|| text)?);
                }
            }
        }
        Ok(events)
    }
}

/// Forwards bytes both ways until both ends close.
fn relay(client: TcpStream, server: TcpStream) -> ConnectionCopy {
    // Speech comes in small packets; Nagle's algorithm would delay them.
    for socket in [&client, &server] {
        let _ = socket.set_nodelay(true);
    }
    let copies = ConnectionCopy::default();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::spawn(pass(from_client, to_server, copies.from_client.clone()));
    tokio::spawn(pass(from_server, to_client, copies.from_server.clone()));
    copies
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, copy: Bytes) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count) = from.read(&mut buffer).await
        && count > 0
    {
        copy.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
    // The other end may already be gone.
    let _ = to.shutdown().await;
}

/// Parses the text messages of one direction: an HTTP head, then frames without extensions. Incomplete messages are
/// skipped.
fn messages(bytes: &[u8]) -> Result<Vec<String>> {
    let Some(head) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(Vec::new()) };
    let frames = &bytes[head + 4..];
    let (mut messages, mut text, mut open) = (Vec::new(), Vec::new(), false);
    let mut cursor = Cursor::new(frames);
    while let Some((header, length)) = FrameHeader::parse(&mut cursor)? {
        let start = usize::try_from(cursor.position())?;
        let end = start + usize::try_from(length)?;
        let Some(payload) = frames.get(start..end) else { break };
        cursor.set_position(end as u64);
        match header.opcode {
            OpCode::Data(Data::Text) => open = true,
            OpCode::Data(Data::Continue) if open => {}
            OpCode::Data(Data::Binary) => bail!("a binary message"),
            _ => continue,
        }
        let mask = header.mask.unwrap_or_default();
        text.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
        if header.is_final {
            messages.push(String::from_utf8(std::mem::take(&mut text))?);
            open = false;
        }
    }
    Ok(messages)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\n\r\n";

    #[test]
    fn only_whole_text_messages_are_read() {
        let mut bytes = HEAD.to_vec();
        bytes.extend(b"\x81\x02{}");
        bytes.extend(b"\x89\x01p");
        bytes.extend(b"\x01\x01[\x80\x01]");
        // Masked with 1, 2, 3, 4.
        bytes.extend([0x81, 0x82, 1, 2, 3, 4, b'4' ^ 1, b'2' ^ 2]);
        bytes.extend(b"\x81\x05not ");
        assert_eq!(messages(&bytes).unwrap(), ["{}", "[]", "42"]);
        assert!(messages(b"HTTP/1.1 101").unwrap().is_empty());
    }
}
