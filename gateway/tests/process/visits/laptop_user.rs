//! Somebody with a laptop: starts it, opens the page, asks aloud and in writing, stops it.

use repartee_gateway_testkit::http::send;

use super::{QUESTION, Visited, line_with, ran, succeeded};

#[tokio::test]
async fn a_laptop_user_gets_answers() {
    let folder = tempfile::tempdir().unwrap();
    let answer = folder.path().join("answer.wav").display().to_string();
    let mut server = Visited::start(&[]).await;
    let ready = line_with(&mut server.log, " ready ").await;
    assert!(ready.contains("model=\"demo\"") && ready.contains("seconds="), "{ready}");
    let page = send(server.address, "GET", "/", &[], b"").await;
    assert!(page.status == 200 && page.body.contains("Start talking") && page.body.contains("id=\"text\""), "the page");
    let card = send(server.address, "GET", "/model.json", &[], b"").await.json();
    assert!(card["ask"].as_array().is_some_and(|ask| ask.len() > 2), "suggestions: {card}");
    let said = succeeded(&["call", &server.server(), QUESTION, &answer]).await;
    assert!(said.contains("Paris") && said.contains("saved as"), "{said}");
    let said = succeeded(&["call", &server.server(), "--text", "What is the capital of France?"]).await;
    assert!(said.contains("Paris"), "{said}");
    server.end().await;
    // A first try of the manual's words, and a typing error.
    assert!(succeeded(&["--help"]).await.contains("repartee serve --real"));
    let (code, _, errors) = ran(&["sevre"]).await;
    assert!(code == Some(2) && errors.contains("serve"), "{errors}");
}
