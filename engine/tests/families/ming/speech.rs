//! Output of the stages equals the derivation's: text to clauses, clauses to latents, latents to samples.

use repartee_engine::internals::{Message, MessageKind};
use repartee_engine::internals::{Model, Outbox, ResponseParams, StageEnd, StageItem};
use repartee_engine_api::AnswerForm;
use repartee_engine_testkit::stage_runs::run_stage;

use super::*;

const STAGES: [&str; 3] = ["reader", "speech_lm", "vae"];
/// Samples of a latent.
const SAMPLES: usize = 256;

fn model(folder: &Path) -> Model {
    model_with(folder, 200)
}

/// A model whose utterances have at most so many patches.
fn model_with(folder: &Path, patches: usize) -> Model {
    let mut config = EngineConfig { sessions: 2, out_of_band: 0, session_tokens: 512, ..EngineConfig::default() };
    config.stages.entry("speech_lm".to_owned()).or_default().options.insert("most_patches".to_owned(), patches);
    let model = load_model(&open(folder), &config).unwrap();
    assert_eq!(model.stages.iter().map(|stage| stage.name()).collect::<Vec<_>>(), STAGES);
    assert_eq!(model.codec.unwrap().sample_rate, 44_100);
    model
}

fn params() -> ResponseParams {
    ResponseParams {
        response: RESPONSE,
        seed: SEED,
        voice: "default".to_owned(),
        audio: true,
        streamed: false,
        tools: Vec::new().into(),
        form: AnswerForm::Free,
        held: None,
        max_tokens: 1000,
        sampling: None,
    }
}

/// Items that the reader makes of a text with instructions.
fn clauses(model: &mut Model, style: &str, text: &str) -> Vec<StageItem> {
    let message = |kind, text: &str| Message::text(kind, model.tokenizer.encode(text).unwrap());
    let history = [message(MessageKind::System, style), message(MessageKind::User, text)];
    let elements = model.template.render(&history, None, true);
    let response = Some(ResponseParams { max_tokens: u32::MAX, ..params() });
    let prompt = StageItem::Prompt { read: vec![false; elements.len()], elements, response };
    run_stage(model.stages[0].as_mut(), [prompt])
}

fn joined(items: &[StageItem]) -> Vec<f32> {
    let samples = |item: &StageItem| if let StageItem::Samples(samples) = item { samples.clone() } else { Vec::new() };
    items.iter().flat_map(samples).collect()
}

/// Latents that arrive `piece` at a time, as an utterance.
fn utterance(latents: &[f32], piece: usize) -> Vec<StageItem> {
    let of = |rows: &[f32]| StageItem::Latents { rows: rows.to_vec(), count: rows.len() / LATENT };
    latents.chunks(piece * LATENT).map(of).chain([StageItem::TextPause]).collect()
}

/// Items of a response.
fn response(items: Vec<StageItem>) -> Vec<StageItem> {
    [vec![StageItem::Begin(params())], items, vec![StageItem::End(StageEnd::Stop)]].into_iter().flatten().collect()
}

/// Samples of latents that arrive `piece` at a time.
pub fn samples(folder: &Path, latents: &[f32], piece: usize) -> Vec<f32> {
    joined(&run_stage(model(folder).stages[2].as_mut(), response(utterance(latents, piece))))
}

#[test]
fn responses_equal_the_derivation() {
    for fixture in &FIXTURES {
        let (expected, mut model) = (Expected::load(fixture.name), model(&fixture.checkpoint()));
        for (name, text, style) in RUNS {
            let clauses = clauses(&mut model, style, text);
            let latents = run_stage(model.stages[1].as_mut(), clauses);
            let patches = latents.iter().filter(|item| matches!(item, StageItem::Latents { .. })).count();
            assert_eq!(patches as u64, expected.facts["runs"][name]["patches"].as_u64().unwrap(), "{name}");
            let sound = run_stage(model.stages[2].as_mut(), latents);
            assert!(matches!(sound.last(), Some(StageItem::End(StageEnd::Stop))), "{sound:?}");
            let found = difference(&joined(&sound), &expected.tensor(&format!("{name}.samples")).0);
            println!("{} {name}: {patches} patches, samples {found:.1e}", fixture.name);
            assert!(found < TOLERANCE, "{} {name}: {found}", fixture.name);
        }
    }
}

