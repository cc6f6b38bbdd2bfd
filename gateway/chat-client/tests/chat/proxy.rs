//! Proxies.

use repartee_chat_client::{ChatClientConfig, ChatFailure, Peer, Proxies, ProxyFailure, TlsFailure};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::tls::{Authority, encrypted};
use repartee_chat_testkit::{
    ByteStreamExt as _, ReceivedRequest, ServerEnd, TestServer, answer, ask, config_for, response,
};

fn proxied(mut config: ChatClientConfig, variables: &[(&str, &str)]) -> ChatClientConfig {
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
    config.proxies = Proxies::from_variables(|name| find(name).map(|(_, value)| (*value).to_owned())).unwrap();
    config
}

#[tokio::test]
async fn http_requests_are_forwarded_with_credentials() {
    let (sender, mut requests) = mpsc::channel::<ReceivedRequest>(4);
    let server = TestServer::new(move |_, mut peer| {
        let sender = sender.clone();
        async move {
            while let Some(request) = peer.try_request().await {
                sender.send(request).await.unwrap();
                peer.send(answer("hello")).await;
            }
        }
    });
    let config = proxied(config_for("http://llm.test:8000/v1"), &[("http_proxy", "http://ada:secret@proxy.test:3128")]);
    assert_eq!(ask(&server.client_with(config)).await.text(), "hello");
    assert_eq!(server.dialed(), ["proxy.test:3128"]);
    let request = requests.recv().await.unwrap();
    assert_eq!(request.line(), "POST http://llm.test:8000/v1/chat/completions");
    assert_eq!(request.header("host"), Some("llm.test:8000"));
    assert_eq!(request.header("proxy-authorization"), Some("Basic YWRhOnNlY3JldA=="));
}

#[tokio::test]
async fn direct_requests_carry_no_proxy_credentials() {
    let (sender, mut requests) = mpsc::channel::<ReceivedRequest>(4);
    let server = TestServer::new(move |_, mut peer| {
        let sender = sender.clone();
        async move {
            sender.send(peer.request().await).await.unwrap();
            peer.send(answer("hello")).await;
        }
    });
    let variables = [("http_proxy", "http://ada:secret@proxy.test:3128"), ("no_proxy", ".test")];
    let config = proxied(config_for("http://llm.test:8000/v1"), &variables);
    assert_eq!(ask(&server.client_with(config)).await.text(), "hello");
    assert_eq!(server.dialed(), ["llm.test:8000"]);
    let request = requests.recv().await.unwrap();
    assert_eq!((request.line(), request.header("proxy-authorization")), ("POST /v1/chat/completions", None));
}

/// Proxy that reports CONNECT and passes the bytes on to `address`.
fn tunnelling(address: String) -> (TestServer, mpsc::Receiver<ReceivedRequest>) {
    let (sender, requests) = mpsc::channel(4);
    let proxy = TestServer::new(move |_, mut peer| {
        let (sender, address) = (sender.clone(), address.clone());
        async move {
            sender.send(peer.request().await).await.unwrap();
            let mut server = TcpStream::connect(address).await.unwrap();
            peer.send("HTTP/1.1 200 Connection established\r\n\r\n").await;
            let _ = tokio::io::copy_bidirectional(&mut peer.stream, &mut server).await;
        }
    });
    (proxy, requests)
}

#[tokio::test]
async fn https_goes_through_a_tunnel() {
    let authority = Authority::new();
    let server = encrypted(authority.acceptor("llm.test", 2999));
    let (proxy, mut requests) = tunnelling(server.listen().await);
    // All over TCP: the proxy alone knows the host's address.
    let variables = [("HTTPS_PROXY", format!("http://ada:secret@{}", proxy.listen().await))];
    let variables = variables.each_ref().map(|(name, value)| (*name, value.as_str()));
    let config = proxied(authority.trusted("https://llm.test/v1"), &variables);
    let client = repartee_chat_client::ChatClient::new(config).unwrap();
    for _ in 0..2 {
        assert_eq!(ask(&client).await.text(), "hello");
    }
    let request = requests.recv().await.unwrap();
    assert_eq!(request.line(), "CONNECT llm.test:443");
    assert_eq!(request.header("host"), Some("llm.test:443"));
    assert_eq!(request.header("proxy-authorization"), Some("Basic YWRhOnNlY3JldA=="));
    assert_eq!(request.header("authorization"), None);
}

