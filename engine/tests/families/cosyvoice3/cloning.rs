//! Voices out of recordings: parity of what is made of a recording, and of speech in the voice. Places of recordings in the
//! flow's cache change nothing.

use std::path::Path;

use repartee_checkpoint::pickle::PickleValue;
use repartee_engine::Source;
use repartee_engine::internals::cosyvoice3::{Cloner, Config, Encoders, SharedVoices, resample};
use repartee_engine::internals::{Checkpoint, Model, Tokenizer, Voices};
use repartee_engine_api::Recording;
use repartee_engine_testkit::speech::copy;
use repartee_engine_testkit::stage_runs::run_stage;
use repartee_engine_testkit::{Expected, difference};
use repartee_kernels::cpu::Cpu;

use super::{TOLERANCE, checkpoint, frames, load, response, said};

/// Name of the fixture.
const VOICE: &str = "cosyvoice3_voice";
/// Name of the cloned voice, and the transcript of its recording.
const NAME: &str = "mine";
const TEXT: &str = "the sea";
/// Ids before a transcript, the last of them their mark.
const INSTRUCTIONS: [u32; 3] = [7, 8, 9];

fn samples() -> Vec<f32> {
    Expected::load(VOICE).tensor("samples").0
}

fn recording(samples: &[f32]) -> Recording {
    Recording { samples: samples.to_vec(), text: TEXT.to_owned() }
}

fn encoders() -> (Encoders<Cpu>, Tokenizer) {
    let checkpoint = Checkpoint::open(Source::Folder(checkpoint())).unwrap();
    let base = checkpoint.part("CosyVoice-BlankEN").unwrap();
    let config = Config::load(&checkpoint, &base).unwrap();
    let flow = checkpoint.weights_of(&["flow.pt"]).unwrap();
    let mel = config.prompt_mel.clone().unwrap();
    let encoders = Encoders::load(Cpu::default(), (&checkpoint, &flow), &config, mel).unwrap();
    (encoders, Tokenizer::load(&base, config.text.vocab_size).unwrap())
}

/// Model with a voice of each of these recordings, named by their order.
fn cloned(folder: &Path, recordings: &[&[f32]]) -> Model {
    let mut model = load(folder, 100);
    for (at, samples) in recordings.iter().enumerate() {
        model.voices.enrol(&format!("{NAME}{at}"), &recording(samples)).unwrap();
    }
    model
}

#[test]
fn recordings_equal_the_reference() {
    let expected = Expected::load(VOICE);
    let found = difference(&resample(&samples(), 24_000, 16_000), &expected.tensor("heard").0);
    println!("resampled: {found:.1e}");
    assert!(found < TOLERANCE, "{found}");
    let ours = encoders().0.encode(&samples());
    assert_eq!(ours.codes, expected.ids("codes").0);
    for (name, ours) in [("mel", ours.mel), ("speaker", ours.speaker)] {
        let reference = expected.tensor(name).0;
        let found = difference(&ours, &reference);
        println!("{name}: {found:.1e}");
        assert!(ours.len() == reference.len() && found < TOLERANCE, "{name}: {found}");
    }
}

#[test]
fn transcripts_decide_what_the_language_model_continues() {
    let (encoders, tokenizer) = encoders();
    let (prompts, heard) = (SharedVoices::new([]), SharedVoices::new([]));
    let ids = tokenizer.encode(TEXT).unwrap();
    let mut cloner = Cloner {
        encoders,
        tokenizer,
        instructions: INSTRUCTIONS.to_vec(),
        most_chunks: 1,
        prompts: prompts.clone(),
        heard: heard.clone(),
    };
    let expected = Expected::load(VOICE);
    let (codes, mel) = (expected.ids("codes").0, expected.tensor("mel").0);
    cloner.enrol("with", &recording(&samples())).unwrap();
    cloner.enrol("without", &Recording { samples: samples(), text: String::new() }).unwrap();
    let with = prompts.get("with").unwrap();
    assert_eq!((&with.text, &with.codes), (&[&INSTRUCTIONS[..], &ids].concat(), &codes));
    let without = prompts.get("without").unwrap();
    assert!(without.text.is_empty() && without.codes.is_empty());
    for name in ["with", "without"] {
        let voice = heard.get(name).unwrap();
        assert_eq!(voice.codes, codes[codes.len() - 25..], "{name}: the last whole chunk");
        assert!(difference(&voice.mel, &mel[mel.len() - 1000..]) < TOLERANCE, "{name}");
    }
    assert!(cloner.remove_voice("with") && !cloner.remove_voice("with"));
    assert_eq!((cloner.names(), prompts.get("with")), (vec!["without".to_owned()], None));
}

