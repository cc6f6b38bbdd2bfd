//! Reuse of connections.

use std::sync::Arc;
use std::time::Duration;

use repartee_chat_client::{ChatEvent, ChatFailure};
use tokio::sync::Semaphore;
use tokio::time::sleep;

use repartee_chat_testkit::{
    LAST_CHUNK, STREAM_HEAD, TestServer, answer, ask, chunk, config, event, question, read, response, settle,
    text_event,
};

#[tokio::test]
async fn connection_serves_again() {
    let server = TestServer::answering(answer("hello"));
    let client = server.client();
    assert!(!ask(&client).await.stats().connection_reused);
    for _ in 0..3 {
        settle().await;
        let found = ask(&client).await;
        assert_eq!(found.text(), "hello");
        assert!(found.stats().connection_reused && found.stats().connect_time.is_none());
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn connection_serves_again_over_tcp() {
    let server = TestServer::answering(answer("hello"));
    let address = server.listen().await;
    let client =
        repartee_chat_client::ChatClient::new(repartee_chat_testkit::config_for(&format!("http://{address}"))).unwrap();
    for _ in 0..3 {
        assert_eq!(ask(&client).await.text(), "hello");
        settle().await;
    }
    assert!(server.connections() < 3, "{}", server.connections());
}

#[tokio::test]
async fn parallel_requests_have_connections_of_their_own() {
    let both = Arc::new(tokio::sync::Barrier::new(2));
    let server = TestServer::new(move |_, mut peer| {
        let both = both.clone();
        async move {
            peer.request().await;
            both.wait().await;
            peer.send(answer("hello")).await;
            peer.closed().await;
        }
    });
    let client = server.client();
    let (first, second) = tokio::join!(ask(&client), ask(&client));
    assert_eq!((first.text(), second.text(), server.connections()), ("hello".to_owned(), "hello".to_owned(), 2));
}

#[tokio::test]
async fn closed_connection_is_replaced_unseen() {
    // The server closes after each response without a word.
    let server = TestServer::torn(answer("hello"));
    let client = server.client();
    for _ in 0..3 {
        let found = ask(&client).await;
        assert_eq!((found.text().as_str(), found.stats().attempts), ("hello", 1));
        settle().await;
    }
    assert_eq!(server.connections(), 3);
}

#[tokio::test]
async fn stale_connection_is_replaced_once() {
    // Each connection but the last serves one request, reads the next one and closes.
    let server = TestServer::new(|_, mut peer| async move {
        peer.request().await;
        peer.send(answer("hello")).await;
        peer.try_request().await;
    });
    let client = server.client();
    ask(&client).await.stats();
    settle().await;
    let found = ask(&client).await;
    assert_eq!(found.text(), "hello");
    let stats = found.stats();
    assert_eq!((stats.attempts, stats.connection_reused, server.connections()), (1, false, 2));
}

#[tokio::test]
async fn failure_after_a_stale_connection_is_final() {
    let server = TestServer::new(|number, mut peer| async move {
        peer.request().await;
        if number == 0 {
            peer.send(answer("hello")).await;
            peer.try_request().await;
        }
    });
    let client = server.client();
    ask(&client).await.stats();
    settle().await;
    let found = ask(&client).await;
    assert!(matches!(found.failure("without a response"), ChatFailure::Closed { .. }));
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn connection_with_unread_rest_is_closed() {
    let body = chunk(&[text_event("hello"), event("[DONE]")].concat());
    // The end comes at once, never, or after too many chunks.
    for (rest, connections) in
        [(LAST_CHUNK.to_owned(), 1), (String::new(), 2), (chunk(": more\n\n").repeat(100), 2), (chunk(": more\n\n"), 2)]
    {
        let server = TestServer::answering(format!("{STREAM_HEAD}{body}{rest}"));
        let client = server.client();
        for _ in 0..2 {
            let found = ask(&client).await;
            assert_eq!(found.text(), "hello");
            found.stats();
            sleep(Duration::from_secs(5)).await;
        }
        assert_eq!(server.connections(), connections, "{rest:?}");
    }
}

#[tokio::test]
async fn connection_of_a_failure_is_not_reused() {
    for status in ["HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n".to_owned(), response("200 OK", "", "data: x\n\n")] {
        let server = TestServer::answering(status);
        let client = server.client();
        for _ in 0..2 {
            ask(&client).await.error();
            settle().await;
        }
        assert_eq!(server.connections(), 2);
    }
}

#[tokio::test]
async fn connection_close_is_obeyed() {
    let body = [text_event("hello"), event("[DONE]")].concat();
    let server = TestServer::answering(response("200 OK", "Connection: close\r\n", &body));
    let client = server.client();
    for _ in 0..2 {
        assert_eq!(ask(&client).await.text(), "hello");
        settle().await;
    }
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn long_unused_connection_is_closed() {
    let server = TestServer::answering(answer("hello"));
    let mut config = config();
    config.times.idle_connection = Duration::from_secs(30);
    let client = server.client_with(config);
    ask(&client).await.stats();
    sleep(Duration::from_secs(29)).await;
    assert!(ask(&client).await.stats().connection_reused);
    sleep(Duration::from_secs(30)).await;
    assert!(!ask(&client).await.stats().connection_reused);
    assert_eq!(server.connections(), 2);
}

#[tokio::test(start_paused = true)]
async fn unused_connections_are_bounded() {
    let (all, closed) = (Arc::new(tokio::sync::Barrier::new(20)), Arc::new(Semaphore::new(0)));
    let reports = (all.clone(), closed.clone());
    let server = TestServer::new(move |_, mut peer| {
        let (all, closed) = reports.clone();
        async move {
            peer.request().await;
            all.wait().await;
            peer.send(answer("hello")).await;
            peer.closed().await;
            closed.add_permits(1);
        }
    });
    let client = server.client();
    for found in futures_util::future::join_all((0..20).map(|_| ask(&client))).await {
        assert_eq!(found.text(), "hello");
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!((server.connections(), closed.available_permits()), (20, 4), "16 are kept");
}

#[tokio::test]
async fn dropped_client_closes_unused_connections() {
    let closed = Arc::new(Semaphore::new(0));
    let is_closed = closed.clone();
    let server = TestServer::new(move |_, mut peer| {
        let closed = closed.clone();
        async move {
            peer.request().await;
            peer.send(answer("hello")).await;
            peer.closed().await;
            closed.add_permits(1);
        }
    });
    let client = server.client();
    ask(&client).await.stats();
    drop(client);
    is_closed.acquire().await.unwrap().forget();
}

#[tokio::test]
async fn answer_after_a_dropped_end_is_kept() {
    // The end of the body comes only after the caller has dropped the stream.
    let go = Arc::new(Semaphore::new(0));
    let wait = go.clone();
    let server = TestServer::new(move |_, mut peer| {
        let wait = wait.clone();
        async move {
            while peer.try_request().await.is_some() {
                let body = [text_event("hello"), event("[DONE]")].concat();
                peer.send(format!("{STREAM_HEAD}{}", chunk(&body))).await;
                wait.acquire().await.unwrap().forget();
                peer.send(LAST_CHUNK).await;
            }
        }
    });
    let client = server.client();
    let mut stream = client.chat(question());
    while !matches!(stream.next().await.unwrap().unwrap(), ChatEvent::End(_)) {}
    drop(stream);
    go.add_permits(2);
    settle().await;
    assert!(read(client.chat(question())).await.stats().connection_reused);
}
