//! Time limits, on a virtual clock.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use repartee_chat_client::{
    ByteStream, ChatClient, ChatClientConfig, ChatClientError, ChatFailure, DialError, Dialer, TimeLimit, TimeLimits,
};
use tokio::time::{Instant, sleep};

use repartee_chat_testkit::{
    LAST_CHUNK, STREAM_HEAD, TestServer, ask, chunk, config, event, finish_event, question, read, text_event,
};

const SECOND: Duration = Duration::from_secs(1);

fn limited() -> ChatClientConfig {
    let times = TimeLimits {
        connect: 3 * SECOND,
        first_token: 10 * SECOND,
        between_tokens: 5 * SECOND,
        after_finish: 2 * SECOND,
        whole: 60 * SECOND,
        idle_connection: 30 * SECOND,
    };
    ChatClientConfig { times, ..config() }
}

fn late(limit: TimeLimit, seconds: u32) -> ChatFailure {
    ChatFailure::Late { limit, after: seconds * SECOND }
}

/// Server that sends each piece after a time, and then waits until the client closes.
fn timed(pieces: Vec<(Duration, String)>) -> TestServer {
    TestServer::new(move |_, mut peer| {
        let pieces = pieces.clone();
        async move {
            peer.request().await;
            for (delay, piece) in pieces {
                sleep(delay).await;
                peer.send(piece).await;
            }
            peer.closed().await;
        }
    })
}

struct SilentDialer;

