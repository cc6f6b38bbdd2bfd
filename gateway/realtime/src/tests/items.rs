//! `conversation.item.*`.

use repartee_engine_api::{Command, FinishReason, InsertAt, MessageContent, Role};
use serde_json::{Value, json};

use super::super::{Delivery, Effect};
use super::Harness;

#[test]
fn items_can_be_retrieved_and_deleted() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.message("a", "hi");
    assert_eq!(harness.find("conversation.item.added")["previous_item_id"], Value::Null);
    harness.message("b", "there");
    assert_eq!(harness.find("conversation.item.added")["previous_item_id"], "a");
    harness.message("a", "again");
    assert_eq!(harness.error_code(), "item_create_duplicate_item_id");
    harness.client(json!({"type": "conversation.item.retrieve", "item_id": "b"}));
    assert_eq!(harness.find("conversation.item.retrieved")["item"]["content"][0]["text"], "there");
    harness.clear();
    harness.client(json!({"type": "conversation.item.delete", "item_id": "a"}));
    assert_eq!(harness.event_types(), ["conversation.item.deleted"]);
    assert!(matches!(harness.commands[..], [Command::Delete { .. }]));
    harness.client(json!({"type": "conversation.item.retrieve", "item_id": "a"}));
    assert_eq!(harness.error_code(), "item_retrieve_invalid_item_id");
}

/// Creates a message after `previous`; returns the engine's insert position.
fn insert(harness: &mut Harness, previous: Value, id: &str) -> Option<InsertAt> {
    harness.clear();
    let content = json!([{"type": "input_text", "text": id}]);
    let item = json!({"type": "message", "role": "user", "id": id, "content": content});
    harness.client(json!({"type": "conversation.item.create", "previous_item_id": previous, "item": item}));
    match harness.commands[..] {
        [Command::Insert { place, .. }] => Some(place),
        _ => None,
    }
}

/// Engine id of the last item.
fn last_item(harness: &Harness) -> u64 {
    let Some(Command::Insert { item, .. }) = harness.commands.last() else { panic!("{:?}", harness.commands) };
    *item
}

#[test]
fn items_go_after_previous_item_id() {
    let mut harness = Harness::new(Delivery::Unpaced);
    assert_eq!(insert(&mut harness, Value::Null, "b"), Some(InsertAt::End));
    let b = last_item(&harness);
    assert_eq!(insert(&mut harness, json!("root"), "a"), Some(InsertAt::Start));
    assert_eq!(harness.find("conversation.item.added")["previous_item_id"], Value::Null);
    assert_eq!(insert(&mut harness, json!("b"), "d"), Some(InsertAt::End));
    assert_eq!(insert(&mut harness, json!("b"), "c"), Some(InsertAt::After(b)));
    assert_eq!(harness.find("conversation.item.added")["previous_item_id"], "b");
    assert_eq!(insert(&mut harness, json!("nowhere"), "e"), None);
    assert_eq!(harness.error_code(), "item_create_invalid_previous_item_id");
}

#[test]
fn item_after_an_emptied_one_keeps_its_place() {
    let mut harness = Harness::new(Delivery::Unpaced);
    assert_eq!(insert(&mut harness, Value::Null, "a"), Some(InsertAt::End));
    let a = last_item(&harness);
    harness.whole_response("Never heard.", 500);
    let response_item = harness.find("response.done")["response"]["output"][0]["id"].clone();
    assert_eq!(insert(&mut harness, Value::Null, "z"), Some(InsertAt::End));
    harness.client(
        json!({"type": "conversation.item.truncate", "item_id": response_item, "content_index": 0, "audio_end_ms": 0}),
    );
    assert_eq!(insert(&mut harness, response_item, "b"), Some(InsertAt::After(a)));
}

#[test]
fn response_item_keeps_its_place() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.message("a", "one");
    harness.engine_text(response, "An answer.");
    assert_eq!(harness.find("conversation.item.added")["previous_item_id"], Value::Null);
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.message("a", "one");
    let response = harness.create_response();
    harness.message("b", "two");
    harness.engine_text(response, "An answer.");
    assert_eq!(harness.find("conversation.item.added")["previous_item_id"], "a");
    let response_item = harness.find("conversation.item.added")["item"]["id"].clone();
    harness.engine_finished(response, FinishReason::Stop);
    let item = harness.last_respond().unwrap().item;
    let b = harness.events.iter().position(|event| event["item"]["id"] == "b").unwrap();
    assert_eq!(harness.events[b]["previous_item_id"], "a", "the response has no item yet");
    assert_eq!(insert(&mut harness, response_item, "c"), Some(InsertAt::After(item)));
}

