//! A developer of an agent: looks at what the model can do, sends events with mistakes, offers a function, finds the request in the log.

use repartee_gateway_testkit::http::send;
use repartee_gateway_testkit::{Client, PATIENCE};
use serde_json::json;
use tokio::time::timeout;
use tokio_tungstenite::connect_async;

use super::{Visited, line_with};

#[tokio::test]
async fn an_agent_developer_is_told_mistakes() {
    let mut server = Visited::start(&["--set", "log.access=true"]).await;
    let asked = send(server.address, "GET", "/v1/models", &[("x-request-id", "mine-1")], b"").await;
    assert_eq!((asked.status, asked.header("x-request-id")), (200, Some("mine-1")));
    let model = asked.json()["data"][0].clone();
    assert!(model["id"] == "demo" && model["repartee"]["tools"] == false, "{model}");
    line_with(&mut server.log, "mine-1").await;

    let url = format!("ws://{}/v1/realtime?model=demo", server.address);
    let (socket, _) = timeout(PATIENCE, connect_async(url)).await.unwrap().unwrap();
    let mut client = Client { socket };
    client.expect("session.created").await;
    client.send(json!({"type": "session.upate", "session": {}})).await;
    let error = client.error("unknown_event_type").await;
    assert!(error["message"].as_str().unwrap().contains("did you mean `session.update`?"), "{error}");
    let tool = json!({"type": "function", "name": "clock", "parameters": {"type": "object"}});
    let session = client.update(json!({"type": "realtime", "tools": [tool]})).await;
    let warnings = session["repartee"]["warnings"].to_string();
    assert!(warnings.contains("calls no functions"), "{session}");
    line_with(&mut server.log, "calls no functions").await;
    let events = client.ask("What is the capital of France?").await;
    let done = &events.last().unwrap()["response"];
    assert!(done["status"] == "completed" && done.to_string().contains("Paris"), "{done}");
    drop(client);
    server.end().await;
}
