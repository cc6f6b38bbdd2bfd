//! Registration at an exchange.

use std::time::Duration;

use repartee_sip::RegistrationNews;

use super::other_side::{Caller, Net, header, phone};

const SECOND: Duration = Duration::from_secs(1);

/// Response with further headers.
fn response(request: &str, status: u16, headers: &str) -> String {
    Caller::response(request, status).replace("Content-Length", &format!("{headers}Content-Length"))
}

#[test]
fn registration_answers_the_challenge_and_is_renewed() {
    let mut net = Net::with_registrar();
    net.pass(Duration::ZERO);
    let first = net.only();
    assert!(first.starts_with("REGISTER sip:pbx.example SIP/2.0\r\n"), "{first}");
    assert_eq!(header(&first, "Contact"), "<sip:voice@192.0.2.1:5060>");
    net.pass(SECOND);
    assert_eq!(net.only(), first, "it may have been lost");
    let challenge = "WWW-Authenticate: Digest realm=\"pbx\", nonce=\"n1\", algorithm=MD5, qop=\"auth\"\r\n";
    net.receive(&response(&first, 401, challenge), phone());
    let second = net.only();
    let credentials = header(&second, "Authorization");
    assert!(credentials.starts_with("Digest username=\"voice\", realm=\"pbx\", nonce=\"n1\""), "{credentials}");
    assert!(!second.contains("secret"), "the password stays here");
    assert_eq!(header(&second, "CSeq"), "2 REGISTER");
    net.receive(&response(&second, 200, "Contact: <sip:voice@192.0.2.1:5060>;expires=120\r\n"), phone());
    assert_eq!(net.registrations, [RegistrationNews::Registered(SECOND * 120)]);
    net.pass(SECOND * 89);
    assert!(net.sent.is_empty());
    net.pass(SECOND);
    assert_eq!(header(&net.only(), "CSeq"), "3 REGISTER");
}

#[test]
fn refused_registration_tries_again_later() {
    let mut net = Net::with_registrar();
    net.pass(Duration::ZERO);
    let first = net.only();
    let challenge = "WWW-Authenticate: Digest realm=\"pbx\", nonce=\"n1\"\r\n";
    net.receive(&response(&first, 401, challenge), phone());
    let second = net.only();
    // A wrong password is asked for once more and no more.
    net.receive(&response(&second, 401, challenge), phone());
    assert!(net.sent.is_empty());
    assert_eq!(net.registrations, [RegistrationNews::Refused(401)]);
    net.pass(SECOND * 59);
    assert!(net.sent.is_empty());
    net.pass(SECOND);
    let third = net.only();
    // A challenge that cannot be met, and one that is no text of ASCII.
    for algorithm in ["SHA-256", "abc\u{e9}-x"] {
        let challenge = format!("WWW-Authenticate: Digest realm=\"pbx\", nonce=\"n1\", algorithm={algorithm}\r\n");
        net.receive(&response(&third, 401, &challenge), phone());
    }
    assert_eq!(net.registrations.len(), 2, "the second answer is to nothing");
    // Nobody answers.
    net.pass(SECOND * 61);
    net.sent.clear();
    net.pass(SECOND * 33);
    assert_eq!(net.registrations.last(), Some(&RegistrationNews::Refused(408)));
    // Somebody else answers.
    net.pass(SECOND * 61);
    let last = net.sent.last().unwrap().1.clone();
    net.receive(&response(&last, 200, ""), ([192, 0, 2, 9], 5060).into());
    assert_eq!(net.registrations.len(), 3);
}

#[test]
fn registration_is_withdrawn_once() {
    let mut net = Net::with_registrar();
    net.pass(Duration::ZERO);
    let first = net.only();
    net.receive(&response(&first, 200, "Expires: 300\r\n"), phone());
    assert!(net.agent.withdraw(net.now));
    net.flush();
    let last = net.only();
    assert_eq!((header(&last, "Expires"), header(&last, "CSeq")), ("0", "2 REGISTER"));
    let challenge = "WWW-Authenticate: Digest realm=\"pbx\", nonce=\"n1\"\r\n";
    net.receive(&response(&last, 401, challenge), phone());
    let again = net.only();
    assert!(again.contains("\r\nAuthorization: ") && again.contains("\r\nExpires: 0\r\n"), "{again}");
    net.receive(&response(&again, 200, ""), phone());
    assert_eq!(net.registrations.last(), Some(&RegistrationNews::Withdrawn));
    net.pass(SECOND * 1_000);
    assert!(net.sent.is_empty() && net.agent.deadline().is_none());
    // Without a registration there is nothing to withdraw.
    let mut net = Net::new();
    assert!(!net.agent.withdraw(net.now));
}
