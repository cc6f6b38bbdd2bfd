//! A call over SIP, as a telephone makes it: mu-law over RTP, with the call's events over a sideband connection.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::UdpSocket;
use tokio::time::{interval, sleep_until, timeout, timeout_at};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, client_async};

use super::rtp_receiver::BUFFER;
use super::socket::StampedSocket;
use super::webrtc::local_address;
use crate::measure::playback::Playback;
use crate::mulaw::{self, TELEPHONE_RATE};
use crate::sample_rate::RATE;
use crate::server_events::{Event, TimedEvent};
use crate::speech::Frame;
use crate::target::{Stream, Target};

/// Samples of a packet of 20 ms.
const PACKET: usize = TELEPHONE_RATE as usize / 50;
/// Bytes of an RTP head without extensions.
const HEAD: usize = 12;
/// Samples at [`RATE`] for each of a telephone.
const RATIO: u32 = RATE / TELEPHONE_RATE;
/// Longest wait for the answer to the end of a call.
const ENDING: Duration = Duration::from_secs(1);
/// Interval of looking for the call's id.
const LOOKING: Duration = Duration::from_millis(10);

/// A call over SIP.
pub struct SipTransport {
    signalling: UdpSocket,
    sound: StampedSocket,
    server: SocketAddr,
    /// Address that the server's sound comes from, and ours goes to.
    remote: SocketAddr,
    /// `Call-ID`, which also tells the requests' branches apart.
    id: String,
    /// Value of `To`, with the server's tag.
    to: String,
    events: WebSocketStream<Box<dyn Stream>>,
    playback: Playback,
    /// Number of frames sent.
    frames: u32,
    /// Highest sequence number of the server's packets.
    highest: Option<u16>,
}

impl std::fmt::Debug for SipTransport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SipTransport").field("id", &self.id).finish_non_exhaustive()
    }
}

impl SipTransport {
    /// Calls the server at `server`, and attaches to the call; `patience` is the deadline. Calls have to begin one after the
    /// other, because the server's id of a call is found in its list.
    ///
    /// # Errors
    /// The server refuses the call, or the deadline passes.
    pub async fn call(target: &Target, caller: usize, server: SocketAddr, patience: Instant) -> Result<Self> {
        timeout_at(patience.into(), Self::begin(target, caller, server)).await.context("the call took too long")?
    }

    async fn begin(target: &Target, caller: usize, server: SocketAddr) -> Result<Self> {
        let own = local_address(target, caller).await?;
        let (signalling, sound) = (UdpSocket::bind((own, 0)).await?, StampedSocket::bind((own, 0).into()).await?);
        signalling.connect(server).await?;
        let before = running(target).await?;
        let id = format!("load{}", signalling.local_addr()?.port());
        let port = sound.local_addr()?.port();
        let offer = format!(
            "v=0\r\no=- 1 1 IN IP4 {own}\r\ns=-\r\nc=IN IP4 {own}\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\na=ptime:20\r\n"
        );
        let called = request(&signalling, server, ("INVITE", 1), &id, "<sip:voice@127.0.0.1>", &offer)?;
        signalling.send(called.as_bytes()).await?;
        let answer = answer(&signalling).await?;
        ensure!(
            answer.starts_with("SIP/2.0 200 "),
            "the call was refused: {}",
            answer.lines().next().unwrap_or_default()
        );
        let line = |start: &str| answer.lines().find_map(|line| line.strip_prefix(start));
        let to = line("To: ").context("no `To`")?.to_owned();
        let port = line("m=audio ").and_then(|media| media.split(' ').next()?.parse().ok()).context("no port")?;
        signalling.send(request(&signalling, server, ("ACK", 1), &id, &to, "")?.as_bytes()).await?;
        let events = attach(target, caller, &before).await?;
        let remote = SocketAddr::new(server.ip(), port);
        let playback = Playback::new(BUFFER);
        Ok(Self { signalling, sound, server, remote, id, to, events, playback, frames: 0, highest: None })
    }

    /// Returns the next event, or `None` at `until`. Sound goes to the playback.
    ///
    /// # Errors
    /// The server hung up, or sent something malformed.
    pub async fn next(&mut self, until: Instant) -> Result<Option<TimedEvent>> {
        let mut message = [0; 2_048];
        loop {
            tokio::select! {
                readable = self.sound.readable() => {
                    readable?;
                    self.receive()?;
                }
                event = self.events.next() => match event.context("the sideband has ended")?? {
                    Message::Text(text) => {
                        return Ok(Some(TimedEvent { event: Event::read(&text)?, at: Instant::now() }));
                    }
                    Message::Close(_) => bail!("the server hung up"),
                    _ => {}
                },
                length = self.signalling.recv(&mut message) => {
                    if message[..length?].starts_with(b"BYE ") {
                        bail!("the server hung up");
                    }
                }
                () = sleep_until(until.into()) => return Ok(None),
            }
        }
    }

