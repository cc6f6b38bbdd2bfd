//! Budgets of API keys: sessions, tokens, sound and ephemeral keys of one key, beside another key.

use repartee::auth::KeySet;
use repartee::config::{Config, LimitConfig};
use repartee::headroom::Load;
use repartee_testkit::scripted::Script;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;

use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{Client, Running, find, silence};

const ONE: &str = "the-key-of-tenant-one";
const TWO: &str = "the-key-of-tenant-two";

/// A server with two keys and these limits.
async fn server(script: Script, limits: LimitConfig) -> Running {
    let change = |config: &mut Config| {
        config.api_keys = KeySet::parse(&format!("one {ONE}\ntwo {TWO}")).unwrap();
        config.limits = limits;
    };
    Running::start_with(script, change).await
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

async fn call(server: &Running, key: &str) -> Client {
    let mut client = server.dial_with(&[("authorization", &bearer(key))]).await.unwrap();
    client.expect("session.created").await;
    client
}

/// Status, code, limit and `Retry-After` of a refused websocket.
async fn refusal(server: &Running, key: &str) -> (u16, String, String, u64) {
    let dialled = server.dial_with(&[("authorization", &bearer(key))]).await;
    let Err(Error::Http(response)) = dialled else { panic!("it is refused") };
    let retry = response.headers()["retry-after"].to_str().unwrap().parse().unwrap();
    let body: Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
    let text = |field: &str| body["error"][field].as_str().unwrap().to_owned();
    assert!(text("message").contains(&text("param")), "{body}");
    (response.status().as_u16(), text("code"), text("param"), retry)
}

async fn post(server: &Running, key: &str, path: &str, body: &Value) -> Reply {
    let headers = [("authorization", &*bearer(key)), ("content-type", "application/json")];
    send(server.address, "POST", path, &headers, body.to_string().as_bytes()).await
}

async fn assert_metric(server: &Running, line: &str) {
    let headers = [("authorization", &*bearer(ONE))];
    let metrics = send(server.address, "GET", "/metrics", &headers, b"").await.body;
    assert!(metrics.lines().any(|shown| shown == line), "{line} in {metrics}");
}

#[tokio::test]
async fn keys_share_the_machine_by_halves() {
    // It carries two calls.
    let load = Load { ticks: 0.4, processors: 0.1 };
    let server = Running::start_calibrated(Script::default(), Some(load), |config| {
        config.api_keys = KeySet::parse(&format!("one {ONE}\ntwo {TWO}")).unwrap();
    })
    .await;
    let one = call(&server, ONE).await;
    let (status, code, limit, retry) = refusal(&server, ONE).await;
    assert_eq!((status, &*code, &*limit), (429, "call_limit_reached", "headroom"));
    assert!(retry > 0);
    let question = json!({"messages": [{"role": "user", "content": "hi"}]});
    assert_eq!(post(&server, ONE, "/v1/chat/completions", &question).await.status, 429);
    let two = call(&server, TWO).await;
    assert_metric(&server, "repartee_key_refused_total{key=\"one\",limit=\"calls_per_key\"} 2").await;
    assert_metric(&server, "repartee_refused_total{reason=\"key\"} 2").await;
    drop((one, two));
    server.sessions(0).await;
    call(&server, ONE).await;
}

#[tokio::test]
async fn keys_share_sessions_by_halves() {
    let server = server(Script { slots: 4, ..Script::default() }, LimitConfig::default()).await;
    let held = [call(&server, ONE).await, call(&server, ONE).await];
    let (status, code, limit, retry) = refusal(&server, ONE).await;
    assert_eq!((status, &*code, &*limit), (429, "call_limit_reached", "calls_per_key"));
    assert!(retry > 0);
    let question = json!({"messages": [{"role": "user", "content": "hi"}]});
    let chat = post(&server, ONE, "/v1/chat/completions", &question).await;
    assert_eq!(chat.status, 429, "a request without a call takes a session too");
    // Nothing is heard for a key without a place: the recording is wrong, and its consent is unknown.
    let speech = json!({"input": "hi", "ref_audio": "AAAA", "consent": "cons_none"});
    let speech = post(&server, ONE, "/v1/audio/speech", &speech).await;
    assert_eq!((speech.status, &*speech.code()), (429, "call_limit_reached"));
    let others = [call(&server, TWO).await, call(&server, TWO).await];
    assert_metric(&server, "repartee_key_sessions{key=\"one\"} 2").await;
    assert_metric(&server, "repartee_key_refused_total{key=\"one\",limit=\"calls_per_key\"} 3").await;
    assert_metric(&server, "repartee_key_refused_total{key=\"two\",limit=\"calls_per_key\"} 0").await;
    // A single key may use all.
    drop((held, others));
    server.sessions(0).await;
    let mut config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    config.api_keys = KeySet::parse(&format!("one {ONE}")).unwrap();
    server.reloader.reload(&config).unwrap();
    let all = [call(&server, ONE).await, call(&server, ONE).await, call(&server, ONE).await, call(&server, ONE).await];
    drop(all);
}

#[tokio::test]
async fn a_key_without_tokens_waits() {
    let limits = LimitConfig { prefill_tokens_per_minute: 100, ..LimitConfig::default() };
    let server = server(Script { rows_at_open: 60, ..Script::default() }, limits).await;
    let mut client = call(&server, ONE).await;
    let events = client.ask("hello").await;
    let limits = find(&events, "rate_limits.updated")["rate_limits"].clone();
    assert_eq!((&limits[0]["name"], &limits[0]["limit"]), (&json!("tokens"), &json!(100)));
    let remaining = limits[0]["remaining"].as_u64().unwrap();
    assert!((40..50).contains(&remaining) && limits[0]["reset_seconds"].as_f64().unwrap() > 20.0, "{limits}");
    // The second session uses up the tokens of a minute.
    let _second = call(&server, ONE).await;
    for event in [
        json!({"type": "response.create"}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
            "content": [{"type": "input_text", "text": "hello"}]}}),
    ] {
        client.send(event).await;
        let error = client.error("rate_limit_exceeded").await;
        assert_eq!(error["param"], "prefill_tokens_per_minute");
        assert!(error["message"].as_str().unwrap().contains("limits.prefill_tokens_per_minute"), "{error}");
    }
    client.speak(&silence(100), 480).await;
    assert_eq!(client.error("rate_limit_exceeded").await["param"], "prefill_tokens_per_minute");
    let (status, code, limit, retry) = refusal(&server, ONE).await;
    assert_eq!((status, &*code, &*limit), (429, "rate_limit_exceeded", "prefill_tokens_per_minute"));
    assert!((1..=60).contains(&retry), "{retry}");
    // The other key has its own.
    let answered = call(&server, TWO).await.ask("hello").await;
    assert_eq!(find(&answered, "response.done")["response"]["status"], "completed");
    assert_metric(&server, "repartee_key_prefill_tokens_total{key=\"one\"} 120").await;
}

