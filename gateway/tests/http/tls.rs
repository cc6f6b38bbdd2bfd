//! HTTPS with a given certificate, and with one that is generated at start.

use std::sync::Arc;

use repartee::config::{Config, TlsConfig};
use repartee::server::{PemCertificate, ReloadError, Server, ServerStartError, TlsError, development_certificate};
use repartee_testkit::scripted::{Script, ScriptedEngine};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use repartee_gateway_testkit::Running;
use repartee_gateway_testkit::http::{Reply, send, send_over};

/// Connector of a client that trusts only this certificate.
fn trusting(certificate: &str) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

async fn connect(server: &Running, connector: &TlsConnector) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(server.address).await.unwrap();
    connector.connect(ServerName::try_from("localhost").unwrap(), socket).await
}

struct Own {
    server: Running,
    connector: TlsConnector,
    config: Config,
    folder: tempfile::TempDir,
}

/// A server with a certificate from a file.
async fn own(change: impl FnOnce(&mut Config)) -> Own {
    let PemCertificate { certificate, key } = development_certificate(vec!["localhost".into()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("cert.pem"), &certificate).unwrap();
    std::fs::write(path("key.pem"), key).unwrap();
    let mut settings = Config::default();
    let server = Running::start_with(Script::default(), |config| {
        config.tls.certificate = Some(path("cert.pem"));
        config.tls.key = Some(path("key.pem"));
        change(config);
        settings = config.clone();
    })
    .await;
    Own { server, connector: trusting(&certificate), config: settings, folder }
}

#[tokio::test]
async fn reload_takes_a_renewed_certificate() {
    let Own { server, connector, config, folder } = own(|_| {}).await;
    let PemCertificate { certificate, key } = development_certificate(vec!["localhost".into()]).unwrap();
    std::fs::write(folder.path().join("cert.pem"), &certificate).unwrap();
    // Half of a renewal: the certificate is new and the key is not.
    assert!(matches!(server.reloader.reload(&config), Err(ReloadError::Tls(_))));
    connect(&server, &connector).await.unwrap();
    std::fs::write(folder.path().join("key.pem"), key).unwrap();
    server.reloader.reload(&config).unwrap();
    connect(&server, &trusting(&certificate)).await.unwrap();
    connect(&server, &connector).await.unwrap_err();
    let plain = Config { tls: TlsConfig::default(), ..config };
    assert!(matches!(server.reloader.reload(&plain), Err(ReloadError::Restart("HTTPS"))));
}

#[tokio::test]
async fn pages_and_websockets_are_served_over_https() {
    let Own { server, connector, .. } = own(|_| {}).await;
    let socket = connect(&server, &connector).await.unwrap();
    let reply = send_over(socket, "localhost", "GET", "/healthz", &[], b"").await;
    assert_eq!((reply.status, &*reply.body), (200, "ok\n"));

    let socket = connect(&server, &connector).await.unwrap();
    let request = "wss://localhost/v1/realtime".into_client_request().unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, socket).await.unwrap();
    let message = futures_util::StreamExt::next(&mut socket).await.unwrap().unwrap();
    assert!(message.to_text().unwrap().contains("session.created"));
}

#[tokio::test]
async fn a_client_of_another_certificate_refuses() {
    let Own { server, .. } = own(|_| {}).await;
    let other = development_certificate(vec!["localhost".into()]).unwrap();
    connect(&server, &trusting(&other.certificate)).await.unwrap_err();
    // Other connections are unaffected.
    assert_eq!(server.get("/healthz").await.0, 200);
}

#[tokio::test]
async fn plain_http_is_served_to_loopback() {
    let Own { server, .. } = own(|_| {}).await;
    assert_eq!(server.get("/readyz").await.0, 200);
}

/// Uses an address of this machine, if it has one; `server/listen_tests.rs` does the same with any peer.
#[tokio::test]
async fn plain_http_over_the_network_is_redirected() {
    let Some(address) = repartee::cli::lan::addresses().into_iter().find(std::net::IpAddr::is_ipv4) else {
        println!("SKIPPED: this machine has no IPv4 address but loopback");
        return assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "in CI nothing is skipped");
    };
    let Own { server, .. } = own(|config| {
        config.listen = (address, 0).into();
        config.api_keys = repartee::auth::KeySet::parse("a-key-for-a-public-address").unwrap();
    })
    .await;
    let reply: Reply = send(server.address, "POST", "/v1/realtime/calls?x=1", &[("host", "voice.example")], b"").await;
    assert_eq!(reply.status, 308);
    assert_eq!(reply.header("location"), Some("https://voice.example/v1/realtime/calls?x=1"));
}

#[tokio::test]
async fn development_makes_a_certificate() {
    let server = Running::start_with(Script::default(), |config| config.tls.development = true).await;
    // The certificate is self-signed: a client that trusts only another one refuses it.
    let stranger = development_certificate(vec!["localhost".into()]).unwrap();
    let refused = connect(&server, &trusting(&stranger.certificate)).await.unwrap_err();
    assert!(refused.to_string().contains("certificate"), "{refused}");
}

#[tokio::test]
async fn an_unusable_certificate_names_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let made = development_certificate(vec!["localhost".into()]).unwrap();
    let other = development_certificate(vec!["localhost".into()]).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let certificate = write("cert.pem", &made.certificate);
    let key = write("key.pem", &made.key);
    let other_key = write("other.pem", &other.key);
    let empty = write("empty.pem", "nothing\n");
    let bind = async |certificate: &std::path::Path, key: &std::path::Path| {
        let mut config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
        config.tls.certificate = Some(certificate.into());
        config.tls.key = Some(key.into());
        match Server::bind(config, ScriptedEngine::new(Script::default())).await {
            Err(ServerStartError::Tls(error)) => error,
            other => panic!("it is refused, not {other:?}"),
        }
    };
    assert!(bind(&empty, &key).await.to_string().contains("empty.pem"));
    assert!(bind(&certificate, &empty).await.to_string().contains("empty.pem"));
    assert!(bind(&folder.path().join("none.pem"), &key).await.to_string().contains("none.pem"));
    assert!(matches!(bind(&certificate, &other_key).await, TlsError::Unusable(_)));
}
