//! Playback and barge-in.

use std::time::Duration;

use repartee_engine_api::{Command, FinishReason, ModelInfo};
use repartee_media::vad::TurnEvent;
use serde_json::{Value, json};

use super::super::{Delivery, Effect, PlayoutReport, SessionInput};
use super::{Harness, model};

#[test]
fn speech_cancels_the_response_on_a_websocket() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One two three");
    harness.engine_audio(response, 800);
    harness.clear();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(harness.commands, [Command::Cancel { response }]);
    harness.engine_finished(response, FinishReason::Cancelled);
    let details = &harness.find("response.done")["response"]["status_details"];
    assert_eq!(details, &json!({"type": "cancelled", "reason": "turn_detected"}));
    assert_eq!(harness.truncated_text(), None, "the client truncates");
}

#[test]
fn turns_during_a_response_create_no_other() {
    for delivery in [Delivery::Unpaced, Delivery::Paced] {
        let mut harness = Harness::new(delivery);
        let detection = json!({"type": "server_vad", "interrupt_response": false});
        harness.update(json!({"audio": {"input": {"turn_detection": detection}}}));
        let response = harness.create_response();
        harness.engine_text(response, "One");
        harness.clear();
        for turn in 0..3 {
            harness.input_audio(400);
            harness.turn(turn * 400, turn * 400 + 400);
        }
        harness.engine_finished(response, FinishReason::Stop);
        assert_eq!(harness.find("response.done")["response"]["status"], "completed");
        assert_eq!(harness.last_respond(), None, "nothing was queued");
        // The turns are in the history: the next response sees them.
        let commits = harness.commands.iter().filter(|command| matches!(command, Command::Commit { .. })).count();
        let committed = harness.event_types().iter().filter(|kind| **kind == "input_audio_buffer.committed").count();
        assert_eq!((commits, committed), (3, 3));
        harness.input_audio(400);
        harness.turn(1_200, 1_600);
        assert_eq!(harness.event_types().iter().filter(|kind| **kind == "response.created").count(), 1);
        assert_eq!(harness.last_respond().unwrap().input, None, "the whole history");
    }
}

#[test]
fn turn_after_an_interruption_is_answered() {
    let mut harness = Harness::new(Delivery::Unpaced);
    let response = harness.create_response();
    harness.engine_text(response, "One");
    harness.clear();
    harness.input_audio(400);
    harness.turn(0, 400);
    assert_eq!(harness.last_respond(), None, "the engine has not stopped yet");
    harness.engine_finished(response, FinishReason::Cancelled);
    assert!(harness.last_respond().is_some());
}

#[test]
fn playout_reports_become_output_buffer_events() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("Hello.", 500);
    harness.clear();
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.input(SessionInput::Playout(PlayoutReport::Drained { response }));
    assert_eq!(harness.event_types(), ["output_audio_buffer.started", "output_audio_buffer.stopped"]);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(harness.truncated_text(), None, "all of it was heard");
}

#[test]
fn engine_gets_the_position_each_codec_frame() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("Hello.", 500);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.clear();
    for heard_ms in [20, 40, 60, 80, 100, 120, 190, 200] {
        harness.played(response, heard_ms);
    }
    let played = |ms| Command::Played { response, position: Duration::from_millis(ms), at: harness.now };
    assert_eq!(harness.commands, [played(80), played(190)]);
}

#[test]
fn speech_clears_unplayed_audio() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("The sky is blue today.", 2_000);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.played(response, 1_000);
    harness.clear();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(
        harness.event_types(),
        ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]
    );
    assert_eq!(harness.other_effects, [Effect::ClearPlayout]);
    assert_eq!(harness.truncated_text(), Some("The sky is"));
    assert_eq!(harness.find("conversation.item.truncated")["audio_end_ms"], 1_000);
}

