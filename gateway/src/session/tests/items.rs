//! What a client does to items.

use repartee_engine::session::Command;
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

#[test]
fn items_go_to_the_end() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let mut place = |previous: &str, id: &str| {
        let content = json!([{"type": "input_text", "text": "x"}]);
        let item = json!({"type": "message", "role": "system", "id": id, "content": content});
        talk.client(json!({"type": "conversation.item.create", "previous_item_id": previous, "item": item}));
        talk.events.last().unwrap()["error"]["code"].clone()
    };
    assert_eq!(place("root", "a"), Value::Null);
    assert_eq!(place("a", "b"), Value::Null);
    assert_eq!(place("a", "c"), "invalid_value");
    assert_eq!(place("root", "c"), "invalid_value");
    assert_eq!(place("nowhere", "c"), "item_create_invalid_previous_item_id");
}

#[test]
fn content_that_cannot_be_added_is_named() {
    let mut talk = Talk::new(Delivery::Unpaced);
    let content = json!([{"type": "input_text", "text": "x"}, {"type": "input_audio", "audio": "AAAA"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    talk.client(json!({"type": "conversation.item.create", "item": item}));
    assert_eq!(talk.events.last().unwrap()["error"]["param"], "item.content[1].type");
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
    assert_eq!(talk.find("conversation.item.truncated")["audio_end_ms"], 1_000);
    talk.client(json!({"type": "conversation.item.truncate", "item_id": "x", "content_index": 0, "audio_end_ms": 0}));
    assert_eq!(talk.code(), "item_truncate_invalid_item_id");
}
