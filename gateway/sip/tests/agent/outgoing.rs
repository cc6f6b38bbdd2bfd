//! Calls out: answered, challenged, refused, cancelled, never answered.

use std::net::SocketAddr;
use std::time::Duration;

use repartee_sdp::phone::{PhoneCodec, PhoneOffer};
use repartee_sip::{CallKey, DialError, SipEvent};

use super::other_side::{Caller, Net, assert_status, header, local, phone, sound};

const ANSWER: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.7\r\ns=-\r\nc=IN IP4 192.0.2.7\r\nt=0 0\r\n\
    m=audio 4000 RTP/AVP 8 101\r\na=rtpmap:101 telephone-event/8000\r\n";

/// Begins a call; returns its key and its request.
fn call(net: &mut Net) -> (CallKey, String) {
    let key = net.agent.call("+4930123456", sound(), net.now).unwrap();
    net.flush();
    let invite = net.only();
    assert!(invite.starts_with("INVITE sip:+4930123456@trunk.example SIP/2.0\r\n"), "{invite}");
    (key, invite)
}

/// Writes a response of the trunk, with its tag, headers and a description.
fn response(request: &str, status: u16, headers: &str, body: &str) -> String {
    let text = Caller::response(request, status);
    let to = header(&text, "To").to_owned();
    let tagged = if to.contains("tag=") { to.clone() } else { format!("{to};tag=b9") };
    let length = format!("{headers}Contact: <sip:line@192.0.2.7:5070>\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    text.replace(&format!("To: {to}"), &format!("To: {tagged}")).replace("Content-Length: 0\r\n\r\n", &length)
}

/// Sends a response of the trunk.
fn respond(net: &mut Net, request: &str, status: u16, headers: &str, body: &str) {
    net.receive(&response(request, status, headers, body), phone());
}

#[test]
fn answered_calls_out_are_calls() {
    let mut net = Net::with_trunk(2);
    let (key, invite) = call(&mut net);
    let offer = invite.split_once("\r\n\r\n").unwrap().1;
    assert_eq!(PhoneOffer::read(offer).unwrap().remote, sound().address);
    assert!(header(&invite, "From").starts_with("<sip:+4930999@trunk.example>;tag="), "{invite}");
    respond(&mut net, &invite, 100, "", "");
    respond(&mut net, &invite, 183, "Content-Type: application/sdp\r\n", ANSWER);
    respond(&mut net, &invite, 180, "", "");
    assert!(matches!(net.event(), (of, SipEvent::Ringing) if of == key), "once");
    net.pass(Duration::from_secs(20));
    assert!(net.sent.is_empty(), "a provisional response ends the repetitions");
    let routes =
        "Record-Route: <sip:first@192.0.2.7;lr>, <sip:second@192.0.2.8;lr>\r\nContent-Type: application/sdp\r\n";
    respond(&mut net, &invite, 200, routes, ANSWER);
    let acknowledged = net.only();
    assert!(acknowledged.starts_with("ACK sip:line@192.0.2.7:5070 SIP/2.0\r\n"), "{acknowledged}");
    assert_eq!(header(&acknowledged, "CSeq"), "1 ACK");
    assert_ne!(header(&acknowledged, "Via"), header(&invite, "Via"), "a transaction of its own");
    let order = acknowledged.lines().filter_map(|line| line.strip_prefix("Route: ")).collect::<Vec<_>>();
    assert_eq!(order, ["<sip:second@192.0.2.8;lr>", "<sip:first@192.0.2.7;lr>"]);
    let (of, SipEvent::Answered(media)) = net.event() else { panic!("no answer") };
    assert_eq!((of, media.codec, media.payload_type, media.key_type), (key, PhoneCodec::Pcma, 8, Some(101)));
    // The answer again is confirmed again.
    respond(&mut net, &invite, 200, routes, ANSWER);
    assert_eq!(net.only(), acknowledged);
    assert_eq!(net.agent.active(), 1);
    // The other side holds the call, and ends it.
    let mut line = Caller::new(header(&invite, "Call-ID"));
    line.to = header(&invite, "From").to_owned();
    let within = |method: &str, sequence, headers: &str, body: &str| {
        line.request(method, sequence, headers, body).replace(";tag=a7", ";tag=b9")
    };
    let held = format!("{ANSWER}a=sendonly\r\n");
    net.receive(&within("INVITE", 1, "Content-Type: application/sdp\r\n", &held), phone());
    assert_status(&net.only(), 200);
    assert!(matches!(net.event(), (_, SipEvent::Media(media)) if !media.sends));
    net.receive(&within("ACK", 1, "", ""), phone());
    net.receive(&within("BYE", 2, "", ""), phone());
    assert_status(&net.only(), 200);
    assert!(matches!(net.event(), (of, SipEvent::Ended(_)) if of == key));
}

#[test]
fn our_end_of_a_call_out_says_bye() {
    let mut net = Net::with_trunk(2);
    let (key, invite) = call(&mut net);
    respond(&mut net, &invite, 200, "Content-Type: application/sdp\r\n", ANSWER);
    net.sent.clear();
    net.agent.hang_up(key, net.now);
    net.flush();
    let bye = net.only();
    assert!(bye.starts_with("BYE sip:line@192.0.2.7:5070 SIP/2.0\r\n"), "{bye}");
    assert_eq!((header(&bye, "CSeq"), header(&bye, "From")), ("2 BYE", header(&invite, "From")));
}

#[test]
fn challenges_of_a_trunk_are_answered_once() {
    let challenge = "Proxy-Authenticate: Digest realm=\"trunk\", nonce=\"n1\", algorithm=MD5, qop=\"auth\"\r\n";
    let mut net = Net::with_trunk(2);
    let (key, invite) = call(&mut net);
    respond(&mut net, &invite, 407, challenge, "");
    let sent = std::mem::take(&mut net.sent);
    let [(_, confirmed), (_, again)] = &sent[..] else { panic!("a confirmation and a request: {sent:?}") };
    assert!(confirmed.starts_with("ACK sip:+4930123456@trunk.example SIP/2.0\r\n"), "{confirmed}");
    assert_eq!(header(confirmed, "Via"), header(&invite, "Via"));
    assert!(header(confirmed, "To").ends_with(";tag=b9"), "{confirmed}");
    assert!(header(again, "Proxy-Authorization").starts_with("Digest username=\"voice\", realm=\"trunk\""), "{again}");
    assert_eq!(header(again, "CSeq"), "2 INVITE");
    assert!(!again.contains("password"), "{again}");
    // The refusal again is confirmed again.
    respond(&mut net, &invite, 407, challenge, "");
    assert_eq!(net.only(), *confirmed);
    respond(&mut net, again, 407, challenge, "");
    assert!(net.only().starts_with("ACK "));
    assert!(matches!(net.event(), (of, SipEvent::Failed(407)) if of == key), "the credentials are wrong");
    net.pass(Duration::from_secs(40));
    assert!(net.sent.is_empty() && net.agent.deadline().is_none());
}

#[test]
fn refused_calls_out_say_why() {
    for status in [302, 404, 486, 503, 603] {
        let mut net = Net::with_trunk(1);
        let (key, invite) = call(&mut net);
        respond(&mut net, &invite, status, "", "");
        assert!(net.only().starts_with("ACK sip:+4930123456@trunk.example"), "{status}");
        assert!(matches!(net.event(), (of, SipEvent::Failed(of_side)) if of == key && of_side == status), "{status}");
        // There is room for the next.
        call(&mut net);
    }
}

#[test]
fn calls_out_ring_for_a_bounded_time() {
    let mut net = Net::with_trunk(1);
    let (key, invite) = call(&mut net);
    respond(&mut net, &invite, 180, "", "");
    net.event();
    net.pass(Duration::from_secs(61));
    assert!(matches!(net.event(), (of, SipEvent::Failed(408)) if of == key));
    let (_, cancel) = net.sent.remove(0);
    assert!(cancel.starts_with("CANCEL sip:+4930123456@trunk.example SIP/2.0\r\n"), "{cancel}");
    assert_eq!((header(&cancel, "Via"), header(&cancel, "CSeq")), (header(&invite, "Via"), "1 CANCEL"));
    net.sent.clear();
    respond(&mut net, &cancel, 200, "", "");
    respond(&mut net, &invite, 487, "", "");
    assert!(net.only().starts_with("ACK "));
    net.pass(Duration::from_secs(40));
    assert!(net.sent.is_empty() && net.events.is_empty() && net.agent.deadline().is_none());
}

#[test]
fn silent_trunks_are_given_up() {
    let mut net = Net::with_trunk(1);
    let (key, _) = call(&mut net);
    net.pass(Duration::from_secs(40));
    assert!(matches!(net.event(), (of, SipEvent::Failed(408)) if of == key));
    assert!((4..12).contains(&net.sent.len()), "{} repetitions", net.sent.len());
    assert!(net.sent.iter().all(|(_, text)| text.starts_with("INVITE ")), "nothing to cancel");
    assert!(net.agent.deadline().is_none());
}

#[test]
fn cancelled_calls_out_end_whatever_comes() {
    // The cancellation waits until the other side has said anything.
    let mut net = Net::with_trunk(1);
    let (key, invite) = call(&mut net);
    net.agent.hang_up(key, net.now);
    net.flush();
    assert!(net.sent.is_empty());
    respond(&mut net, &invite, 100, "", "");
    assert!(net.only().starts_with("CANCEL "));
    // The answer was on its way.
    respond(&mut net, &invite, 200, "Content-Type: application/sdp\r\n", ANSWER);
    let sent: Vec<String> = std::mem::take(&mut net.sent).into_iter().map(|(_, text)| text).collect();
    assert!(sent.len() == 2 && sent[0].starts_with("ACK ") && sent[1].starts_with("BYE "), "{sent:?}");
    assert!(net.events.is_empty(), "nobody waits for it: {:?}", net.events);
    assert_eq!(net.agent.active(), 0);
}

#[test]
fn strange_answers_end_a_call_out() {
    for body in ["", "v=0\r\n", &ANSWER.replace("RTP/AVP 8 101", "RTP/AVP 18"), &ANSWER.replace("4000", "0")] {
        let mut net = Net::with_trunk(1);
        let (key, invite) = call(&mut net);
        respond(&mut net, &invite, 200, "Content-Type: application/sdp\r\n", body);
        let sent: Vec<String> = std::mem::take(&mut net.sent).into_iter().map(|(_, text)| text).collect();
        assert!(sent.len() == 2 && sent[0].starts_with("ACK ") && sent[1].starts_with("BYE "), "{sent:?}");
        assert!(matches!(net.event(), (of, SipEvent::Failed(488)) if of == key), "{body}");
    }
}

#[test]
fn second_telephone_that_answers_is_hung_up() {
    let mut net = Net::with_trunk(1);
    let (_, invite) = call(&mut net);
    respond(&mut net, &invite, 200, "Content-Type: application/sdp\r\n", ANSWER);
    net.sent.clear();
    let other = response(&invite, 200, "Content-Type: application/sdp\r\n", ANSWER).replace("tag=b9", "tag=c1");
    net.receive(&other, phone());
    let sent: Vec<String> = std::mem::take(&mut net.sent).into_iter().map(|(_, text)| text).collect();
    assert!(sent.len() == 2 && sent[0].starts_with("ACK ") && sent[1].starts_with("BYE "), "{sent:?}");
    assert!(sent.iter().all(|text| header(text, "To").ends_with("tag=c1")), "{sent:?}");
    assert_eq!(net.agent.active(), 1);
}

#[test]
fn calls_out_are_bounded_and_their_numbers_plain() {
    let mut net = Net::with_trunk(2);
    for number in ["", "+", "sip:a@b", "+49 30", "1\r\nX: y", "1;a=b", "\u{661}", &"1".repeat(33)] {
        assert_eq!(net.agent.call(number, sound(), net.now).unwrap_err(), DialError::Number, "{number:?}");
    }
    call(&mut net);
    let (_, invite) = call(&mut net);
    assert_eq!(net.agent.call("110", sound(), net.now).unwrap_err(), DialError::Full(2));
    respond(&mut net, &invite, 486, "", "");
    net.sent.clear();
    call(&mut net);
    let mut without = Net::new();
    assert_eq!(without.agent.call("110", sound(), without.now).unwrap_err(), DialError::NoTrunk);
}

#[test]
fn strangers_answer_no_call_out() {
    let mut net = Net::with_trunk(1);
    let (_, invite) = call(&mut net);
    let stranger: SocketAddr = ([198, 51, 100, 1], 5060).into();
    let answer = response(&invite, 200, "Content-Type: application/sdp\r\n", ANSWER);
    net.receive(&answer, stranger);
    net.receive(&answer.replace("branch=z9hG4bK", "branch=z9hG4bKother"), phone());
    net.receive(&answer, local());
    assert!(net.sent.is_empty() && net.events.is_empty(), "{:?}", net.sent);
}
