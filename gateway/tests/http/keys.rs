//! Access control: keys, ephemeral keys, pages of other sites.

use repartee::auth::KeySet;
use repartee::config::Config;
use repartee::transport::webrtc::{WebRtcSettings, offer};
use repartee_engine_api::Command;
use repartee_testkit::scripted::Script;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{Running, find};

const KEY: &str = "the-key-of-the-house";

fn keyed(config: &mut Config) {
    config.api_keys = KeySet::parse(KEY).unwrap();
}

async fn guarded() -> Running {
    Running::start_with(Script::default(), keyed).await
}

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

async fn get(server: &Running, path: &str, key: Option<&str>) -> Reply {
    let authorization = key.map(bearer);
    let headers: Vec<_> = authorization.iter().map(|value| ("authorization", value.as_str())).collect();
    send(server.address, "GET", path, &headers, b"").await
}

/// Requests an ephemeral key.
async fn client_secret(server: &Running, key: &str, body: &Value) -> Reply {
    let headers = [("authorization", &*bearer(key)), ("content-type", "application/json")];
    send(server.address, "POST", "/v1/realtime/client_secrets", &headers, body.to_string().as_bytes()).await
}

/// Status and error code of a refused websocket.
fn refusal<T>(dialled: Result<T, Error>) -> (u16, String) {
    let Err(Error::Http(response)) = dialled else { panic!("it is refused") };
    let body: Value = serde_json::from_slice(response.body().as_ref().unwrap()).unwrap();
    (response.status().as_u16(), body["error"]["code"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn every_route_needs_the_key() {
    let server = guarded().await;
    for path in ["/v1/models", "/metrics", "/v1/realtime"] {
        let reply = get(&server, path, None).await;
        assert_eq!((reply.status, &*reply.code()), (401, "missing_api_key"), "{path}");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
        let reply = get(&server, path, Some("some-other-key-of-length")).await;
        assert_eq!((reply.status, &*reply.code()), (401, "invalid_api_key"), "{path}");
        assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
        assert!(!reply.body.contains("some-other-key"));
    }
    assert_eq!(refusal(server.dial().await), (401, "missing_api_key".into()));
    assert_eq!(send(server.address, "POST", "/v1/realtime/calls", &[], b"v=0").await.status, 401);
    let in_the_url = format!("/v1/models?api_key={KEY}");
    assert_eq!(get(&server, &in_the_url, None).await.status, 401, "a URL ends up in logs");
    server.sessions(0).await;
    // The page and the health checks need no key.
    for path in ["/", "/model.json", "/healthz", "/readyz"] {
        assert_eq!(get(&server, path, None).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn keys_come_as_header_or_subprotocol() {
    let server = guarded().await;
    assert_eq!(get(&server, "/v1/models", Some(KEY)).await.status, 200);
    assert_eq!(get(&server, "/metrics", Some(KEY)).await.status, 200);
    let mut client = server.dial_with(&[("authorization", &bearer(KEY))]).await.unwrap();
    client.expect("session.created").await;
    let protocols = format!("realtime, openai-insecure-api-key.{KEY}");
    let mut client = server.dial_with(&[("sec-websocket-protocol", &protocols)]).await.unwrap();
    client.expect("session.created").await;
    let wrong = "realtime, openai-insecure-api-key.something-else-of-length";
    assert_eq!(refusal(server.dial_with(&[("sec-websocket-protocol", wrong)]).await).0, 401);
}

#[tokio::test]
async fn keys_are_replaced_during_calls() {
    let server = guarded().await;
    let mut call = server.dial_with(&[("authorization", &bearer(KEY))]).await.unwrap();
    call.expect("session.created").await;
    let mut config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    let refused = server.reloader.reload(&config).unwrap_err();
    assert!(refused.to_string().contains("restart it"), "{refused}");
    assert_eq!(get(&server, "/v1/models", Some(KEY)).await.status, 200);
    let secret = client_secret(&server, KEY, &json!({})).await.json()["value"].as_str().unwrap().to_owned();
    let servers = "/v1/realtime/ice_servers";
    assert_eq!(get(&server, servers, Some(&secret)).await.status, 200);
    config.api_keys = KeySet::parse("another-key-of-the-house").unwrap();
    server.reloader.reload(&config).unwrap();
    assert_eq!(get(&server, servers, Some(&secret)).await.status, 401, "its ephemeral keys end with a key");
    assert_eq!(get(&server, "/v1/models", Some(KEY)).await.status, 401);
    assert_eq!(get(&server, "/v1/models", Some("another-key-of-the-house")).await.status, 200);
    let events = call.ask("still there?").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

#[tokio::test]
async fn metrics_can_be_left_open() {
    let server = Running::start_with(Script::default(), |config| {
        keyed(config);
        config.keys.metrics = false;
    })
    .await;
    assert_eq!(get(&server, "/metrics", None).await.status, 200);
    assert_eq!(get(&server, "/v1/models", None).await.status, 401);
    // A web page could make its own name resolve to this machine; it has no key.
    let rebound = [("host", "evil.example:8080"), ("authorization", &*bearer(KEY))];
    let reply = send(server.address, "GET", "/metrics", &rebound[..1], b"").await;
    assert_eq!((reply.status, &*reply.code()), (403, "host_not_allowed"));
    assert_eq!(send(server.address, "GET", "/metrics", &rebound, b"").await.status, 200);
}

#[tokio::test]
async fn wrong_keys_are_slowed_by_address() {
    let server = Running::start_with(Script::default(), |config| {
        keyed(config);
        config.limits.wrong_keys_per_minute = 2;
    })
    .await;
    for _ in 0..2 {
        assert_eq!(get(&server, "/v1/models", Some("some-other-key-of-length")).await.status, 401);
    }
    for wrong in ["one-more-key-of-some-length", "ek_of_another_server"] {
        let reply = get(&server, "/v1/models", Some(wrong)).await;
        assert_eq!((reply.status, &*reply.code()), (429, "rate_limit_exceeded"), "{wrong}");
        let wait: u64 = reply.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=30).contains(&wait) && reply.body.contains("limits.wrong_keys_per_minute"), "{reply:?}");
    }
    // Others at this address, and other addresses, are not refused.
    assert_eq!(get(&server, "/v1/models", Some(KEY)).await.status, 200);
    let phone = [("x-forwarded-for", "203.0.113.7"), ("authorization", "Bearer some-other-key-of-length")];
    assert_eq!(send(server.address, "GET", "/v1/models", &phone, b"").await.status, 401);
    let metrics = get(&server, "/metrics", Some(KEY)).await.body;
    assert!(metrics.contains("repartee_refused_total{reason=\"wrong_keys\"} 2"), "{metrics}");
}

#[tokio::test]
async fn an_ephemeral_key_opens_transcription_sessions() {
    let script = Script { has_transcription: true, ..Script::default() };
    let server = Running::start_with(script, keyed).await;
    let wanted =
        json!({"session": {"type": "transcription", "audio": {"input": {"transcription": {"language": "en"}}}}});
    let secret = client_secret(&server, KEY, &wanted).await.json();
    assert_eq!(secret["session"]["object"], "realtime.transcription_session");
    let protocols = format!("realtime, openai-insecure-api-key.{}", secret["value"].as_str().unwrap());
    let mut client = server.dial_with(&[("sec-websocket-protocol", &protocols)]).await.unwrap();
    let created = client.expect("session.created").await;
    assert_eq!(created["session"]["type"], "transcription");
    assert_eq!(created["session"]["audio"]["input"]["transcription"]["language"], "en");
    client.send(json!({"type": "response.create"})).await;
    client.error("not_in_transcription_session").await;
    // A model that cannot transcribe has no such keys.
    let unable = guarded().await;
    let reply = client_secret(&unable, KEY, &wanted).await;
    assert_eq!((reply.status, &*reply.code()), (400, "transcription_not_available"));
}

#[tokio::test]
async fn an_ephemeral_key_opens_configured_calls_alone() {
    let server = guarded().await;
    let session = json!({
        "type": "realtime", "instructions": "Answer like a pirate.", "audio": {"output": {"voice": "bob"}},
    });
    let wanted = json!({"expires_after": {"anchor": "created_at", "seconds": 60}, "session": session});
    let reply = client_secret(&server, KEY, &wanted).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    let secret = reply.json();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    assert!((now + 50..=now + 60).contains(&secret["expires_at"].as_u64().unwrap()));
    assert_eq!(secret["session"]["instructions"], session["instructions"]);
    assert_eq!(secret["session"]["type"], "realtime");
    let ephemeral = secret["value"].as_str().unwrap();
    assert!(ephemeral.starts_with("ek_"));

    let protocols = format!("realtime, openai-insecure-api-key.{ephemeral}");
    let mut client = server.dial_with(&[("sec-websocket-protocol", &protocols)]).await.unwrap();
    let created = client.expect("session.created").await;
    assert_eq!(created["session"]["instructions"], session["instructions"]);
    assert_eq!(created["session"]["audio"]["output"]["voice"], "bob");
    client.ask("hello").await;
    let told = server.engine.commands();
    assert_eq!(told[0], Command::SetInstructions("Answer like a pirate.".into()));

    let authorization = bearer(ephemeral);
    let headers = [("authorization", &*authorization)];
    assert_eq!(send(server.address, "GET", "/v1/realtime/ice_servers", &headers, b"").await.status, 200);
    let hang_up = send(server.address, "POST", "/v1/realtime/calls/rtc_nobody/hangup", &headers, b"").await;
    assert_eq!((hang_up.status, &*hang_up.code()), (404, "call_not_found"));
    let offer = send(server.address, "POST", "/v1/realtime/calls", &headers, b"").await;
    assert_eq!(offer.status, 415, "{offer:?}");

    for (method, path) in [
        ("GET", "/v1/models"),
        ("GET", "/metrics"),
        ("POST", "/v1/realtime/client_secrets"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/audio/voices"),
        ("DELETE", "/v1/audio/voices/voice_any"),
        ("GET", "/v1/audio/voice_consents"),
    ] {
        let reply = send(server.address, method, path, &[("authorization", &bearer(ephemeral))], b"").await;
        assert_eq!((reply.status, &*reply.code()), (403, "insufficient_permissions"), "{path}");
    }
}

#[tokio::test]
async fn ephemeral_calls_count_for_the_issuing_key() {
    let server = Running::start_with(Script::default(), |config| {
        keyed(config);
        config.limits.calls_per_key = 1;
    })
    .await;
    let reply = client_secret(&server, KEY, &json!({})).await;
    let ephemeral = reply.json()["value"].as_str().unwrap().to_owned();
    let call = server.dial_with(&[("authorization", &bearer(&ephemeral))]).await.unwrap();
    for key in [KEY, &ephemeral] {
        let refused = refusal(server.dial_with(&[("authorization", &bearer(key))]).await);
        assert_eq!(refused, (429, "call_limit_reached".into()));
    }
    drop(call);
    server.sessions(0).await;
    server.dial_with(&[("authorization", &bearer(KEY))]).await.unwrap();
}

#[tokio::test]
async fn a_forged_ephemeral_key_is_always_refused() {
    let server = Running::start(Script::default()).await;
    let reply = client_secret(&server, "anything", &json!({})).await;
    let value = reply.json()["value"].as_str().unwrap().to_owned();
    let (known, random) = value.rsplit_once('_').unwrap();
    let forged = format!("{known}_{}", "0".repeat(random.len()));
    let refused = refusal(server.dial_with(&[("authorization", &bearer(&forged))]).await);
    assert_eq!(refused, (401, "expired_api_key".into()));
    // An ephemeral key of another server is ignored here, where no keys are set.
    server.dial_with(&[("authorization", &bearer("ek_of_another_server"))]).await.unwrap();
    server.dial_with(&[("authorization", &bearer(&value))]).await.unwrap();
}

#[tokio::test]
async fn a_bad_client_secret_is_refused_by_field() {
    let server = guarded().await;
    // A model that cannot transcribe.
    for (body, param) in [
        (json!({"expires_after": {"seconds": 9}}), "expires_after.seconds"),
        (json!({"expires_after": {"seconds": 7201}}), "expires_after.seconds"),
        (json!({"expires_after": {"seconds": "long"}}), "expires_after.seconds"),
        (json!({"expires_after": {"anchor": "now"}}), "expires_after.anchor"),
        (json!({"session": {"type": "transcription"}}), "session.type"),
        (json!({"session": {"type": "dictation"}}), "session.type"),
        (json!({"session": 3}), "session"),
        (
            json!({"session": {"audio": {"input": {"turn_detection": {"type": "server_vad", "threshold": 2}}}}}),
            "session.audio.input.turn_detection.threshold",
        ),
    ] {
        let reply = client_secret(&server, KEY, &body).await;
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
    let large = json!({"session": {"instructions": "x".repeat(2 << 20)}});
    assert_eq!(client_secret(&server, KEY, &large).await.status, 413);
    assert_eq!(client_secret(&server, KEY, &json!({})).await.status, 200);
}

#[tokio::test]
async fn models_are_listed_or_named_as_missing() {
    let server = Running::start(Script::default()).await;
    let list = get(&server, "/v1/models", None).await.json();
    assert_eq!((&list["object"], &list["data"][0]["id"]), (&json!("list"), &json!("scripted")));
    let model = get(&server, "/v1/models/scripted", None).await.json();
    assert_eq!(model, list["data"][0]);
    assert_eq!(
        model["repartee"],
        json!({"voices": ["ada", "bob"], "default_voice": "ada", "input_rate": 16_000, "output_rate": 24_000,
            "frame_ms": 80, "context_tokens": 4_096, "hears": true, "live_transcription": false, "answers": true,
            "audio_output": true, "tools": true,
            "tool_choice": ["auto", "none"], "response_format": ["text"], "transcription": false,
            "translation": false, "word_times": false, "speech": true, "speech_only": false, "cloning": false, "images": false})
    );
    let posted = send(server.address, "POST", "/v1/models", &[], b"").await;
    assert_eq!((posted.status, &*posted.code()), (405, "method_not_allowed"));
    let missing = get(&server, "/v1/models/gpt-realtime", None).await;
    assert_eq!((missing.status, &*missing.code()), (404, "model_not_found"));
}

const CALLS: &str = "/v1/realtime/calls";

/// Sends a browser's preflight request for a post from a page of `origin` with these headers.
async fn preflight(server: &Running, path: &str, origin: &str) -> Reply {
    let headers = [
        ("origin", origin),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization,content-type,x-openai-agents-sdk"),
    ];
    send(server.address, "OPTIONS", path, &headers, b"").await
}

#[tokio::test]
async fn listed_and_loopback_origins_may_call() {
    let server = Running::start_with(Script::default(), |config| {
        keyed(config);
        config.browser.origins = vec!["https://app.example".into()];
    })
    .await;
    for origin in ["https://app.example", "http://localhost:3000"] {
        for path in [CALLS, "/v1/realtime/client_secrets"] {
            let reply = preflight(&server, path, origin).await;
            assert_eq!(reply.status, 204, "{reply:?}");
            assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
            assert!(reply.header("access-control-allow-headers").unwrap().contains("x-openai-agents-sdk"));
            let methods = reply.header("access-control-allow-methods").unwrap();
            assert!(["GET", "POST", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");
        }
        // A page can read the reason of a refusal, too.
        let reply = send(server.address, "POST", CALLS, &[("origin", origin)], b"").await;
        assert_eq!(reply.status, 401);
        assert_eq!(reply.header("access-control-allow-origin"), Some(origin));
        let exposed = reply.header("access-control-expose-headers").unwrap().to_ascii_lowercase();
        let readable = ["location", "retry-after", "www-authenticate", "repartee-warnings"];
        assert!(readable.iter().all(|name| exposed.split(", ").any(|exposed| exposed == *name)), "{exposed}");
        assert_eq!(reply.header("vary"), Some("Origin"));
        // It may delete: what is missing here is the voice, not the right to.
        let headers = [("origin", origin), ("authorization", &*bearer(KEY))];
        let reply = send(server.address, "DELETE", "/v1/audio/voices/voice_none", &headers, b"").await;
        assert_eq!((reply.status, reply.header("access-control-allow-origin")), (404, Some(origin)), "{reply:?}");
    }
}

#[tokio::test]
async fn other_origins_may_not_call() {
    let server = Running::start(Script::default()).await;
    for path in [CALLS, "/v1/realtime/client_secrets", "/v1/models"] {
        let reply = preflight(&server, path, "https://evil.example").await;
        assert_eq!((reply.status, &*reply.code()), (403, "origin_not_allowed"));
        assert_eq!(reply.header("access-control-allow-origin"), None);
    }
    let refused = refusal(server.dial_with(&[("origin", "https://evil.example")]).await);
    assert_eq!(refused, (403, "origin_not_allowed".into()));
    // DNS rebinding: a foreign name that resolves to this machine.
    let rebound = [("origin", "http://evil.example:80"), ("host", "evil.example:80")];
    assert_eq!(send(server.address, "GET", "/v1/models", &rebound, b"").await.status, 403);
    server.sessions(0).await;
}

#[tokio::test]
async fn the_servers_own_origin_may_call() {
    let server = Running::start(Script::default()).await;
    let own = format!("http://{}", server.address);
    let mut client = server.dial_with(&[("origin", &own)]).await.unwrap();
    client.expect("session.created").await;
    let events = client.ask("hello").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

/// Attaches to a call; returns 101, or the status of the refusal.
async fn attach(server: &Running, id: &str, key: &str) -> u16 {
    let mut request = format!("ws://{}/v1/realtime?call_id={id}", server.address).into_client_request().unwrap();
    request.headers_mut().insert("authorization", bearer(key).parse().unwrap());
    match tokio_tungstenite::connect_async(request).await {
        Ok((_, response)) => response.status().as_u16(),
        Err(Error::Http(refused)) => refused.status().as_u16(),
        Err(error) => panic!("{error}"),
    }
}

async fn hang_up(server: &Running, id: &str, key: &str) -> u16 {
    let path = format!("{CALLS}/{id}/hangup");
    send(server.address, "POST", &path, &[("authorization", &*bearer(key))], b"").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_belong_to_the_key_that_made_them() {
    const OTHER: &str = "the-key-of-the-neighbour";
    let server = Running::start_with(Script::default(), |config| {
        config.api_keys = KeySet::parse(&format!("{KEY}\n{OTHER}")).unwrap();
    })
    .await;
    let ephemeral = async || {
        let reply = client_secret(&server, KEY, &json!({})).await;
        reply.json()["value"].as_str().unwrap().to_owned()
    };
    let (page, another_page) = (ephemeral().await, ephemeral().await);
    let call = async |key: &str| {
        let (sdp, dialing) = offer(&WebRtcSettings::default()).await.unwrap();
        let headers = [("authorization", &*bearer(key)), ("content-type", "application/sdp")];
        let reply = send(server.address, "POST", CALLS, &headers, sdp.as_bytes()).await;
        assert_eq!(reply.status, 201, "{reply:?}");
        (reply.header("location").unwrap().rsplit('/').next().unwrap().to_owned(), dialing)
    };
    let (of_key, _dialing) = call(KEY).await;
    let (of_page, _dialing) = call(&page).await;
    for (id, key, status) in [
        (&of_key, KEY, 101),
        (&of_key, OTHER, 404),
        (&of_key, &*page, 404),
        (&of_page, &*page, 101),
        (&of_page, KEY, 101),
        (&of_page, OTHER, 404),
        (&of_page, &*another_page, 404),
    ] {
        assert_eq!(attach(&server, id, key).await, status, "{key} at {id}");
    }
    // The list has the calls that its reader may hang up.
    for (key, calls) in
        [(KEY, vec![&of_key, &of_page]), (&*page, vec![&of_page]), (OTHER, vec![]), (&another_page, vec![])]
    {
        let listed = get(&server, CALLS, Some(key)).await.json();
        let ids: Vec<&Value> = listed["data"].as_array().unwrap().iter().map(|call| &call["id"]).collect();
        assert_eq!(ids, calls, "{key}");
    }
    // A stranger cannot tell a running call from one that has ended or never existed.
    for (id, key, status) in
        [(&of_key, OTHER, 404), (&of_page, &*another_page, 404), (&of_page, &*page, 200), (&of_key, KEY, 200)]
    {
        assert_eq!(hang_up(&server, id, key).await, status, "{key} at {id}");
    }
    server.sessions(0).await;
    assert_eq!((hang_up(&server, &of_key, KEY).await, hang_up(&server, &of_key, OTHER).await), (200, 404));
}
