//! SIP: datagrams of a user agent, the session descriptions in them, and the same bytes on a connection. An input is a row of datagrams, divided by zero
//! bytes. In a datagram `@TAG@` stands for the agent's tag in its last response, `@BRANCH@` for the branch of its last
//! request, and `@INVITE@` and `@CALL@` for branch and id of its call out, so that an input reaches what is behind them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_sdp::phone::{PhoneOffer, SrtpKey};
use repartee_sip::{
    AgentSettings, Frame, Framing, FramingError, Hop, LocalSound, Message, Refusal, RegistrarSettings, SipEvent,
    SipOutput, TrunkSettings, UserAgent,
};

/// The agent's side of every call's sound.
const SOUND: LocalSound =
    LocalSound { address: SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7_000), key: SrtpKey([7; 30]) };
/// Calls that the agent has room for.
const CALLS: usize = 4;
/// Time between two datagrams.
const PAUSE: Duration = Duration::from_millis(50);
/// Time after the last datagram: every transaction is over by then.
const REST: Duration = Duration::from_secs(70);
/// Steps of the timers in that time, of all calls.
const MAX_STEPS: usize = 1_024;
/// Messages that one datagram may cause at once.
const MAX_SENT: usize = 4;

pub(crate) fn run(input: &[u8]) {
    let mut side = OtherSide::new();
    for datagram in input.split(|byte| *byte == 0) {
        side.send(datagram);
        side.now += PAUSE;
    }
    let end = side.now + REST;
    for step in 0.. {
        let Some(due) = side.agent.deadline().filter(|due| *due <= end) else { break };
        assert!(step < MAX_STEPS, "timers without an end");
        side.now = side.now.max(due);
        side.agent.advance(side.now);
        side.take();
    }
    describe(input);
    connect(input);
}

/// The network around an agent that accepts every second call.
struct OtherSide {
    agent: UserAgent,
    now: Instant,
    tag: String,
    branch: String,
    /// Branch and id of the last request for a call out.
    invite: [String; 2],
    /// Number of calls that have come.
    incoming: usize,
}

impl OtherSide {
    fn new() -> Self {
        let now = Instant::now();
        let registrar = RegistrarSettings {
            address: Hop::udp(Self::address()),
            domain: "pbx.example".to_owned(),
            user: "voice".to_owned(),
            password: "secret".to_owned(),
        };
        let trunk = TrunkSettings {
            address: Hop::udp(Self::address()),
            domain: "trunk.example".to_owned(),
            caller: "+4930".to_owned(),
            account: Some(("voice".to_owned(), "secret".to_owned())),
            is_encrypted: false,
            ring: Duration::from_secs(20),
            calls: 1,
        };
        let settings = AgentSettings {
            local: vec![Hop::udp(([192, 0, 2, 1], 5060))],
            peers: "192.0.2.0/24".parse().into_iter().collect(),
            calls: CALLS,
            secret: 7,
            registrar: Some(registrar),
            trunk: Some(trunk),
        };
        let agent = UserAgent::new(settings, now);
        let (tag, branch) = (String::new(), String::new());
        let mut side = Self { agent, now, tag, branch, invite: [String::new(), String::new()], incoming: 0 };
        let _ = side.agent.call("+4930123456", SOUND, now);
        side.take();
        side.agent.advance(now);
        side.take();
        side
    }

    /// Address that all datagrams come from.
    fn address() -> SocketAddr {
        ([192, 0, 2, 7], 5070).into()
    }

    fn send(&mut self, datagram: &[u8]) {
        let [invite, call] = &self.invite;
        let names: [(&[u8], &str); 4] =
            [(b"@TAG@", &self.tag), (b"@BRANCH@", &self.branch), (b"@INVITE@", invite), (b"@CALL@", call)];
        let datagram = names.iter().fold(datagram.to_vec(), |text, (name, with)| replace(&text, name, with));
        self.agent.receive(&Bytes::from(datagram), Hop::udp(Self::address()), self.now);
        let sent = self.take();
        assert!(sent <= MAX_SENT, "{sent} messages for one datagram");
        assert!(self.agent.active() <= CALLS, "{} calls", self.agent.active());
    }

