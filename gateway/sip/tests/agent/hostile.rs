//! Callers that may not call, that call too often, and datagrams that are no messages.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use repartee_sip::{Hop, MAX_BYTES, MAX_LINES, Message, MessageError, SipEvent};

use super::other_side::{Caller, Net, OFFER, assert_status, header, local, phone};

#[test]
fn strangers_are_forbidden() {
    let mut net = Net::new();
    let stranger: SocketAddr = ([198, 51, 100, 1], 5060).into();
    for method in ["INVITE", "OPTIONS", "BYE", "CANCEL", "REGISTER"] {
        net.receive(&Caller::new("one").request(method, 1, "Content-Type: application/sdp\r\n", OFFER), stranger);
        let (to, text) = net.sent.pop().unwrap();
        assert_eq!(to.address, stranger, "the port that it came from");
        assert_status(&text, 403);
        assert!(header(&text, "Warning").contains("sip.peers"));
    }
    net.receive(&Caller::new("one").request("ACK", 1, "", ""), stranger);
    assert!(net.sent.is_empty() && net.events.is_empty());
    assert_eq!((net.agent.active(), net.agent.counts().forbidden), (0, 5));
    // They cannot end the call of another either.
    let mut caller = Caller::new("two");
    net.connect(&mut caller);
    net.receive(&caller.request("BYE", 2, "", ""), stranger);
    assert_status(&net.sent.pop().unwrap().1, 403);
    assert_eq!(net.agent.active(), 1);
}

#[test]
fn calls_without_room_leave_nothing() {
    let mut net = Net::with_room(3);
    for number in 0..1_000 {
        net.receive(&Caller::new(&format!("call{number}")).invite(1, OFFER), phone());
        let text = net.only();
        if number < 3 {
            assert_status(&text, 180);
        } else {
            assert_status(&text, 503);
            assert_eq!(header(&text, "Retry-After"), "5");
        }
        net.pass(Duration::from_millis(60));
        net.sent.clear();
    }
    assert_eq!((net.agent.active(), net.agent.counts().full), (3, 997));
    // A call that is over makes room.
    let (key, _) = net.events.remove(0);
    net.agent.hang_up(key, net.now);
    net.flush();
    net.sent.clear();
    net.receive(&Caller::new("call0").request("ACK", 1, "", ""), phone());
    net.receive(&Caller::new("late").invite(1, OFFER), phone());
    assert_status(&net.only(), 180);
}

#[test]
fn loops_end() {
    let mut net = Net::new();
    net.receive(&Caller::new("one").invite(1, OFFER), local());
    assert_status(&net.sent.pop().unwrap().1, 482);
    net.receive(&Caller::new("two").invite(1, OFFER).replace("Max-Forwards: 70", "Max-Forwards: 0"), phone());
    assert_status(&net.only(), 483);
    // The same call on another way.
    net.invite(&Caller::new("three"));
    net.receive(&Caller::new("three").invite(1, OFFER).replace("branch=z9hG4bK", "branch=z9hG4bKother"), phone());
    assert_status(&net.only(), 482);
    assert_eq!(net.agent.active(), 1);
}

#[test]
fn wants_that_cannot_be_met_are_named() {
    let mut net = Net::new();
    let invite = |from: &str, to: &str| Caller::new("one").invite(1, OFFER).replace(from, to);
    for (message, status, reason) in [
        (invite("Contact:", "Require: 100rel\r\nContact:"), 420, "100rel"),
        (invite("application/sdp", "text/plain"), 415, "application/sdp"),
        (Caller::new("one").request("INVITE", 1, "", ""), 488, "without a session description"),
        (
            invite("RTP/AVP", "RTP/SAVP")
                .replace(&format!("Length: {}", OFFER.len()), &format!("Length: {}", OFFER.len() + 1)),
            488,
            "a=crypto",
        ),
        (invite(";tag=a7", ""), 400, "From has no tag"),
        (invite("Contact: <sip:phone@192.0.2.7:5070>\r\n", ""), 400, "Contact"),
    ] {
        net.receive(&message, phone());
        let text = net.only();
        assert_status(&text, status);
        assert!(header(&text, "Warning").contains(reason), "{text}");
    }
    assert!(net.events.is_empty());
}

#[test]
fn large_and_torn_datagrams_are_dropped() {
    let mut net = Net::new();
    let whole = Caller::new("one").invite(1, OFFER);
    for torn in (0..whole.len()).filter(|end| whole.is_char_boundary(*end)) {
        net.receive(&whole[..torn], phone());
        assert!(net.sent.is_empty() && net.events.is_empty(), "{torn} bytes");
    }
    let read = |text: String| Message::read(&Bytes::from(text)).unwrap_err();
    assert_eq!(read("x".repeat(MAX_BYTES + 1)), MessageError::TooLarge);
    assert_eq!(
        read(whole.replace("Max-Forwards", &format!("{}Max-Forwards", "X: y\r\n".repeat(MAX_LINES)))),
        MessageError::TooManyLines
    );
    assert_eq!(
        read(whole.replace("Call-ID: one", &format!("Call-ID: {}", "1".repeat(2_000)))),
        MessageError::Field("Call-ID")
    );
    net.receive("\r\n\r\n", phone());
    assert!(net.sent.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// Whatever comes, the user agent goes on, and what it sends can be read.
    #[test]
    fn mutated_messages_break_nothing(
        method in prop::sample::select(vec!["INVITE", "ACK", "BYE", "CANCEL", "OPTIONS", "INFO", "UPDATE", "NOTIFY", "REFER"]),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 0..12),
        within: bool,
    ) {
        let mut net = Net::new();
        let mut caller = Caller::new("one");
        if within {
            net.connect(&mut caller);
        }
        let mut bytes = caller.request(method, 2, "Content-Type: application/sdp\r\n", OFFER).into_bytes();
        for (place, byte, kind) in changes {
            let place = place.index(bytes.len());
            match kind {
                0 => bytes[place] = byte,
                1 => bytes.insert(place, byte),
                _ => drop(bytes.remove(place)),
            }
        }
        net.agent.receive(&Bytes::from(bytes), Hop::udp(phone()), net.now);
        net.flush();
        net.pass(Duration::from_secs(70));
        for (_, text) in &net.sent {
            prop_assert!(Message::read(&Bytes::copy_from_slice(text.as_bytes())).is_ok(), "{}", text);
        }
        prop_assert!(net.events.iter().filter(|(_, event)| matches!(event, SipEvent::Incoming(_))).count() <= 1);
    }
}
