//! What a client does to items.

use repartee_engine_api::{Command, Content, FinishReason, InsertAt, Role};
use serde_json::{Value, json};

use super::super::Delivery;
use super::Talk;

#[test]
fn items_are_named_once_shown_on_request_and_deleted() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.message("a", "hi");
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], Value::Null);
    talk.message("b", "there");
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], "a");
    talk.message("a", "again");
    assert_eq!(talk.code(), "item_create_duplicate_item_id");
    talk.client(json!({"type": "conversation.item.retrieve", "item_id": "b"}));
    assert_eq!(talk.find("conversation.item.retrieved")["item"]["content"][0]["text"], "there");
    talk.forget();
    talk.client(json!({"type": "conversation.item.delete", "item_id": "a"}));
    assert_eq!(talk.kinds(), ["conversation.item.deleted"]);
    assert!(matches!(talk.commands[..], [Command::Delete { .. }]));
    talk.client(json!({"type": "conversation.item.retrieve", "item_id": "a"}));
    assert_eq!(talk.code(), "item_retrieve_invalid_item_id");
}

/// Puts a text after `previous`; the place that the engine was told.
fn place(talk: &mut Talk, previous: Value, id: &str) -> Option<InsertAt> {
    talk.forget();
    let content = json!([{"type": "input_text", "text": id}]);
    let item = json!({"type": "message", "role": "user", "id": id, "content": content});
    talk.client(json!({"type": "conversation.item.create", "previous_item_id": previous, "item": item}));
    match talk.commands[..] {
        [Command::Insert { place, .. }] => Some(place),
        _ => None,
    }
}

/// The engine's name of the item made last.
fn named(talk: &Talk) -> u64 {
    let Some(Command::Insert { item, .. }) = talk.commands.last() else { panic!("{:?}", talk.commands) };
    *item
}

#[test]
fn items_go_where_the_client_wants_them() {
    let mut talk = Talk::new(Delivery::Unpaced);
    assert_eq!(place(&mut talk, Value::Null, "b"), Some(InsertAt::End));
    let b = named(&talk);
    assert_eq!(place(&mut talk, json!("root"), "a"), Some(InsertAt::Start));
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], Value::Null);
    assert_eq!(place(&mut talk, json!("b"), "d"), Some(InsertAt::End));
    assert_eq!(place(&mut talk, json!("b"), "c"), Some(InsertAt::After(b)));
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], "b");
    assert_eq!(place(&mut talk, json!("nowhere"), "e"), None);
    assert_eq!(talk.code(), "item_create_invalid_previous_item_id");
}

#[test]
fn an_item_behind_one_of_which_nothing_was_heard_follows_the_one_before() {
    let mut talk = Talk::new(Delivery::Unpaced);
    assert_eq!(place(&mut talk, Value::Null, "a"), Some(InsertAt::End));
    let a = named(&talk);
    talk.answer("Never heard.", 500);
    let answer = talk.find("response.done")["response"]["output"][0]["id"].clone();
    assert_eq!(place(&mut talk, Value::Null, "z"), Some(InsertAt::End));
    talk.client(
        json!({"type": "conversation.item.truncate", "item_id": answer, "content_index": 0, "audio_end_ms": 0}),
    );
    assert_eq!(place(&mut talk, answer, "b"), Some(InsertAt::After(a)));
}

#[test]
fn an_answer_stands_where_it_was_asked_for() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let response = talk.ask();
    talk.message("a", "one");
    talk.says(response, "An answer.");
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], Value::Null);
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.message("a", "one");
    let response = talk.ask();
    talk.message("b", "two");
    talk.says(response, "An answer.");
    assert_eq!(talk.find("conversation.item.added")["previous_item_id"], "a");
    let answer = talk.find("conversation.item.added")["item"]["id"].clone();
    talk.finished(response, FinishReason::Stop);
    let item = talk.asked().unwrap().item;
    let b = talk.events.iter().position(|event| event["item"]["id"] == "b").unwrap();
    assert_eq!(talk.events[b]["previous_item_id"], "a", "the answer was not known yet");
    assert_eq!(place(&mut talk, answer, "c"), Some(InsertAt::After(item)));
}

