//! Chat-completions servers of the tests: a function plays the other end of each connection, byte by byte.
#![allow(clippy::unwrap_used, reason = "helpers of tests: a panic is their report")]

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use repartee_chat_client::{
    BaseUrl, ByteStream, ChatClient, ChatClientConfig, ChatError, ChatEvent, ChatFailure, ChatMessage, ChatRequest,
    ChatStream, DialError, Dialer, ExchangeStats,
};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
use tokio::net::TcpListener;

/// Buffer of a connection in memory, in bytes and direction.
pub const BUFFER: usize = 64 << 10;

/// A request as it came.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// Request line and headers.
    pub head: String,
    /// As many bytes as the header says.
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    /// Method and target.
    pub fn line(&self) -> &str {
        self.head.lines().next().unwrap().trim_end_matches(" HTTP/1.1")
    }

    /// Value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// Server's end of one connection.
pub struct ServerEnd {
    /// Bytes from and to the client.
    pub stream: Box<dyn ByteStream>,
}

impl ServerEnd {
    /// Reads a request; `None` if the client has closed.
    pub async fn try_request(&mut self) -> Option<ReceivedRequest> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.ok()?);
        }
        let head = String::from_utf8(head).unwrap();
        let mut request = ReceivedRequest { head, body: Vec::new() };
        let length = request.header("content-length").map_or(0, |length| length.parse().unwrap());
        request.body.resize(length, 0);
        self.stream.read_exact(&mut request.body).await.ok()?;
        Some(request)
    }

    /// Reads a request.
    pub async fn request(&mut self) -> ReceivedRequest {
        self.try_request().await.expect("a request")
    }

    /// Sends bytes. A client that is gone is no error.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref()).await;
        let _ = self.stream.flush().await;
    }

    /// Waits until the client closes.
    pub async fn closed(&mut self) {
        let mut rest = [0; 1_024];
        while !matches!(self.stream.read(&mut rest).await, Ok(0) | Err(_)) {}
    }
}

/// Makes a trait object of a stream.
pub trait ByteStreamExt: ByteStream + Sized + 'static {
    /// Boxes the stream.
    fn boxed(self) -> Box<dyn ByteStream> {
        Box::new(self)
    }
}

impl<T: ByteStream + 'static> ByteStreamExt for T {}

type Handler = dyn Fn(usize, ServerEnd) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync;

/// Server whose connections are played by a function, which gets the number of the connection, from 0.
#[derive(Clone)]
pub struct TestServer {
    handler: Arc<Handler>,
    accepted: Arc<AtomicUsize>,
    dialed: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    /// Creates a server whose connections `play` plays.
    pub fn new<F, P>(play: P) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
        P: Fn(usize, ServerEnd) -> F + Send + Sync + 'static,
    {
        let handler: Arc<Handler> = Arc::new(move |number, peer| Box::pin(play(number, peer)));
        Self { handler, accepted: Arc::default(), dialed: Arc::default() }
    }

    /// Server that sends one response to each request, over as many connections as the client opens.
    pub fn answering(response: impl Into<Vec<u8>>) -> Self {
        let response: Arc<Vec<u8>> = Arc::new(response.into());
        Self::new(move |_, mut peer| {
            let response = response.clone();
            async move {
                while peer.try_request().await.is_some() {
                    peer.send(&*response).await;
                }
            }
        })
    }

    /// Server that sends a part of a response and closes.
    pub fn torn(response: impl Into<Vec<u8>>) -> Self {
        let response: Arc<Vec<u8>> = Arc::new(response.into());
        Self::new(move |_, mut peer| {
            let response = response.clone();
            async move {
                peer.request().await;
                peer.send(&*response).await;
            }
        })
    }

    /// Number of connections so far.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// Hosts and ports that were dialed in memory.
    pub fn dialed(&self) -> Vec<String> {
        self.dialed.lock().unwrap().clone()
    }

    fn play(&self, stream: Box<dyn ByteStream>) {
        let number = self.accepted.fetch_add(1, Ordering::SeqCst);
        tokio::spawn((self.handler)(number, ServerEnd { stream }));
    }

