//! Signalling over TCP: a telephone's connection, and connections that nobody should have.

use std::net::SocketAddr;

use repartee::config::SipScheme;
use repartee_gateway_testkit::{PATIENCE, Running, http};
use repartee_testkit::scripted::Script;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::calls::call_id;
use super::telephone::{listen_by, serve_with};

/// Connections that one address may have.
const MAX_OF_ONE: usize = 32;

async fn serve(peers: &[&str]) -> Running {
    serve_with(Script { frames: 10, ..Script::default() }, |config| {
        config.sip.listen = vec![listen_by(SipScheme::Tcp)];
        config.sip.peers = peers.iter().map(|peer| peer.parse().unwrap()).collect();
    })
    .await
}

/// A telephone's connection.
struct Connection {
    stream: TcpStream,
    received: String,
}

impl Connection {
    async fn new(server: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(server).await.unwrap(), received: String::new() }
    }

    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads until this text has come; returns everything up to its end.
    async fn until(&mut self, text: &str) -> String {
        let mut piece = [0; 4_096];
        loop {
            if let Some(place) = self.received.find(text) {
                let rest = self.received.split_off(place + text.len());
                return std::mem::replace(&mut self.received, rest);
            }
            let length = timeout(PATIENCE, self.stream.read(&mut piece)).await.expect(text).unwrap();
            assert!(length > 0, "{text} expected, and the end came");
            self.received.push_str(std::str::from_utf8(&piece[..length]).unwrap());
        }
    }

    /// Waits for the end, which nothing comes before.
    async fn ended(&mut self) {
        let mut rest = Vec::new();
        // A connection may be reset instead of closed.
        let _ = timeout(PATIENCE, self.stream.read_to_end(&mut rest)).await.expect("an end in time");
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }

    fn request(&self, method: &str, to: &str, body: &str) -> String {
        let own = self.stream.local_addr().unwrap();
        let number = if method == "BYE" { 2 } else { 1 };
        format!(
            "{method} sip:voice@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP {own};branch=z9hG4bK{method}\r\nMax-Forwards: 70\r\n\
             From: <sip:+4930@127.0.0.1>;tag=a7\r\nTo: {to}\r\nCall-ID: connected\r\nCSeq: {number} {method}\r\n\
             Contact: <sip:phone@{own};transport=tcp>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_come_and_end_on_one_connection() {
    let server = serve(&["127.0.0.1/32"]).await;
    let mut phone = Connection::new(server.sip.unwrap()).await;
    phone.send("\r\n\r\n").await;
    phone.until("\r\n").await;
    let offer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n";
    let invite = phone.request("INVITE", "<sip:voice@127.0.0.1>", offer);
    // In pieces, whose second one has the next message's start.
    let (first, rest) = invite.split_at(100);
    phone.send(first).await;
    let probe = phone.request("OPTIONS", "<sip:voice@127.0.0.1>", "");
    phone.send(&format!("{rest}{}", &probe[..50])).await;
    phone.until("SIP/2.0 180 ").await;
    let accepted = phone.until("m=audio ").await;
    assert!(accepted.contains("SIP/2.0 200 ") && accepted.contains(";transport=tcp>\r\n"), "{accepted}");
    phone.send(&probe[50..]).await;
    phone.until("SIP/2.0 200 ").await;
    let to = accepted.rsplit_once("\r\nTo: ").unwrap().1.lines().next().unwrap().to_owned();
    phone.send(&phone.request("ACK", &to, "")).await;
    let hangup = format!("/v1/realtime/calls/{}/hangup", call_id(&server).await);
    assert_eq!(http::send(server.address, "POST", &hangup, &[], b"").await.status, 200);
    let bye = phone.until("BYE sip:phone@").await + &phone.until("\r\n\r\n").await;
    let copied =
        bye.lines().filter(|line| ["Via", "From", "To:", "Call", "CSeq"].iter().any(|name| line.starts_with(name)));
    let copied: String = copied.map(|line| format!("{line}\r\n")).collect();
    phone.send(&format!("SIP/2.0 200 OK\r\n{copied}Content-Length: 0\r\n\r\n")).await;
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_get_no_connection() {
    let server = serve(&["192.0.2.0/24"]).await;
    let mut stranger = Connection::new(server.sip.unwrap()).await;
    stranger.ended().await;
    let (_, metrics) = server.get("/metrics").await;
    assert!(metrics.contains("repartee_refused_total{reason=\"sip_peer\"} 1\n"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn unclear_messages_end_their_connection_alone() {
    let server = serve(&["127.0.0.1/32"]).await;
    let mut neighbour = Connection::new(server.sip.unwrap()).await;
    let probe = neighbour.request("OPTIONS", "<sip:voice@127.0.0.1>", "");
    for garbage in [
        probe.replace("Content-Length: 0\r\n", ""),
        probe.replace("Content-Length: 0", "Content-Length: 99999999"),
        probe.replace("Content-Length: 0", "Content-Length: 0\r\nl: 1"),
        "\r\rOPTIONS".to_owned(),
        "X: y\r\n".repeat(20_000),
    ] {
        let mut attacker = Connection::new(server.sip.unwrap()).await;
        // The end may come before everything is sent.
        let _ = attacker.stream.write_all(garbage.as_bytes()).await;
        attacker.ended().await;
    }
    neighbour.send(&probe).await;
    neighbour.until("SIP/2.0 200 ").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_peer_are_bounded() {
    let server = serve(&["127.0.0.1/32"]).await;
    let mut open = Vec::new();
    for _ in 0..MAX_OF_ONE {
        let mut connection = Connection::new(server.sip.unwrap()).await;
        connection.send("\r\n\r\n").await;
        connection.until("\r\n").await;
        open.push(connection);
    }
    Connection::new(server.sip.unwrap()).await.ended().await;
    // The end of one makes room.
    drop(open.pop());
    loop {
        let mut next = Connection::new(server.sip.unwrap()).await;
        let mut answer = [0; 2];
        let sent = next.stream.write_all(b"\r\n\r\n").await;
        if sent.is_ok() && timeout(PATIENCE, next.stream.read_exact(&mut answer)).await.unwrap().is_ok() {
            break;
        }
    }
}
