//! Connections that fail before a response.

use std::io;
use std::sync::Arc;

use async_trait::async_trait;
use repartee_chat_client::{ByteStream, ChatClient, ChatFailure, DialError, Dialer, Peer};
use tokio::net::TcpSocket;

use repartee_chat_testkit::{TestServer, ask, config, config_for};

/// Dialer that fails.
struct FailingDialer(fn(io::Error) -> DialError, io::ErrorKind);

#[async_trait]
impl Dialer for FailingDialer {
    async fn dial(&self, _: &str, _: u16) -> Result<Box<dyn ByteStream>, DialError> {
        Err((self.0)(self.1.into()))
    }
}

#[tokio::test]
async fn unknown_host_is_named() {
    let dialer = FailingDialer(DialError::UnknownHost, io::ErrorKind::NotFound);
    let found = ask(&ChatClient::with_dialer(config(), Arc::new(dialer)).unwrap()).await;
    assert!(matches!(found.failure("http://llm.test:8000/v1: the host"), ChatFailure::UnknownHost { .. }));
}

#[tokio::test]
async fn unreachable_host_is_named() {
    let dialer = FailingDialer(DialError::Connect, io::ErrorKind::NetworkUnreachable);
    let found = ask(&ChatClient::with_dialer(config(), Arc::new(dialer)).unwrap()).await;
    assert!(matches!(found.failure("cannot be reached"), ChatFailure::Unreachable { peer: Peer::Server, .. }));
}

#[tokio::test]
async fn refused_connection_is_named() {
    // It has its port, and does not listen.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = socket.local_addr().unwrap();
    let found = ask(&ChatClient::new(config_for(&format!("http://{address}"))).unwrap()).await;
    assert_eq!(found.failure("refused the connection"), &ChatFailure::Refused { peer: Peer::Server });
}

#[tokio::test]
async fn closed_connection_is_typed() {
    for begin in ["", "HTTP/1.1 200 OK\r\nContent-"] {
        let found = ask(&TestServer::torn(begin).client()).await;
        assert!(matches!(found.failure("without a response"), ChatFailure::Closed { .. }), "{begin}");
    }
}

#[tokio::test]
async fn other_protocols_are_told() {
    for begin in ["SSH-2.0-OpenSSH_9.2\r\n", "\u{15}\u{3}\u{3}\u{0}\u{2}\u{2}\u{16}", "HTTP/1.1 abc\r\n\r\n"] {
        let found = ask(&TestServer::torn(begin).client()).await;
        assert!(matches!(found.failure("does not speak HTTP/1.1"), ChatFailure::NotHttp { .. }), "{begin}");
    }
}