#[test]
fn heard_words_follow_the_speed() {
    let heard = |speed: f64, complete: bool| {
        let mut harness = Harness::new(Delivery::Paced);
        harness.update(json!({"audio": {"output": {"speed": speed}}}));
        let response = harness.create_response();
        harness.engine_text(response, "The sky is blue today.");
        // Codec frames, of which the last ones are cancelled before they come.
        (0..25).for_each(|_| harness.engine_audio(response, 80));
        if complete {
            harness.engine_finished(response, FinishReason::Stop);
        }
        let sent: usize = harness
            .other_effects
            .iter()
            .map(|effect| match effect {
                Effect::Audio { samples, .. } => samples.len(),
                _ => 0,
            })
            .sum();
        let (due, all) = ((2_000.0 * 24.0 / speed) as usize, if complete { 0 } else { 2_400 });
        assert!((due - all..=due).contains(&sent), "{speed}: {sent} samples of {due}");
        harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
        harness.clear();
        harness.played(response, (1_000.0 / speed) as u64);
        let position = Duration::from_millis(1_000);
        assert_eq!(harness.commands, [Command::Played { response, position, at: harness.now }]);
        harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        if !complete {
            harness.engine_finished(response, FinishReason::Cancelled);
        }
        let end = harness.find("conversation.item.truncated")["audio_end_ms"].as_f64().unwrap();
        assert!((end * speed - 1_000.0).abs() < 1.0, "the position is that of the played audio: {end} ms");
        harness.truncated_text().unwrap_or_default().to_owned()
    };
    for complete in [true, false] {
        let expected = heard(1.0, complete);
        assert!(expected.starts_with("The sky") && expected.len() < 20, "{expected}");
        for speed in [0.5, 1.25, 2.0] {
            assert_eq!(heard(speed, complete), expected, "{speed}");
        }
    }
}

#[test]
fn a_speed_is_brought_into_range() {
    let mut harness = Harness::new(Delivery::Unpaced);
    for (asked, served) in [(1.5, 1.5), (0.25, 0.5), (4.0, 2.0)] {
        harness.clear();
        harness.update(json!({"audio": {"output": {"speed": asked}}}));
        let updated = harness.find("session.updated");
        assert_eq!(updated["session"]["audio"]["output"]["speed"], served, "{updated}");
        assert_eq!(updated["session"]["repartee"].get("warnings").is_some(), asked != served, "{updated}");
    }
}

#[test]
fn truncated_responses_use_the_learnt_speech_rate() {
    let kept = |earlier_ms: usize| {
        let mut harness = Harness::new(Delivery::Paced);
        let earlier = harness.whole_response("A voice says ten words or so in some seconds.", earlier_ms);
        harness.input(SessionInput::Playout(PlayoutReport::Started { response: earlier }));
        harness.input(SessionInput::Playout(PlayoutReport::Drained { response: earlier }));
        harness.clear();
        let response = harness.create_response();
        harness.engine_text(response, "The sky is blue today and the sun shines.");
        harness.engine_audio(response, 1_200);
        harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
        harness.played(response, 1_200);
        harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        harness.engine_finished(response, FinishReason::Cancelled);
        harness.truncated_text().unwrap_or_default().split_whitespace().count()
    };
    let [quick, slow] = [1_500, 9_000].map(kept);
    assert!(quick > slow + 2, "{quick} words after a quick response, {slow} after a slow one");
}

