//! The model, asked from the server.

use repartee_chat_client::{ChatClientConfig, ChatFailure};
use tokio::sync::mpsc;

use repartee_chat_testkit::{TestServer, answer, ask, config, response, settle};

fn without_model() -> ChatClientConfig {
    ChatClientConfig { model: None, ..config() }
}

/// Server that answers with `list` to GET, and reports request lines and models.
fn listing(list: String) -> (TestServer, mpsc::Receiver<String>) {
    let (sender, requests) = mpsc::channel(16);
    let server = TestServer::new(move |_, mut peer| {
        let (sender, list) = (sender.clone(), list.clone());
        async move {
            while let Some(request) = peer.try_request().await {
                if request.line().starts_with("GET") {
                    sender.send(request.line().to_owned()).await.unwrap();
                    peer.send(&list).await;
                } else {
                    sender.send(request.json()["model"].to_string()).await.unwrap();
                    peer.send(answer("hello")).await;
                }
            }
        }
    });
    (server, requests)
}

#[tokio::test]
async fn only_model_is_asked_once() {
    let (server, mut requests) = listing(response("200 OK", "", "{\"data\": [{\"id\": \"tiny\"}]}"));
    let client = server.client_with(without_model());
    for _ in 0..2 {
        ask(&client).await.stats();
        settle().await;
    }
    for expected in ["GET /v1/models", "\"tiny\"", "\"tiny\""] {
        assert_eq!(requests.recv().await.unwrap(), expected);
    }
    assert!(requests.try_recv().is_err());
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn several_models_are_an_error() {
    let (server, _requests) = listing(response("200 OK", "", "{\"data\": [{\"id\": \"tiny\"}, {\"id\": \"huge\"}]}"));
    let found = ask(&server.client_with(without_model())).await;
    assert!(matches!(found.failure("set one of tiny, huge"), ChatFailure::SeveralModels { .. }));
}

#[tokio::test]
async fn empty_list_is_an_error() {
    let (server, _requests) = listing(response("200 OK", "", "{\"data\": []}"));
    assert_eq!(ask(&server.client_with(without_model())).await.failure("lists none"), &ChatFailure::NoModel);
}

#[tokio::test]
async fn missing_or_broken_list_is_an_error() {
    let (server, _requests) = listing(response("404 Not Found", "", ""));
    let found = ask(&server.client_with(without_model())).await;
    assert!(matches!(found.failure("no /v1/models (status 404): set the model"), ChatFailure::UnknownPath { .. }));
    let (server, _requests) = listing(response("200 OK", "Content-Type: text/html\r\n", "<html>"));
    assert_eq!(ask(&server.client_with(without_model())).await.failure("web page"), &ChatFailure::Html);
    let (server, _requests) = listing(response("200 OK", "", &format!("{{\"x\": \"{}", "y".repeat(9_000))));
    let mut config = without_model();
    config.limits.json = 8_000;
    assert!(matches!(ask(&server.client_with(config)).await.failure("JSON"), ChatFailure::TooLarge { .. }));
    let torn = TestServer::torn("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"da");
    assert!(matches!(ask(&torn.client_with(without_model())).await.failure("broke off"), ChatFailure::Torn { .. }));
}

#[tokio::test]
async fn replaced_model_is_asked_again() {
    // The server is restarted with another model between the first and the second request.
    let server = TestServer::new(|number, mut peer| async move {
        while let Some(request) = peer.try_request().await {
            let model = if number == 0 { "old" } else { "new" };
            if request.line().starts_with("GET") {
                peer.send(response("200 OK", "", &format!("{{\"data\": [{{\"id\": \"{model}\"}}]}}"))).await;
            } else if request.json()["model"] == model {
                peer.send(answer(model)).await;
                if number == 0 {
                    return;
                }
            } else {
                peer.send(response("404 Not Found", "", "{\"detail\": \"no such model\"}")).await;
            }
        }
    });
    let client = server.client_with(without_model());
    assert_eq!(ask(&client).await.text(), "old");
    assert!(matches!(ask(&client).await.failure("no model \"old\""), ChatFailure::UnknownModel { .. }));
    assert_eq!(ask(&client).await.text(), "new");
}