#[test]
fn sound_that_a_client_writes_becomes_history() {
    use base64::Engine as _;
    let mut talk = Talk::new(Delivery::Unpaced);
    let second = repartee_media::pcm::encode_i16le(&vec![0.5; 24_000]);
    let audio = base64::engine::general_purpose::STANDARD.encode(second);
    let content =
        json!([{"type": "input_audio", "audio": audio, "transcript": "hey"}, {"type": "input_text", "text": "?"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    talk.client(json!({"type": "conversation.item.create", "item": item}));
    let [Command::Insert { content: Content::Audio(samples), .. }, Command::Insert { content: text, .. }] =
        &talk.commands[..]
    else {
        panic!("{:?}", talk.kinds())
    };
    assert_eq!(samples.len(), 16_000);
    assert_eq!(text, &Content::Text { role: Role::User, text: "?".into() });
    let shown = &talk.find("conversation.item.added")["item"]["content"];
    assert_eq!(shown[0], json!({"type": "input_audio", "transcript": "hey"}), "sound is not sent back");
    let id = talk.find("conversation.item.added")["item"]["id"].clone();
    talk.forget();
    talk.client(json!({"type": "conversation.item.delete", "item_id": id}));
    assert_eq!(talk.commands.len(), 2, "both parts go");
}

#[test]
fn an_endless_talk_forgets_its_oldest_items() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let long = "x".repeat(1 << 20);
    for _ in 0..6 {
        let response = talk.ask();
        talk.says(response, &long);
        talk.finished(response, FinishReason::Stop);
    }
    let deleted = talk.kinds().iter().filter(|kind| **kind == "conversation.item.deleted").count();
    assert!((2..=3).contains(&deleted), "{deleted}");
    talk.message("mine", &long);
    assert_eq!(talk.code(), "conversation_too_large", "what a client writes pushes nothing out");
}

#[test]
fn content_that_cannot_be_added_is_named() {
    let mut talk = Talk::new(Delivery::Unpaced);
    for (role, part, param) in [
        ("user", json!({"type": "input_audio", "audio": "%"}), "item.content[1].audio"),
        ("user", json!({"type": "input_audio", "audio": ""}), "item.content[1].audio"),
        ("user", json!({"type": "input_image", "image_url": "data:"}), "item"),
        ("system", json!({"type": "output_audio", "transcript": "x"}), "item.content[1].type"),
    ] {
        let content = json!([{"type": "input_text", "text": "x"}, part]);
        let item = json!({"type": "message", "role": role, "content": content});
        talk.send_anything(&json!({"type": "conversation.item.create", "item": item}).to_string());
        let named = talk.events.last().unwrap()["error"]["param"].as_str().unwrap();
        assert!(named.starts_with(param), "{named}");
        assert_eq!(talk.commands, []);
    }
}

#[test]
fn a_websocket_client_says_what_was_heard() {
    let mut talk = Talk::new(Delivery::Unpaced);
    talk.answer("The sky is blue today.", 2_000);
    let id = talk.find("response.done")["response"]["output"][0]["id"].clone();
    talk.forget();
    let mut truncate = json!({"type": "conversation.item.truncate", "content_index": 0, "audio_end_ms": 1_000});
    truncate["item_id"] = id.clone();
    talk.client(truncate.clone());
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 1_000);
    assert_eq!(talk.cut(), Some("The sky is"));
    // Beyond the end of what is left is the end.
    truncate["audio_end_ms"] = json!(9_000);
    talk.client(truncate);
    let truncated = talk.find("conversation.item.truncated");
    assert_eq!(truncated["audio_end_ms"], 1_000);
    assert!(truncated["repartee"]["warnings"][0].as_str().unwrap().contains("9000"), "{truncated}");
    talk.client(json!({"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 0}));
    assert_eq!(talk.code(), "item_truncate_invalid_item_id");
}
