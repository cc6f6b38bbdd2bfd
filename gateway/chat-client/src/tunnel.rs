//! The request `CONNECT`, with which a proxy opens a tunnel to a server.

use std::io;

use hyper::header::HeaderValue;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::dialer::ByteStream;
use crate::failure::ProxyFailure;

/// Maximum size of the head of the proxy's response, in bytes.
const MAX_HEAD: usize = 16 << 10;

/// Error of a tunnel.
#[derive(Debug)]
pub(crate) enum TunnelError {
    Io(io::Error),
    Proxy(ProxyFailure),
}

/// Asks the proxy at the other end of `stream` for a tunnel to `authority`, which is `HOST:PORT`.
pub(crate) async fn open_tunnel(
    stream: &mut dyn ByteStream,
    authority: &str,
    authorization: Option<&HeaderValue>,
) -> Result<(), TunnelError> {
    let mut request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n").into_bytes();
    if let Some(authorization) = authorization {
        request.extend_from_slice(b"Proxy-Authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await.map_err(TunnelError::Io)?;
    stream.flush().await.map_err(TunnelError::Io)?;
    let head = read_head(stream).await?;
    match parse_status(&head) {
        Some(200..=299) => Ok(()),
        Some(407) => Err(TunnelError::Proxy(ProxyFailure::Unauthorized)),
        Some(status) => Err(TunnelError::Proxy(ProxyFailure::Rejected(status))),
        None => Err(TunnelError::Proxy(ProxyFailure::NotHttp)),
    }
}

/// Reads up to the empty line. It reads byte by byte, because what follows belongs to the tunnel.
async fn read_head(stream: &mut dyn ByteStream) -> Result<Vec<u8>, TunnelError> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if head.len() == MAX_HEAD {
            return Err(TunnelError::Proxy(ProxyFailure::NotHttp));
        }
        head.push(stream.read_u8().await.map_err(TunnelError::Io)?);
    }
    Ok(head)
}

/// Returns the status code of a head; `None` if it is none.
fn parse_status(head: &[u8]) -> Option<u16> {
    let line = head.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.strip_prefix("HTTP/1.")?.split_ascii_whitespace();
    words.next()?;
    words.next().filter(|status| status.len() == 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn answered(response: &str) -> (Result<(), TunnelError>, String) {
        let (mut near, mut far) = tokio::io::duplex(64 << 10);
        far.write_all(response.as_bytes()).await.unwrap();
        far.shutdown().await.unwrap();
        let authorization = HeaderValue::from_static("Basic abc");
        let result = open_tunnel(&mut near, "a.example:443", Some(&authorization)).await;
        let mut rest = String::new();
        near.read_to_string(&mut rest).await.unwrap();
        (result, rest)
    }

    #[tokio::test]
    async fn tunnel_begins_after_the_head() {
        for head in ["HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n", "HTTP/1.0 200\n\n"] {
            let (result, rest) = answered(&format!("{head}tunnelled")).await;
            assert!(result.is_ok(), "{head:?}");
            assert_eq!(rest, "tunnelled");
        }
    }

    #[tokio::test]
    async fn tunnel_refusals_are_typed() {
        let failure = async |response: &str| match answered(response).await.0 {
            Err(TunnelError::Proxy(failure)) => failure,
            other => panic!("{response:?}: {other:?}"),
        };
        assert_eq!(failure("HTTP/1.1 407 No\r\n\r\n").await, ProxyFailure::Unauthorized);
        assert_eq!(failure("HTTP/1.1 403 No\r\n\r\n").await, ProxyFailure::Rejected(403));
        assert_eq!(failure("SSH-2.0-OpenSSH\r\n\r\n").await, ProxyFailure::NotHttp);
        assert_eq!(failure(&"a".repeat(MAX_HEAD + 1)).await, ProxyFailure::NotHttp);
    }

    #[tokio::test]
    async fn closed_tunnel_is_an_io_error() {
        let (mut near, far) = tokio::io::duplex(1 << 10);
        let closing = async {
            let mut far = far;
            let mut request = [0; 16];
            far.read_exact(&mut request).await.unwrap();
        };
        let (result, ()) = tokio::join!(open_tunnel(&mut near, "a:1", None), closing);
        assert!(matches!(result, Err(TunnelError::Io(_))), "{result:?}");
    }
}
