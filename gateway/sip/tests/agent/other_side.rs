//! Another side of calls: writes its own messages, and reads what the user agent sends.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_sdp::phone::SrtpKey;
use repartee_sip::{
    AgentSettings, CallKey, Hop, LocalSound, RegistrarSettings, RegistrationNews, SignalTransport, SipEvent, SipOutput,
    TrunkSettings, UserAgent,
};

pub const OFFER: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.7\r\ns=-\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\n\
    m=audio 4000 RTP/AVP 0 101\r\na=rtpmap:101 telephone-event/8000\r\n";

pub fn local() -> SocketAddr {
    ([192, 0, 2, 1], 5060).into()
}

/// Our side of a call's sound.
pub fn sound() -> LocalSound {
    LocalSound { address: ([192, 0, 2, 1], 7000).into(), key: SrtpKey([7; 30]) }
}

pub fn phone() -> SocketAddr {
    ([192, 0, 2, 7], 5070).into()
}

/// A network with one user agent.
pub struct Net {
    pub agent: UserAgent,
    pub now: Instant,
    /// Datagrams of the user agent, not yet read.
    pub sent: Vec<(Hop, String)>,
    pub events: Vec<(CallKey, SipEvent)>,
    pub registrations: Vec<RegistrationNews>,
}

impl Net {
    pub fn new() -> Self {
        Self::with_room(8)
    }

    /// A network whose user agent has room for this many calls.
    pub fn with_room(calls: usize) -> Self {
        let peers = vec!["192.0.2.0/24".parse().unwrap()];
        let now = Instant::now();
        let settings =
            AgentSettings { local: vec![Hop::udp(local())], peers, calls, secret: 7, registrar: None, trunk: None };
        Self {
            agent: UserAgent::new(settings, now),
            now,
            sent: Vec::new(),
            events: Vec::new(),
            registrations: Vec::new(),
        }
    }

    /// A network whose user agent registers at [`phone`].
    pub fn with_registrar() -> Self {
        let mut net = Self::new();
        let (domain, user, password) = ("pbx.example".to_owned(), "voice".to_owned(), "secret".to_owned());
        let registrar = Some(RegistrarSettings { address: Hop::udp(phone()), domain, user, password });
        let peers = vec!["192.0.2.0/24".parse().unwrap()];
        let settings =
            AgentSettings { local: vec![Hop::udp(local())], peers, calls: 8, secret: 7, registrar, trunk: None };
        net.agent = UserAgent::new(settings, net.now);
        net
    }

    /// A network whose user agent has room for this many calls out at the trunk [`phone`].
    pub fn with_trunk(calls: usize) -> Self {
        let mut net = Self::new();
        let trunk = TrunkSettings {
            address: Hop::udp(phone()),
            domain: "trunk.example".to_owned(),
            caller: "+4930999".to_owned(),
            account: Some(("voice".to_owned(), "password".to_owned())),
            is_encrypted: false,
            ring: Duration::from_secs(60),
            calls,
        };
        let settings = AgentSettings {
            local: vec![Hop::udp(local())],
            peers: Vec::new(),
            calls: 8,
            secret: 7,
            registrar: None,
            trunk: Some(trunk),
        };
        net.agent = UserAgent::new(settings, net.now);
        net
    }

    /// A network whose user agent has an address by each transport.
    pub fn with_connections(registrar: Option<RegistrarSettings>, trunk: Option<TrunkSettings>) -> Self {
        let mut net = Self::new();
        let transports = [SignalTransport::Udp, SignalTransport::Tcp, SignalTransport::Tls];
        let local = transports.map(|transport| Hop::new(transport, local())).to_vec();
        let peers = vec!["192.0.2.0/24".parse().unwrap()];
        net.agent = UserAgent::new(AgentSettings { local, peers, calls: 8, secret: 7, registrar, trunk }, net.now);
        net
    }

    pub fn receive(&mut self, text: &str, from: SocketAddr) {
        self.receive_over(text, Hop::udp(from));
    }