#[tokio::test]
async fn sound_of_a_key_is_limited() {
    let limits = LimitConfig { sound_s_per_minute: 2, ..LimitConfig::default() };
    let server = server(Script::default(), limits).await;
    let mut client = call(&server, ONE).await;
    client.update(json!({"audio": {"input": {"turn_detection": null}}})).await;
    // What is sent at once is taken whole, and paid afterwards.
    client.speak(&silence(3_000), 72_000).await;
    client.speak(&silence(100), 480).await;
    let error = client.error("rate_limit_exceeded").await;
    assert_eq!(error["param"], "sound_s_per_minute");
    // What was taken stays, and other events are served.
    client.send(json!({"type": "input_audio_buffer.commit"})).await;
    client.expect("input_audio_buffer.committed").await;
    assert_metric(&server, "repartee_key_sound_seconds_total{key=\"one\"} 3").await;
}

#[tokio::test]
async fn keys_share_ephemeral_keys_by_halves() {
    let limits = LimitConfig { ephemeral_keys: 4, ..LimitConfig::default() };
    let server = server(Script::default(), limits).await;
    let secret = async |key| post(&server, key, "/v1/realtime/client_secrets", &json!({})).await;
    for _ in 0..2 {
        assert_eq!(secret(ONE).await.status, 200);
    }
    let reply = secret(ONE).await;
    assert_eq!((reply.status, &*reply.code()), (429, "client_secret_limit_reached"));
    assert_eq!(reply.json()["error"]["param"], "ephemeral_keys");
    assert!(reply.header("retry-after").is_some());
    assert_eq!(secret(TWO).await.status, 200);
    assert_metric(&server, "repartee_key_ephemeral_keys{key=\"one\"} 2").await;
}
