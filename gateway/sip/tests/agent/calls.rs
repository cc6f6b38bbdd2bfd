//! Calls as they go: answered, cancelled, held, ended, transferred.

use std::time::Duration;

use repartee_sdp::phone::PhoneCodec;
use repartee_sip::{EndReason, Refusal, SipEvent, UnknownCall};

use super::other_side::{Caller, Net, OFFER, assert_status, header, phone, sound};

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn call_is_accepted_and_ended_by_caller() {
    let (mut net, mut caller) = (Net::new(), Caller::new("one"));
    let key = net.invite(&caller);
    let media = net.agent.accept(key, sound(), net.now).unwrap();
    assert_eq!(
        (media.remote, media.codec, media.key_type),
        (([192, 0, 2, 7], 4000).into(), PhoneCodec::Pcmu, Some(101))
    );
    net.flush();
    let accepted = net.only();
    assert_status(&accepted, 200);
    assert!(accepted.contains("m=audio 7000 RTP/AVP 0 101\r\n"), "{accepted}");
    assert_eq!(header(&accepted, "From"), "\"J\u{fc}rgen\" <tel:+4930123456>;tag=a7");
    assert!(header(&accepted, "Via").contains("received=192.0.2.7;rport=5070"), "{accepted}");
    caller.to = header(&accepted, "To").to_owned();
    // Until it is confirmed, the response is sent again, as is a repeated request's.
    net.pass(SECOND * 2);
    assert!(net.sent.len() >= 2 && net.sent.iter().all(|(_, again)| *again == accepted));
    net.sent.clear();
    net.receive(&Caller::new("one").invite(1, OFFER), phone());
    assert_eq!(net.only(), accepted);
    net.receive(&caller.request("ACK", 1, "", ""), phone());
    assert!(matches!(net.event(), (_, SipEvent::Confirmed)));
    net.pass(SECOND * 40);
    assert!(net.sent.is_empty());
    net.receive(&caller.request("BYE", 2, "", ""), phone());
    assert_status(&net.only(), 200);
    assert!(matches!(net.event(), (_, SipEvent::Ended(EndReason::Bye))));
    // The response may have been lost.
    net.receive(&caller.request("BYE", 2, "", ""), phone());
    assert_status(&net.only(), 200);
    assert!(net.events.is_empty());
    net.pass(SECOND * 40);
    net.receive(&caller.request("BYE", 2, "", ""), phone());
    assert_status(&net.only(), 481);
}

#[test]
fn call_is_ended_by_this_side() {
    let (mut net, mut caller) = (Net::new(), Caller::new("one"));
    let key = net.connect(&mut caller);
    net.agent.hang_up(key, net.now);
    net.flush();
    let bye = net.only();
    assert!(bye.starts_with("BYE sip:phone@192.0.2.7:5070 SIP/2.0\r\n"), "{bye}");
    assert_eq!(header(&bye, "To"), "\"J\u{fc}rgen\" <tel:+4930123456>;tag=a7");
    assert_eq!(header(&bye, "From"), caller.to);
    net.pass(SECOND * 2);
    assert!(!net.sent.is_empty() && net.sent.iter().all(|(_, again)| *again == bye));
    net.sent.clear();
    net.receive(&Caller::response(&bye, 200), phone());
    net.pass(SECOND * 40);
    assert!(net.sent.is_empty() && net.events.is_empty());
    assert_eq!(net.agent.active(), 0);
}

#[test]
fn cancelled_call_is_over() {
    let (mut net, caller) = (Net::new(), Caller::new("one"));
    let key = net.invite(&caller);
    net.receive(&caller.request("CANCEL", 1, "", ""), phone());
    assert_eq!(net.sent.len(), 2);
    assert_status(&net.sent[0].1, 200);
    assert_status(&net.sent[1].1, 487);
    assert!(matches!(net.event(), (_, SipEvent::Ended(EndReason::Cancelled))));
    assert_eq!(net.agent.accept(key, sound(), net.now).unwrap_err(), UnknownCall);
    net.sent.clear();
    net.receive(&caller.request("ACK", 1, "", ""), phone());
    net.pass(SECOND * 40);
    assert!(net.sent.is_empty());
}

#[test]
fn refused_call_is_told_why_and_when() {
    let (mut net, caller) = (Net::new(), Caller::new("one"));
    let key = net.invite(&caller);
    let refusal = Refusal::new(486, "busy \"here\"\r\n").retry_after(Some(SECOND * 5));
    net.agent.reject(key, &refusal, net.now).unwrap();
    net.flush();
    let refused = net.only();
    assert_status(&refused, 486);
    assert_eq!((header(&refused, "Retry-After"), header(&refused, "Warning")), ("5", "399 repartee \"busy  here   \""));
    net.pass(SECOND);
    assert_eq!(net.only(), refused, "until it is confirmed");
    net.receive(&caller.request("ACK", 1, "", ""), phone());
    net.pass(SECOND * 5);
    assert!(net.sent.is_empty());
}

