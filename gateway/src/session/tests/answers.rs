//! Asking for answers, and their ends.

use repartee_engine::session::{Command, Event, FinishReason, SessionError};
use serde_json::json;

use super::super::{Delivery, Effect, Input};
use super::Talk;

#[test]
fn only_one_answer_at_a_time() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.client(json!({"type": "response.create"}));
    assert_eq!(talk.code(), "conversation_already_has_active_response");
    talk.finished(response, FinishReason::Stop);
    talk.ask();
}

#[test]
fn nothing_to_cancel_is_an_error() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.client(json!({"type": "response.cancel"}));
    assert_eq!(talk.code(), "response_cancel_not_active");
    let response = talk.ask();
    talk.client(json!({"type": "response.cancel", "response_id": "another"}));
    assert_eq!(talk.code(), "response_cancel_not_active");
    talk.client(json!({"type": "response.cancel"}));
    assert_eq!(talk.commands.last(), Some(&Command::Cancel { response }));
    talk.client(json!({"type": "response.cancel"}));
    assert_eq!(talk.code(), "response_cancel_not_active");
}

#[test]
fn nothing_of_a_cancelled_answer_is_sent_and_the_next_one_waits_for_its_end() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.says(response, "One ");
    talk.client(json!({"type": "response.cancel"}));
    talk.forget();
    talk.client(json!({"type": "response.create"}));
    talk.says(response, "two");
    talk.sounds(response, 80);
    assert_eq!(talk.kinds(), [""; 0]);
    talk.finished(response, FinishReason::Cancelled);
    let answer = &talk.find("response.done")["response"];
    assert_eq!(answer["status_details"], json!({"type": "cancelled", "reason": "client_cancelled"}));
    assert_eq!(answer["output"][0]["content"][0]["transcript"], "One ");
    assert_eq!(talk.kinds().last(), Some(&"response.created"));
    assert!(talk.asked().is_some());
}

#[test]
fn an_answer_that_was_complete_when_it_was_cancelled_is_cut_to_what_was_sent() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.says(response, "One ");
    talk.client(json!({"type": "response.cancel"}));
    talk.says(response, "two");
    talk.finished(response, FinishReason::Stop);
    assert_eq!(talk.find("response.done")["response"]["status"], "cancelled");
    assert_eq!(talk.cut(), Some("One "));
}

#[test]
fn a_limit_makes_an_answer_incomplete() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.client(json!({"type": "response.create", "response": {"max_output_tokens": 3, "metadata": {"a": "b"}}}));
    let respond = talk.asked().unwrap().clone();
    assert_eq!(respond.max_tokens, Some(3));
    talk.says(respond.response, "One");
    talk.finished(respond.response, FinishReason::Length);
    let answer = &talk.find("response.done")["response"];
    assert_eq!(answer["status_details"], json!({"type": "incomplete", "reason": "max_output_tokens"}));
    assert_eq!(answer["metadata"], json!({"a": "b"}));
}

#[test]
fn an_answer_without_a_word_has_no_item() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.finished(response, FinishReason::Stop);
    assert_eq!(talk.kinds(), ["response.created", "response.done", "rate_limits.updated"]);
    assert_eq!(talk.find("response.done")["response"]["output"], json!([]));
}

#[test]
fn instructions_of_one_answer_hold_for_it_alone() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.update(json!({"instructions": "Base."}));
    talk.forget();
    let event = json!({"type": "response.create", "response": {"instructions": "Sing.", "audio": {"output": {"voice": "bob"}}}});
    talk.client(event);
    let [Command::Instruct(before), Command::Respond(respond), Command::Instruct(after)] = &talk.commands[..] else {
        panic!("{:?}", talk.commands)
    };
    assert_eq!((before.as_str(), after.as_str(), respond.voice.as_deref()), ("Sing.", "Base.", Some("bob")));
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let mut talk = Talk::new(Delivery::Unpaced);
    for (field, value) in [("conversation", json!("none")), ("input", json!([]))] {
        let mut event = json!({"type": "response.create", "response": {}});
        event["response"][field] = value;
        talk.client(event);
        assert_eq!(talk.events.last().unwrap()["error"]["param"], format!("response.{field}"));
    }
    assert_eq!(talk.asked(), None);
}

#[test]
fn a_failed_answer_says_why() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    let error = SessionError::ContextFull { tokens: 9, limit: 8 };
    talk.input(Input::Engine(Event::Failed { response: Some(response), error }));
    let details = &talk.find("response.done")["response"]["status_details"];
    assert_eq!((&details["type"], &details["error"]["code"]), (&json!("failed"), &json!("conversation_too_large")));
    assert!(!talk.others.contains(&Effect::Close), "the session lives on");
    let response = talk.ask();
    let error = SessionError::NotFinite { stage: "talker" };
    talk.input(Input::Engine(Event::Failed { response: Some(response), error }));
    assert_eq!(talk.others.last(), Some(&Effect::Close));
}

#[test]
fn an_engine_that_ends_closes_the_conversation() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.input(Input::EngineEnded);
    assert_eq!(talk.code(), "internal_error");
    assert_eq!(talk.others.last(), Some(&Effect::Close));
}

#[test]
fn metadata_is_bounded() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let metadata = json!({"a": "x".repeat(20_000)});
    talk.client(json!({"type": "response.create", "response": {"metadata": metadata}}));
    assert_eq!(talk.events.last().unwrap()["error"]["param"], "response.metadata");
    assert_eq!(talk.asked(), None);
}
