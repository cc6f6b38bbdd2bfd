//! Odd folders, family by family: a pickle that would run code and ids outside of a table are refused by type, parts for
//! vision and unknown tags change nothing.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::path::Path;

use repartee_checkpoint::pickle::PickleValue;
use repartee_engine::EngineConfig;
use repartee_engine::Source;
use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine_api::{Command, Respond, Role};
use repartee_engine_testkit::driven::{Response, serve, submit};
use repartee_engine_testkit::speech::copy;
use repartee_engine_testkit::{folder, root};
use serde_json::{Value, json};

/// Outcome of a change of a folder.
enum Outcome {
    /// It is refused, with these words.
    Refused(&'static str),
    /// Its answer is that of the folder as it was.
    Unchanged,
}

use Outcome::{Refused, Unchanged};

/// Change of a folder.
type Change = fn(&Path);

/// Fixture, change by its name, and what becomes of the folder.
type Case = (&'static str, &'static str, Change, Outcome);

const CASES: [Case; 25] = [
    ("lfm2_audio", "weights that would run code", |at| calling(at, ""), Refused("posix.system")),
    ("lfm2_mimi", "weights that would run code", |at| calling(at, ""), Refused("posix.system")),
    ("mimo_audio", "weights that would run code", |at| calling(at, ""), Refused("posix.system")),
    ("mimo_audio", "a tokenizer that would run code", |at| calling(at, SOUND), Refused("posix.system")),
    ("ming_tts", "weights that would run code", |at| calling(at, ""), Refused("posix.system")),
    ("ming_flash", "a talker that would run code", |at| calling(at, "talker"), Refused("posix.system")),
    ("cosyvoice3", "a language model that would run code", |at| call(&at.join("llm.pt")), Refused("llm.pt")),
    ("cosyvoice3", "a flow that would run code", |at| call(&at.join("flow.pt")), Refused("flow.pt")),
    ("cosyvoice3", "a vocoder that would run code", |at| call(&at.join("hift.pt")), Refused("hift.pt")),
    ("cosyvoice3", "voices that would run code", |at| call(&at.join(VOICES)), Refused("posix.system")),
    ("cosyvoice3", "a code above the last", |at| voice(at, "flow_prompt_speech_token", 64), Refused("below 64")),
    ("cosyvoice3", "a code below 0", |at| voice(at, "llm_prompt_speech_token", u32::MAX), Refused("below 64")),
    ("cosyvoice3", "text above the last token", |at| voice(at, "prompt_text", 310), Refused("below 310")),
    ("cosyvoice3", "a token above the last", |at| token(at, "CosyVoice-BlankEN"), Refused("tokenizer")),
    ("lfm2_audio", "a token above the last", |at| token(at, ""), Refused("tokenizer")),
    ("mimo_audio", "a token above the last", |at| token(at, ""), Refused("tokenizer")),
    ("ming_tts", "a token above the last", |at| token(at, ""), Refused("tokenizer")),
    ("ming_flash", "a token above the last", |at| token(at, "talker/llm"), Refused("tokenizer")),
    ("lfm2_audio", "parts for vision", |at| vision(at), Unchanged),
    ("mimo_audio", "parts for vision", |at| vision(at), Unchanged),
    ("ming_tts", "parts for vision", |at| vision(at), Unchanged),
    ("ming_flash", "parts for vision", |at| vision(at), Unchanged),
    ("cosyvoice3", "parts for vision", |at| vision(&at.join("CosyVoice-BlankEN")), Unchanged),
    ("cosyvoice3", "unknown tags", |at| add(at, TAGS), Unchanged),
    ("cosyvoice3", "a tag that would run code", |at| add(at, RUNS), Refused("line 10")),
];

/// Folder of MiMo-Audio's tokenizer of sound, and CosyVoice3's file of voices.
const SOUND: &str = "MiMo-Audio-Tokenizer";
const VOICES: &str = "spk2info.pt";

/// Writes a pickle that calls a program.
fn call(file: &Path) {
    std::fs::copy(root().join("engine/checkpoint/tests/data/call.pt"), file).unwrap();
}

/// Puts such a pickle in place of a folder's weights.
fn calling(at: &Path, part: &str) {
    let at = at.join(part);
    std::fs::remove_file(at.join("model.safetensors")).unwrap();
    call(&at.join("pytorch_model.bin"));
}

/// Sets an id of the recorded voice.
fn voice(at: &Path, part: &str, id: u32) {
    let path = at.join(VOICES);
    let mut bytes = std::fs::read(&path).unwrap();
    let pickle = PickleValue::read(VOICES, &bytes).unwrap();
    let (_, tensor) = pickle.tensors().into_iter().find(|(name, _)| name.ends_with(part)).unwrap();
    let place = tensor.place().unwrap();
    bytes[place.start..place.start + 4].copy_from_slice(&id.to_le_bytes());
    std::fs::write(path, bytes).unwrap();
}

/// Changes a JSON file.
fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    change(&mut value);
    std::fs::write(path, value.to_string()).unwrap();
}

