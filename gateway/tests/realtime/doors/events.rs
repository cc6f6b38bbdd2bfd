//! Client events of a session.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee_gateway_testkit::{find, question, sound};
use repartee_media::pcm;
use serde_json::{Value, json};

use super::{Doors, Mood, SAID, SORRY, heard, message, refused, transcript, turn};

pub(super) async fn session_update(doors: &Doors) {
    let mut caller = doors.caller().await;
    let output = json!({"voice": "grace"});
    let session = caller.update(json!({"instructions": "be brief", "audio": {"output": output}})).await;
    assert_eq!(session["audio"]["output"]["voice"], "grace", "{session}");
    let error = refused(&mut caller, json!({"type": "session.update", "session": {"max_output_tokens": -1}})).await;
    assert_eq!(error["param"], "session.max_output_tokens", "{error}");
    assert_eq!(transcript(&caller.ask("Hello?").await), SAID);
    assert_eq!(doors.asked()[0], json!({"role": "system", "content": "be brief"}), "as before the refusal");
}

pub(super) async fn append_and_commit(doors: &Doors) {
    let mut caller = doors.caller().await;
    let before = doors.count();
    let (_, heard) = heard(&mut caller).await;
    assert!(!heard.trim().is_empty() && doors.count() == before, "{heard:?}");
    caller.send(json!({"type": "response.create"})).await;
    assert_eq!(transcript(&caller.until("response.done").await), SAID);
    assert_eq!(doors.asked()[0]["content"].as_str().unwrap().trim(), heard.trim());
}

pub(super) async fn append(doors: &Doors) {
    append_and_commit(doors).await;
    let mut caller = doors.caller().await;
    let error = refused(&mut caller, json!({"type": "input_audio_buffer.append", "audio": "%"})).await;
    assert_eq!(error["param"], "audio", "{error}");
}

pub(super) async fn commit(doors: &Doors) {
    append_and_commit(doors).await;
    let mut caller = doors.caller().await;
    let error = refused(&mut caller, json!({"type": "input_audio_buffer.commit"})).await;
    assert_eq!(error["code"], "input_audio_buffer_commit_empty", "{error}");
}

pub(super) async fn clear(doors: &Doors) {
    let mut caller = doors.caller().await;
    caller.speak(&turn(), 4_800).await;
    caller.send(json!({"type": "input_audio_buffer.clear"})).await;
    let events = caller.until("input_audio_buffer.cleared").await;
    assert!(events.iter().all(|event| event["type"] != "error"), "{events:?}");
    caller.ask("Hello?").await;
    assert_eq!(doors.asked(), json!([{"role": "user", "content": "Hello?"}]), "the words are forgotten");
}

pub(super) async fn create_text(doors: &Doors) {
    let mut caller = doors.caller().await;
    assert_eq!(transcript(&caller.ask("the lazy dog").await), SAID);
    assert_eq!(doors.asked(), json!([{"role": "user", "content": "the lazy dog"}]));
    let mut unknown = message("Well?");
    unknown["previous_item_id"] = json!("item_of_nobody");
    assert_eq!(refused(&mut caller, unknown).await["param"], "previous_item_id");
}

pub(super) async fn create_sound(doors: &Doors) {
    let mut caller = doors.caller().await;
    let (_, heard) = heard(&mut caller).await;
    let mut caller = doors.caller().await;
    let sound = |audio: &str| json!([{"type": "input_audio", "audio": audio}]);
    let item = |audio: &str| json!({"type": "message", "role": "user", "content": sound(audio)});
    let audio = STANDARD.encode(pcm::encode_i16le(&turn()));
    caller.send(json!({"type": "conversation.item.create", "item": item(&audio)})).await;
    caller.send(json!({"type": "response.create"})).await;
    assert_eq!(transcript(&caller.until("response.done").await), SAID);
    assert_eq!(doors.asked()[0]["content"].as_str().unwrap().trim(), heard.trim(), "heard as a turn");
    let error = refused(&mut caller, json!({"type": "conversation.item.create", "item": item("%")})).await;
    assert!(error["param"].as_str().unwrap().starts_with("item.content[0]"), "{error}");
}

pub(super) async fn retrieve(doors: &Doors) {
    let mut caller = doors.caller().await;
    let (item, heard) = heard(&mut caller).await;
    caller.send(json!({"type": "conversation.item.retrieve", "item_id": item})).await;
    let events = caller.until("conversation.item.retrieved").await;
    let content = &find(&events, "conversation.item.retrieved")["item"]["content"][0];
    assert_eq!(content["transcript"], heard, "{content}");
    let unknown = json!({"type": "conversation.item.retrieve", "item_id": "item_of_nobody"});
    assert_eq!(refused(&mut caller, unknown).await["param"], "item_id");
}

pub(super) async fn delete(doors: &Doors) {
    let mut caller = doors.caller().await;
    let (item, _) = heard(&mut caller).await;
    caller.send(json!({"type": "conversation.item.delete", "item_id": item})).await;
    caller.until("conversation.item.deleted").await;
    caller.ask("Hello?").await;
    assert_eq!(doors.asked(), json!([{"role": "user", "content": "Hello?"}]));
    let unknown = json!({"type": "conversation.item.delete", "item_id": "item_of_nobody"});
    assert_eq!(refused(&mut caller, unknown).await["param"], "item_id");
}

