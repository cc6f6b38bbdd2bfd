//! An operator: checks the settings, starts with keys, reads metrics, hangs a call up, reloads and stops.

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{Client, PATIENCE};
use serde_json::Value;
use tokio::time::timeout;
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::{Visited, line_with, ran};

const KEY: &str = "the-key-of-the-house";
const OTHER_KEY: &str = "the-key-of-the-cellar";

#[tokio::test]
async fn an_operator_checks_serves_and_hangs_up() {
    let folder = tempfile::tempdir().unwrap();
    let keys = folder.path().join("keys");
    std::fs::write(&keys, format!("{KEY}\n")).unwrap();
    let set = format!("keys.file={}", keys.display());
    // All mistakes at once.
    let mistakes = ["check", "--set", &set, "--set", "tls.certificate=/no/such.pem", "--set", "tls.key=/no/such.key"];
    let (code, _, errors) = ran(&[&mistakes[..], &["--model", "/no/such/model"]].concat()).await;
    assert!(code == Some(2) && errors.contains("/no/such.pem") && errors.contains("/no/such/model"), "{errors}");

    let mut server = Visited::start(&["--set", &set]).await;
    let header = format!("Bearer {KEY}");
    let authorization = [("authorization", &*header)];
    let refused = send(server.address, "GET", "/v1/models", &[], b"").await;
    assert_eq!((refused.status, &*refused.code()), (401, "missing_api_key"));
    assert_eq!(send(server.address, "GET", "/admin", &[], b"").await.status, 200);
    let mut request = format!("ws://{}/v1/realtime", server.address).into_client_request().unwrap();
    request.headers_mut().insert("authorization", header.parse().unwrap());
    let (socket, _) = timeout(PATIENCE, connect_async(request)).await.unwrap().unwrap();
    let mut client = Client { socket };
    client.expect("session.created").await;

    let calls = send(server.address, "GET", "/v1/realtime/calls", &authorization, b"").await.json();
    let id = id_of(&calls).unwrap_or_else(|| panic!("an id in {calls}"));
    let path = format!("/v1/realtime/calls/{id}/hangup");
    assert_eq!(send(server.address, "POST", &path, &authorization, b"").await.status, 200);
    while client.message().await.is_some() {}
    line_with(&mut server.log, "hangup").await;
    let ended = "repartee_call_seconds_count{end=\"hangup\",transport=\"websocket\"} 1\n";
    server.metrics_with(&authorization, &[ended]).await;

    std::fs::write(&keys, format!("{OTHER_KEY}\n")).unwrap();
    server.signal("-HUP");
    line_with(&mut server.log, "certificate reloaded").await;
    assert_eq!(send(server.address, "GET", "/v1/models", &authorization, b"").await.status, 401);
    server.end().await;
}

/// Id of the first call of a list.
fn id_of(calls: &Value) -> Option<&str> {
    calls["data"].as_array().or_else(|| calls["calls"].as_array())?.first()?["id"].as_str()
}
