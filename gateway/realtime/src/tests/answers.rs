//! Asking for answers, and their ends.

use repartee_engine_api::{Command, Content, Event, FinishReason, Input as EngineInput, Role, SessionError};
use serde_json::{Value, json};

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
    let [Command::Respond(respond)] = &talk.commands[..] else { panic!("{:?}", talk.commands) };
    assert_eq!((respond.instructions.as_deref(), respond.voice.as_deref()), (Some("Sing."), Some("bob")));
    assert_eq!(talk.find("response.created")["response"]["audio"]["output"]["voice"], "bob");
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let mut talk = Talk::new(Delivery::Unpaced);
    for (field, value, param) in [
        ("conversation", json!("another"), "response.conversation"),
        ("input", json!([{"type": "item_reference", "id": "x"}]), "response.input[0].id"),
        (
            "input",
            json!([{"type": "message", "role": "user", "content": [{"type": "output_text", "text": "x"}]}]),
            "response.input[0].content[0].type",
        ),
        ("tools", json!([{"type": "function"}]), "response.tools[0].name"),
        ("audio", json!({"output": {"format": {"type": "audio/pcm", "rate": 3}}}), "response.audio.output.format.rate"),
    ] {
        let mut event = json!({"type": "response.create", "response": {}});
        event["response"][field] = value;
        talk.client(event);
        assert_eq!(talk.events.last().unwrap()["error"]["param"], param);
    }
    assert_eq!(talk.asked(), None);
}

#[test]
fn an_answer_outside_of_the_conversation_is_made_beside_another_and_leaves_nothing_behind() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.message("a", "hello");
    let first = talk.ask();
    talk.says(first, "One");
    talk.forget();
    let input = json!([{"type": "item_reference", "id": "a"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Which topic?"}]}]);
    talk.client(json!({"type": "response.create", "response": {"conversation": "none", "input": input,
        "instructions": "Classify.", "output_modalities": ["text"], "metadata": {"topic": "yes"}}}));
    let respond = talk.asked().unwrap().clone();
    assert!(respond.out_of_band && !respond.audio);
    assert_eq!(respond.instructions.as_deref(), Some("Classify."));
    let text = Content::Text { role: Role::User, text: "Which topic?".into() };
    assert!(
        matches!(&respond.input.as_deref(), Some([EngineInput::Item(_), EngineInput::Content(content)]) if *content == text)
    );
    talk.says(respond.response, "Greetings");
    talk.says(first, " two");
    talk.finished(respond.response, FinishReason::Stop);
    let done = &talk.find("response.done")["response"];
    assert_eq!(done["conversation_id"], Value::Null);
    assert_eq!((&done["status"], &done["metadata"]["topic"]), (&json!("completed"), &json!("yes")));
    assert_eq!(done["output"][0]["content"], json!([{"type": "output_text", "text": "Greetings"}]));
    assert!(!talk.kinds().iter().any(|kind| kind.starts_with("conversation.item")), "{:?}", talk.kinds());
    talk.finished(first, FinishReason::Stop);
    let done = &talk.find("response.done")["response"];
    assert_eq!(done["output"][0]["content"][0]["transcript"], "One two");
    assert_eq!(done["conversation_id"], "conv_s");
}

#[test]
fn spoken_answers_of_a_call_with_one_voice_follow_each_other() {
    let mut talk = Talk::new(Delivery::Paced);
    let first = talk.ask();
    talk.forget();
    talk.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
    assert_eq!(talk.kinds(), [""; 0]);
    talk.finished(first, FinishReason::Stop);
    assert!(talk.asked().unwrap().out_of_band);
    // What is written needs no voice.
    talk.client(
        json!({"type": "response.create", "response": {"conversation": "none", "output_modalities": ["text"]}}),
    );
    assert!(!talk.asked().unwrap().audio);
}

#[test]
fn answers_outside_of_the_conversation_are_bounded() {
    for delivery in [Delivery::Paced, Delivery::Unpaced] {
        let mut talk = Talk::new(delivery);
        talk.ask();
        for _ in 0..2 {
            talk.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
            assert!(!talk.kinds().contains(&"error"));
        }
        talk.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
        assert_eq!(talk.code(), "conversation_already_has_active_response");
    }
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