pub(super) async fn truncate(doors: &Doors) {
    let mut caller = doors.caller().await;
    let events = caller.ask("What does the dog do?").await;
    let item = find(&events, "response.output_item.done")["item"]["id"].clone();
    let cut = |item: &Value, at| json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0, "audio_end_ms": at});
    caller.send(cut(&item, 0)).await;
    caller.until("conversation.item.truncated").await;
    caller.ask("Really?").await;
    let asked = doors.asked();
    assert!(!asked.to_string().contains(SAID) && asked.to_string().contains("Really?"), "nothing was heard: {asked}");
    assert_eq!(refused(&mut caller, cut(&json!("item_of_nobody"), 0)).await["param"], "item_id");
}

pub(super) async fn respond(doors: &Doors) {
    let mut caller = doors.caller().await;
    let (_, heard) = heard(&mut caller).await;
    doors.set(Mood::Fails);
    caller.send(json!({"type": "response.create"})).await;
    let events = caller.until("response.done").await;
    assert!(!sound(&events).is_empty() && transcript(&events) == SORRY, "the fallback is spoken");
    caller.send(message("Hello?")).await;
    caller.send(json!({"type": "response.create", "response": {"output_modalities": ["text"]}})).await;
    let events = caller.until("response.done").await;
    let failed = &find(&events, "response.done")["response"];
    assert_eq!(failed["status_details"]["error"]["code"], "language_model_failed", "{failed}");
    doors.set(Mood::Answers);
    caller.send(json!({"type": "response.create"})).await;
    let events = caller.until("response.done").await;
    assert!(!sound(&events).is_empty() && transcript(&events) == SAID);
    assert_eq!(doors.asked()[0]["content"].as_str().unwrap().trim(), heard.trim(), "the history stays");
}

pub(super) async fn out_of_band(doors: &Doors) {
    let mut caller = doors.caller().await;
    let ask =
        json!({"type": "response.create", "response": {"conversation": "none", "input": [message("Apart?")["item"]]}});
    for (mood, said) in [(Mood::Fails, SORRY), (Mood::Answers, SAID)] {
        doors.set(mood);
        caller.send(ask.clone()).await;
        assert_eq!(transcript(&caller.until("response.done").await), said);
        assert_eq!(doors.asked(), json!([{"role": "user", "content": "Apart?"}]));
    }
    caller.ask("Hello?").await;
    assert_eq!(doors.asked(), json!([{"role": "user", "content": "Hello?"}]), "it leaves no history");
}

pub(super) async fn cancel(doors: &Doors) {
    let mut caller = doors.caller().await;
    let before = *doors.closed.borrow();
    doors.set(Mood::Waits);
    caller.send(message("Tell me a story.")).await;
    caller.send(json!({"type": "response.create"})).await;
    caller.until("response.output_audio.delta").await;
    caller.send(json!({"type": "response.cancel"})).await;
    let events = caller.until("response.done").await;
    assert_eq!(find(&events, "response.done")["response"]["status"], "cancelled");
    doors.close_after(before).await;
    doors.set(Mood::Answers);
    assert_eq!(refused(&mut caller, json!({"type": "response.cancel"})).await["code"], "response_cancel_not_active");
    assert_eq!(transcript(&caller.ask("Well?").await), SAID);
}

pub(super) async fn barge_in(doors: &Doors) {
    let mut caller = doors.server.connect().await;
    let before = *doors.closed.borrow();
    doors.set(Mood::Waits);
    caller.send(message("Tell me a story.")).await;
    caller.send(json!({"type": "response.create"})).await;
    caller.until("response.output_audio.delta").await;
    doors.set(Mood::Answers);
    caller.speak(&question(), 4_800).await;
    let events = caller.until("response.done").await;
    assert_eq!(
        find(&events, "response.done")["response"]["status"],
        "cancelled",
        "{:?}",
        find(&events, "response.done")
    );
    doors.close_after(before).await;
    assert_eq!(transcript(&caller.until("response.done").await), SAID, "the turn is answered");
}

pub(super) async fn reads(doors: &Doors) {
    let mut caller = doors.caller().await;
    let before = doors.count();
    doors.set(Mood::Fails);
    caller.send(json!({"type": "response.create", "response": {"repartee": {"reads": true}}})).await;
    for piece in ["The do", "g."] {
        caller.send(json!({"type": "repartee.text.append", "text": piece})).await;
    }
    caller.send(json!({"type": "repartee.text.done"})).await;
    let events = caller.until("response.done").await;
    assert!(transcript(&events) == "The dog." && !sound(&events).is_empty(), "{events:?}");
    assert_eq!(doors.count(), before, "nothing is asked");
    let mut caller = doors.caller().await;
    let error = refused(&mut caller, json!({"type": "repartee.text.append", "text": "Again."})).await;
    assert_eq!(error["param"], "text", "{error}");
}
