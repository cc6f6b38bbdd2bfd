//! `GET /v1/usage`, and the file of the ledger.

use repartee::auth::KeySet;
use repartee::config::{Config, HealthConfig};
use repartee::server::Server;
use repartee_engine_api::SpeechEngine;
use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::{PATIENCE, Running, find};
use repartee_testkit::scripted::{FRAME_SAMPLES, OUTPUT_RATE, Script, ScriptedEngine};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio::time::timeout;

const ONE: &str = "the-key-of-the-first-house";
const TWO: &str = "the-key-of-the-second-house";
const PATH: &str = "/v1/usage";

fn bearer(key: &str) -> String {
    format!("Bearer {key}")
}

fn two_keys(config: &mut Config) {
    config.api_keys = KeySet::parse(&format!("one {ONE}\ntwo {TWO}")).unwrap();
}

async fn get(server: &Running, path: &str, key: &str) -> Reply {
    send(server.address, "GET", path, &[("authorization", &bearer(key))], b"").await
}

/// The results of all buckets.
fn results(reply: &Reply) -> Vec<Value> {
    let page = reply.json();
    let buckets = page["data"].as_array().unwrap();
    buckets.iter().flat_map(|bucket| bucket["results"].as_array().unwrap().clone()).collect()
}

#[tokio::test]
async fn usage_is_that_of_the_responses() {
    let server = Running::start_with(Script::default(), two_keys).await;
    let mut call = server.dial_with(&[("authorization", &bearer(ONE))]).await.unwrap();
    let events = call.ask("hello").await;
    let told = &find(&events, "response.done")["response"]["usage"];
    let asked = json!({"model": "any", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let headers = [("authorization", &*bearer(TWO)), ("content-type", "application/json")];
    let answer = send(server.address, "POST", "/v1/chat/completions", &headers, asked.as_bytes()).await.json();

    let of_one = results(&get(&server, PATH, ONE).await);
    assert_eq!(of_one.len(), 1, "{of_one:?}");
    let frames = told["output_token_details"]["audio_tokens"].as_u64().unwrap();
    let expected = json!({
        "object": "organization.usage.completions.result",
        "api_key_id": "one",
        "model": SpeechEngine::info(&*server.engine).name,
        "num_model_requests": 1,
        "input_tokens": told["input_tokens"],
        "input_cached_tokens": told["input_token_details"]["cached_tokens"],
        "input_audio_tokens": told["input_token_details"]["audio_tokens"],
        "output_tokens": told["output_tokens"],
        "output_audio_tokens": frames,
        "input_audio_seconds": 0.0,
        "output_audio_seconds": frames as f64 * FRAME_SAMPLES as f64 / f64::from(OUTPUT_RATE),
    });
    assert!(frames > 0 && of_one[0] == expected, "{} is not {expected}", of_one[0]);
    let of_two = results(&get(&server, PATH, TWO).await);
    assert_eq!(of_two.len(), 1, "{of_two:?}");
    for (field, of_answer) in [("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens")] {
        assert_eq!(of_two[0][field], answer["usage"][of_answer], "{field}");
    }
    let metrics = get(&server, "/metrics", ONE).await.body;
    let line = format!("repartee_key_output_tokens_total{{key=\"one\",kind=\"audio\"}} {frames}");
    assert!(metrics.contains(&line), "{line} is missing in {metrics}");
}

#[tokio::test]
async fn bad_times_are_refused_by_name() {
    let server = Running::start_with(Script::default(), two_keys).await;
    for (query, name) in [
        ("start_time=soon", "start_time"),
        ("start_time=-1", "start_time"),
        ("start_time=200000&end_time=100000", "end_time"),
        ("bucket_width=1h", "bucket_width"),
    ] {
        let reply = get(&server, &format!("{PATH}?{query}"), ONE).await;
        assert_eq!((reply.status, &*reply.code()), (400, "invalid_value"), "{query}: {reply:?}");
        assert!(reply.body.contains(name), "{query}: {}", reply.body);
    }
    for query in ["start_time=0", "end_time=99999999999999", "start_time=18446744073709551615", "bucket_width=1d"] {
        let reply = get(&server, &format!("{PATH}?{query}"), ONE).await;
        assert_eq!((reply.status, results(&reply)), (200, vec![]), "{query}");
    }
    let headers = [("authorization", &*bearer(ONE)), ("content-type", "application/json")];
    let secret = send(server.address, "POST", "/v1/realtime/client_secrets", &headers, b"{}").await.json();
    let page = get(&server, PATH, secret["value"].as_str().unwrap()).await;
    assert_eq!(page.status, 403, "an ephemeral key reads no usage: {page:?}");
}

/// Serves with this file; the first key asks once for an answer. Returns the usage of all keys on the health listener.
async fn asked_once(file: &std::path::Path) -> Vec<Value> {
    let mut config = Config {
        listen: ([127, 0, 0, 1], 0).into(),
        health: HealthConfig { listen: Some(([127, 0, 0, 1], 0).into()) },
        ..Config::default()
    };
    config.usage.file = Some(file.to_owned());
    two_keys(&mut config);
    let server = Server::bind(config, ScriptedEngine::new(Script::default())).await.unwrap();
    let (address, health, mut ready) = (server.local_addr(), server.health_addr().unwrap(), server.ready());
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    ready.wait_for(|ready| *ready).await.unwrap();
    let asked = json!({"model": "any", "messages": [{"role": "user", "content": "hello"}]}).to_string();
    let headers = [("authorization", &*bearer(ONE)), ("content-type", "application/json")];
    let answer = send(address, "POST", "/v1/chat/completions", &headers, asked.as_bytes()).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let all = send(health, "GET", PATH, &[("authorization", &bearer(TWO))], b"").await;
    assert_eq!(send(health, "GET", PATH, &[], b"").await.status, 401, "it needs a key there too");
    stop.send(()).unwrap();
    timeout(PATIENCE, running).await.expect("the server ends").unwrap().unwrap();
    results(&all)
}

#[tokio::test]
async fn usage_is_kept_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("usage.json");
    for requests in 1..=2 {
        let rows = asked_once(&file).await;
        // At midnight the second run may begin another day; then the sum is in two rows.
        let sum: u64 = rows.iter().filter_map(|row| row["num_model_requests"].as_u64()).sum();
        assert_eq!((sum, &rows[0]["api_key_id"]), (requests, &json!("one")), "{rows:?}");
    }
    std::fs::write(&file, "not json").unwrap();
    let mut config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    config.usage.file = Some(file);
    let refused = Server::bind(config, ScriptedEngine::new(Script::default())).await.err();
    let error = refused.expect("the file cannot be read").to_string();
    assert!(error.contains("usage.file") && error.contains("move it away"), "{error}");
}

/// Requests for usage in a page of docs: port and path of each `curl`, which sends an API key.
fn documented(page: &str) -> Vec<(u16, String)> {
    let page = std::fs::read_to_string(format!("{}/../docs/{page}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let commands = page.lines().filter_map(|line| line.trim().strip_prefix("curl ").filter(|rest| rest.contains(PATH)));
    commands
        .map(|command| {
            let (url, header) = command.split_once(" -H ").unwrap();
            assert_eq!(header, "\"Authorization: Bearer $KEY\"", "{command}");
            let (port, path) =
                url.trim_matches('"').strip_prefix("http://127.0.0.1:").unwrap().split_once('/').unwrap();
            (port.parse().unwrap(), format!("/{path}"))
        })
        .collect()
}

#[tokio::test]
async fn commands_of_the_pages_return_usage() {
    let server = Running::start_with(Script::default(), |config| {
        two_keys(config);
        config.health.listen = Some(([127, 0, 0, 1], 0).into());
    })
    .await;
    for key in [ONE, TWO] {
        let mut call = server.dial_with(&[("authorization", &bearer(key))]).await.unwrap();
        find(&call.ask("hello").await, "response.done");
    }
    // The health listener of the pages has port 9090.
    for (page, port, keys) in [("serving.md", 8080, vec!["one"]), ("telephone.md", 9090, vec!["one", "two"])] {
        let commands = documented(page);
        assert_eq!(commands.len(), 1, "{page}: {commands:?}");
        let (named, path) = &commands[0];
        assert_eq!(*named, port, "{page}");
        let address = if port == 9090 { server.health.unwrap() } else { server.address };
        let reply = send(address, "GET", path, &[("authorization", &bearer(ONE))], b"").await;
        assert_eq!(reply.status, 200, "{page}: {reply:?}");
        let results = results(&reply);
        let mut named: Vec<_> = results.iter().map(|result| result["api_key_id"].as_str().unwrap()).collect();
        named.sort_unstable();
        assert_eq!(named, keys, "{page}");
    }
}
