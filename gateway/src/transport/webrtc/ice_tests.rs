use rtc::crypto::default_provider;

use super::super::ssrcs::MAX_CANDIDATES;
use super::*;

const MS: Duration = Duration::from_millis(1);

fn ours() -> IceCredentials {
    IceCredentials { ufrag: "ours".into(), password: "our-password-of-22-char".into() }
}

fn theirs() -> IceCredentials {
    IceCredentials { ufrag: "theirs".into(), password: "their-password-22-chars".into() }
}

/// A caller, a network without delay, and our agent.
struct IceFixture {
    agent: LiteAgent,
    crypto: Arc<dyn RTCCryptoProvider>,
    begin: Instant,
    id: u8,
}

fn address(port: u16) -> Route {
    Route { remote: SocketAddr::from(([192, 0, 2, 1], port)), local: None }
}

/// RTP packet with this SSRC.
fn rtp(ssrc: u32) -> Vec<u8> {
    let mut packet = vec![0x80, 111, 0, 1, 0, 0, 0, 1];
    packet.extend(ssrc.to_be_bytes());
    packet.extend([1, 2, 3]);
    packet
}

impl IceFixture {
    fn new() -> Self {
        let crypto = default_provider().unwrap();
        Self {
            agent: LiteAgent::new(ours(), theirs(), Vec::new(), crypto.clone()),
            crypto,
            begin: Instant::now(),
            id: 0,
        }
    }

    fn at(&self, ms: u64) -> Instant {
        self.begin + Duration::from_millis(ms)
    }

    /// Request of the caller with this user name and password.
    fn request_as(&mut self, name: &str, password: &str, nominates: bool) -> Vec<u8> {
        self.id += 1;
        stun::callers_request([self.id; 12], name, password, nominates, self.crypto.crypto()).unwrap()
    }

    /// Sends the caller's check from `port`, and answers our checks unless `silent`.
    fn checks(&mut self, port: u16, nominates: bool, silent: bool, ms: u64) -> Vec<IceOutput> {
        let request = self.request_as("ours:theirs", &ours().password, nominates);
        let now = self.at(ms);
        let outputs = self.agent.stun(address(port), &request, now);
        if !silent {
            self.reply_to_checks(&outputs, ms);
        }
        outputs
    }

    /// Answers our checks among `outputs`, as the caller.
    fn reply_to_checks(&mut self, outputs: &[IceOutput], ms: u64) {
        for output in outputs {
            if let IceOutput::Send(route, datagram) = output
                && let Some(binding) = Binding::parse(datagram)
                && binding.kind() == MessageClass::Request
            {
                let (id, password) = (binding.id(), theirs().password);
                let answer = stun::success(id, route.remote, &password, self.crypto.crypto()).unwrap();
                assert_eq!(self.agent.stun(*route, &answer, self.at(ms)), []);
            }
        }
    }

    fn sends_rtp(&mut self, port: u16, ms: u64) -> Vec<IceOutput> {
        let now = self.at(ms);
        let outputs = self.agent.media(address(port), &rtp(7), PacketKind::Rtp(7), now);
        if is_delivered(&outputs) {
            self.agent.srtp().count_accepted(Some(7));
        }
        outputs
    }

    /// Creates a call that has run for a second on port 1.
    fn connected() -> Self {
        let mut scene = Self::new();
        scene.checks(1, true, false, 0);
        for packet in 0..50 {
            scene.sends_rtp(1, packet * 20);
        }
        assert_eq!(scene.agent.active(), Some(address(1)));
        scene
    }
}

fn is_delivered(outputs: &[IceOutput]) -> bool {
    outputs.iter().any(|output| matches!(output, IceOutput::Deliver(_)))
}

#[test]
fn a_request_is_answered_and_checked_back() {
    let mut scene = IceFixture::new();
    let outputs = scene.checks(1, false, true, 0);
    let sent: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            IceOutput::Send(route, datagram) => Some((*route, Binding::parse(datagram).unwrap())),
            _ => None,
        })
        .collect();
    assert_eq!(
        sent.iter().map(|(_, binding)| binding.kind()).collect::<Vec<_>>(),
        [MessageClass::Success, MessageClass::Request]
    );
    assert!(sent.iter().all(|(route, _)| *route == address(1)));
    let mut mapped = rtc::stun::xoraddr::XorMappedAddress::default();
    let mut answer = rtc::stun::message::Message::default();
    let IceOutput::Send(_, raw) = &outputs[1] else { panic!("{outputs:?}") };
    answer.unmarshal_binary(raw).unwrap();
    rtc::stun::message::Getter::get_from(&mut mapped, &answer).unwrap();
    assert_eq!((mapped.ip, mapped.port), (address(1).remote.ip(), 1));
    // No path is nominated yet.
    assert_eq!(scene.agent.active(), None);
    assert!(!is_delivered(&outputs));
}

