//! Control of calls by a program of the operator: the webhook, accept, reject, refer, hang up.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee::config::Secret;
use repartee_gateway_testkit::{PATIENCE, Running};
use repartee_testkit::scripted::Script;
use ring::hmac;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

use super::calls::{call_id, sideband};
use super::telephone::{Law, Telephone, serve, serve_with};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// Program of an operator.
struct Program {
    listener: TcpListener,
}

impl Program {
    async fn new() -> Self {
        Self { listener: TcpListener::bind("127.0.0.1:0").await.unwrap() }
    }

    /// Server whose calls this program decides on.
    async fn serve(&self, decide_within: Duration) -> Running {
        let url = format!("http://{}/incoming?of=calls", self.listener.local_addr().unwrap());
        serve_with(Script::default(), |config| {
            config.sip.webhook = Some(url);
            config.sip.webhook_secret = Some(Secret::new(SECRET));
            config.sip.decide_within = decide_within;
        })
        .await
    }

    /// Takes the next webhook, and answers with this status.
    async fn webhook(&self, status: u16) -> (String, Value) {
        let (mut socket, _) = timeout(PATIENCE, self.listener.accept()).await.expect("no webhook").unwrap();
        let mut text = String::new();
        let mut buffer = [0; 4_096];
        let (head, body) = loop {
            let length = socket.read(&mut buffer).await.unwrap();
            text.push_str(std::str::from_utf8(&buffer[..length]).unwrap());
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length: usize = header(head, "content-length").parse().unwrap();
                if body.len() == length {
                    break (head.to_owned(), serde_json::from_str(body).unwrap());
                }
            }
            assert_ne!(length, 0, "{text}");
        };
        let signed = format!(
            "{}.{}.{}",
            header(&head, "webhook-id"),
            header(&head, "webhook-timestamp"),
            &text[head.len() + 4..]
        );
        let key = hmac::Key::new(hmac::HMAC_SHA256, &STANDARD.decode(&SECRET[6..]).unwrap());
        let expected = STANDARD.encode(hmac::sign(&key, signed.as_bytes()));
        assert_eq!(header(&head, "webhook-signature"), format!("v1,{expected}"));
        let answer = format!("HTTP/1.1 {status} So\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
        socket.write_all(answer.as_bytes()).await.unwrap();
        (head, body)
    }
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        .unwrap_or_else(|| panic!("{name}: {head}"))
}

/// Posts JSON about a call; returns the status and the response.
async fn post(server: &Running, id: &str, action: &str, body: &Value) -> (u16, String) {
    let body = body.to_string();
    let request = format!(
        "POST /v1/realtime/calls/{id}/{action} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        server.address,
        body.len()
    );
    server.request(&request).await
}