    /// Takes the agent's output; returns the number of datagrams.
    fn take(&mut self) -> usize {
        let mut sent = 0;
        while let Some(output) = self.agent.poll() {
            match output {
                SipOutput::Message(_, bytes) => {
                    sent += 1;
                    self.read(&bytes);
                }
                SipOutput::Event(key, SipEvent::Incoming(_)) => {
                    self.incoming += 1;
                    // The call may be over already.
                    if self.incoming % 2 == 1 {
                        let _ = self.agent.accept(key, SOUND, self.now);
                    } else {
                        let _ = self.agent.reject(key, &Refusal::new(486, "busy"), self.now);
                    }
                }
                SipOutput::Event(key, SipEvent::Key(pressed)) => {
                    assert!(pressed.is_ascii(), "{pressed}");
                    // A key asks for a transfer, and another one for the end.
                    if pressed == '*' {
                        let _ = self.agent.transfer(key, "tel:+4930123457", self.now);
                    } else if pressed == '#' {
                        self.agent.hang_up(key, self.now);
                    }
                }
                SipOutput::Event(..) | SipOutput::Registration(_) => {}
            }
        }
        sent
    }

    /// Reads a message of the agent, which anybody can.
    fn read(&mut self, bytes: &Bytes) {
        let text = String::from_utf8_lossy(bytes);
        assert!(Message::read(bytes).is_ok(), "{text}");
        let behind = |name: &str, start: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.rsplit_once(start)?.1.split(';').next()?.to_owned())
        };
        if text.starts_with("SIP/2.0 ") {
            self.tag = behind("To: ", ";tag=").unwrap_or_default();
        } else {
            self.branch = behind("Via: ", ";branch=").unwrap_or_default();
            if text.starts_with("INVITE ") {
                let call = text.lines().find_map(|line| line.strip_prefix("Call-ID: ")).unwrap_or_default();
                self.invite = [self.branch.clone(), call.to_owned()];
            }
        }
    }
}

/// Replaces every `name` in a datagram.
fn replace(datagram: &[u8], name: &[u8], with: &str) -> Vec<u8> {
    let mut replaced = Vec::with_capacity(datagram.len());
    let mut rest = datagram;
    while let Some(byte) = rest.first() {
        match rest.strip_prefix(name) {
            Some(after) => {
                replaced.extend(with.as_bytes());
                rest = after;
            }
            None => {
                replaced.push(*byte);
                rest = &rest[1..];
            }
        }
    }
    replaced
}

/// Reads the input as the bytes of a connection: in pieces of any lengths they are the same messages as in one. The target's
/// bound of memory holds for both.
fn connect(input: &[u8]) {
    let bytes: Vec<u8> = input.iter().copied().filter(|byte| *byte != 0).collect();
    let (whole, whole_end) = frames(&bytes, |_| bytes.len());
    let (divided, divided_end) = frames(&bytes, |first| usize::from(first % 61) + 1);
    assert_eq!(divided, whole);
    assert_eq!(divided_end, whole_end);
}

/// Messages and probes of a connection whose pieces have the length that `length` gives for their first byte, and the error
/// that ended it.
fn frames(bytes: &[u8], length: impl Fn(u8) -> usize) -> (Vec<Frame>, Option<FramingError>) {
    let (mut framing, mut found, mut rest) = (Framing::default(), Vec::new(), bytes);
    while let Some(first) = rest.first() {
        let (piece, after) = rest.split_at(length(*first).clamp(1, rest.len()));
        framing.push(piece);
        rest = after;
        loop {
            match framing.take() {
                Ok(Some(frame)) => found.push(frame),
                Ok(None) => break,
                Err(error) => return (found, Some(error)),
            }
        }
    }
    (found, None)
}

/// Reads the input as a session description: the answer has the offer's codec, and can be read as an offer.
fn describe(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let Ok(offer) = PhoneOffer::read(&text) else { return };
    let answer = offer.answer((7, 2), ([192, 0, 2, 1], 7000).into(), SrtpKey([7; 30]));
    let again = PhoneOffer::read(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"));
    let chosen = |offer: &PhoneOffer| (offer.codec, offer.payload_type, offer.key_type, offer.crypto.is_some());
    assert_eq!(chosen(&again), chosen(&offer), "{answer}");
    assert_eq!(again.direction, offer.direction.reversed(), "{answer}");
}
