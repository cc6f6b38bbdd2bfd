//! Whatever happens in whatever order: no panic, and what clients rely on holds.

use std::collections::HashSet;

use proptest::prelude::*;
use repartee_engine::session::{Command, FinishReason};
use serde_json::{Value, json};

use super::super::{Delivery, Input, PlayoutReport};
use super::Talk;
use crate::media::vad::TurnEvent;

/// Something that happens.
#[derive(Debug, Clone)]
enum Step {
    Sound(usize),
    SpeechStarts,
    SpeechStops,
    Client(Value),
    Says,
    Sounds,
    Finishes,
    Played(u64),
    Drained,
}

fn step() -> impl Strategy<Value = Step> {
    let content = json!([{"type": "input_text", "text": "hello there"}]);
    let client = prop::sample::select(vec![
        json!({"type": "input_audio_buffer.commit"}),
        json!({"type": "input_audio_buffer.clear"}),
        json!({"type": "output_audio_buffer.clear"}),
        json!({"type": "response.create"}),
        json!({"type": "response.cancel"}),
        json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": null}}}}),
        json!({"type": "session.update", "session": {"audio": {"input": {"turn_detection": {"type": "server_vad"}}}}}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}),
    ]);
    prop_oneof![
        (1usize..20).prop_map(|pieces| Step::Sound(pieces * 20)),
        Just(Step::SpeechStarts),
        Just(Step::SpeechStops),
        client.prop_map(Step::Client),
        Just(Step::Says),
        Just(Step::Sounds),
        Just(Step::Finishes),
        (0u64..2_000).prop_map(Step::Played),
        Just(Step::Drained),
    ]
}

fn happens(talk: &mut Talk, received_ms: &mut u64, step: Step) {
    let response = talk.asked().map_or(0, |respond| respond.response);
    match step {
        Step::Sound(ms) => {
            talk.sound(ms);
            *received_ms += ms as u64;
        }
        Step::SpeechStarts => {
            let audio_start_ms = received_ms.saturating_sub(300);
            talk.input(Input::Turn(TurnEvent::SpeechStarted { audio_start_ms }));
        }
        Step::SpeechStops => talk.input(Input::Turn(TurnEvent::SpeechStopped { audio_end_ms: *received_ms })),
        Step::Client(event) => talk.client(event),
        Step::Says => talk.says(response, "word "),
        Step::Sounds => talk.sounds(response, 80),
        Step::Finishes => talk.finished(response, FinishReason::Stop),
        Step::Played(heard_ms) => {
            talk.input(Input::Playout(PlayoutReport::Started { response }));
            talk.hears(response, heard_ms);
        }
        Step::Drained => talk.input(Input::Playout(PlayoutReport::Drained { response })),
    }
}

proptest! {
    #[test]
    fn the_wire_stays_in_order(steps in prop::collection::vec(step(), 1..80), paced in any::<bool>()) {
        let mut talk = Talk::new(if paced { Delivery::Paced } else { Delivery::Unpaced });
        let mut received_ms = 0;
        for step in steps {
            happens(&mut talk, &mut received_ms, step);
        }
        let (mut names, mut active, mut items) = (HashSet::new(), None, HashSet::new());
        for event in &talk.events {
            prop_assert!(names.insert(event["event_id"].clone()), "a name was used twice");
            let response = || event["response"]["id"].clone();
            match event["type"].as_str().unwrap() {
                "response.created" => {
                    prop_assert_eq!(&active, &None, "two answers at a time");
                    active = Some(response());
                }
                "response.done" => prop_assert_eq!(active.take(), Some(response())),
                "conversation.item.added" => prop_assert!(items.insert(event["item"]["id"].clone())),
                "conversation.item.done" => prop_assert!(items.contains(&event["item"]["id"])),
                "conversation.item.truncated" => prop_assert!(items.contains(&event["item_id"])),
                kind if kind.starts_with("response.output") => {
                    prop_assert_eq!(active.as_ref(), Some(&event["response_id"]));
                }
                _ => {}
            }
        }
        // The engine never hears of a commit without sound, or of two items under one name.
        let (mut open, mut committed) = (0, HashSet::new());
        for command in &talk.commands {
            match command {
                Command::Append(samples) => open += samples.len(),
                Command::Clear => open = 0,
                Command::Commit { item } => {
                    prop_assert!(open > 0, "an empty commit");
                    prop_assert!(committed.insert(*item));
                    open = 0;
                }
                _ => {}
            }
        }
    }
}
