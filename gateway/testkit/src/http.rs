//! Plain HTTP requests, one a connection.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::PATIENCE;

/// Response to a request.
#[derive(Debug)]
pub struct Reply {
    /// Status code of the response.
    pub status: u16,
    /// Status line and headers.
    pub head: String,
    /// The body as text.
    pub body: String,
    /// The body as bytes.
    pub bytes: Vec<u8>,
    /// True if the body came to its end.
    pub complete: bool,
}

impl Reply {
    /// Value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    /// Returns the body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Asserts server-sent events: each is one line of data, with an empty line after it.
    pub fn assert_events(&self) {
        let headers = ["content-type", "cache-control"].map(|name| self.header(name));
        assert_eq!(headers, [Some("text/event-stream"), Some("no-cache")]);
        assert!(self.body.ends_with("\n\n"), "{self:?}");
        for event in self.body.split_terminator("\n\n") {
            let data = event.strip_prefix("data: ").unwrap_or_else(|| panic!("{event:?}"));
            assert!(!data.is_empty() && !data.contains(['\r', '\n']), "{event:?}");
        }
    }

    /// Error code of a refusal.
    pub fn code(&self) -> String {
        self.json()["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// Sends one request and reads the response.
pub async fn send(address: SocketAddr, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    let socket = TcpStream::connect(address).await.unwrap();
    send_over(socket, &address.to_string(), method, path, headers, body).await
}

/// Sends the fields of a form, each with its name and its content.
pub async fn send_form(address: SocketAddr, path: &str, fields: &[(&str, &[u8])]) -> Reply {
    let (kind, body) = form(fields);
    send(address, "POST", path, &[("content-type", &kind)], &body).await
}

/// Media type and body of a form.
pub fn form(fields: &[(&str, &[u8])]) -> (String, Vec<u8>) {
    let mut body = Vec::new();
    for (name, content) in fields {
        body.extend(format!("--fence\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n").bytes());
        body.extend_from_slice(content);
        body.extend(b"\r\n");
    }
    body.extend(b"--fence--\r\n");
    ("multipart/form-data; boundary=fence".to_owned(), body)
}

/// As [`send`], over an open connection.
pub async fn send_over(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let mut head = format!("{method} {path} HTTP/1.1\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in [("host", host), ("connection", "close")] {
        if !headers.iter().any(|(set, _)| set.eq_ignore_ascii_case(name)) {
            head += &format!("{name}: {value}\r\n");
        }
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    socket.write_all(format!("{head}\r\n").as_bytes()).await.unwrap();
    // A server that refuses early may close before it has read everything.
    let _ = socket.write_all(body).await;
    read(socket).await
}

/// A request whose body is written bit by bit.
pub struct Chunked {
    /// Connection to the server.
    pub socket: TcpStream,
}

impl Chunked {
    /// Sends the head.
    pub async fn post(address: SocketAddr, path: &str, kind: &str) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\ncontent-type: {kind}\r\n\
             transfer-encoding: chunked\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        Self { socket }
    }

    /// Sends more of the body. A server that refuses may have closed.
    pub async fn write(&mut self, bytes: &[u8]) {
        let chunk = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
        let _ = self.socket.write_all(&chunk).await;
    }

    /// Reads until `count` bytes have come, including the head.
    pub async fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        timeout(PATIENCE, self.socket.read_exact(&mut bytes)).await.expect("bytes in time").unwrap();
        bytes
    }

    /// Ends the body.
    pub async fn end(&mut self) {
        let _ = self.socket.write_all(b"0\r\n\r\n").await;
    }

    /// Ends the body and reads the response, which began with `begun`.
    pub async fn finish(mut self, begun: Vec<u8>) -> Reply {
        self.end().await;
        read(std::io::Cursor::new(begun).chain(self.socket)).await
    }
}

/// Reads a response up to the end of the connection.
pub async fn read(mut socket: impl AsyncRead + Unpin) -> Reply {
    let mut bytes = Vec::new();
    // A reset after the response is an end too.
    let _ = timeout(PATIENCE, socket.read_to_end(&mut bytes)).await.expect("an answer in time");
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer");
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let (bytes, complete) = if chunked { unchunked(&bytes[end + 4..]) } else { (bytes[end + 4..].to_vec(), true) };
    Reply { status, head, body: String::from_utf8_lossy(&bytes).into_owned(), bytes, complete }
}

/// Bytes of a chunked body; true if its last chunk came.
fn unchunked(mut body: &[u8]) -> (Vec<u8>, bool) {
    let mut bytes = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        if size == 0 {
            return (bytes, true);
        }
        bytes.extend_from_slice(&body[end + 2..end + 2 + size]);
        body = &body[end + 4 + size..];
    }
    (bytes, false)
}
