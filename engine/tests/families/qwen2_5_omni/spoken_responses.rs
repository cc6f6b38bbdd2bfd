//! Engine output: the reference's text and codes for any cut of the input, and the samples that token2wav makes of
//! these codes.

use repartee_engine::internals::{BatchEntry, Model, Outbox, ResponseParams, StageEnd, StageItem, load_model};
use repartee_engine::{EngineConfig, HandOff};
use repartee_engine_api::{AnswerForm, Command, FinishReason, Respond};

use super::{NAME, open};
use repartee_engine_testkit::driven::{Response, drive, submit};
use repartee_engine_testkit::{Expected, folder, greedy_copy};

fn settings() -> EngineConfig {
    EngineConfig { sessions: 2, out_of_band: 1, session_tokens: 512, ..EngineConfig::default() }
}

fn request(expected: &Expected, turn: usize) -> Respond {
    let voice = expected.facts["turns"][turn]["speaker"].as_str().unwrap().to_owned();
    Respond { voice: Some(voice), seed: 7, ..Respond::new(turn as u64, 100 + turn as u64) }
}

/// Runs the fixture's turns in one session, with the audio cut into slices.
fn converse(config: &EngineConfig, slice: usize) -> Vec<Response> {
    let expected = Expected::load(NAME);
    let copy = greedy_copy(NAME, &expected);
    let mut engine = drive(load_model(&open(copy.path()), config).unwrap(), config);
    let session = engine.open();
    let system = expected.facts["settings"]["system"].as_str().unwrap();
    submit(&session, Command::SetInstructions(system.to_owned()));
    let turn = |turn: usize| {
        for piece in expected.tensor(&format!("turn{turn}.audio")).0.chunks(slice) {
            engine.send(&session, Command::Append(piece.to_vec()));
        }
        submit(&session, Command::Commit { item: turn as u64 });
        engine.respond(&session, request(&expected, turn)).unwrap()
    };
    (0..expected.turns()).map(turn).collect()
}

/// Samples that the last two stages make of codes.
fn sound(model: &mut Model, codes: &[u32], request: &Respond) -> Vec<f32> {
    let params = ResponseParams {
        response: request.response,
        seed: request.seed,
        voice: request.voice.clone().unwrap(),
        audio: true,
        streamed: false,
        tools: std::sync::Arc::default(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 100,
        sampling: None,
    };
    let items = std::iter::once(StageItem::Begin(params));
    let items =
        items.chain(codes.iter().map(|&code| StageItem::Codes(vec![code]))).chain([StageItem::End(StageEnd::Stop)]);
    let mut items: Vec<StageItem> = items.collect();
    for stage in &mut model.stages[2..] {
        let mut out: Outbox = Vec::new();
        items.into_iter().for_each(|item| stage.accept(0, item, &mut out));
        while stage.runnable_rows(0).rows > 0 {
            stage.step(&[BatchEntry { slot: 0, rows: 1 }], &mut out);
        }
        items = out.into_iter().map(|(_, item)| item).collect();
    }
    let samples = |item| if let StageItem::Samples(samples) = item { samples } else { Vec::new() };
    items.into_iter().flat_map(samples).collect()
}

#[test]
fn both_turns_equal_the_reference() {
    let expected = Expected::load(NAME);
    let config = settings();
    let said = converse(&config, 1600);
    let mut model = load_model(&open(&folder(NAME).join("checkpoint")), &config).unwrap();
    for (turn, response) in said.iter().enumerate() {
        let facts = &expected.facts["turns"][turn];
        let (codes, _) = expected.ids(&format!("turn{turn}.codes"));
        let (text, codes) = (facts["text"].as_str().unwrap(), &codes[..codes.len() - 1]);
        assert_eq!(response.text, text);
        assert_eq!(response.reason, Some(FinishReason::Stop));
        assert_eq!(response.usage.output_audio_frames as usize, codes.len(), "turn {turn}");
        assert!(response.samples == sound(&mut model, codes, &request(&expected, turn)), "turn {turn}: other sound");
    }
}

#[test]
fn any_slice_and_hand_off_say_the_same() {
    let whole = converse(&settings(), 1600);
    for (slice, hand_off) in [(333, HandOff::AsyncChunk), (usize::MAX, HandOff::FullPayload)] {
        let config = EngineConfig { hand_off, ..settings() };
        for (a, b) in converse(&config, slice).iter().zip(&whole) {
            assert_eq!(a.text, b.text);
            assert!(a.output() == b.output(), "slices of {slice}, {hand_off:?}");
        }
    }
}

#[test]
fn given_text_sounds_like_written_text() {
    let expected = Expected::load(NAME);
    let copy = greedy_copy(NAME, &expected);
    let config = settings();
    let mut engine = drive(load_model(&open(copy.path()), &config).unwrap(), &config);
    let say = |engine: &mut repartee_engine_testkit::driven::Driven, pieces: &[&str]| {
        let session = engine.open();
        submit(&session, Command::Respond(Respond { streamed: true, ..request(&expected, 0) }));
        for piece in pieces {
            engine.send(&session, Command::StreamText { response: 0, text: (*piece).to_owned() });
        }
        submit(&session, Command::EndText { response: 0 });
        engine.listen(&session, 0).unwrap()
    };
    let [whole, cut] =
        [&["the quick brown fox"][..], &["the qu", "ick", " brown f", "ox"]].map(|pieces| say(&mut engine, pieces));
    assert_eq!(whole.text, "the quick brown fox");
    assert!(!whole.samples.is_empty());
    assert!(whole.output() == cut.output(), "{} and {} samples", whole.samples.len(), cut.samples.len());
}
