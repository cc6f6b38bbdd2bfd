//! Accounts of telephone calls on a server with keys: their usage, and its metrics.

use repartee::auth::KeySet;
use repartee::config::{HealthConfig, Secret, SipAddress};
use repartee_gateway_testkit::{Running, find, http};
use repartee_testkit::scripted::{FRAME_SAMPLES, OUTPUT_RATE, Script};
use serde_json::{Value, json};

use super::calls_out::{Trunk, call, to};
use super::telephone::{Law, Telephone, serve_with};
use crate::telephone::{PATH, Provider, sign};

const KEY: &str = "the-key-of-the-house-with-telephones";
const TOKEN: &str = "token of the account";
/// Codec frames of an answer.
const FRAMES: u64 = 10;

async fn get(address: std::net::SocketAddr, path: &str) -> http::Reply {
    let bearer = format!("Bearer {KEY}");
    http::send(address, "GET", path, &[("authorization", &*bearer)], b"").await
}

/// Requests, codec frames and seconds of answers by the name of the key.
fn rows(usage: &http::Reply) -> Vec<(String, u64, u64, f64)> {
    let page = usage.json();
    let results = page["data"].as_array().unwrap().iter().flat_map(|bucket| bucket["results"].as_array().unwrap());
    let row = |row: &Value| {
        let count = |field: &str| row[field].as_u64().unwrap();
        let seconds = row["output_audio_seconds"].as_f64().unwrap();
        let key = row["api_key_id"].as_str().unwrap().to_owned();
        (key, count("num_model_requests"), count("output_audio_tokens"), seconds)
    };
    results.map(row).collect()
}

async fn serve(trunk: &Trunk) -> Running {
    let trunk = SipAddress::udp(trunk.signalling.local_addr().unwrap());
    serve_with(Script { frames: FRAMES, ..Script::default() }, |config| {
        config.api_keys = KeySet::parse(&format!("house {KEY}")).unwrap();
        config.health = HealthConfig { listen: Some(([127, 0, 0, 1], 0).into()) };
        config.telephony.secret = Some(Secret::new(TOKEN));
        config.telephony.greeting = Some("Greet the caller.".to_owned());
        config.sip.trunk = Some(trunk);
        config.sip.destinations = vec!["+49".to_owned()];
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn telephone_calls_have_their_accounts() {
    let trunk = Trunk::new().await;
    let server = serve(&trunk).await;
    // A call of the peer, who needs no key, and one of the provider, whose signature is its key. Both hear the greeting.
    let mut phone = Telephone::call(&server, "peer", Law::Mu).await;
    phone.hear(500).await;
    phone.request("BYE").await;
    phone.final_response().await;
    let signature = sign(TOKEN, &format!("wss://{}{PATH}", server.address));
    let mut stream = Provider::call_with(&server, &[("x-twilio-signature", &signature)], json!({})).await;
    stream.listen(80 * FRAMES as usize).await;
    drop(stream);
    server.sessions(0).await;
    // A call out is its key's.
    let (asked, invite) = tokio::join!(call(server.address, KEY, to("+4930")), async {
        let invite = trunk.request("INVITE").await;
        trunk.answer(&invite).await;
        invite
    });
    assert!(invite.0.contains("\r\nm=audio "), "{}", invite.0);
    let id = asked.json()["id"].as_str().unwrap().to_owned();
    let bearer = format!("Bearer {KEY}");
    let mut controller = server.attach_with(&id, &[("authorization", &*bearer)]).await.unwrap();
    controller.expect("session.created").await;
    controller.send(json!({"type": "response.create"})).await;
    let events = controller.until("output_audio_buffer.stopped").await;
    let told = &find(&events, "response.done")["response"]["usage"]["output_token_details"];
    assert_eq!(told["audio_tokens"], FRAMES);

    let seconds = FRAMES as f64 * FRAME_SAMPLES as f64 / f64::from(OUTPUT_RATE);
    let row = |key: &str, calls: u64| (key.to_owned(), calls, calls * FRAMES, calls as f64 * seconds);
    // The operator sees all accounts, and a key its own.
    let all = get(server.health.unwrap(), "/v1/usage").await;
    assert_eq!(rows(&all), [row("house", 1), row("none", 2)]);
    assert_eq!(rows(&get(server.address, "/v1/usage").await), [row("house", 1)]);
    let metrics = get(server.address, "/metrics").await.body;
    for (key, calls, frames, _) in [row("house", 1), row("none", 2)] {
        for line in [
            format!("repartee_key_responses_total{{key=\"{key}\"}} {calls}"),
            format!("repartee_key_output_tokens_total{{key=\"{key}\",kind=\"audio\"}} {frames}"),
        ] {
            assert!(metrics.contains(&line), "{line} is missing in {metrics}");
        }
    }
}
