//! A telephone: writes its own messages and packets.

use std::net::SocketAddr;
use std::time::Duration;

use repartee::config::{Config, SipAddress, SipScheme};
use repartee_gateway_testkit::{PATIENCE, Running};
use repartee_media::opus::FRAME;
use repartee_media::pcm;
use repartee_media::resample::Resampler;
use repartee_testkit::scripted::Script;
use tokio::net::UdpSocket;
use tokio::time::{interval, timeout};

/// Server of telephone calls from this machine.
pub async fn serve(script: Script) -> Running {
    serve_with(script, |_| {}).await
}

/// Server of telephone calls with changed settings.
pub async fn serve_with(script: Script, change: impl FnOnce(&mut Config)) -> Running {
    Running::start_with(script, |config| {
        config.sip.listen = vec![listen_by(SipScheme::Udp)];
        config.sip.peers = vec!["127.0.0.0/8".parse().unwrap()];
        change(config);
    })
    .await
}

/// Address of any free port of this machine, by this transport.
pub fn listen_by(scheme: SipScheme) -> SipAddress {
    SipAddress { scheme, address: ([127, 0, 0, 1], 0).into() }
}

/// Encoding of a telephone's sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Law {
    Mu,
    A,
}

/// A telephone in a call.
pub struct Telephone {
    signalling: UdpSocket,
    pub sound: UdpSocket,
    server: SocketAddr,
    law: Law,
    /// Value of `Call-ID`, of the call.
    pub id: String,
    /// Value of `To`, with the server's tag once it is known.
    to: String,
    sequence: u32,
    /// Address of the server's sound; `None` before it accepts.
    pub remote: Option<SocketAddr>,
    number: u16,
    /// Sound that came, at 8 kHz.
    pub received: Vec<f32>,
    /// Sequence numbers, timestamps and markers of its packets.
    pub packets: Vec<(u16, u32, bool)>,
}

impl Telephone {
    /// A telephone that has not called.
    pub async fn new(server: &Running, id: &str, law: Law) -> Self {
        let bind = async || UdpSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.unwrap();
        Self {
            signalling: bind().await,
            sound: bind().await,
            server: server.sip.unwrap(),
            law,
            id: id.to_owned(),
            to: "<sip:voice@127.0.0.1>".to_owned(),
            sequence: 0,
            remote: None,
            number: 0,
            received: Vec::new(),
            packets: Vec::new(),
        }
    }

    /// A telephone in a call that the server has accepted.
    pub async fn call(server: &Running, id: &str, law: Law) -> Self {
        let mut phone = Self::new(server, id, law).await;
        phone.invite("").await;
        let accepted = phone.final_response().await;
        assert!(accepted.starts_with("SIP/2.0 200 "), "{accepted}");
        phone.acknowledge(&accepted).await;
        phone
    }

    /// Writes our session description, with this direction.
    fn description(&self, direction: &str) -> String {
        let (port, kind) = (self.sound.local_addr().unwrap().port(), self.payload_type());
        format!(
            "v=0\r\no=- 1 {} IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP {kind} 101\r\n\
             a=rtpmap:101 telephone-event/8000\r\n{direction}",
            self.sequence
        )
    }

    fn payload_type(&self) -> u8 {
        if self.law == Law::Mu { 0 } else { 8 }
    }

    /// Asks for a call, or changes it: `direction` is empty or an attribute line.
    pub async fn invite(&mut self, direction: &str) {
        self.sequence += 1;
        let description = self.description(direction);
        self.send("INVITE", self.sequence, "Content-Type: application/sdp\r\n", &description).await;
    }

    /// Sends a request with the next number.
    pub async fn request(&mut self, method: &str) {
        self.sequence += 1;
        self.send(method, self.sequence, "", "").await;
    }

    /// Cancels the call that has not been accepted.
    pub async fn cancel(&mut self) {
        self.send("CANCEL", self.sequence, "", "").await;
    }

