//! Dropping the stream: the request is cancelled at once.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use async_trait::async_trait;
use repartee_chat_client::{ByteStream, ChatClient, ChatEvent, DialError, Dialer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use repartee_chat_testkit::{
    STREAM_HEAD, TestServer, answer, ask, chunk, config, config_for, question, response, text_event,
};

/// Server that begins a response, or none, and then reports that the client has closed.
fn watching(begin: String) -> (TestServer, Arc<Semaphore>, Arc<Semaphore>) {
    let (begun, closed) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let reports = (begun.clone(), closed.clone());
    let server = TestServer::new(move |_, mut peer| {
        let ((begun, closed), begin) = (reports.clone(), begin.clone());
        async move {
            peer.request().await;
            peer.send(begin).await;
            begun.add_permits(1);
            peer.closed().await;
            closed.add_permits(1);
        }
    });
    (server, begun, closed)
}

#[tokio::test(start_paused = true)]
async fn drop_before_the_head_closes() {
    let (server, begun, closed) = watching(String::new());
    let begin = Instant::now();
    let stream = server.client().chat(question());
    begun.acquire().await.unwrap().forget();
    drop(stream);
    closed.acquire().await.unwrap().forget();
    assert!(begin.elapsed().is_zero(), "no limit has passed");
}

#[tokio::test(start_paused = true)]
async fn drop_within_the_answer_closes() {
    let (server, _, closed) = watching(format!("{STREAM_HEAD}{}", chunk(&text_event("The sky"))));
    let client = server.client();
    let begin = Instant::now();
    let mut stream = client.chat(question());
    assert_eq!(stream.next().await.unwrap().unwrap(), ChatEvent::Text("The sky".to_owned()));
    drop(stream);
    closed.acquire().await.unwrap().forget();
    assert!(begin.elapsed().is_zero(), "no limit has passed");
}

#[tokio::test(start_paused = true)]
async fn drop_with_a_full_queue_closes() {
    let (server, begun, closed) = watching(format!("{STREAM_HEAD}{}", chunk(&text_event("more").repeat(50))));
    let mut config = config();
    config.queue = 1;
    let begin = Instant::now();
    let stream = server.client_with(config).chat(question());
    begun.acquire().await.unwrap().forget();
    tokio::task::yield_now().await;
    drop(stream);
    closed.acquire().await.unwrap().forget();
    assert!(begin.elapsed().is_zero(), "no limit has passed");
}

#[tokio::test]
async fn drop_closes_over_tcp() {
    let (server, _, closed) = watching(format!("{STREAM_HEAD}{}", chunk(&text_event("The sky"))));
    let address = server.listen().await;
    let client = ChatClient::new(config_for(&format!("http://{address}"))).unwrap();
    let mut stream = client.chat(question());
    stream.next().await.unwrap().unwrap();
    drop(stream);
    closed.acquire().await.unwrap().forget();
}

/// Dialer that reports when its future is dropped.
struct WatchedDialer(Arc<Semaphore>, Arc<Semaphore>);

struct DropReport(Arc<Semaphore>);

impl Drop for DropReport {
    fn drop(&mut self) {
        self.0.add_permits(1);
    }
}

#[async_trait]
impl Dialer for WatchedDialer {
    async fn dial(&self, _: &str, _: u16) -> Result<Box<dyn ByteStream>, DialError> {
        let _report = DropReport(self.1.clone());
        self.0.add_permits(1);
        pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn drop_while_connecting_gives_up() {
    let (dialing, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let dialer = WatchedDialer(dialing.clone(), dropped.clone());
    let begin = Instant::now();
    let stream = ChatClient::with_dialer(config(), Arc::new(dialer)).unwrap().chat(question());
    dialing.acquire().await.unwrap().forget();
    drop(stream);
    dropped.acquire().await.unwrap().forget();
    assert!(begin.elapsed().is_zero(), "no limit has passed");
}

/// Stream that takes and gives nothing, and reports when it is dropped.
struct StuckStream(#[expect(dead_code, reason = "its drop is what counts")] DropReport);

impl AsyncRead for StuckStream {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for StuckStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

struct StuckDialer(Arc<Semaphore>);

#[async_trait]
impl Dialer for StuckDialer {
    async fn dial(&self, _: &str, _: u16) -> Result<Box<dyn ByteStream>, DialError> {
        Ok(Box::new(StuckStream(DropReport(self.0.clone()))))
    }
}

#[tokio::test(start_paused = true)]
async fn drop_while_sending_closes() {
    let dropped = Arc::new(Semaphore::new(0));
    let stream = ChatClient::with_dialer(config(), Arc::new(StuckDialer(dropped.clone()))).unwrap().chat(question());
    // The virtual clock moves once the request is stuck.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(dropped.available_permits(), 0);
    let begin = Instant::now();
    drop(stream);
    timeout(Duration::from_secs(600), dropped.acquire()).await.unwrap().unwrap().forget();
    assert!(begin.elapsed().is_zero(), "no limit has passed");
}

#[tokio::test(start_paused = true)]
async fn drop_before_a_retry_sends_nothing_more() {
    let server = TestServer::answering(response("503 Service Unavailable", "", ""));
    let mut config = config();
    config.retry.attempts = 5;
    let mut stream = server.client_with(config).chat(question());
    assert!(matches!(stream.next().await.unwrap().unwrap(), ChatEvent::Retry { .. }));
    drop(stream);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn next_request_works_after_a_cancelled_one() {
    let server = TestServer::new(|number, mut peer| async move {
        peer.request().await;
        if number > 0 {
            peer.send(answer("hello")).await;
        }
        peer.closed().await;
    });
    let client = server.client();
    let stream = client.chat(question());
    while server.connections() == 0 {
        tokio::task::yield_now().await;
    }
    drop(stream);
    assert_eq!(ask(&client).await.text(), "hello");
    assert_eq!(server.connections(), 2);
}

#[test]
fn stopped_runtime_is_an_error() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (server, _, _) = watching(String::new());
    let client = runtime.block_on(async { server.client() });
    let mut stream = client.chat(question());
    drop(runtime);
    let Poll::Ready(Some(Err(error))) = stream.try_next() else { panic!("an error") };
    assert!(error.to_string().contains("runtime stopped"), "{error}");
    assert!(matches!(stream.try_next(), Poll::Ready(None)));
}

#[test]
fn client_needs_a_runtime() {
    let error = ChatClient::new(config()).unwrap_err();
    assert!(error.to_string().contains("Tokio runtime"), "{error}");
}