#[tokio::test(flavor = "multi_thread")]
async fn accepted_sip_call_has_the_given_session() {
    let program = Program::new().await;
    let server = program.serve(PATIENCE).await;
    let mut phone = Telephone::new(&server, "accepted", Law::Mu).await;
    phone.invite("").await;
    // The first attempt fails, and comes again.
    program.webhook(500).await;
    let (head, event) = program.webhook(200).await;
    assert!(head.starts_with("POST /incoming?of=calls HTTP/1.1\r\n"), "{head}");
    assert_eq!((&event["type"], &event["object"]), (&json!("realtime.call.incoming"), &json!("event")));
    let headers = event["data"]["sip_headers"].as_array().unwrap();
    assert!(headers.contains(&json!({"name": "From", "value": "<sip:+4930123456@127.0.0.1>;tag=a7"})), "{headers:?}");
    let id = event["data"]["call_id"].as_str().unwrap();
    server.sessions(0).await;
    let (status, refused) = post(&server, id, "accept", &json!({"type": "realtime", "instructions": 7})).await;
    assert_eq!(status, 400, "{refused}");
    let session = json!({"type": "realtime", "instructions": "Be brief."});
    assert_eq!(post(&server, id, "accept", &session).await.0, 200);
    let accepted = phone.final_response().await;
    assert!(accepted.starts_with("SIP/2.0 200 "), "{accepted}");
    phone.acknowledge(&accepted).await;
    assert_eq!(call_id(&server).await, id);
    let mut controller = server.attach(id).await.unwrap();
    assert_eq!(controller.expect("session.created").await["session"]["instructions"], "Be brief.");
    assert_eq!(post(&server, id, "accept", &session).await.0, 404, "again");
    assert_eq!(post(&server, id, "reject", &json!({})).await.0, 404, "it runs");
    assert_eq!(post(&server, id, "hangup", &json!({})).await.0, 200);
    phone.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_sip_call_gets_the_status() {
    let program = Program::new().await;
    let server = program.serve(PATIENCE).await;
    for (body, status) in [(json!({"status_code": 486}), 486), (json!({}), 603)] {
        let mut phone = Telephone::new(&server, &format!("rejected{status}"), Law::Mu).await;
        phone.invite("").await;
        let (_, event) = program.webhook(200).await;
        let id = event["data"]["call_id"].as_str().unwrap();
        assert_eq!(post(&server, id, "reject", &json!({"status_code": 200})).await.0, 400);
        assert_eq!(post(&server, id, "reject", &body).await.0, 200);
        let rejected = phone.final_response().await;
        assert!(rejected.starts_with(&format!("SIP/2.0 {status} ")), "{rejected}");
        phone.acknowledge(&rejected).await;
        assert_eq!(post(&server, id, "reject", &body).await.0, 404);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn undecided_sip_call_is_refused_in_time() {
    let program = Program::new().await;
    let server = program.serve(Duration::from_millis(100)).await;
    let mut phone = Telephone::new(&server, "undecided", Law::Mu).await;
    phone.invite("").await;
    let (_, event) = program.webhook(200).await;
    let refused = phone.final_response().await;
    assert!(refused.starts_with("SIP/2.0 480 "), "{refused}");
    phone.acknowledge(&refused).await;
    let id = event["data"]["call_id"].as_str().unwrap();
    assert_eq!(post(&server, id, "accept", &json!({"type": "realtime"})).await.0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_sip_call_cannot_be_accepted() {
    let program = Program::new().await;
    let server = program.serve(PATIENCE).await;
    let mut phone = Telephone::new(&server, "cancelled", Law::Mu).await;
    phone.invite("").await;
    let (_, event) = program.webhook(200).await;
    phone.cancel().await;
    while !phone.final_response().await.starts_with("SIP/2.0 487 ") {}
    let id = event["data"]["call_id"].as_str().unwrap();
    assert_eq!(post(&server, id, "accept", &json!({"type": "realtime"})).await.0, 404);
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transferred_sip_call_ends() {
    let server = serve(Script::default()).await;
    let mut phone = Telephone::call(&server, "transferred", Law::Mu).await;
    let _controller = sideband(&server).await;
    let id = call_id(&server).await;
    let own = format!("sip:voice@{}", server.sip.unwrap());
    for target in ["", "https://voice.example", "sip:a@b>\r\nX: y", &own, &format!("tel:{}", "1".repeat(2_000))] {
        let (status, response) = post(&server, &id, "refer", &json!({"target_uri": target})).await;
        assert_eq!(status, 400, "{target}: {response}");
    }
    assert_eq!(post(&server, "rtc_unknown", "refer", &json!({"target_uri": "tel:+4930"})).await.0, 404);
    assert_eq!(post(&server, &id, "refer", &json!({"target_uri": "tel:+4930123457"})).await.0, 200);
    let refer = loop {
        let message = phone.message().await;
        if message.starts_with("REFER ") {
            break message;
        }
    };
    assert!(refer.contains("\r\nRefer-To: <tel:+4930123457>\r\n"), "{refer}");
    phone.respond(&refer, "202 Accepted").await;
    let news = "Event: refer\r\nContent-Type: message/sipfrag\r\n";
    phone.send("NOTIFY", 2, news, "SIP/2.0 200 OK\r\n").await;
    phone.ended().await;
    server.sessions(0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_client_decides_on_sip_calls() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let python = root.join("target/tools/clients/bin/python");
    if !python.exists() {
        return println!("SKIPPED: the stock clients are not installed; scripts/setup.sh tests installs them");
    }
    let mut command = Command::new(python);
    command.arg("-B").arg(root.join("tests/clients/pypi_openai_sip.py")).arg(SECRET).kill_on_drop(true);
    let mut script = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut input, output) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut lines = BufReader::new(output).lines();
    let mut line = async || timeout(PATIENCE, lines.next_line()).await.expect("no line in time").unwrap().unwrap();
    let port = line().await;
    let server = serve_with(Script::default(), |config| {
        config.sip.webhook = Some(format!("http://127.0.0.1:{port}/incoming"));
        config.sip.webhook_secret = Some(Secret::new(SECRET));
    })
    .await;
    input.write_all(format!("http://{}/v1\n", server.address).as_bytes()).await.unwrap();
    let mut first = Telephone::call(&server, "first", Law::Mu).await;
    let id = call_id(&server).await;
    assert_eq!(line().await, format!("accepted {id}"));
    let mut controller = server.attach(&id).await.unwrap();
    assert_eq!(controller.expect("session.created").await["session"]["instructions"], "Be brief.");
    let mut second = Telephone::new(&server, "second", Law::Mu).await;
    second.invite("").await;
    assert!(second.final_response().await.starts_with("SIP/2.0 486 "));
    assert!(line().await.starts_with("rejected rtc_"));
    input.write_all(format!("hangup {id}\n").as_bytes()).await.unwrap();
    first.ended().await;
}
