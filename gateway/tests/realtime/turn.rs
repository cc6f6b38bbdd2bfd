//! Whole turns over the websocket.

use std::sync::Arc;

use repartee_testkit::scripted::{FRAME_SAMPLES, Script, voice};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use repartee_gateway_testkit::{Running, find, kinds, question, silence, sound};

/// Events of one answer, in order.
const ANSWER: [&str; 13] = [
    "response.created",
    "rate_limits.updated",
    "response.output_item.added",
    "conversation.item.added",
    "response.content_part.added",
    "response.output_audio_transcript.delta",
    "response.output_audio.delta",
    "response.output_audio.done",
    "response.output_audio_transcript.done",
    "response.content_part.done",
    "response.output_item.done",
    "conversation.item.done",
    "response.done",
];

#[tokio::test]
async fn a_spoken_question_is_answered_aloud() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.speak(&question(), 480).await;
    let events = client.until("response.done").await;

    let mut expected = vec![
        "input_audio_buffer.speech_started",
        "input_audio_buffer.speech_stopped",
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
    ];
    expected.extend(ANSWER);
    assert_eq!(kinds(&events), expected);

    // All events have the same item id for the turn.
    let item = &events[0]["item_id"];
    assert!(item.is_string());
    for event in &events[1..3] {
        assert_eq!(event["item_id"], *item);
    }
    assert_eq!(events[2]["previous_item_id"], Value::Null);
    assert_eq!(events[3]["item"]["id"], *item);
    assert_eq!(events[3]["item"]["content"], json!([{"type": "input_audio", "transcript": null}]));

    // The engine received the turn exactly up to the pause that ended it.
    let (start, end) = (events[0]["audio_start_ms"].as_u64().unwrap(), events[1]["audio_end_ms"].as_u64().unwrap());
    let transcript = find(&events, "response.output_audio_transcript.done")["transcript"].as_str().unwrap();
    assert_eq!(transcript, format!("I heard {} ms.", end - start - (512 - 208)));
    let pieces = events.iter().filter(|event| event["type"] == "response.output_audio_transcript.delta");
    assert_eq!(pieces.map(|event| event["delta"].as_str().unwrap()).collect::<String>(), transcript);

    // The answer's sound is whole.
    let sound = sound(&events);
    assert_eq!(sound.len(), 5 * FRAME_SAMPLES);
    let worst = (0..5).flat_map(voice).zip(&sound).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-4, "{worst}");

    let answer = &find(&events, "response.done")["response"];
    assert_eq!(answer["status"], "completed");
    assert_eq!(answer["usage"]["total_tokens"], 10 + 20 + 4 + 5);
    assert_eq!(answer["output"][0]["content"], json!([{"type": "output_audio", "transcript": transcript}]));
    assert_eq!(find(&events, "response.content_part.added")["part"]["type"], "audio");
    let placed = events.iter().filter(|event| event["type"] == "conversation.item.added").nth(1).unwrap();
    assert_eq!(placed["previous_item_id"], *item);
}

#[tokio::test]
async fn any_split_gives_the_same_turn() {
    let server = Running::start(Script::default()).await;
    let mut turns = Vec::new();
    for piece in [100, 480, 7_001, 200_000] {
        let mut client = server.connect().await;
        client.speak(&question(), piece).await;
        let events = client.until("response.done").await;
        let transcript = find(&events, "response.output_audio_transcript.done")["transcript"].clone();
        turns.push((events[0]["audio_start_ms"].clone(), events[1]["audio_end_ms"].clone(), transcript));
    }
    turns.dedup();
    assert_eq!(turns.len(), 1, "{turns:?}");
}

#[tokio::test]
async fn event_ids_are_unique() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let mut names: Vec<_> = Vec::new();
    for _ in 0..2 {
        client.speak(&question(), 480).await;
        let events = client.until("response.done").await;
        names.extend(events.iter().map(|event| event["event_id"].as_str().unwrap().to_owned()));
    }
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[tokio::test]
async fn a_second_turn_follows_the_first() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.speak(&question(), 480).await;
    let first = client.until("response.done").await;
    client.speak(&question(), 480).await;
    let second = client.until("response.done").await;
    assert_eq!(kinds(&second), kinds(&first));
    let answer = &find(&first, "response.done")["response"]["output"][0]["id"];
    assert_eq!(find(&second, "input_audio_buffer.committed")["previous_item_id"], *answer);
}

#[tokio::test]
async fn push_to_talk_waits_for_the_client() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let session = client.update(json!({"type": "realtime", "audio": {"input": {"turn_detection": null}}})).await;
    assert_eq!(session["audio"]["input"]["turn_detection"], Value::Null);
    client.speak(&question()[..24_000], 480).await;
    client.send(json!({"type": "input_audio_buffer.commit"})).await;
    client.expect("input_audio_buffer.committed").await;
    client.expect("conversation.item.added").await;
    client.expect("conversation.item.done").await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    assert_eq!(kinds(&events), ANSWER);
    let transcript = &find(&events, "response.output_audio_transcript.done")["transcript"];
    assert_eq!(transcript, "I heard 1000 ms.");
}

