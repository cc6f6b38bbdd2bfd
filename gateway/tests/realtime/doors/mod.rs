//! Every door of a cascade: the table of docs/cascade.md, walked row by row over a recogniser, a language model behind a
//! URL and a voice. Each row is served, and each failure is the one that its last column says.

mod events;
mod http;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use repartee_chat_testkit::{STREAM_HEAD, TestServer, answer, chunk, response, text_event};
use repartee_engine::SpokenAnswersConfig;
use repartee_gateway_testkit::http::{Reply, send};
use repartee_gateway_testkit::thinker::Cascade;
use repartee_gateway_testkit::{Client, PATIENCE, find, question};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

const PAGE: &str = include_str!("../../../../docs/cascade.md");
const JSON: (&str, &str) = ("content-type", "application/json");
const SAID: &str = "The dog sleeps.";
const SORRY: &str = "Sorry, I cannot answer right now. Please ask me again.";

/// Way in which the language model's server answers.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Mood {
    Answers,
    Fails,
    /// Begins an answer and never ends it.
    Waits,
}

/// Cascade of three parts, and the server of its language model.
struct Doors {
    server: Cascade,
    mood: Arc<Mutex<Mood>>,
    /// Messages of the requests so far.
    requests: Arc<Mutex<Vec<Value>>>,
    /// Number of requests that the gateway has closed before their end.
    closed: watch::Receiver<usize>,
}

impl Doors {
    async fn open() -> Self {
        let (mood, requests) = (Arc::new(Mutex::new(Mood::Answers)), Arc::<Mutex<Vec<Value>>>::default());
        let (close, closed) = watch::channel(0);
        let close = Arc::new(close);
        let shared = (mood.clone(), requests.clone());
        let llm = TestServer::new(move |_, mut peer| {
            let ((mood, requests), close) = (shared.clone(), close.clone());
            async move {
                while let Some(request) = peer.try_request().await {
                    requests.lock().unwrap().push(request.json()["messages"].clone());
                    let now = *mood.lock().unwrap();
                    match now {
                        Mood::Answers => peer.send(answer(SAID)).await,
                        Mood::Fails => peer.send(response("500 Internal Server Error", "", "oops")).await,
                        Mood::Waits => {
                            let begun = text_event("The dog and the fox and the man are here. ");
                            peer.send(format!("{STREAM_HEAD}{}", chunk(&begun))).await;
                            peer.closed().await;
                            close.send_modify(|closed| *closed += 1);
                            return;
                        }
                    }
                }
            }
        });
        let server = Cascade::serve_heard(&llm.listen().await, Some("whisper"), Some("tts_custom"), |_| {}).await;
        Self { server, mood, requests, closed }
    }

    fn address(&self) -> SocketAddr {
        self.server.address
    }

    fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    /// Messages of the last request, without the default instructions of a session that gives none.
    fn asked(&self) -> Value {
        let mut asked = self.requests.lock().unwrap().last().expect("a request").clone();
        let default = json!({"role": "system", "content": SpokenAnswersConfig::default().instructions});
        if let Some(messages) = asked.as_array_mut() {
            messages.retain(|message| *message != default);
        }
        asked
    }

    /// Number of requests so far.
    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Session whose turns are committed and transcribed.
    async fn caller(&self) -> Client {
        let mut caller = self.server.connect().await;
        caller.update(json!({"audio": {"input": {"turn_detection": null, "transcription": {}}}})).await;
        caller
    }

    async fn post(&self, path: &str, body: &Value) -> Reply {
        send(self.address(), "POST", path, &[JSON], body.to_string().as_bytes()).await
    }

    /// Waits until the gateway has closed one more request than before.
    async fn close_after(&self, before: usize) {
        let mut closed = self.closed.clone();
        timeout(PATIENCE, closed.wait_for(|closed| *closed > before)).await.expect("a closed request").unwrap();
    }
}

/// Sound of a turn.
fn turn() -> Vec<f32> {
    question()[..60_000].to_vec()
}

fn message(text: &str) -> Value {
    let content = json!([{"type": "input_text", "text": text}]);
    json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}})
}

fn transcript(events: &[Value]) -> &Value {
    &find(events, "response.output_audio_transcript.done")["transcript"]
}

/// Sends an event that is refused; returns its error. The session goes on.
async fn refused(caller: &mut Client, mut event: Value) -> Value {
    event["event_id"] = json!("refused");
    caller.send(event).await;
    let events = caller.until("error").await;
    let error = find(&events, "error")["error"].clone();
    assert_eq!(error["event_id"], "refused", "{error}");
    error
}

/// Commits a spoken turn; returns its item and what was heard.
async fn heard(caller: &mut Client) -> (Value, String) {
    caller.speak(&turn(), 4_800).await;
    caller.send(json!({"type": "input_audio_buffer.commit"})).await;
    let events = caller.until("conversation.item.input_audio_transcription.completed").await;
    let heard = find(&events, "conversation.item.input_audio_transcription.completed");
    (heard["item_id"].clone(), heard["transcript"].as_str().unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn every_door_is_as_the_table_says() {
    let table = PAGE.split("## Every door\n").nth(1).expect("the section").split("\n## ").next().unwrap();
    let rows: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).collect();
    let doors = Doors::open().await;
    for row in &rows {
        doors.set(Mood::Answers);
        match row.split('|').nth(1).unwrap().trim() {
            "`GET /v1/models`" => http::models(&doors).await,
            "`session.update`" => events::session_update(&doors).await,
            "`input_audio_buffer.append`" => events::append(&doors).await,
            "`input_audio_buffer.commit`" => events::commit(&doors).await,
            "`input_audio_buffer.clear`" => events::clear(&doors).await,
            "`conversation.item.create`, text" => events::create_text(&doors).await,
            "`conversation.item.create`, sound" => events::create_sound(&doors).await,
            "`conversation.item.retrieve`" => events::retrieve(&doors).await,
            "`conversation.item.delete`" => events::delete(&doors).await,
            "`conversation.item.truncate`" => events::truncate(&doors).await,
            "`response.create`" => events::respond(&doors).await,
            "`response.create`, out of band" => events::out_of_band(&doors).await,
            "`response.create`, `repartee.text.append`, `repartee.text.done`: a text read aloud" => {
                events::reads(&doors).await
            }
            "`response.cancel`, `output_audio_buffer.clear`" => events::cancel(&doors).await,
            "`input_audio_buffer.append` during an answer" => events::barge_in(&doors).await,
            "`GET /v1/realtime?intent=transcription`" => http::transcription_session(&doors).await,
            "`POST /v1/realtime/calls`" => http::webrtc(&doors).await,
            "`POST /v1/realtime/client_secrets`" => http::client_secrets(&doors).await,
            "`POST /v1/chat/completions`" => http::chat(&doors).await,
            "`POST /v1/audio/speech`" => http::speech(&doors).await,
            "`POST /v1/audio/transcriptions`, `/v1/audio/translations`" => http::files(&doors).await,
            other => panic!("no check of the door {other}"),
        }
        println!("{row}");
    }
    assert_eq!(rows.len(), 21, "a row of the table is missing");
}
