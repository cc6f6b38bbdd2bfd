//! Engine output: the reference's samples, and its handling of short, empty and endless speech.

use std::path::Path;

use repartee_engine::EngineConfig;
use repartee_engine::internals::Voices;
use repartee_engine::internals::qwen3_tts::{LEAST_FRAMES, Qwen3Tts, VoiceList};
use repartee_engine_api::{Command, FinishReason, Recording, Respond, Role, SessionHandle};
use repartee_kernels::cpu::Cpu;
use serde_json::{Value, json};

use super::{TOLERANCE, open};
use repartee_engine_testkit::driven::{Driven, Response, serve, submit};
use repartee_engine_testkit::speech::{FIXTURES, edit_rows, greedy_copy, is_cloned, voice};
use repartee_engine_testkit::{Expected, difference, folder};

/// Name of cloned voices.
const CLONED: &str = "mine";

fn config() -> EngineConfig {
    EngineConfig { session_tokens: 512, ..EngineConfig::default() }
}

/// Streams text in, `cut` characters at a time.
fn stream(engine: &mut Driven, session: &SessionHandle, response: u64, text: &str, cut: usize) {
    let characters: Vec<char> = text.chars().collect();
    for piece in characters.chunks(cut) {
        submit(session, Command::StreamText { response, text: piece.iter().collect() });
        engine.ticks(1);
    }
    submit(session, Command::EndText { response });
}

/// Enrols the voice of a run, if it is cloned; returns its name.
fn enrol(engine: &mut Driven, expected: &Expected, run: usize) -> String {
    let facts = &expected.facts["runs"][run];
    if !is_cloned(facts) {
        return voice(facts);
    }
    let samples = expected.tensor(&format!("run{run}.voice.audio")).0;
    let text = facts["reference"].as_str().unwrap_or_default().to_owned();
    engine.scheduler.voices().enrol(CLONED, &Recording { samples, text }).unwrap();
    CLONED.to_owned()
}

/// Response to a run of a fixture; text that the reference reads along with the frames streams in by `cut` characters.
fn speak(checkpoint: &Path, expected: &Expected, run: usize, cut: usize) -> Response {
    let facts = &expected.facts["runs"][run];
    let mut engine = serve(checkpoint, &config());
    let voice = enrol(&mut engine, expected, run);
    let session = engine.open();
    let text = facts["text"].as_str().unwrap();
    submit(&session, Command::SetInstructions(facts["instruct"].as_str().unwrap_or_default().to_owned()));
    let streamed = !facts["whole"].as_bool().unwrap();
    if !streamed {
        submit(&session, Command::text(0, Role::User, text));
    }
    submit(&session, Command::Respond(Respond { voice: Some(voice), streamed, ..Respond::new(0, 1) }));
    if streamed {
        stream(&mut engine, &session, 0, text, cut);
    }
    let response = engine.listen(&session, 0).unwrap();
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
    response
}

#[test]
fn speech_equals_the_reference() {
    for name in FIXTURES {
        let (expected, copy) = (Expected::load(name), greedy_copy(name));
        for (run, facts) in expected.facts["runs"].as_array().unwrap().iter().enumerate() {
            // With a cloned voice the engine reads the text along with the frames, as the reference does by default.
            if is_cloned(facts) && facts["whole"] == true {
                continue;
            }
            let waveform = expected.tensor(&format!("run{run}.waveform")).0;
            let mut first: Option<Response> = None;
            for cut in [usize::MAX, 1, 4] {
                let said = speak(copy.path(), &expected, run, cut);
                assert_eq!(said.reason, Some(FinishReason::Stop), "{name}, run {run}");
                assert_eq!(said.text, facts["text"].as_str().unwrap());
                assert_eq!(Some(u64::from(said.usage.output_audio_frames)), facts["frames"].as_u64());
                let off = difference(&said.samples, &waveform);
                assert!(off <= TOLERANCE, "{name}, run {run}, {cut} characters at a time: {off}");
                assert_eq!(first.get_or_insert(said.clone()).samples, said.samples, "the cut of the text");
            }
        }
    }
}

#[test]
fn sound_comes_before_the_text_has_ended() {
    let copy = greedy_copy("tts_custom");
    let mut engine = serve(copy.path(), &config());
    let session = engine.open();
    submit(&session, Command::Respond(Respond { streamed: true, ..Respond::new(0, 1) }));
    submit(&session, Command::StreamText { response: 0, text: "the quick brown fox ".to_owned() });
    engine.settle();
    let mut said = Response::default();
    while let Some(event) = session.try_next_event() {
        assert!(!said.take(0, event).unwrap(), "the response has ended before its text");
    }
    assert!(said.usage.output_audio_frames == 0 && !said.samples.is_empty() && said.reason.is_none(), "{said:?}");
    submit(&session, Command::EndText { response: 0 });
    assert_eq!(engine.listen(&session, 0).unwrap().reason, Some(FinishReason::Stop));
}