#[test]
fn unconfirmed_call_is_ended() {
    let (mut net, caller) = (Net::new(), Caller::new("one"));
    let key = net.invite(&caller);
    net.agent.accept(key, sound(), net.now).unwrap();
    net.pass(SECOND * 33);
    assert!(matches!(net.event(), (_, SipEvent::Ended(EndReason::Unconfirmed))));
    assert!(net.sent.iter().any(|(_, text)| text.starts_with("BYE ")), "{:?}", net.sent);
    net.pass(SECOND * 40);
    assert_eq!(net.agent.active(), 0);
}

#[test]
fn held_call_is_resumed() {
    let (mut net, mut caller) = (Net::new(), Caller::new("one"));
    net.connect(&mut caller);
    net.receive(&caller.invite(2, &format!("{OFFER}a=sendonly\r\n")), phone());
    let held = net.only();
    assert_status(&held, 200);
    assert!(held.contains("a=recvonly\r\n"), "{held}");
    let (_, SipEvent::Media(media)) = net.event() else { panic!("no hold") };
    assert!(!media.sends && !media.receives);
    // A second change has to wait for the first one's confirmation.
    net.receive(&caller.invite(3, OFFER), phone());
    assert_status(&net.only(), 491);
    net.receive(&caller.request("ACK", 2, "", ""), phone());
    net.receive(&caller.invite(4, OFFER), phone());
    let resumed = net.only();
    assert!(resumed.contains("a=sendrecv\r\n") && resumed.contains(" 3 IN IP4"), "{resumed}");
    let (_, SipEvent::Media(media)) = net.event() else { panic!("no end of hold") };
    assert!(media.sends && media.receives);
    net.receive(&caller.request("ACK", 4, "", ""), phone());
    // An offer that cannot be served changes nothing.
    net.receive(&caller.invite(5, &OFFER.replace(" 0 101", " 18")), phone());
    let refused = net.only();
    assert_status(&refused, 488);
    assert!(header(&refused, "Warning").contains("none of PCMU, PCMA and Opus"), "{refused}");
    net.receive(&caller.request("BYE", 6, "", ""), phone());
    assert_status(&net.only(), 200);
}

#[test]
fn transfer_tells_its_outcome() {
    let (mut net, mut caller) = (Net::new(), Caller::new("one"));
    let key = net.connect(&mut caller);
    net.agent.transfer(key, "sip:agent@192.0.2.9", net.now).unwrap();
    net.flush();
    let refer = net.only();
    assert!(refer.starts_with("REFER ") && header(&refer, "Refer-To") == "<sip:agent@192.0.2.9>", "{refer}");
    net.receive(&Caller::response(&refer, 202), phone());
    assert!(net.events.is_empty());
    let news = "Event: refer\r\nContent-Type: message/sipfrag\r\n";
    net.receive(&caller.request("NOTIFY", 2, news, "SIP/2.0 100 Trying\r\n"), phone());
    assert_status(&net.only(), 200);
    assert!(net.events.is_empty());
    net.receive(&caller.request("NOTIFY", 3, news, "SIP/2.0 200 OK\r\n"), phone());
    assert!(matches!(net.event(), (_, SipEvent::Transferred(200))));
    net.sent.clear();
    net.agent.transfer(key, "sip:nobody@192.0.2.9", net.now).unwrap();
    net.flush();
    let refer = net.only();
    net.receive(&Caller::response(&refer, 404), phone());
    assert!(matches!(net.event(), (_, SipEvent::Transferred(404))));
}

#[test]
fn keys_come_in_messages_too() {
    let (mut net, mut caller) = (Net::new(), Caller::new("one"));
    net.connect(&mut caller);
    for (sequence, kind, body, key) in [
        (2, "application/dtmf-relay", "Signal=5\r\nDuration=160\r\n", Some('5')),
        (3, "application/dtmf", "#", Some('#')),
        (4, "application/dtmf", "12", None),
        (5, "text/plain", "5", None),
    ] {
        net.receive(&caller.request("INFO", sequence, &format!("Content-Type: {kind}\r\n"), body), phone());
        assert_status(&net.only(), 200);
        let pressed = std::mem::take(&mut net.events).into_iter().find_map(|(_, event)| match event {
            SipEvent::Key(key) => Some(key),
            _ => None,
        });
        assert_eq!(pressed, key, "{body}");
    }
}

#[test]
fn probes_are_answered() {
    let mut net = Net::new();
    net.receive(&Caller::new("probe").request("OPTIONS", 1, "", ""), phone());
    let answer = net.only();
    assert_status(&answer, 200);
    assert!(header(&answer, "Allow").starts_with("INVITE, ACK"));
    net.receive(&Caller::new("probe").request("SUBSCRIBE", 1, "", ""), phone());
    assert_status(&net.only(), 405);
    assert_eq!(net.agent.active(), 0);
}