#[test]
fn cloned_speech_equals_the_derivation() {
    let expected = Expected::load("cosyvoice3_clone");
    assert_eq!(expected.facts["transcript"], TEXT);
    let mut model = load(&checkpoint(), 100);
    model.voices.enrol("with", &recording(&samples())).unwrap();
    model.voices.enrol("without", &Recording { samples: samples(), text: String::new() }).unwrap();
    for (mode, voice, instructions) in
        [("zero_shot", "with", ""), ("cross_lingual", "without", ""), ("instruct2", "with", "be kind")]
    {
        for name in [mode.to_owned(), format!("{mode}_streamed")] {
            let ours = said(&mut model, &expected, &name, voice, instructions);
            assert_eq!(ours, expected.ids(&format!("{name}.heard")).0, "{name}");
        }
    }
    let (codes, mel) = (expected.ids("frames.codes").0, expected.tensor("frames.mel").0);
    for voice in ["with", "without"] {
        let found = difference(&frames(&mut model, voice, &codes), &mel);
        println!("frames {voice} a transcript: {found:.1e}");
        assert!(found < TOLERANCE, "{voice}: {found}");
    }
}

/// A folder whose voice `recorded` has the recording's codes, mel frames and vector.
fn with_preset() -> tempfile::TempDir {
    let (copy, encoded) = (copy(&checkpoint()), encoders().0.encode(&samples()));
    let path = copy.path().join("spk2info.pt");
    let mut bytes = std::fs::read(&path).unwrap();
    let pickle = PickleValue::read("spk2info.pt", &bytes).unwrap();
    let numbers = |numbers: &[f32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let codes: Vec<u8> = encoded.codes.iter().flat_map(|code| code.to_le_bytes()).collect();
    let parts = [
        ("flow_prompt_speech_token", codes),
        ("prompt_speech_feat", numbers(&encoded.mel)),
        ("flow_embedding", numbers(&encoded.speaker)),
    ];
    for (part, contents) in parts {
        let named = |name: &str| name.starts_with("recorded") && name.ends_with(part);
        let (_, tensor) = pickle.tensors().into_iter().find(|(name, _)| named(name)).unwrap();
        bytes[tensor.place().unwrap()].copy_from_slice(&contents);
    }
    std::fs::write(path, bytes).unwrap();
    copy
}

#[test]
fn a_cloned_voice_equals_a_preset() {
    let folder = with_preset();
    let codes = Expected::load("cosyvoice3").ids("behind.codes").0;
    let mut model = cloned(folder.path(), &[&samples()]);
    let preset = frames(&mut model, "recorded", &codes);
    for solved in ["by this response", "before"] {
        assert!(frames(&mut model, "mine0", &codes) == preset, "solved {solved}");
    }
}

#[test]
fn recordings_take_turns_in_the_cache() {
    let codes = Expected::load("cosyvoice3").ids("short.codes").0;
    let samples = samples();
    // Each has a chunk that is solved once; two slots have two places.
    let recordings: [&[f32]; 3] = [&samples, &samples[4000..], &samples[..54_000]];
    let alone: Vec<Vec<f32>> =
        recordings.iter().map(|one| frames(&mut cloned(&checkpoint(), &[one]), "mine0", &codes)).collect();
    assert!(alone[0] != alone[1] && alone[1] != alone[2]);
    let mut model = cloned(&checkpoint(), &recordings);
    for at in [0, 1, 2, 2, 0, 1, 0] {
        assert!(frames(&mut model, &format!("mine{at}"), &codes) == alone[at], "{at}");
    }
}

#[test]
fn removed_voices_fail_alone() {
    let expected = Expected::load("cosyvoice3");
    let mut model = cloned(&checkpoint(), &[&samples()]);
    let before = said(&mut model, &expected, "vector", "mine0", "");
    assert!(!before.is_empty());
    assert!(model.voices.remove_voice("mine0") && !model.voices.remove_voice("vector"));
    let items = run_stage(model.stages[2].as_mut(), response(super::params("mine0", false), []));
    assert!(format!("{:?}", items[0]).contains("UnknownVoice"), "{items:?}");
    assert!(!frames(&mut model, "vector", &expected.ids("short.codes").0).is_empty());
}