#[test]
fn client_audio_item_becomes_history() {
    use base64::Engine as _;
    let mut harness = Harness::new(Delivery::Unpaced);
    let second = repartee_media::pcm::encode_i16le(&vec![0.5; 24_000]);
    let audio = base64::engine::general_purpose::STANDARD.encode(second);
    let content =
        json!([{"type": "input_audio", "audio": audio, "transcript": "hey"}, {"type": "input_text", "text": "?"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    harness.client(json!({"type": "conversation.item.create", "item": item}));
    let [Command::Insert { content: MessageContent::Audio(samples), .. }, Command::Insert { content: text, .. }] =
        &harness.commands[..]
    else {
        panic!("{:?}", harness.event_types())
    };
    assert_eq!(samples.len(), 16_000);
    assert_eq!(text, &MessageContent::Text { role: Role::User, text: "?".into() });
    let shown = &harness.find("conversation.item.added")["item"]["content"];
    assert_eq!(shown[0], json!({"type": "input_audio", "transcript": "hey"}), "audio is not sent back");
    let id = harness.find("conversation.item.added")["item"]["id"].clone();
    harness.clear();
    harness.client(json!({"type": "conversation.item.delete", "item_id": id}));
    assert_eq!(harness.commands.len(), 2, "both parts are deleted");
}

#[test]
fn models_without_audio_input_get_no_sound() {
    let deaf = repartee_engine_api::ModelInfo { audio_input: false, ..super::model() };
    let mut harness = Harness::with_model(Delivery::Unpaced, deaf);
    let item = json!({"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "AAAA"}]});
    harness.client(json!({"type": "conversation.item.create", "item": item}));
    assert_eq!(harness.event_types(), ["error"], "it is not in the conversation");
    let error = &harness.events[0]["error"];
    assert_eq!((&error["code"], &error["param"]), (&json!("invalid_value"), &json!("item.content[0].audio")));
    assert_eq!(harness.commands, []);
}

#[test]
fn models_without_audio_output_answer_in_text() {
    let (voices, default_voice) = (Vec::new(), String::new());
    let text_only = repartee_engine_api::ModelInfo { audio_output: false, voices, default_voice, ..super::model() };
    let mut harness = Harness::with_model(Delivery::Unpaced, text_only);
    harness.update(json!({"output_modalities": ["audio"]}));
    assert_eq!(harness.find("session.updated")["session"]["output_modalities"], json!(["text"]));
    for response in [json!({}), json!({"output_modalities": ["audio"]})] {
        harness.client(json!({"type": "response.create", "response": response}));
        let request = harness.last_respond().unwrap();
        assert_eq!((request.audio, request.voice.as_deref()), (false, None));
        let number = request.response;
        harness.engine_finished(number, FinishReason::Stop);
        assert_eq!(harness.find("response.done")["response"]["output_modalities"], json!(["text"]));
    }
}

#[test]
fn oldest_items_are_deleted_when_memory_is_full() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let long = "x".repeat(1 << 20);
    for _ in 0..6 {
        let response = harness.create_response();
        harness.engine_text(response, &long);
        harness.engine_finished(response, FinishReason::Stop);
    }
    let deleted = harness.event_types().iter().filter(|kind| **kind == "conversation.item.deleted").count();
    assert!((2..=3).contains(&deleted), "{deleted}");
    harness.message("mine", &"word ".repeat(long.len() / 5));
    assert_eq!(harness.error_code(), "conversation_too_large", "a client's item deletes nothing");
}

#[test]
fn empty_parts_take_memory_too() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let parts = vec![json!({"type": "input_text", "text": ""}); 2_000];
    let item = json!({"type": "message", "role": "user", "content": parts});
    let created = |harness: &mut Harness| {
        harness.clear();
        harness.client(json!({"type": "conversation.item.create", "item": item}));
        harness.event_types().contains(&"conversation.item.added")
    };
    // A part without text takes some 50 bytes, and a conversation 4 MiB.
    let items = (0..200).take_while(|_| created(&mut harness)).count();
    assert!((20..100).contains(&items), "{items}");
    assert_eq!(harness.error_code(), "conversation_too_large");
}

#[test]
fn invalid_content_is_named() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for (role, part, param) in [
        ("user", json!({"type": "input_audio", "audio": "%"}), "item.content[1].audio"),
        ("user", json!({"type": "input_audio", "audio": ""}), "item.content[1].audio"),
        ("system", json!({"type": "input_image", "image_url": "data:"}), "item.content[1].type"),
        ("system", json!({"type": "output_audio", "transcript": "x"}), "item.content[1].type"),
    ] {
        let content = json!([{"type": "input_text", "text": "x"}, part]);
        let item = json!({"type": "message", "role": role, "content": content});
        harness.client_text(&json!({"type": "conversation.item.create", "item": item}).to_string());
        let named = harness.events.last().unwrap()["error"]["param"].as_str().unwrap();
        assert!(named.starts_with(param), "{named}");
        assert_eq!(harness.commands, []);
    }
}

#[test]
fn client_truncate_keeps_what_was_heard() {
    let mut harness = Harness::new(Delivery::Unpaced);
    harness.whole_response("The sky is blue today.", 2_000);
    let id = harness.find("response.done")["response"]["output"][0]["id"].clone();
    harness.clear();
    let mut truncate = json!({"type": "conversation.item.truncate", "content_index": 0, "audio_end_ms": 1_000});
    truncate["item_id"] = id.clone();
    harness.client(truncate.clone());
    assert_eq!(harness.find("conversation.item.truncated")["audio_end_ms"], 1_000);
    assert_eq!(harness.truncated_text(), Some("The sky is"));
    // A position beyond the remaining audio is clamped to its end.
    truncate["audio_end_ms"] = json!(9_000);
    harness.client(truncate);
    let truncated = harness.find("conversation.item.truncated");
    assert_eq!(truncated["audio_end_ms"], 1_000);
    assert!(truncated["repartee"]["warnings"][0].as_str().unwrap().contains("9000"), "{truncated}");
    harness
        .client(json!({"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 0}));
    assert_eq!(harness.error_code(), "item_truncate_invalid_item_id");
}

#[test]
fn truncated_stopped_items_drop_unspoken_text() {
    let text = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen.";
    let kept = |reason: FinishReason| {
        let mut harness = Harness::new(Delivery::Unpaced);
        let response = harness.create_response();
        harness.engine_text(response, text);
        harness.engine_audio(response, 2_000);
        if reason == FinishReason::Cancelled {
            harness.client(json!({"type": "response.cancel"}));
        }
        harness.engine_finished(response, reason);
        let id = harness.find("response.done")["response"]["output"][0]["id"].clone();
        harness.clear();
        let truncate =
            json!({"type": "conversation.item.truncate", "item_id": id, "content_index": 0, "audio_end_ms": 1_000});
        harness.client(truncate.clone());
        let kept = harness.truncated_text().unwrap().to_owned();
        // Then the text is that of the audio: the same position keeps it.
        harness.clear();
        harness.client(truncate);
        assert_eq!(harness.truncated_text(), Some(&kept[..]));
        kept
    };
    // A quick voice, and a slower one whose audio is behind the text.
    assert_eq!(kept(FinishReason::Stop), "One two three four five six seven eight nine");
    assert_eq!(kept(FinishReason::Cancelled), "One two three");
}

#[test]
fn image_is_kept_without_its_bytes() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let image = json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "low"});
    let content = json!([{"type": "input_text", "text": "What is this?"}, image]);
    let item = json!({"type": "message", "role": "user", "id": "a", "content": content});
    harness.client(json!({"type": "conversation.item.create", "item": item}));
    assert_eq!(harness.event_types(), ["conversation.item.added", "conversation.item.done"]);
    assert!(
        matches!(&harness.commands[..], [Command::Insert { content: MessageContent::Text { text, .. }, .. }] if text == "What is this?")
    );
    let warnings = &harness.events[0]["repartee"]["warnings"];
    assert!(warnings[0].as_str().unwrap().starts_with("item.content[1]: this model does not see images"), "{warnings}");
    assert_eq!(harness.events[1]["repartee"], Value::Null, "said once");
    assert!(harness.other_effects.contains(&Effect::Unsupported("an input_image")));
    harness.client(json!({"type": "conversation.item.retrieve", "item_id": "a"}));
    let kept = &harness.find("conversation.item.retrieved")["item"]["content"];
    assert_eq!(kept[1], json!({"type": "input_image", "detail": "low"}));
    // An image alone is an item too, without engine content.
    harness.clear();
    let item = json!({"type": "message", "role": "user", "content": [image]});
    harness.client(json!({"type": "conversation.item.create", "item": item}));
    assert_eq!(harness.event_types(), ["conversation.item.added", "conversation.item.done"]);
    assert_eq!(harness.commands, []);
    // Warnings are bounded.
    let many = |count| json!({"type": "message", "role": "user", "content": vec![image.clone(); count]});
    harness.clear();
    harness.client(json!({"type": "conversation.item.create", "item": many(100)}));
    assert_eq!(harness.events[0]["repartee"]["warnings"].as_array().unwrap().len(), 32);
    // An image in a response's own input is a warning too.
    harness.client(json!({"type": "response.create", "response": {"input": [item]}}));
    let warnings = &harness.find("response.created")["repartee"]["warnings"];
    assert!(warnings[0].as_str().unwrap().starts_with("response.input[0].content[0]"), "{warnings}");
    assert_eq!(harness.last_respond().unwrap().input.as_deref(), Some(&[][..]));
}