#[test]
fn the_first_nominated_path_becomes_active() {
    let mut scene = IceFixture::new();
    scene.checks(1, false, false, 0);
    assert!(!is_delivered(&scene.sends_rtp(1, 5)), "sound before the nomination");
    assert!(is_delivered(&scene.checks(2, true, false, 10)));
    assert_eq!(scene.agent.active(), Some(address(2)));
    assert_eq!(scene.agent.address_changes(), 0);
}

#[test]
fn the_librarys_check_succeeds_and_is_nominated() {
    let mut scene = IceFixture::new();
    scene.checks(1, true, false, 0);
    let check = stun::request([9; 12], "theirs:ours".into(), &theirs().password, scene.crypto.crypto()).unwrap();
    let replies = scene.agent.on_library_stun(&check);
    assert_eq!(replies.len(), 2);
    let mut success = Binding::parse(&replies[0]).unwrap();
    assert_eq!((success.kind(), success.id()), (MessageClass::Success, [9; 12]));
    assert!(success.is_signed_with(&theirs().password, scene.crypto.crypto()));
    assert!(Binding::parse(&replies[1]).unwrap().nominates());
    // Its answers are not sent a second time.
    assert!(scene.agent.on_library_stun(&replies[0]).is_empty());
}

#[test]
fn early_dtls_waits_for_the_librarys_pair() {
    let mut scene = IceFixture::new();
    scene.checks(1, true, false, 0);
    let flight = |piece| vec![22, 254, 253, piece];
    let now = scene.at(1);
    for piece in 0..2 {
        assert!(!is_delivered(&scene.agent.media(address(1), &flight(piece), PacketKind::Other, now)));
    }
    let check = stun::request([9; 12], "theirs:ours".into(), &theirs().password, scene.crypto.crypto()).unwrap();
    assert_eq!(scene.agent.on_library_stun(&check)[2..], [flight(0), flight(1)]);
    assert!(is_delivered(&scene.agent.media(address(1), &flight(2), PacketKind::Other, now)));
    assert_eq!(scene.agent.on_library_stun(&check).len(), 2);
}

#[test]
fn dtls_before_the_nomination_waits_for_it() {
    let mut scene = IceFixture::new();
    scene.checks(1, false, false, 0);
    let now = scene.at(1);
    assert_eq!(scene.agent.media(address(1), &[22, 254, 253, 1], PacketKind::Other, now), []);
    // No signed request came from this address.
    assert_eq!(scene.agent.media(address(2), &[22, 254, 253, 2], PacketKind::Other, now), []);
    scene.checks(1, true, false, 50);
    let check = stun::request([9; 12], "theirs:ours".into(), &theirs().password, scene.crypto.crypto()).unwrap();
    assert_eq!(scene.agent.on_library_stun(&check)[2..], [vec![22, 254, 253, 1]]);
}

#[test]
fn early_dtls_is_bounded() {
    let mut scene = IceFixture::new();
    scene.checks(1, true, false, 0);
    let now = scene.at(1);
    for _ in 0..50 {
        scene.agent.media(address(1), &[22, 254, 253], PacketKind::Other, now);
    }
    let check = stun::request([9; 12], "theirs:ours".into(), &theirs().password, scene.crypto.crypto()).unwrap();
    assert_eq!(scene.agent.on_library_stun(&check).len(), 2 + 8);
}