#[test]
fn no_text_gives_no_sound_and_an_end() {
    let copy = greedy_copy("tts_custom");
    let mut engine = serve(copy.path(), &config());
    let session = engine.open();
    let silent = |response: &Response| response.samples.is_empty() && response.reason == Some(FinishReason::Stop);
    let nothing = engine.respond(&session, Respond::new(0, 10)).unwrap();
    assert!(silent(&nothing), "no message: {nothing:?}");
    submit(&session, Command::Respond(Respond { streamed: true, ..Respond::new(1, 11) }));
    submit(&session, Command::EndText { response: 1 });
    let nothing = engine.listen(&session, 1).unwrap();
    assert!(silent(&nothing), "text that ends at once: {nothing:?}");
    submit(&session, Command::text(0, Role::User, "the sea"));
    let spoken = engine.respond(&session, Respond::new(2, 12)).unwrap();
    assert!(!spoken.samples.is_empty(), "the session goes on: {spoken:?}");
    drop(session);
    assert_eq!(engine.left_behind(), (0, 0));
}

/// Sum of a run's first hidden rows, scaled: a row of the head with these values is chosen at once.
fn wanted(expected: &Expected) -> Vec<f32> {
    let (hidden, shape) = expected.tensor("run0.talker.hidden");
    (0..shape[1]).map(|at| 10.0 * (0..3).map(|row| hidden[row * shape[1] + at]).sum::<f32>()).collect()
}

#[test]
fn speech_has_two_frames_at_least() {
    for name in FIXTURES {
        let (expected, copy) = (Expected::load(name), greedy_copy(name));
        let config = Qwen3Tts::load(&Cpu::default(), &open(copy.path())).unwrap().config;
        let end = config.talker.ids.codec_eos as usize;
        edit_rows(&copy.path().join("model.safetensors"), "talker.codec_head.weight", &[end], &wanted(&expected));
        let said = speak(copy.path(), &expected, 0, 1);
        assert_eq!(said.usage.output_audio_frames as usize, LEAST_FRAMES);
        assert_eq!(expected.facts["frames_of_a_model_that_ends_at_once"], LEAST_FRAMES, "the reference's");
    }
}

#[test]
fn suppressed_ids_are_never_spoken() {
    let (expected, copy) = (Expected::load("tts_custom"), greedy_copy("tts_custom"));
    let config = Qwen3Tts::load(&Cpu::default(), &open(copy.path())).unwrap().config;
    let end = config.talker.ids.codec_eos as usize;
    let first = config.talker.model.vocab_size - 1024;
    let others: Vec<usize> = (first..config.talker.model.vocab_size).filter(|&id| id != end).collect();
    edit_rows(&copy.path().join("model.safetensors"), "talker.codec_head.weight", &others, &wanted(&expected));
    let said = speak(copy.path(), &expected, 0, 1);
    let waveform = expected.tensor("run0.waveform").0;
    assert!(difference(&said.samples, &waveform) <= TOLERANCE, "they change nothing: {:?}", said.usage);
}

#[test]
fn voices_are_speakers_with_languages() {
    let config = Qwen3Tts::load(&Cpu::default(), &open(&folder("tts_custom").join("checkpoint"))).unwrap().config;
    let voices = VoiceList::new(&config);
    let names = voices.names();
    assert_eq!(names[..3], ["ada", "grace", "li"], "the speakers first, in the order of their ids");
    assert_eq!(names[3..5], ["ada/chinese", "ada/english"]);
    assert!(names.iter().all(|name| !name.contains("dialect")), "{names:?}");
    let language = |name: &str| voices.get(name).language;
    let id = |name: &str| Some(config.talker.languages[name]);
    assert_eq!(
        [language("ada"), language("ada/chinese"), language("ada/english")],
        [None, id("chinese"), id("english")]
    );
    // A dialect replaces Chinese and an absent language, but no other language.
    let dialect = id("sichuan_dialect");
    assert_eq!([language("li"), language("li/chinese"), language("li/english")], [dialect, dialect, id("english")]);
    let design = Qwen3Tts::load(&Cpu::default(), &open(&folder("tts_design").join("checkpoint"))).unwrap().config;
    assert_eq!(VoiceList::new(&design).names()[..2], ["default", "default/chinese"]);
}

/// Response to a text under instructions, from a copy of a checkpoint whose config.json says `size`.
fn instructed(name: &str, size: &str, instructions: &str) -> Response {
    let copy = greedy_copy(name);
    let path = copy.path().join("config.json");
    let mut config: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    config["tts_model_size"] = json!(size);
    std::fs::write(&path, config.to_string()).unwrap();
    let mut engine = serve(copy.path(), &self::config());
    let session = engine.open();
    submit(&session, Command::SetInstructions(instructions.to_owned()));
    submit(&session, Command::text(0, Role::User, "the sea"));
    engine.respond(&session, Respond::new(0, 1)).unwrap()
}

#[test]
fn instructions_reach_those_that_follow_them() {
    for (name, size, follows) in [
        ("tts_custom", "1b7", true),
        ("tts_custom", "0b6", false),
        ("tts_design", "1b7", true),
        ("tts_clone", "1b7", false),
    ] {
        let [with, without] = ["sing softly", ""].map(|instructions| instructed(name, size, instructions).samples);
        assert!(!with.is_empty());
        assert_eq!(with != without, follows, "{name}, {size}");
    }
}