    /// Listens on a free port of this machine. Returns host and port.
    pub async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                server.play(Box::new(stream));
            }
        });
        address.to_string()
    }

    /// Client in memory, for a URL that no network has.
    pub fn client(&self) -> ChatClient {
        self.client_with(config())
    }

    /// Client in memory with these settings.
    pub fn client_with(&self, config: ChatClientConfig) -> ChatClient {
        ChatClient::with_dialer(config, Arc::new(self.clone())).unwrap()
    }
}

#[async_trait]
impl Dialer for TestServer {
    async fn dial(&self, host: &str, port: u16) -> Result<Box<dyn ByteStream>, DialError> {
        self.dialed.lock().unwrap().push(format!("{host}:{port}"));
        let (near, far) = duplex(BUFFER);
        self.play(Box::new(far));
        Ok(Box::new(near))
    }
}

/// Settings for a server in memory: one attempt, a model.
pub fn config() -> ChatClientConfig {
    config_for("http://llm.test:8000/v1")
}

/// Settings for a URL: one attempt, a model.
pub fn config_for(url: &str) -> ChatClientConfig {
    let mut config = ChatClientConfig::new(BaseUrl::parse(url).unwrap());
    config.model = Some("small".to_owned());
    config.retry.attempts = 1;
    config
}

/// A request with one message.
pub fn question() -> ChatRequest {
    let messages = vec![ChatMessage::User { content: "Why is the sky blue?".to_owned() }];
    ChatRequest { messages, ..ChatRequest::default() }
}

/// Response with a length.
pub fn response(status: &str, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// Head of a chunked event stream.
pub const STREAM_HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Last chunk of a chunked body.
pub const LAST_CHUNK: &str = "0\r\n\r\n";

/// One chunk of a chunked body.
pub fn chunk(body: &str) -> String {
    format!("{:x}\r\n{body}\r\n", body.len())
}

/// Event with data.
pub fn event(data: impl ToString) -> String {
    format!("data: {}\n\n", data.to_string())
}

/// Event with a delta of text.
pub fn text_event(text: &str) -> String {
    event(serde_json::json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": null}]}))
}

/// Event with the reason of the end.
pub fn finish_event(reason: &str) -> String {
    event(serde_json::json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}))
}

/// Whole response: an event stream that says `text`.
pub fn answer(text: &str) -> String {
    let body = [text_event(text), finish_event("stop"), event("[DONE]")].concat();
    format!("{STREAM_HEAD}{}{LAST_CHUNK}", chunk(&body))
}

/// Events of an answer and how it ended.
#[derive(Debug)]
pub struct ReadAnswer {
    /// Events before the end.
    pub events: Vec<ChatEvent>,
    /// Measurements, or the error.
    pub end: Result<ExchangeStats, ChatError>,
}

impl ReadAnswer {
    /// All pieces of text, one after another.
    pub fn text(&self) -> String {
        self.events
            .iter()
            .filter_map(|event| if let ChatEvent::Text(text) = event { Some(&**text) } else { None })
            .collect()
    }

    /// Measurements of an answer that came to its end.
    pub fn stats(&self) -> &ExchangeStats {
        self.end.as_ref().unwrap_or_else(|error| panic!("{error}: {error:?}"))
    }

    /// The error, whose sentence has to name the URL.
    pub fn error(&self) -> &ChatError {
        let error = self.end.as_ref().expect_err("an error");
        assert!(error.to_string().starts_with(&format!("{}: ", error.url)), "{error}");
        error
    }

    /// The failure, whose sentence has to hold `words`.
    pub fn failure(&self, words: &str) -> &ChatFailure {
        let error = self.error();
        assert!(error.to_string().contains(words), "{error}");
        &error.failure
    }
}

/// Reads an answer to its end.
pub async fn read(mut stream: ChatStream) -> ReadAnswer {
    let mut events = Vec::new();
    let end = loop {
        match stream.next().await.expect("an end") {
            Ok(ChatEvent::End(stats)) => break Ok(stats),
            Ok(event) => events.push(event),
            Err(error) => break Err(error),
        }
    };
    assert!(stream.next().await.is_none(), "nothing follows the end");
    ReadAnswer { events, end }
}

/// Asks the question and reads the answer.
pub async fn ask(client: &ChatClient) -> ReadAnswer {
    read(client.chat(question())).await
}

/// Lets the tasks of an ended exchange do the rest: they keep its connection.
pub async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}
