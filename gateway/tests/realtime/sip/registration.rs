//! Registration at an exchange.

use repartee::config::{Secret, SipAddress};
use repartee_gateway_testkit::PATIENCE;
use repartee_testkit::scripted::Script;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use super::telephone::serve_with;

/// Takes the next request; returns it with the start of its response.
async fn request(exchange: &UdpSocket) -> (String, std::net::SocketAddr, String) {
    let mut buffer = vec![0; 65_536];
    let received = timeout(PATIENCE, exchange.recv_from(&mut buffer)).await.expect("no request in time");
    let (length, from) = received.unwrap();
    let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
    let is_copied =
        |line: &&str| ["Via:", "From:", "To:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name));
    let copied = text.lines().filter(is_copied).map(|line| format!("{line}\r\n")).collect();
    (text, from, copied)
}

#[tokio::test(flavor = "multi_thread")]
async fn server_registers_at_an_exchange() {
    let exchange = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = exchange.local_addr().unwrap();
    let mut server = serve_with(Script::default(), |config| {
        config.sip.registrar = Some(SipAddress::udp(address));
        config.sip.domain = Some("pbx.example".to_owned());
        config.sip.user = Some("voice".to_owned());
        config.sip.password = Some(Secret::new("secret of the account"));
    })
    .await;
    let (first, from, copied) = request(&exchange).await;
    assert_eq!(Some(from), server.sip);
    assert!(first.starts_with("REGISTER sip:pbx.example SIP/2.0\r\n") && !first.contains("Authorization"), "{first}");
    let challenge = "WWW-Authenticate: Digest realm=\"pbx\", nonce=\"n1\", algorithm=MD5, qop=\"auth\"\r\n";
    let response = format!("SIP/2.0 401 Unauthorized\r\n{copied}{challenge}Content-Length: 0\r\n\r\n");
    exchange.send_to(response.as_bytes(), from).await.unwrap();
    loop {
        let (second, from, copied) = request(&exchange).await;
        if second.contains("\r\nAuthorization: Digest username=\"voice\"") {
            assert!(!second.contains("secret of the account"), "{second}");
            let response = format!("SIP/2.0 200 OK\r\n{copied}Expires: 300\r\nContent-Length: 0\r\n\r\n");
            exchange.send_to(response.as_bytes(), from).await.unwrap();
            break;
        }
    }
    // At its end the server withdraws the registration.
    server.stop();
    loop {
        let (last, from, copied) = request(&exchange).await;
        if last.contains("\r\nExpires: 0\r\n") {
            let response = format!("SIP/2.0 200 OK\r\n{copied}Content-Length: 0\r\n\r\n");
            exchange.send_to(response.as_bytes(), from).await.unwrap();
            break;
        }
    }
    server.ended().await;
}
