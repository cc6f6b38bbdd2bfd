//! Plain HTTP on a server with HTTPS, for peers at any address.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::config::TlsConfig;
use crate::server::tls;

/// Context of a server with HTTPS that trusts the proxies of 10.0.0.0/8.
fn context() -> ConnectionContext {
    let settings = TlsConfig { development: true, ..TlsConfig::default() };
    let certificate = tls::certificate(&settings, || vec!["localhost".into()]).unwrap().unwrap();
    let (acceptor, _) = tls::acceptor(certificate).unwrap();
    ConnectionContext {
        routes: RouterSwitch::new(Router::new().route("/healthz", get(|| async { "ok\n" }))),
        control_routes: RouterSwitch::new(Router::new()),
        requests: Some(Handle::current()),
        tls: Some(acceptor),
        trusted: vec!["10.0.0.0/8".parse().unwrap()],
        head_timeout: Duration::from_secs(10),
        request_timeout: Duration::from_secs(10),
        stalled_after: Duration::from_secs(10),
        metrics: RequestMetrics::new().unwrap(),
        plain_warning: PlainWarning::default(),
    }
}

/// Returns the response to a plain HTTP request of a peer at `address`.
async fn plain(address: &str, host: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let peer = Peer { address: SocketAddr::new(address.parse().unwrap(), 5_000), tls: false };
    let (_running, stopped) = watch::channel(false);
    let context = context();
    let request = format!("GET /healthz?x=1 HTTP/1.1\r\n{host}connection: close\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    serve_connection(socket, peer, &context, stopped, false).await;
    let mut response = String::new();
    client.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn plain_http_is_served_to_loopback_and_proxies() {
    for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "10.1.2.3", "::ffff:10.1.2.3"] {
        let response = plain(address, "host: voice.example\r\n").await;
        assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("ok\n"), "{address}: {response}");
    }
}

#[tokio::test]
async fn a_head_above_its_limit_is_refused() {
    let lines = |count: usize| format!("host: voice.example\r\nx: {}\r\n", "a".repeat(count));
    let accepted = plain("127.0.0.1", &lines(MAX_HEAD / 2)).await;
    assert!(accepted.starts_with("HTTP/1.1 200 "), "{accepted}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (socket, _) = listener.accept().await.unwrap();
    let peer = Peer { address: SocketAddr::new("127.0.0.1".parse().unwrap(), 5_000), tls: false };
    let (_running, stopped) = watch::channel(false);
    let context = context();
    // Not complete: the server refuses it without waiting for its end.
    let begun = format!("GET / HTTP/1.1\r\n{}", lines(MAX_HEAD + 100));
    client.write_all(begun.as_bytes()).await.unwrap();
    serve_connection(socket, peer, &context, stopped, false).await;
    let mut response = [0; 13];
    client.read_exact(&mut response).await.unwrap();
    assert_eq!(&response, b"HTTP/1.1 431 ");
}

#[tokio::test]
async fn plain_http_of_others_is_redirected() {
    for address in ["203.0.113.7", "192.168.1.5", "2001:db8::1", "::ffff:203.0.113.7"] {
        let response = plain(address, "host: voice.example\r\n").await;
        assert!(response.starts_with("HTTP/1.1 308 "), "{address}: {response}");
        assert!(response.contains("location: https://voice.example/healthz?x=1\r\n"), "{address}: {response}");
        assert!(!response.contains("ok\n"), "{address}: {response}");
    }
    let response = plain("203.0.113.7", "").await;
    assert!(response.starts_with("HTTP/1.1 400 "), "{response}");
}
