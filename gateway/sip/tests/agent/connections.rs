//! Calls over connections: nothing is repeated that the transport repeats, and calls outlive their connections.

use std::net::SocketAddr;
use std::time::Duration;

use repartee_sip::{Hop, RegistrarSettings, RegistrationNews, SignalTransport, SipEvent, TrunkSettings};

use super::other_side::{Caller, Net, OFFER, assert_status, header, local, phone, sound};

/// Port that the telephone's connection comes from.
fn connection() -> Hop {
    Hop::new(SignalTransport::Tcp, SocketAddr::new(phone().ip(), 61_000))
}

fn over_tcp(text: &str) -> String {
    text.replace("SIP/2.0/UDP", "SIP/2.0/TCP")
}

fn trunk(transport: SignalTransport) -> TrunkSettings {
    TrunkSettings {
        address: Hop::new(transport, phone()),
        domain: "trunk.example".to_owned(),
        caller: "+4930999".to_owned(),
        account: None,
        is_encrypted: false,
        ring: Duration::from_secs(60),
        calls: 2,
    }
}

#[test]
fn responses_take_the_connection_back() {
    let mut net = Net::with_connections(None, None);
    let mut call = Caller::new("one");
    net.receive_over(&over_tcp(&call.invite(1, OFFER)), connection());
    let (key, SipEvent::Incoming(invitation)) = net.event() else { panic!("no call") };
    assert_eq!(invitation.from, connection());
    net.agent.accept(key, sound(), net.now).unwrap();
    net.flush();
    let sent = std::mem::take(&mut net.sent);
    assert!(sent.iter().all(|(to, _)| *to == connection()), "{sent:?}");
    let accepted = &sent[1].1;
    assert_eq!(header(accepted, "Contact"), format!("<sip:{};transport=tcp>", local()));
    // Only the other side's confirmation tells that an answer has come through all proxies.
    net.pass(Duration::from_secs(1));
    assert_status(&net.sent.pop().unwrap().1, 200);
    call.to = header(accepted, "To").to_owned();
    net.receive_over(&over_tcp(&call.request("ACK", 1, "", "")), connection());
    assert!(net.agent.needs(connection()));
    // The connection ends, the call does not.
    net.agent.closed(connection(), net.now);
    net.sent.clear();
    net.agent.hang_up(key, net.now);
    net.flush();
    let (to, bye) = net.sent.pop().unwrap();
    assert_eq!(to, Hop::new(SignalTransport::Tcp, phone()), "the address of its Contact");
    assert!(bye.starts_with("BYE ") && bye.contains("\r\nVia: SIP/2.0/TCP 192.0.2.1:5060;"), "{bye}");
    assert!(!net.agent.needs(to));
}

#[test]
fn connections_repeat_by_themselves() {
    let mut net = Net::with_connections(None, Some(trunk(SignalTransport::Tls)));
    let key = net.agent.call("+4930", sound(), net.now).unwrap();
    net.flush();
    let (to, invite) = net.sent.pop().unwrap();
    assert_eq!(to, Hop::new(SignalTransport::Tls, phone()));
    assert!(invite.contains("\r\nVia: SIP/2.0/TLS ") && invite.contains(";transport=tls>\r\n"), "{invite}");
    net.pass(Duration::from_secs(20));
    assert!(net.sent.is_empty(), "{:?}", net.sent);
    net.pass(Duration::from_secs(20));
    assert!(matches!(net.event(), (of, SipEvent::Failed(408)) if of == key));
    // A refusal, too.
    net.receive_over(&over_tcp(&Caller::new("two").invite(1, OFFER)), connection());
    let (key, _) = net.event();
    net.agent.hang_up(key, net.now);
    net.flush();
    assert_status(&net.sent.pop().unwrap().1, 480);
    net.sent.clear();
    net.pass(Duration::from_secs(40));
    assert!(net.sent.is_empty(), "{:?}", net.sent);
    assert_eq!(net.agent.active(), 0);
}

#[test]
fn lost_connections_are_told_at_once() {
    let address = Hop::new(SignalTransport::Tcp, phone());
    let (domain, user, password) = ("pbx.example".to_owned(), "voice".to_owned(), "secret".to_owned());
    let registrar = RegistrarSettings { address, domain, user, password };
    let mut net = Net::with_connections(Some(registrar), Some(trunk(SignalTransport::Tcp)));
    net.pass(Duration::ZERO);
    let (to, register) = net.sent.pop().unwrap();
    assert_eq!((to, header(&register, "Contact")), (address, "<sip:voice@192.0.2.1:5060;transport=tcp>"));
    let first = net.agent.call("+4930", sound(), net.now).unwrap();
    net.flush();
    let invite = net.sent.pop().unwrap().1;
    // A number that rings may still be answered over another connection.
    net.receive_over(&Caller::response(&invite, 180), address);
    assert!(matches!(net.event(), (of, SipEvent::Ringing) if of == first));
    let second = net.agent.call("+4931", sound(), net.now).unwrap();
    net.agent.closed(address, net.now);
    net.flush();
    assert!(matches!(net.event(), (of, SipEvent::Failed(503)) if of == second));
    assert_eq!(net.registrations, [RegistrationNews::Refused(503)]);
    assert!(net.agent.needs(address));
    // The next try comes by itself.
    net.sent.clear();
    net.pass(Duration::from_secs(59));
    assert!(net.sent.is_empty());
    net.pass(Duration::from_secs(1));
    assert!(net.sent.iter().any(|(_, text)| text.starts_with("REGISTER ")), "{:?}", net.sent);
}

#[test]
fn calls_from_ourselves_end_over_connections() {
    let mut net = Net::with_connections(None, None);
    let from = Hop::new(SignalTransport::Tcp, SocketAddr::new(local().ip(), 61_000));
    let invite = over_tcp(&Caller::new("one").invite(1, OFFER)).replace("TCP 192.0.2.7:5070", "TCP 192.0.2.1:5060");
    net.receive_over(&invite, from);
    let (to, refused) = net.sent.pop().unwrap();
    assert_eq!(to, from);
    assert_status(&refused, 482);
}
