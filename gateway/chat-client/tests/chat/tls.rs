//! TLS: certificates of the tests' own authorities.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd};
use repartee_chat_client::{ChatClient, ChatClientConfig, ChatFailure, Peer, TlsFailure, TrustError};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tempfile::TempDir;
use tokio_rustls::TlsAcceptor;

use repartee_chat_testkit::{ByteStreamExt as _, ServerEnd, TestServer, answer, ask, config_for, settle};

/// A certificate authority.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

impl Authority {
    pub fn new() -> Self {
        Self::named("authority of the tests")
    }

    pub fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("roots.pem"), issuer.pem()).unwrap();
        Self { issuer, folder }
    }

    /// Settings for a URL that trust this authority.
    pub fn trusted(&self, url: &str) -> ChatClientConfig {
        let trusted_certificates = Some(self.folder.path().join("roots.pem"));
        ChatClientConfig { trusted_certificates, ..config_for(url) }
    }

    /// Acceptor with a certificate for a host, valid up to the end of a year.
    pub fn acceptor(&self, host: &str, last_year: i32) -> TlsAcceptor {
        let mut params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2000, 1, 1);
        params.not_after = date_time_ymd(last_year, 12, 31);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

/// Server that says hello over TLS.
pub fn encrypted(acceptor: TlsAcceptor) -> TestServer {
    TestServer::new(move |_, peer| {
        let acceptor = acceptor.clone();
        async move {
            if let Ok(stream) = acceptor.accept(peer.stream).await {
                let mut peer = ServerEnd { stream: stream.boxed() };
                while peer.try_request().await.is_some() {
                    peer.send(answer("hello")).await;
                }
            }
        }
    })
}

async fn tls_failure(server: &TestServer, config: ChatClientConfig, words: &str) -> TlsFailure {
    let found = ask(&server.client_with(config)).await;
    match found.failure(words) {
        ChatFailure::Tls { peer: Peer::Server, failure } => failure.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn trusted_certificate_serves() {
    let authority = Authority::new();
    let server = encrypted(authority.acceptor("llm.test", 2999));
    let client = server.client_with(authority.trusted("https://llm.test/v1"));
    assert_eq!(ask(&client).await.text(), "hello");
    settle().await;
    assert!(ask(&client).await.stats().connection_reused);
    assert_eq!(server.dialed(), ["llm.test:443"]);
}

#[tokio::test]
async fn trusted_certificate_serves_over_tcp() {
    let authority = Authority::new();
    let address = encrypted(authority.acceptor("127.0.0.1", 2999)).listen().await;
    let client = ChatClient::new(authority.trusted(&format!("https://{address}"))).unwrap();
    assert_eq!(ask(&client).await.text(), "hello");
}

#[tokio::test]
async fn unknown_issuer_is_refused() {
    let server = encrypted(Authority::new().acceptor("llm.test", 2999));
    for other in [Authority::named("another one"), Authority::new()] {
        let found = tls_failure(&server, other.trusted("https://llm.test"), "unknown issuer").await;
        assert_eq!(found, TlsFailure::UnknownIssuer);
    }
}

#[tokio::test]
async fn expired_certificate_is_refused() {
    let authority = Authority::new();
    let server = encrypted(authority.acceptor("llm.test", 2001));
    let found = tls_failure(&server, authority.trusted("https://llm.test"), "expired").await;
    assert_eq!(found, TlsFailure::Expired);
}

#[tokio::test]
async fn certificate_of_another_host_is_refused() {
    let authority = Authority::new();
    let server = encrypted(authority.acceptor("other.test", 2999));
    let found = tls_failure(&server, authority.trusted("https://llm.test"), "other names").await;
    assert_eq!(found, TlsFailure::WrongHost);
}

#[tokio::test]
async fn server_without_tls_is_told() {
    let authority = Authority::new();
    let server = TestServer::new(|_, mut peer| async move {
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
        peer.closed().await;
    });
    let found = tls_failure(&server, authority.trusted("https://llm.test"), "use http://").await;
    assert_eq!(found, TlsFailure::NotTls);
}

#[tokio::test]
async fn old_tls_is_told() {
    let authority = Authority::new();
    // A fatal alert: protocol_version.
    let alert = b"\x15\x03\x03\x00\x02\x02\x46".to_vec();
    // The hello of a server with TLS 1.2: version, 32 random bytes, no session, a cipher suite, no compression.
    let hello = [b"\x16\x03\x03\x00\x2a\x02\x00\x00\x26\x03\x03".as_slice(), &[7; 32], b"\x00\xc0\x2f\x00"].concat();
    for begin in [alert, hello] {
        let server = TestServer::new(move |_, mut peer| {
            let begin = begin.clone();
            async move {
                peer.send(begin).await;
                peer.closed().await;
            }
        });
        let found = tls_failure(&server, authority.trusted("https://llm.test"), "TLS 1.3").await;
        assert_eq!(found, TlsFailure::Version);
    }
}

#[tokio::test]
async fn close_within_the_handshake_is_told() {
    let authority = Authority::new();
    let server = TestServer::new(|_, _| async {});
    let found = tls_failure(&server, authority.trusted("https://llm.test"), "during the handshake").await;
    assert_eq!(found, TlsFailure::Closed);
}

#[tokio::test]
async fn plain_request_to_a_tls_port_is_told() {
    let authority = Authority::new();
    let server = encrypted(authority.acceptor("llm.test", 2999));
    let found = ask(&server.client_with(config_for("http://llm.test:443"))).await;
    let failure = found.error().failure.clone();
    assert!(matches!(*failure, ChatFailure::NotHttp { .. }), "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn silent_handshake_is_a_late_connection() {
    let authority = Authority::new();
    let server = TestServer::new(|_, mut peer| async move { peer.closed().await });
    let found = ask(&server.client_with(authority.trusted("https://llm.test"))).await;
    assert!(matches!(found.failure("connecting took longer"), ChatFailure::Late { .. }));
}

#[tokio::test]
async fn missing_certificates_are_an_error() {
    let mut config = config_for("https://llm.test");
    config.trusted_certificates = Some("/nonexistent/roots.pem".into());
    let error = ChatClient::new(config).unwrap_err();
    assert!(error.to_string().contains("/nonexistent/roots.pem"), "{error}");
    let repartee_chat_client::ChatClientError::Trust(error) = error else { panic!("{error}") };
    assert!(matches!(error, TrustError::File { .. }));
}

#[tokio::test]
async fn key_and_url_credentials_exclude_each_other() {
    let mut config = config_for("http://ada:secret@llm.test");
    config.key = Some(repartee_chat_client::ApiKey::parse("sk-abc", "test").unwrap());
    let error = ChatClient::new(config).unwrap_err().to_string();
    assert!(error.contains("http://llm.test/v1") && !error.contains("secret"), "{error}");
}