    pub async fn send(&self, method: &str, sequence: u32, headers: &str, body: &str) {
        let Self { id, to, server, .. } = self;
        let own = self.signalling.local_addr().unwrap();
        let branch = if matches!(method, "CANCEL" | "ACK") { "INVITE" } else { method };
        let text = format!(
            "{method} sip:voice@{server} SIP/2.0\r\nVia: SIP/2.0/UDP {own};rport;branch=z9hG4bK{branch}{sequence}{id}\r\n\
             Max-Forwards: 70\r\nFrom: <sip:+4930123456@127.0.0.1>;tag=a7\r\nTo: {to}\r\nCall-ID: {id}\r\n\
             CSeq: {sequence} {method}\r\nContact: <sip:phone@{own}>\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.send_raw(text.as_bytes()).await;
    }

    pub async fn send_raw(&self, bytes: &[u8]) {
        self.signalling.send_to(bytes, self.server).await.unwrap();
    }

    /// Returns the next message of the server.
    pub async fn message(&self) -> String {
        let mut buffer = vec![0; 65_536];
        let received = timeout(PATIENCE, self.signalling.recv_from(&mut buffer)).await.expect("no message in time");
        String::from_utf8(buffer[..received.unwrap().0].to_vec()).unwrap()
    }

    /// Returns the next final response to our newest request.
    pub async fn final_response(&self) -> String {
        loop {
            let message = self.message().await;
            let is_newest = message.contains(&format!("\r\nCSeq: {} ", self.sequence));
            if message.starts_with("SIP/2.0 ") && !message.starts_with("SIP/2.0 1") && is_newest {
                return message;
            }
        }
    }

    /// Confirms a final response to `INVITE`.
    pub async fn acknowledge(&mut self, response: &str) {
        let line = |start: &str| response.lines().find_map(|line| line.strip_prefix(start).map(str::to_owned));
        self.to = line("To: ").unwrap();
        if let Some(media) = line("m=audio ") {
            let port: u16 = media.split(' ').next().unwrap().parse().unwrap();
            self.remote = Some(([127, 0, 0, 1], port).into());
        }
        self.send("ACK", self.sequence, "", "").await;
    }

    /// Waits until the server ends the call, and confirms it.
    pub async fn ended(&mut self) {
        loop {
            let message = self.message().await;
            if message.starts_with("BYE ") {
                return self.respond(&message, "200 OK").await;
            }
        }
    }

    /// Responds to a request of the server.
    pub async fn respond(&self, request: &str, status: &str) {
        let is_copied =
            |line: &&str| ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name));
        let copied: String = request.lines().filter(is_copied).map(|line| format!("{line}\r\n")).collect();
        self.send_raw(format!("SIP/2.0 {status}\r\n{copied}Content-Length: 0\r\n\r\n").as_bytes()).await;
    }

    /// Sends one packet of sound or keys.
    pub async fn packet(&mut self, kind: u8, timestamp: u32, payload: &[u8]) {
        let mut packet = vec![0x80, kind];
        packet.extend(self.number.to_be_bytes());
        packet.extend(timestamp.to_be_bytes());
        packet.extend(7_u32.to_be_bytes());
        packet.extend(payload);
        self.number = self.number.wrapping_add(1);
        self.sound.send_to(&packet, self.remote.expect("in a call")).await.unwrap();
    }

    /// Speaks sound at 24 kHz in real time, and takes what comes meanwhile.
    pub async fn speak(&mut self, samples: &[f32]) {
        let narrow = Resampler::new(24_000, 8_000).unwrap().convert(samples).unwrap().to_vec();
        let mut clock = interval(FRAME);
        for piece in narrow.chunks_exact(160) {
            clock.tick().await;
            let payload = if self.law == Law::Mu { pcm::encode_mulaw(piece) } else { pcm::encode_alaw(piece) };
            self.packet(self.payload_type(), u32::from(self.number) * 160, &payload).await;
            self.take_waiting();
        }
    }

    /// Presses a key: its number in RFC 4733.
    pub async fn press(&mut self, event: u8) {
        let timestamp = u32::from(self.number) * 160;
        for (end, duration) in [(0, 160_u16), (0, 320), (0x80, 480), (0x80, 480), (0x80, 480)] {
            let [high, low] = duration.to_be_bytes();
            self.packet(101, timestamp, &[event, end | 10, high, low]).await;
        }
    }

    /// Takes the packets of sound that have come.
    pub fn take_waiting(&mut self) {
        let mut buffer = [0; 2_048];
        while let Ok((length, _)) = self.sound.try_recv_from(&mut buffer) {
            let (head, payload) = buffer[..length].split_at(12);
            assert_eq!((head[0], head[1] & 0x7f, payload.len()), (0x80, self.payload_type(), 160));
            let sequence = u16::from_be_bytes([head[2], head[3]]);
            let timestamp = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            self.packets.push((sequence, timestamp, head[1] & 0x80 != 0));
            let decode = if self.law == Law::Mu { pcm::decode_mulaw } else { pcm::decode_alaw };
            self.received.extend(decode(payload));
        }
    }

    /// Waits for the next packets of sound.
    pub async fn listen_once(&mut self) {
        timeout(PATIENCE, self.sound.readable()).await.expect("no sound in time").unwrap();
        self.take_waiting();
    }

    /// Listens until this much audible sound has come since the call began.
    pub async fn hear(&mut self, ms: usize) {
        // Silence comes, too, and would be waited for without an end.
        let heard = async {
            while self.audible_ms() < ms {
                self.listen_once().await;
            }
        };
        timeout(PATIENCE, heard).await.expect("audible sound in time");
    }

    /// Duration of the audible packets so far.
    pub fn audible_ms(&self) -> usize {
        self.received.chunks(160).filter(|frame| frame.iter().any(|sample| sample.abs() > 0.01)).count() * 20
    }

    /// True if a packet of sound comes within this time.
    pub async fn has_sound_within(&mut self, time: Duration) -> bool {
        let mut buffer = [0; 2_048];
        timeout(time, self.sound.recv_from(&mut buffer)).await.is_ok()
    }
}