#[async_trait]
impl Dialer for SilentDialer {
    async fn dial(&self, _: &str, _: u16) -> Result<Box<dyn ByteStream>, DialError> {
        pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn late_connection_is_typed() {
    let begin = Instant::now();
    let client = ChatClient::with_dialer(limited(), Arc::new(SilentDialer)).unwrap();
    let found = ask(&client).await;
    assert_eq!(found.failure("connecting took longer than 3s"), &late(TimeLimit::Connect, 3));
    assert_eq!(begin.elapsed(), 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn server_that_never_responds_is_late() {
    let begin = Instant::now();
    let server = timed(vec![]);
    let found = ask(&server.client_with(limited())).await;
    assert_eq!(found.failure("the first token took longer than 10s"), &late(TimeLimit::FirstToken, 10));
    assert_eq!((begin.elapsed(), server.connections()), (10 * SECOND, 1));
}

#[tokio::test(start_paused = true)]
async fn comments_and_empty_deltas_are_no_tokens() {
    let mut pieces = vec![(SECOND, STREAM_HEAD.to_owned())];
    pieces.extend(vec![(SECOND, chunk(": keep-alive\n\n")); 20]);
    let found = ask(&timed(pieces).client_with(limited())).await;
    assert_eq!(found.failure("first token"), &late(TimeLimit::FirstToken, 10));
    let mut pieces = vec![(SECOND, STREAM_HEAD.to_owned()), (SECOND, chunk(&text_event("The")))];
    pieces.extend(vec![(SECOND, chunk(&text_event(""))); 20]);
    let begin = Instant::now();
    let found = ask(&timed(pieces).client_with(limited())).await;
    assert_eq!(found.failure("next token"), &late(TimeLimit::BetweenTokens, 5));
    assert_eq!((found.text().as_str(), begin.elapsed()), ("The", 7 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn silence_between_tokens_is_late() {
    let words = ["a", "b", "c"].map(|word| (4 * SECOND, chunk(&text_event(word))));
    let pieces = [(SECOND, STREAM_HEAD.to_owned())].into_iter().chain(words).collect();
    let begin = Instant::now();
    let found = ask(&timed(pieces).client_with(limited())).await;
    assert_eq!(found.failure("the next token took longer than 5s"), &late(TimeLimit::BetweenTokens, 5));
    assert_eq!((found.text().as_str(), begin.elapsed()), ("abc", 18 * SECOND));
    assert_eq!(found.error().stats.time_to_first_token, Some(5 * SECOND));
    assert_eq!(found.error().stats.total_time, 18 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn whole_answer_has_a_limit() {
    let words = vec![(4 * SECOND, chunk(&text_event("a"))); 100];
    let pieces = [(SECOND, STREAM_HEAD.to_owned())].into_iter().chain(words).collect();
    let begin = Instant::now();
    let found = ask(&timed(pieces).client_with(limited())).await;
    assert_eq!(found.failure("the whole answer took longer than 60s"), &late(TimeLimit::Whole, 60));
    assert_eq!((found.text().len(), begin.elapsed()), (14, 60 * SECOND));
}

#[tokio::test(start_paused = true)]
async fn answer_ends_soon_after_its_finish_reason() {
    for tail in [vec![], vec![(SECOND, chunk(": keep-alive\n\n")); 9]] {
        let body = [text_event("hello"), finish_event("stop")].concat();
        let mut pieces = vec![(SECOND, format!("{STREAM_HEAD}{}", chunk(&body)))];
        pieces.extend(tail);
        let begin = Instant::now();
        let found = ask(&timed(pieces).client_with(limited())).await;
        assert_eq!(found.text(), "hello");
        assert_eq!((found.stats().total_time, begin.elapsed()), (3 * SECOND, 3 * SECOND));
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_no_late_server() {
    let pieces = vec![
        (SECOND, format!("{STREAM_HEAD}{}", chunk(&[text_event("a"), text_event("b"), text_event("c")].concat()))),
        (14 * SECOND, chunk(&text_event("d"))),
        (SECOND, chunk(&event("[DONE]"))),
        (SECOND, LAST_CHUNK.to_owned()),
    ];
    let config = ChatClientConfig { queue: 1, ..limited() };
    let mut stream = timed(pieces).client_with(config).chat(question());
    stream.next().await.unwrap().unwrap();
    sleep(12 * SECOND).await;
    let found = read(stream).await;
    assert_eq!(found.text(), "bcd");
    found.stats();
}

#[tokio::test(start_paused = true)]
async fn absent_reader_ends_with_the_whole_limit() {
    let (closed, mut is_closed) = tokio::sync::mpsc::channel(1);
    let server = TestServer::new(move |_, mut peer| {
        let closed = closed.clone();
        async move {
            peer.request().await;
            peer.send(format!("{STREAM_HEAD}{}", chunk(&text_event("a").repeat(9)))).await;
            peer.closed().await;
            closed.send(()).await.unwrap();
        }
    });
    let begin = Instant::now();
    let stream = server.client_with(ChatClientConfig { queue: 1, ..limited() }).chat(question());
    is_closed.recv().await.unwrap();
    assert_eq!(begin.elapsed(), 60 * SECOND);
    assert_eq!(read(stream).await.failure("whole answer"), &late(TimeLimit::Whole, 60));
}

#[tokio::test]
async fn limits_out_of_range_are_refused() {
    let refused = |change: fn(&mut ChatClientConfig)| {
        let mut config = config();
        change(&mut config);
        ChatClient::new(config).unwrap_err()
    };
    let error = refused(|config| config.times.between_tokens = Duration::ZERO);
    assert!(matches!(error, ChatClientError::TimeLimit("between_tokens")), "{error}");
    let error = refused(|config| config.times.whole = Duration::MAX);
    assert!(matches!(error, ChatClientError::TimeLimit("whole")), "{error}");
    let error = refused(|config| config.retry.backoff = Duration::MAX);
    assert!(matches!(error, ChatClientError::TimeLimit("backoff")), "{error}");
    assert!(matches!(refused(|config| config.retry.attempts = 0), ChatClientError::Attempts(0)));
    assert!(matches!(refused(|config| config.queue = 0), ChatClientError::Queue(0)));
    assert!(matches!(refused(|config| config.queue = 1 << 40), ChatClientError::Queue(_)));
}