    pub fn receive_over(&mut self, text: &str, from: Hop) {
        self.agent.receive(&Bytes::copy_from_slice(text.as_bytes()), from, self.now);
        self.flush();
    }

    pub fn flush(&mut self) {
        while let Some(output) = self.agent.poll() {
            match output {
                SipOutput::Message(to, bytes) => self.sent.push((to, String::from_utf8(bytes.to_vec()).unwrap())),
                SipOutput::Event(key, event) => self.events.push((key, event)),
                SipOutput::Registration(news) => self.registrations.push(news),
            }
        }
    }

    /// Lets time pass, timer by timer.
    pub fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.agent.deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.agent.advance(self.now);
            self.flush();
        }
        self.now = end;
    }

    /// Takes the only datagram since the last call.
    pub fn only(&mut self) -> String {
        let mut sent = std::mem::take(&mut self.sent);
        assert_eq!(sent.len(), 1, "{sent:?}");
        let (to, text) = sent.remove(0);
        assert_eq!(to.address, phone());
        text
    }

    /// Takes the only event since the last call.
    pub fn event(&mut self) -> (CallKey, SipEvent) {
        let mut events = std::mem::take(&mut self.events);
        assert_eq!(events.len(), 1, "{events:?}");
        events.remove(0)
    }

    /// Sends the first request of a call; returns its key.
    pub fn invite(&mut self, call: &Caller) -> CallKey {
        self.receive(&call.invite(1, OFFER), phone());
        assert_status(&self.only(), 180);
        let (key, SipEvent::Incoming(_)) = self.event() else { panic!("no call") };
        key
    }

    /// Sets up a call; returns its key and our tag.
    pub fn connect(&mut self, call: &mut Caller) -> CallKey {
        let key = self.invite(call);
        self.agent.accept(key, sound(), self.now).unwrap();
        self.flush();
        let accepted = self.only();
        assert_status(&accepted, 200);
        call.to = header(&accepted, "To").to_owned();
        self.receive(&call.request("ACK", 1, "", ""), phone());
        assert!(matches!(self.event(), (_, SipEvent::Confirmed)));
        key
    }
}

/// Caller's side of a call.
pub struct Caller {
    pub id: String,
    pub to: String,
}

impl Caller {
    pub fn new(id: &str) -> Self {
        Self { id: id.to_owned(), to: "<sip:voice@192.0.2.1>".to_owned() }
    }

    pub fn invite(&self, sequence: u32, description: &str) -> String {
        self.request("INVITE", sequence, "Content-Type: application/sdp\r\n", description)
    }

    /// Writes a request with further headers and a body.
    pub fn request(&self, method: &str, sequence: u32, headers: &str, body: &str) -> String {
        // A cancellation and the confirmation of a refusal have the branch of what they are about.
        let branch = if matches!(method, "CANCEL" | "ACK") { "INVITE" } else { method };
        let Self { id, to } = self;
        format!(
            "{method} sip:voice@192.0.2.1 SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.7:5070;rport;branch=z9hG4bK{branch}{sequence}{id}\r\n\
             Max-Forwards: 70\r\nFrom: \"J\u{fc}rgen\" <tel:+4930123456>;tag=a7\r\nTo: {to}\r\nCall-ID: {id}\r\n\
             CSeq: {sequence} {method}\r\nContact: <sip:phone@192.0.2.7:5070>\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    /// Writes a response to a request of the user agent.
    pub fn response(request: &str, status: u16) -> String {
        let copied =
            ["Via", "From", "To", "Call-ID", "CSeq"].map(|name| format!("{name}: {}\r\n", header(request, name)));
        format!("SIP/2.0 {status} So\r\n{}Content-Length: 0\r\n\r\n", copied.concat())
    }
}

pub fn header<'a>(text: &'a str, name: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_else(|| panic!("no {name} in {text}"))
}

pub fn assert_status(text: &str, status: u16) {
    assert!(text.starts_with(&format!("SIP/2.0 {status} ")), "{status} expected: {text}");
}