#[test]
fn interrupted_answers_keep_the_written_words() {
    let text = "It costs **$3.50**, see [the list](https://a.example/list):\n\n- 2 km of wool\n- more";
    let kept = |heard_ms: u64, complete: bool| {
        let spoken_text = Some(repartee_spoken::SpokenOptions::default());
        let mut harness = Harness::with_model(Delivery::Paced, ModelInfo { spoken_text, ..model() });
        let response = harness.create_response();
        // The text is ahead of its audio.
        harness.engine_text(response, text);
        harness.engine_audio(response, 6_000);
        if complete {
            harness.engine_finished(response, FinishReason::Stop);
        }
        harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
        harness.played(response, heard_ms);
        harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        if !complete {
            harness.engine_finished(response, FinishReason::Cancelled);
        }
        harness.truncated_text().unwrap_or_default().to_owned()
    };
    for complete in [true, false] {
        let whole = (0..=60).map(|step| kept(step * 100, complete));
        let mut steps: Vec<String> = whole.collect();
        steps.dedup();
        let list = "It costs **$3.50**, see [the list](https://a.example/list):";
        for whole in ["It costs", "It costs **$3.50**,", list, text] {
            assert!(steps.iter().any(|kept| kept == whole), "{whole}: {steps:?}");
        }
        // Neither half a price nor a mark alone.
        let words =
            |kept: &String| kept.split_whitespace().last().is_none_or(|word| word.contains(char::is_alphanumeric));
        assert!(steps.iter().all(words), "{steps:?}");
    }
}

/// Start of a voice that may interrupt.
const VOICE: SessionInput = SessionInput::Turn(TurnEvent::PossibleBargeIn { audio_ms: 0 });
const DISMISSED: SessionInput = SessionInput::Turn(TurnEvent::BargeInDismissed { audio_ms: 0 });

#[test]
fn backchannels_pause_without_a_word() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("The sky is blue today.", 2_000);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.played(response, 1_000);
    harness.clear();
    harness.input(VOICE);
    assert_eq!(harness.other_effects, [Effect::PausePlayout]);
    // During the pause all sent audio is heard; then new audio is in flight.
    harness.played(response, 1_100);
    harness.input(DISMISSED);
    assert_eq!(harness.other_effects, [Effect::PausePlayout, Effect::ResumePlayout]);
    harness.played(response, 1_010);
    assert!(harness.events.is_empty() && harness.truncated_text().is_none(), "{:?}", harness.event_types());
    harness.input(VOICE);
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(
        harness.event_types(),
        ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]
    );
    assert_eq!(harness.find("conversation.item.truncated")["audio_end_ms"], 1_100);
}

#[test]
fn only_interruptible_playback_is_paused() {
    let playing = |delivery, detection: Value| {
        let mut harness = Harness::new(delivery);
        harness.update(json!({"audio": {"input": {"turn_detection": detection}}}));
        let response = harness.whole_response("The sky is blue today.", 2_000);
        harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
        harness.clear();
        harness.input(VOICE);
        harness.other_effects.contains(&Effect::PausePlayout)
    };
    let vad = json!({"type": "server_vad"});
    assert!(playing(Delivery::Paced, vad.clone()));
    assert!(!playing(Delivery::Unpaced, vad), "a client plays");
    assert!(!playing(Delivery::Paced, json!({"type": "server_vad", "interrupt_response": false})));
    let mut harness = Harness::new(Delivery::Paced);
    harness.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
    let response = harness.last_respond().unwrap().response;
    harness.engine_audio(response, 800);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.input(VOICE);
    assert!(!harness.other_effects.contains(&Effect::PausePlayout), "out-of-band responses are not interrupted");
}

#[test]
fn speech_cancels_an_active_response() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.create_response();
    harness.engine_text(response, "One two three four");
    harness.engine_audio(response, 800);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.played(response, 400);
    harness.clear();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(harness.event_types(), ["input_audio_buffer.speech_started", "output_audio_buffer.cleared"]);
    assert_eq!(harness.commands, [Command::Cancel { response }]);
    harness.engine_finished(response, FinishReason::Cancelled);
    let types = harness.event_types();
    let place = |kind| types.iter().position(|found| *found == kind).unwrap();
    assert!(place("response.done") < place("conversation.item.truncated"));
    assert_eq!(harness.find("response.done")["response"]["status_details"]["reason"], "turn_detected");
    assert_eq!(harness.find("conversation.item.truncated")["audio_end_ms"], 400);
    assert_eq!(harness.truncated_text(), Some("One"));
}