#[test]
fn any_split_equals_one_decode() {
    let fixture = &FIXTURES[0];
    let (expected, mut model) = (Expected::load(fixture.name), model(&fixture.checkpoint()));
    let (latents, reference) = (expected.tensor("plain.latents").0, expected.tensor("plain.samples").0);
    let whole = samples(&fixture.checkpoint(), &latents, 1000);
    assert_eq!(whole.len(), latents.len() / LATENT * SAMPLES);
    assert!(difference(&whole, &reference) < TOLERANCE, "{}", difference(&whole, &reference));
    for piece in [1, 2, 3, 7, 11] {
        assert!(samples(&fixture.checkpoint(), &latents, piece) == whole, "{piece} latents at a time");
    }
    // Each utterance is a stream of its own, whether it was complete or not when the next one began.
    let last = expected.tensor("styled.latents").0;
    let both = |sizes: [usize; 2]| {
        response(utterance(&latents, sizes[0]).into_iter().chain(utterance(&last, sizes[1])).collect())
    };
    let found = joined(&run_stage(model.stages[2].as_mut(), both([5, 1000])));
    assert!(found == [whole.clone(), samples(&fixture.checkpoint(), &last, 2)].concat());
    let mut out = Outbox::new();
    for item in both([1000, 3]) {
        model.stages[2].accept(1, item, &mut out);
    }
    let rest = joined(&run_stage(model.stages[2].as_mut(), [StageItem::TextPause]));
    assert!(rest == found, "{} and {} samples", rest.len(), found.len());
}

#[test]
fn a_window_of_rows_is_seen() {
    let fixture = &FIXTURES[0];
    let latents = Expected::load(fixture.name).tensor("plain.latents").0;
    let whole = samples(&fixture.checkpoint(), &latents, PATCH);
    let copy = copy(&fixture.checkpoint());
    let path = copy.path().join("config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    for (from, to) in [("\"sliding_window\": 11", "\"sliding_window\": 7"), ("window\": true", "window\": false")] {
        assert!(config.contains(from));
        std::fs::write(&path, config.replace(from, to)).unwrap();
        let other = samples(copy.path(), &latents, PATCH);
        let same = 7 * 64 - 256;
        assert_eq!(other[..same], whole[..same], "the first rows see all before them");
        assert!(difference(&other, &whole) > 10.0 * TOLERANCE, "{to}");
    }
}

#[test]
fn odd_texts_are_spoken_or_silent() {
    let mut model = model_with(&FIXTURES[0].checkpoint(), 1);
    for (text, utterances) in [
        (String::new(), 0),
        ("\u{1F600}\u{1F680} \u{1F389}".to_owned(), 0),
        ("... !?".to_owned(), 0),
        ("a".to_owned(), 1),
        ("ᚠᛇᚻ᛫ᛒᛦᚦ".to_owned(), 1),
        ("x".repeat(20_000), 80),
    ] {
        let clauses = clauses(&mut model, "", &text);
        let latents = run_stage(model.stages[1].as_mut(), clauses);
        let ends = latents.iter().filter(|item| matches!(item, StageItem::TextPause)).count();
        let sound = run_stage(model.stages[2].as_mut(), latents);
        assert!(matches!(sound.last(), Some(StageItem::End(_))), "{sound:?}");
        let start: String = text.chars().take(9).collect();
        // Letters without a space become clauses of bytes, each cut at the same number of tokens.
        assert!(ends.abs_diff(utterances) <= utterances / 4, "{start}: {ends} utterances");
        assert_eq!(joined(&sound).len(), ends * PATCH * SAMPLES, "{start}");
    }
}

#[test]
fn long_clauses_become_utterances() {
    let mut model = model(&FIXTURES[0].checkpoint());
    let clause = StageItem::Clause("x".repeat(600));
    let items = run_stage(model.stages[1].as_mut(), response(vec![clause]));
    let ends = items.iter().filter(|item| matches!(item, StageItem::TextPause)).count();
    assert_eq!(ends, 3, "256 tokens at a time");
    assert!(matches!(items.last(), Some(StageItem::End(_))));
}

#[test]
fn long_instructions_are_a_typed_error() {
    let mut model = model(&FIXTURES[0].checkpoint());
    let ids = model.tokenizer.encode(&"be kind. ".repeat(2000)).unwrap();
    let elements =
        ids.into_iter().map(|id| repartee_engine::internals::Element::token(repartee_engine_api::Role::System, id));
    let context = StageItem::Context { from: 0, elements: elements.collect() };
    let clause = StageItem::Clause("one two".to_owned());
    let items = run_stage(model.stages[1].as_mut(), std::iter::once(context).chain(response(vec![clause])));
    let failed =
        |item: &StageItem| matches!(item, StageItem::Fail(repartee_engine_api::SessionError::ContextFull { .. }));
    assert!(items.iter().any(failed), "{items:?}");
}
