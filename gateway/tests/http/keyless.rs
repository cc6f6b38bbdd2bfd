//! Without keys the server accepts only this machine: neither callers through a tunnel, nor pages whose host name
//! resolves to this machine.

use repartee::auth::KeySet;
use repartee_testkit::scripted::Script;
use tokio_tungstenite::tungstenite::Error;

use repartee_gateway_testkit::Running;
use repartee_gateway_testkit::http::{Reply, send};

/// Paths that strangers must not read.
const PATHS: [&str; 10] = [
    "/",
    "/admin",
    "/app.js",
    "/model.json",
    "/metrics",
    "/v1/models",
    "/v1/realtime",
    "/v1/realtime/ice_servers",
    "/v1/usage",
    "/nothing-here",
];

async fn get(server: &Running, path: &str, header: (&str, &str)) -> Reply {
    send(server.address, "GET", path, &[header], b"").await
}

#[tokio::test]
async fn remote_callers_are_refused_without_keys() {
    let server = Running::start(Script::default()).await;
    let phone = ("x-forwarded-for", "203.0.113.7");
    for path in PATHS {
        let reply = get(&server, path, phone).await;
        assert_eq!((reply.status, &*reply.code()), (403, "remote_caller_without_keys"), "{path}");
        assert!(reply.body.contains("REPARTEE_API_KEYS"), "{}", reply.body);
    }
    let Err(Error::Http(refused)) = server.dial_with(&[phone]).await else { panic!("it is refused") };
    assert_eq!(refused.status(), 403);
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&server, path, phone).await.status, 200, "{path}");
    }
    let (_, metrics) = server.get("/metrics").await;
    // The websocket was refused too.
    let refused = format!("repartee_refused_total{{reason=\"not_local\"}} {}", PATHS.len() + 1);
    assert!(metrics.contains(&refused), "{metrics}");
    server.connect().await;
}

#[tokio::test]
async fn foreign_host_names_are_refused_without_keys() {
    let server =
        Running::start_with(Script::default(), |config| config.browser.hosts = vec!["voice.internal".into()]).await;
    for path in PATHS {
        let reply = get(&server, path, ("host", "evil.example:8080")).await;
        assert_eq!((reply.status, &*reply.code()), (403, "host_not_allowed"), "{path}");
        assert!(reply.body.contains("browser.hosts"), "{}", reply.body);
    }
    for path in ["/healthz", "/readyz"] {
        assert_eq!(get(&server, path, ("host", "evil.example")).await.status, 200, "{path}");
    }
    for host in ["localhost:8080", "[::1]:8080", "192.168.1.5", "voice.internal"] {
        assert_eq!(get(&server, "/v1/models", ("host", host)).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn keys_open_the_server_to_everybody_else() {
    const KEY: &str = "the-key-of-the-house";
    let server = Running::start_with(Script::default(), |config| config.api_keys = KeySet::parse(KEY).unwrap()).await;
    let bearer = format!("Bearer {KEY}");
    let from = [("x-forwarded-for", "203.0.113.7"), ("host", "voice.example"), ("authorization", &*bearer)];
    assert_eq!(send(server.address, "GET", "/v1/models", &from, b"").await.status, 200);
    assert_eq!(send(server.address, "GET", "/", &from[..2], b"").await.status, 200);
}