#[test]
fn client_can_clear_unplayed_audio() {
    let mut harness = Harness::new(Delivery::Paced);
    let response = harness.whole_response("The sky is blue today.", 2_000);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
    harness.clear();
    harness.client(json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(harness.event_types(), ["output_audio_buffer.cleared", "conversation.item.truncated"]);
    assert_eq!(harness.truncated_text(), Some(""), "nothing was heard");
}

/// Starts a spoken out-of-band response; returns its engine id.
fn spoken_out_of_band(harness: &mut Harness) -> u64 {
    harness.client(json!({"type": "response.create", "response": {"conversation": "none"}}));
    harness.last_respond().unwrap().response
}

#[test]
fn speech_leaves_out_of_band_responses_alone() {
    let mut harness = Harness::new(Delivery::Paced);
    let aside = spoken_out_of_band(&mut harness);
    harness.engine_text(aside, "A notice.");
    harness.engine_audio(aside, 800);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response: aside }));
    harness.clear();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(harness.event_types(), ["input_audio_buffer.speech_started"]);
    assert_eq!((&harness.commands[..], &harness.other_effects[..]), (&[][..], &[][..]));
    harness.engine_finished(aside, FinishReason::Stop);
    assert_eq!(harness.find("response.done")["response"]["status"], "completed");
    // The client can still stop it.
    harness.clear();
    harness.client(json!({"type": "output_audio_buffer.clear"}));
    assert_eq!(harness.event_types(), ["output_audio_buffer.cleared"]);
    assert_eq!(harness.other_effects, [Effect::ClearPlayout]);
}

#[test]
fn speech_drops_only_the_conversation_from_playout() {
    let mut harness = Harness::new(Delivery::Paced);
    let answer = harness.whole_response("The sky is blue today.", 2_000);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response: answer }));
    harness.played(answer, 1_000);
    let aside = spoken_out_of_band(&mut harness);
    harness.engine_text(aside, "A notice.");
    harness.engine_audio(aside, 800);
    harness.clear();
    harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
    assert_eq!(
        harness.event_types(),
        ["input_audio_buffer.speech_started", "output_audio_buffer.cleared", "conversation.item.truncated"]
    );
    assert_eq!(harness.other_effects, [Effect::ClearResponse(answer)]);
    harness.input(SessionInput::Playout(PlayoutReport::Started { response: aside }));
    harness.input(SessionInput::Playout(PlayoutReport::Drained { response: aside }));
    harness.find("output_audio_buffer.stopped");
}

#[test]
fn truncated_item_stops_playing() {
    for active in [false, true] {
        let mut harness = Harness::new(Delivery::Paced);
        let response = harness.create_response();
        harness.engine_text(response, "The sky is blue today.");
        harness.engine_audio(response, 2_000);
        if !active {
            harness.engine_finished(response, FinishReason::Stop);
        }
        harness.input(SessionInput::Playout(PlayoutReport::Started { response }));
        harness.played(response, 1_000);
        let item_id = harness.find("conversation.item.added")["item"]["id"].clone();
        harness.clear();
        let truncate = json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0, "audio_end_ms": 1_500});
        harness.client(truncate);
        if active {
            assert_eq!(harness.commands, [Command::Cancel { response }]);
            harness.engine_finished(response, FinishReason::Cancelled);
        }
        assert_eq!(harness.other_effects[0], Effect::ClearPlayout);
        assert_eq!(harness.event_types()[0], "output_audio_buffer.cleared");
        assert_eq!(harness.event_types().last(), Some(&"conversation.item.truncated"));
        let truncated = harness.find("conversation.item.truncated");
        assert_eq!(truncated["audio_end_ms"], 1_000, "no more than was heard");
        assert!(truncated["repartee"]["warnings"][0].as_str().unwrap().contains("1500"), "{truncated}");
        // Nothing is left to interrupt.
        harness.clear();
        harness.input(SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms: 0 }));
        assert_eq!(harness.event_types(), ["input_audio_buffer.speech_started"]);
    }
}