#[test]
fn unsigned_messages_have_no_effect() {
    let mut scene = IceFixture::new();
    let now = scene.at(0);
    for (name, password) in [
        ("ours:theirs", "wrong"),
        ("ours:theirs", &*theirs().password),
        ("theirs:ours", &*ours().password),
        ("ours:other", &*ours().password),
        ("ours", &*ours().password),
    ] {
        let request = scene.request_as(name, password, true);
        assert_eq!(scene.agent.stun(address(1), &request, now), [], "{name}");
    }
    assert_eq!(scene.agent.routes().count(), 0);
    // A success response to no check, and one with the wrong signature.
    let outputs = scene.checks(1, true, true, 0);
    let id = outputs.iter().find_map(|output| match output {
        IceOutput::Send(_, raw) => Binding::parse(raw).filter(|binding| binding.kind() == MessageClass::Request),
        _ => None,
    });
    let forged = stun::success(id.unwrap().id(), address(1).remote, "wrong", scene.crypto.crypto()).unwrap();
    scene.agent.stun(address(1), &forged, now);
    let stray = stun::success([77; 12], address(1).remote, &theirs().password, scene.crypto.crypto()).unwrap();
    scene.agent.stun(address(1), &stray, now);
    assert_eq!(scene.agent.round_trip(), None);
}

#[test]
fn the_active_path_measures_the_round_trip() {
    let mut scene = IceFixture::new();
    let outputs = scene.checks(1, true, true, 0);
    scene.reply_to_checks(&outputs, 40);
    assert_eq!(scene.agent.round_trip(), Some(40 * MS));
    // No further check for two seconds, however much arrives.
    let checked = |outputs: &[IceOutput]| outputs.iter().any(|output| matches!(output, IceOutput::Send(..)));
    assert!(!checked(&scene.sends_rtp(1, 1_000)));
    let outputs = scene.sends_rtp(1, 2_100);
    assert!(checked(&outputs));
    scene.reply_to_checks(&outputs, 2_220);
    assert_eq!(scene.agent.round_trip(), Some(50 * MS));
}

#[test]
fn rtp_from_an_unknown_address_migrates_once_validated() {
    let mut scene = IceFixture::connected();
    let outputs = scene.sends_rtp(2, 1_000);
    assert!(is_delivered(&outputs));
    assert!(outputs.contains(&IceOutput::AddRoute(address(2))));
    assert_eq!(scene.agent.active(), Some(address(1)), "nothing is validated yet");
    scene.reply_to_checks(&outputs, 1_030);
    // The old path may only be late; after five packets it is silent.
    for packet in 1..=5 {
        scene.sends_rtp(2, 1_000 + packet * 20);
    }
    assert_eq!(scene.agent.active(), Some(address(2)));
    assert_eq!(scene.agent.address_changes(), 1);
}

#[test]
fn an_unvalidated_path_receives_no_audio() {
    let mut scene = IceFixture::connected();
    // An attacker has seen the SSRC and sends with it from elsewhere; the true caller is silent.
    for packet in 0..500 {
        let outputs = scene.sends_rtp(2, 1_000 + packet * 20);
        let sent = outputs.iter().filter(|output| matches!(output, IceOutput::Send(..))).count();
        assert!(sent <= 1);
    }
    assert_eq!(scene.agent.active(), Some(address(1)));
}

#[test]
fn checks_are_rate_limited() {
    let mut scene = IceFixture::connected();
    let mut sent = 0;
    for packet in 0..1_000 {
        let outputs = scene.sends_rtp(2, 1_000 + packet);
        sent += outputs.iter().filter(|output| matches!(output, IceOutput::Send(..))).count();
    }
    assert_eq!(sent, 10);
}

#[test]
fn unknown_ssrcs_from_unknown_addresses_are_dropped() {
    let mut scene = IceFixture::connected();
    let now = scene.at(1_000);
    assert_eq!(scene.agent.media(address(2), &rtp(8), PacketKind::Rtp(8), now), []);
    assert_eq!(scene.agent.media(address(2), &[22, 254, 253], PacketKind::Other, now), []);
}

#[test]
fn late_packets_do_not_migrate_back() {
    let mut scene = IceFixture::connected();
    let outputs = scene.sends_rtp(2, 1_000);
    scene.reply_to_checks(&outputs, 1_001);
    for packet in 1..=10 {
        scene.sends_rtp(2, 1_000 + packet * 20);
    }
    assert_eq!(scene.agent.active(), Some(address(2)));
    for packet in 11..=20 {
        scene.sends_rtp(2, 1_000 + packet * 20);
        scene.sends_rtp(1, 1_001 + packet * 20);
    }
    assert_eq!(scene.agent.active(), Some(address(2)));
    assert_eq!(scene.agent.address_changes(), 1);
}