#[tokio::test]
async fn proxy_itself_may_be_encrypted() {
    let authority = Authority::new();
    let server = encrypted(authority.acceptor("llm.test", 2999));
    let (inner, mut requests) = tunnelling(server.listen().await);
    let (acceptor, address) = (authority.acceptor("proxy.test", 2999), inner.listen().await);
    let proxy = TestServer::new(move |_, peer| {
        let (acceptor, address) = (acceptor.clone(), address.clone());
        async move {
            let mut peer = ServerEnd { stream: acceptor.accept(peer.stream).await.unwrap().boxed() };
            let mut inner = TcpStream::connect(address).await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut peer.stream, &mut inner).await;
        }
    });
    let config = proxied(authority.trusted("https://llm.test/v1"), &[("ALL_PROXY", "https://proxy.test")]);
    assert_eq!(ask(&proxy.client_with(config)).await.text(), "hello");
    assert_eq!(proxy.dialed(), ["proxy.test:443"]);
    assert_eq!(requests.recv().await.unwrap().line(), "CONNECT llm.test:443");
}

#[tokio::test]
async fn http_is_forwarded_by_an_encrypted_proxy() {
    let authority = Authority::new();
    let proxy = encrypted(authority.acceptor("proxy.test", 2999));
    let config = proxied(authority.trusted("http://llm.test/v1"), &[("http_proxy", "https://proxy.test:8443")]);
    assert_eq!(ask(&proxy.client_with(config)).await.text(), "hello");
    assert_eq!(proxy.dialed(), ["proxy.test:8443"]);
}

#[tokio::test]
async fn proxy_refusals_are_typed() {
    let authority = Authority::new();
    for (status, expected) in [
        ("407 Proxy Authentication Required", ProxyFailure::Unauthorized),
        ("403 Forbidden", ProxyFailure::Rejected(403)),
    ] {
        let proxy = TestServer::answering(response(status, "", ""));
        let variables = [("https_proxy", "http://ada:secret@proxy.test:3128")];
        let found = ask(&proxy.client_with(proxied(authority.trusted("https://llm.test"), &variables))).await;
        let peer = Peer::Proxy("proxy.test:3128".to_owned());
        assert_eq!(found.failure("the proxy proxy.test:3128"), &ChatFailure::Proxy { peer, failure: expected });
        assert!(!format!("{} {:?}", found.error(), found.error()).contains("secret"));
    }
    let proxy = TestServer::answering(response("407 Proxy Authentication Required", "", ""));
    let config = proxied(config_for("http://llm.test"), &[("http_proxy", "proxy.test:3128")]);
    let found = ask(&proxy.client_with(config)).await;
    assert!(matches!(found.failure("put user name"), ChatFailure::Proxy { failure: ProxyFailure::Unauthorized, .. }));
}

#[tokio::test]
async fn proxy_that_closes_is_named() {
    let proxy = TestServer::new(|_, mut peer| async move { drop(peer.request().await) });
    let authority = Authority::new();
    let config = proxied(authority.trusted("https://llm.test"), &[("https_proxy", "proxy.test:3128")]);
    let found = ask(&proxy.client_with(config)).await;
    assert!(matches!(found.failure("the proxy proxy.test:3128 cannot be reached"), ChatFailure::Unreachable { .. }));
}

#[tokio::test]
async fn untrusted_proxy_certificate_is_named() {
    let authority = Authority::new();
    let proxy = encrypted(authority.acceptor("other.test", 2999));
    let config = proxied(authority.trusted("https://llm.test"), &[("https_proxy", "https://proxy.test:8443")]);
    let found = ask(&proxy.client_with(config)).await;
    let peer = Peer::Proxy("proxy.test:8443".to_owned());
    assert_eq!(found.failure("other names"), &ChatFailure::Tls { peer, failure: TlsFailure::WrongHost });
}
