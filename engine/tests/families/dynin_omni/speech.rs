//! Output of the stages equals the derivation's: text to clauses, clauses to units, units to samples. A canvas that is cut in any
//! refinement step leaves nothing behind.

use repartee_engine::internals::{BatchEntry, Message, MessageKind, Model, Outbox, ResponseParams, Stage, StageItem};
use repartee_engine_api::{AnswerForm, Command, FinishReason, Respond, Role, SessionHandle};
use repartee_engine_testkit::driven::{Driven, serve, submit};

use super::*;

const STAGES: [&str; 3] = ["reader", "speech_lm", "uvits"];

fn config() -> EngineConfig {
    EngineConfig { sessions: 2, out_of_band: 0, session_tokens: 512, ..EngineConfig::default() }
}

fn model() -> Model {
    let model = load_model(&open(&checkpoint()), &config()).unwrap();
    assert_eq!(model.stages.iter().map(|stage| stage.name()).collect::<Vec<_>>(), STAGES);
    assert_eq!(model.codec.unwrap().sample_rate, 22_050);
    assert!(model.hearing.is_none(), "the family does not hear");
    model
}

fn params() -> ResponseParams {
    ResponseParams {
        response: RESPONSE,
        seed: SEED,
        voice: "gender-female_emotion-neutral_speed-normal_pitch-normal".to_owned(),
        audio: true,
        streamed: false,
        tools: Vec::new().into(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: u32::MAX,
        sampling: None,
    }
}

/// Runs a stage of slot 1 over items; returns what it gives.
fn run(stage: &mut dyn Stage, items: impl IntoIterator<Item = StageItem>) -> Vec<StageItem> {
    let mut out = Outbox::new();
    for item in items {
        stage.accept(1, item, &mut out);
    }
    while stage.runnable_rows(1).rows > 0 {
        stage.step(&[BatchEntry { slot: 1, rows: stage.max_rows().min(stage.runnable_rows(1).rows) }], &mut out);
    }
    out.into_iter().map(|(_, item)| item).collect()
}

#[test]
fn responses_equal_the_derivation() {
    let (expected, mut model) = (Expected::load(NAME), model());
    for (name, text) in RUNS {
        let user = [Message::text(MessageKind::User, model.tokenizer.encode(text).unwrap())];
        let elements = model.template.render(&user, None, true);
        let prompt = StageItem::Prompt { read: vec![false; elements.len()], elements, response: Some(params()) };
        let clauses = run(model.stages[0].as_mut(), [prompt]);
        let codes = run(model.stages[1].as_mut(), clauses);
        let units =
            codes.iter().filter_map(|item| if let StageItem::Codes(codes) = item { Some(codes[0]) } else { None });
        assert_eq!(units.collect::<Vec<_>>(), expected.ids(&format!("{name}.units")).0, "{name}");
        let pauses = codes.iter().filter(|item| matches!(item, StageItem::TextPause)).count();
        assert_eq!(pauses, 3, "{name}: one behind each block");
        let sound = run(model.stages[2].as_mut(), codes);
        let samples: Vec<f32> = sound
            .iter()
            .flat_map(|item| if let StageItem::Samples(samples) = item { samples.clone() } else { Vec::new() })
            .collect();
        let off = difference(&samples, &expected.tensor(&format!("{name}.samples")).0);
        println!("{name}: samples {off:.1e}");
        assert!(off < TOLERANCE, "{name}: {off}");
    }
}

/// Asks for a text to be read.
fn ask(session: &SessionHandle, text: &str) {
    submit(session, Command::text(1, Role::User, text));
    submit(session, Command::Respond(Respond { seed: SEED, ..Respond::new(1, 2) }));
}

/// Engine whose blocks have four steps: more than the fixture's, so that there are more to cut in.
fn engine() -> Driven {
    let mut config = config();
    config.stages.entry("speech_lm".to_owned()).or_default().options.insert("block_steps".to_owned(), 4);
    serve(&checkpoint(), &config)
}

#[test]
fn a_canvas_cut_in_any_step_leaves_nothing() {
    let mut engine = engine();
    let session = engine.open();
    ask(&session, RUNS[0].1);
    let alone = engine.listen(&session, 1).unwrap();
    drop(session);
    engine.settle();
    // A tick is a refinement step at most, so these cut in every step of the first block and in some of the second.
    for (ticks, leaves) in (0..14).flat_map(|ticks| [(ticks, false), (ticks, true)]) {
        let (cut, other) = (engine.open(), engine.open());
        ask(&cut, "a text that is cut");
        ask(&other, RUNS[0].1);
        engine.ticks(ticks);
        if leaves {
            drop(cut);
        } else {
            submit(&cut, Command::Cancel { response: 1 });
            let reason = engine.listen(&cut, 1).unwrap().reason;
            assert_eq!(reason, Some(FinishReason::Cancelled), "after {ticks} ticks");
            drop(cut);
        }
        let heard = engine.listen(&other, 1).unwrap();
        assert!(heard.output() == alone.output(), "after {ticks} ticks");
        drop(other);
        assert_eq!(engine.left_behind(), (0, 0), "after {ticks} ticks");
    }
}