/// Gives a token of the tokenizer an id that the model has no row for.
fn token(at: &Path, part: &str) {
    edit(&at.join(part).join("tokenizer.json"), |tokenizer| {
        let (_, id) = tokenizer["model"]["vocab"].as_object_mut().unwrap().iter_mut().next_back().unwrap();
        *id = json!(70_000);
    });
}

/// Adds a section, a tensor, a file and a folder as models that see have them.
fn vision(at: &Path) {
    edit(&at.join("config.json"), |config| config["vision_config"] = json!({"depth": 32, "hidden_size": 1280}));
    std::fs::write(at.join("preprocessor_config.json"), r#"{"image_processor_type": "Qwen2VLImageProcessor"}"#)
        .unwrap();
    std::fs::create_dir(at.join("vision")).unwrap();
    std::fs::write(at.join("vision/model.safetensors"), "no tensors").unwrap();
    let weights = at.join("model.safetensors");
    let Ok(file) = std::fs::read(&weights) else { return };
    let (length, rest) = file.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let mut header: Value = serde_json::from_slice(header).unwrap();
    let offsets = [data.len(), data.len() + 16];
    header["visual.patch_embed.proj.weight"] = json!({"dtype": "F32", "shape": [2, 2], "data_offsets": offsets});
    let mut header = header.to_string();
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(weights, [&length[..], header.as_bytes(), data, &[0; 16]].concat()).unwrap();
}

/// Sections with tags that nobody knows, and with one that Python's loader would run.
const TAGS: &str = "judge: !new:other.judges.Judge\n    width: !apply:other.width [64]\n    names: !name:other.names\n";
const RUNS: &str = "judge: !!python/object/apply:os.system ['touch ran']\n";

/// Adds a section to the yaml file.
fn add(at: &Path, section: &str) {
    let path = at.join("cosyvoice3.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}\n{section}")).unwrap();
}

fn config() -> EngineConfig {
    EngineConfig { sessions: 1, out_of_band: 0, session_tokens: 256, ..EngineConfig::default() }
}

fn answer(folder: &Path) -> Response {
    let mut engine = serve(folder, &config());
    let session = engine.open();
    submit(&session, Command::text(1, Role::User, "one two"));
    engine.respond(&session, Respond { max_tokens: Some(3), seed: 7, ..Respond::new(1, 2) }).unwrap()
}

#[test]
fn odd_folders_are_refused_or_answer_as_before() {
    for (fixture, name, change, outcome) in CASES {
        let whole = folder(fixture).join("checkpoint");
        let copy = copy(&whole);
        change(copy.path());
        match outcome {
            Refused(words) => {
                let opened =
                    Checkpoint::open(Source::Folder(copy.path().to_path_buf())).map_err(|error| error.to_string());
                let loaded =
                    opened.and_then(|folder| load_model(&folder, &config()).map_err(|error| error.to_string()));
                let Err(error) = loaded.map(|_| ()) else { panic!("{fixture}, {name}: it is loaded") };
                println!("{fixture}, {name}: {error}");
                assert!(error.contains(words), "{fixture}, {name}: {error}");
            }
            Unchanged => {
                let (ours, before) = (answer(copy.path()), answer(&whole));
                assert!(
                    ours.output() == before.output(),
                    "{fixture}, {name}: {:?} is not {:?}",
                    ours.text,
                    before.text
                );
                assert!(!ours.text.is_empty() || !ours.samples.is_empty(), "{fixture}, {name}: it says nothing");
            }
        }
    }
}