#[tokio::test]
async fn text_can_be_answered_with_text() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.update(json!({"output_modalities": ["text"]})).await;
    let events = client.ask("hello").await;
    assert_eq!(
        kinds(&events),
        [
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
            "rate_limits.updated",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
    );
    assert_eq!(find(&events, "response.output_text.done")["text"], "You wrote: hello");
    assert_eq!(
        find(&events, "response.content_part.done")["part"],
        json!({"type": "text", "text": "You wrote: hello"})
    );
}

#[tokio::test]
async fn speech_cancels_the_response() {
    let gate = Arc::new(Semaphore::new(2));
    let server = Running::start(Script { frames: 50, gate: Some(gate), ..Script::default() }).await;
    let mut client = server.connect().await;
    client.speak(&question(), 480).await;
    // Two frames arrive, and the third never does.
    client.until("response.output_audio.delta").await;
    client.expect("response.output_audio.delta").await;
    client.speak(&question(), 480).await;
    client.expect("input_audio_buffer.speech_started").await;
    let events = client.until("response.done").await;
    let answer = &find(&events, "response.done")["response"];
    assert_eq!(answer["status"], "cancelled");
    assert_eq!(answer["status_details"], json!({"type": "cancelled", "reason": "turn_detected"}));
    assert_eq!(answer["output"][0]["status"], "incomplete");
    // The client reports the played duration, and the engine's history follows.
    let item = answer["output"][0]["id"].clone();
    let mut truncate = json!({"type": "conversation.item.truncate", "content_index": 0, "audio_end_ms": 99_999});
    truncate["item_id"] = item.clone();
    client.send(truncate).await;
    let truncated = client.until("conversation.item.truncated").await.pop().unwrap();
    assert_eq!((&truncated["item_id"], &truncated["audio_end_ms"]), (&item, &json!(160)));
    assert!(truncated["repartee"]["warnings"][0].is_string(), "{truncated}");
}

#[tokio::test]
async fn a_long_response_is_complete() {
    // 80 s of speech, generated far faster than the client reads.
    let server = Running::start(Script { frames: 1_000, ..Script::default() }).await;
    let mut client = server.connect().await;
    let events = client.ask("talk").await;
    assert_eq!(sound(&events).len(), 1_000 * FRAME_SAMPLES);
    assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
}

#[tokio::test]
async fn silence_is_not_submitted() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    client.speak(&silence(3_000), 480).await;
    client.update(json!({})).await;
    assert_eq!(server.engine.commands(), []);
}

#[tokio::test]
async fn g711_goes_both_ways() {
    let server = Running::start(Script::default()).await;
    let mut client = server.connect().await;
    let format = json!({"type": "audio/pcmu"});
    let session = json!({"audio": {"input": {"format": format, "turn_detection": null}, "output": {"format": format}}});
    let session = client.update(session).await;
    assert_eq!(session["audio"]["output"]["format"], format);
    use base64::Engine as _;
    let audio = base64::engine::general_purpose::STANDARD.encode(vec![0xff; 8_000]);
    client.send(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
    client.send(json!({"type": "input_audio_buffer.commit"})).await;
    client.send(json!({"type": "response.create"})).await;
    let events = client.until("response.done").await;
    assert_eq!(find(&events, "response.output_audio_transcript.done")["transcript"], "I heard 1000 ms.");
    let deltas = events.iter().filter(|event| event["type"] == "response.output_audio.delta");
    let bytes: usize = deltas
        .map(|event| base64::engine::general_purpose::STANDARD.decode(event["delta"].as_str().unwrap()).unwrap().len())
        .sum();
    assert_eq!(bytes, 5 * FRAME_SAMPLES / 3);
}

#[tokio::test]
async fn turns_are_transcribed_on_request() {
    let server = Running::start(Script { has_transcription: true, ..Script::default() }).await;
    let mut client = server.connect().await;
    let session = client.update(json!({"audio": {"input": {"transcription": {"language": "en"}}}})).await;
    assert_eq!(session["audio"]["input"]["transcription"], json!({"model": "scripted", "language": "en"}));
    client.speak(&question(), 480).await;
    const COMPLETED: &str = "conversation.item.input_audio_transcription.completed";
    let (mut events, mut left) = (Vec::new(), vec![COMPLETED, "response.done"]);
    while !left.is_empty() {
        let event = client.event().await;
        left.retain(|kind| event["type"] != *kind);
        events.push(event);
    }
    let heard = find(&events, "response.output_audio_transcript.done")["transcript"].as_str().unwrap();
    let ms = heard.trim_start_matches("I heard ").trim_end_matches(" ms.");
    let completed = find(&events, COMPLETED);
    assert_eq!(completed["transcript"], format!("words of {ms} ms"));
    assert_eq!(completed["item_id"], find(&events, "input_audio_buffer.committed")["item_id"]);
    let done = &find(&events, "response.done")["response"];
    assert_eq!(
        (&done["status"], &done["output"][1]),
        (&json!("completed"), &Value::Null),
        "nothing of it is in the answer"
    );
}