#[test]
fn a_silent_caller_migrates_by_its_check() {
    let mut scene = IceFixture::new();
    scene.checks(1, true, false, 0);
    // The caller keeps its path alive; a nomination comes once.
    scene.checks(1, false, false, 2_000);
    scene.checks(2, false, false, 4_000);
    scene.checks(2, false, false, 4_020);
    assert_eq!(scene.agent.active(), Some(address(2)));
}

#[test]
fn checks_of_a_spare_path_migrate_nothing() {
    let mut scene = IceFixture::connected();
    for check in 0..100 {
        let ms = 1_000 + check * 100;
        scene.checks(2, false, false, ms);
        for packet in 0..5 {
            scene.sends_rtp(1, ms + packet * 20);
        }
    }
    assert_eq!(scene.agent.active(), Some(address(1)));
}

#[test]
fn nominating_another_path_migrates_the_call() {
    let mut scene = IceFixture::connected();
    scene.checks(2, true, false, 1_000);
    assert_eq!(scene.agent.active(), Some(address(2)));
    assert!(is_delivered(&scene.sends_rtp(2, 1_020)));
}

#[test]
fn a_replayed_nomination_migrates_nothing() {
    let mut scene = IceFixture::new();
    let request = scene.request_as("ours:theirs", &ours().password, true);
    let (first, later) = (scene.at(0), scene.at(100));
    let outputs = scene.agent.stun(address(1), &request, first);
    scene.reply_to_checks(&outputs, 0);
    // The replaying attacker cannot sign an answer to our check.
    scene.agent.stun(address(66), &request, later);
    assert_eq!(scene.agent.active(), Some(address(1)));
}

#[test]
fn a_silent_caller_is_checked_for_liveness() {
    let mut scene = IceFixture::new();
    let at = |ms| scene.begin + Duration::from_millis(ms);
    let (early, later, soon, last) = (at(10), at(4_000), at(4_100), at(4_600));
    assert_eq!(scene.agent.silence(early), None, "nobody is there yet");
    scene.checks(1, true, false, 0);
    assert_eq!(scene.agent.silence(later), Some(4_000 * MS));
    let checks = scene.agent.check_liveness(later);
    assert_eq!(checks.len(), 1);
    assert_eq!(scene.agent.check_liveness(soon), [], "not all the time");
    assert_eq!(scene.agent.check_liveness(last).len(), 1);
    scene.reply_to_checks(&checks, 4_650);
    assert_eq!(scene.agent.silence(scene.at(4_700)), Some(50 * MS));
}

#[test]
fn rtp_from_unvalidated_paths_is_no_liveness() {
    let mut scene = IceFixture::connected();
    scene.sends_rtp(2, 5_000);
    assert_eq!(scene.agent.silence(scene.at(5_000)), Some(4_020 * MS));
}

#[test]
fn paths_are_bounded_and_the_active_kept() {
    let mut scene = IceFixture::connected();
    let mut evicted = Vec::new();
    for port in 100..200 {
        for output in scene.checks(port, false, true, 1_000 + u64::from(port)) {
            if let IceOutput::RemoveRoute(route) = output {
                evicted.push(route);
            }
        }
        assert!(scene.agent.routes().count() <= MAX_PATHS);
    }
    assert!(!evicted.contains(&address(1)));
    assert_eq!(evicted.len(), 100 + 1 - MAX_PATHS);
    assert_eq!(scene.agent.active(), Some(address(1)));
}

#[test]
fn few_unknown_ssrcs_of_the_caller_are_tried() {
    let mut scene = IceFixture::connected();
    let now = scene.at(1_000);
    let mut dropped = 0;
    for ssrc in 100..200 {
        let outputs = scene.agent.media(address(1), &rtp(ssrc), PacketKind::Rtp(ssrc), now);
        dropped += usize::from(outputs == [IceOutput::UnknownSsrc]);
    }
    assert_eq!(dropped, 100 - MAX_CANDIDATES[1]);
    assert_eq!(scene.agent.ssrcs(), [7]);
    assert!(is_delivered(&scene.sends_rtp(1, 1_020)));
}

#[test]
fn credentials_are_not_in_debug_output() {
    let scene = IceFixture::connected();
    let text = format!("{:?} {:?}", scene.agent, ours());
    assert!(!text.contains("password") && !text.contains("ours"), "{text}");
}