    /// Reads all packets. Silence that the server sends is left out, as with DTX.
    fn receive(&mut self) -> Result<()> {
        let mut buffer = [0; 2_048];
        loop {
            let (length, from, arrival) = match self.sound.receive(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error).context("receive"),
            };
            let Some(payload) = buffer.get(HEAD..length).filter(|_| from == self.remote && buffer[0] == 0x80) else {
                continue;
            };
            let number = u16::from_be_bytes([buffer[2], buffer[3]]);
            let is_late = self.highest.is_some_and(|highest| number.wrapping_sub(highest) as i16 <= 0);
            if is_late || payload.iter().all(|byte| byte & 0x7f == 0x7f) {
                continue;
            }
            self.highest = Some(number);
            let ticks = u32::from_be_bytes([buffer[4], buffer[5], buffer[6], buffer[7]]);
            let samples = payload.iter().flat_map(|byte| [mulaw::decode(*byte); RATIO as usize]).collect::<Vec<f32>>();
            self.playback.push(u64::from(ticks) * u64::from(RATIO), &samples, arrival, false);
        }
    }

    /// Sends one 20 ms frame of the microphone.
    pub fn send_frame(&mut self, frame: &Frame) {
        let mut packet = vec![0x80, 0];
        packet.extend((self.frames as u16).to_be_bytes());
        packet.extend(self.frames.wrapping_mul(PACKET as u32).to_be_bytes());
        packet.extend(7_u32.to_be_bytes());
        packet.extend_from_slice(&frame.mulaw);
        self.frames = self.frames.wrapping_add(1);
        self.sound.send(&packet, self.remote);
    }

    /// Sends a client event over the sideband; `patience` is the deadline.
    ///
    /// # Errors
    /// The connection is closed, or the deadline passes.
    pub async fn send_event(&mut self, event: &Value, patience: Instant) -> Result<()> {
        let sent = self.events.send(Message::text(event.to_string()));
        timeout_at(patience.into(), sent).await.context("the server does not read")?.context("send")
    }

    /// Returns the playback of received sound.
    pub fn playback(&mut self) -> &mut Playback {
        &mut self.playback
    }

    /// Ends the call, within a second; errors are ignored.
    pub async fn close(&mut self) {
        let ended = async {
            let bye = request(&self.signalling, self.server, ("BYE", 2), &self.id, &self.to, "")?;
            self.signalling.send(bye.as_bytes()).await?;
            answer(&self.signalling).await
        };
        let _ = timeout(ENDING, ended).await;
    }
}

/// Writes a request of a call: its method and number, the call's id, the value of `To`, and a session description.
fn request(
    signalling: &UdpSocket,
    server: SocketAddr,
    (method, number): (&str, u32),
    id: &str,
    to: &str,
    body: &str,
) -> Result<String> {
    let own = signalling.local_addr()?;
    let branch = if method == "ACK" { "INVITE" } else { method };
    Ok(format!(
        "{method} sip:voice@{server} SIP/2.0\r\nVia: SIP/2.0/UDP {own};rport;branch=z9hG4bK{branch}{number}{id}\r\n\
         Max-Forwards: 70\r\nFrom: <sip:load@{own}>;tag=a7\r\nTo: {to}\r\nCall-ID: {id}\r\nCSeq: {number} {method}\r\n\
         Contact: <sip:load@{own}>\r\nContent-Type: application/sdp\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

/// Receives the next final response.
async fn answer(signalling: &UdpSocket) -> Result<String> {
    let mut buffer = vec![0; 65_536];
    loop {
        let length = signalling.recv(&mut buffer).await?;
        let text = String::from_utf8_lossy(&buffer[..length]);
        if text.starts_with("SIP/2.0 ") && !text.starts_with("SIP/2.0 1") {
            return Ok(text.into_owned());
        }
    }
}

/// Ids of the calls over SIP that run.
async fn running(target: &Target) -> Result<HashSet<String>> {
    let (status, body) = target.get(&target.path("/realtime/calls")).await?;
    ensure!(status.is_success(), "the calls are not listed: {}", status.as_u16());
    let list: Value = serde_json::from_str(&body).context("the list of calls")?;
    let calls = list["data"].as_array().context("no list of calls")?.iter();
    let calls = calls.filter(|call| call["transport"] == "sip" && call["ended"].is_null());
    Ok(calls.filter_map(|call| call["id"].as_str().map(str::to_owned)).collect())
}

/// Attaches to the call that is not one of `before`.
async fn attach(target: &Target, caller: usize, before: &HashSet<String>) -> Result<WebSocketStream<Box<dyn Stream>>> {
    let mut clock = interval(LOOKING);
    let id = loop {
        clock.tick().await;
        if let Some(id) = running(target).await?.into_iter().find(|id| !before.contains(id)) {
            break id;
        }
    };
    let (mut events, _) = client_async(target.sideband_request(&id)?, target.connect(caller).await?).await?;
    while let Some(message) = events.next().await {
        if let Message::Text(text) = message?
            && Event::read(&text)? == Event::Created
        {
            return Ok(events);
        }
    }
    bail!("the sideband ended before it began")
}
