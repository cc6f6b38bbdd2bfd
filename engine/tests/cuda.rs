//! The demo model and the small checkpoints of families on a CUDA device: text and samples equal the CPU's. `make test-cuda`
//! runs it on a simulated device.
#![cfg(feature = "cuda")]
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::path::Path;
use std::time::Instant;

use repartee_engine::internals::{Checkpoint, ResponseParams, StageEnd, StageItem, load_model};
use repartee_engine::quantise::quantise;
use repartee_engine::{DeviceChoice, EngineConfig, Source, WeightPolicy};
use repartee_engine_api::{AnswerForm, Command, Respond, Role, Sampling};
use repartee_engine_testkit::driven::{Response, serve, submit};
use repartee_engine_testkit::speech::copy;
use repartee_engine_testkit::stage_runs::run_stage;
use repartee_engine_testkit::{Expected, brief_copy, difference, folder, greedy_copy, root};

/// A small engine: the simulated device's memory is the host's.
fn config(device: DeviceChoice) -> EngineConfig {
    EngineConfig {
        device,
        sessions: 2,
        out_of_band: 0,
        session_tokens: 512,
        cache_mib: 64,
        threads: Some(1),
        ..EngineConfig::default()
    }
}

/// A recorded question: 16 kHz, mono, 16 bit.
fn question(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(root().join("tests/questions").join(name)).unwrap();
    let data = bytes.windows(4).position(|tag| tag == b"data").unwrap() + 8;
    bytes[data..].as_chunks().0.iter().map(|&sample| f32::from(i16::from_le_bytes(sample)) / 32_768.0).collect()
}

/// Answers to two sessions that ask at the same time.
fn answers(device: DeviceChoice) -> Vec<Response> {
    let began = Instant::now();
    let mut engine = serve(&root().join("models/demo"), &config(device));
    let sessions = [engine.open(), engine.open()];
    let greedy = Some(Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 });
    for (session, name) in sessions.iter().zip(["capital-of-france.wav", "cow-says.wav"]) {
        submit(session, Command::Append(question(name)));
        submit(session, Command::Commit { item: 1 });
        submit(session, Command::Respond(Respond { sampling: greedy, ..Respond::new(1, 2) }));
    }
    let answers = sessions.iter().map(|session| engine.listen(session, 1).unwrap()).collect();
    drop(sessions);
    assert_eq!(engine.left_behind(), (0, 0));
    println!("{device}: {:.1} s", began.elapsed().as_secs_f64());
    answers
}

/// Compares answers with equal codes: the rest is rounding, summed over all layers of the codec.
fn compare(expected: &[Response], found: &[Response], least: f32, tolerance: f32) {
    for (expected, found) in expected.iter().zip(found) {
        assert_eq!(found.text, expected.text);
        assert_eq!((found.samples.len(), found.reason), (expected.samples.len(), expected.reason));
        let size = expected.samples.iter().fold(0f32, |most, sample| most.max(sample.abs()));
        let off = expected.samples.iter().zip(&found.samples).fold(0f32, |most, (a, b)| most.max((a - b).abs()));
        println!("{:?}: {} samples, off by {:.1e} of the largest", expected.text, expected.samples.len(), off / size);
        assert!(size > least && off <= tolerance * size, "{:?}: off by {off} of {size}", expected.text);
    }
}

#[test]
fn demo_answers_as_on_the_processor() {
    let expected = answers(DeviceChoice::Cpu);
    let found = answers(DeviceChoice::Cuda(0));
    assert!(expected[0].text.contains("Paris"), "{}", expected[0].text);
    compare(&expected, &found, 0.05, TOLERANCE);
}

/// Runs a turn of a fixture whose spectrograms are solved and decoded in windows with look-ahead.
fn turn_of_fixture(device: DeviceChoice) -> Response {
    const NAME: &str = "omni25";
    let began = Instant::now();
    let expected = Expected::load(NAME);
    let copy = greedy_copy(NAME, &expected);
    let mut engine = serve(copy.path(), &config(device));
    let session = engine.open();
    let fact = |fact: &serde_json::Value| fact.as_str().unwrap().to_owned();
    submit(&session, Command::SetInstructions(fact(&expected.facts["settings"]["system"])));
    submit(&session, Command::Append(expected.tensor("turn0.audio").0));
    submit(&session, Command::Commit { item: 0 });
    let voice = Some(fact(&expected.facts["turns"][0]["speaker"]));
    let said = engine.respond(&session, Respond { voice, seed: 7, ..Respond::new(0, 1) }).unwrap();
    assert_eq!(said.text, fact(&expected.facts["turns"][0]["text"]));
    println!("{device}: {:.1} s", began.elapsed().as_secs_f64());
    said
}

#[test]
fn solved_sound_is_the_processors() {
    let [expected, found] = [DeviceChoice::Cpu, DeviceChoice::Cuda(0)].map(turn_of_fixture);
    compare(&[expected], &[found], 1e-3, TOLERANCE);
}

/// Family whose small checkpoint speaks on both devices.
struct Speaker {
    fixture: &'static str,
    /// generation_config.json of the likeliest text and codes; `None` for a family whose draws have a seed.
    greedy: Option<&'static str>,
    /// True if the question is a recording of the fixture; otherwise it is text.
    audio_input: bool,
    voice: Option<&'static str>,
    /// Settings of a stage.
    options: (&'static str, &'static [(&'static str, usize)]),
    /// Changes of a file that make the answer brief, because the device is simulated.
    brief: (&'static str, &'static [(&'static str, &'static str)]),
    max_tokens: u32,
    /// Largest difference of a sample, as a share of the largest one.
    tolerance: f32,
}

/// Largest difference of a sample, as a share of the largest one.
const TOLERANCE: f32 = 1e-4;
/// The same of a turn whose vocoder takes the phase of its sines from the pitch: the phase is a sum over all samples, so
/// roundings of the spectrogram add up in it. `mel_and_its_sound_are_the_processors` has the parts.
const SUMMED_PHASE: f32 = 1e-3;

impl Speaker {
    fn turn(&self, device: DeviceChoice) -> Response {
        let began = Instant::now();
        let copy = copy(&folder(self.fixture).join("checkpoint"));
        if let Some(greedy) = self.greedy {
            std::fs::write(copy.path().join("generation_config.json"), greedy).unwrap();
        }
        let (file, changes) = self.brief;
        for (from, to) in changes {
            let text = std::fs::read_to_string(copy.path().join(file)).unwrap();
            assert!(text.contains(from), "{from}");
            std::fs::write(copy.path().join(file), text.replacen(from, to, 1)).unwrap();
        }
        let mut config = config(device);
        config.accept_licence.extend((self.fixture == "covo_audio").then(|| "covo-audio".to_owned()));
        let (stage, options) = self.options;
        let options = options.iter().map(|(name, value)| ((*name).to_owned(), *value));
        config.stages.entry(stage.to_owned()).or_default().options.extend(options);
        let mut engine = serve(copy.path(), &config);
        let session = engine.open();
        if self.audio_input {
            submit(&session, Command::Append(Expected::load(self.fixture).tensor("turn0.audio").0));
            submit(&session, Command::Commit { item: 1 });
        } else {
            submit(&session, Command::text(1, Role::User, "the fox"));
        }
        let voice = self.voice.map(str::to_owned);
        let respond = Respond { voice, seed: 7, max_tokens: Some(self.max_tokens), ..Respond::new(1, 2) };
        let answer = engine.respond(&session, respond).unwrap();
        drop(session);
        assert_eq!(engine.left_behind(), (0, 0));
        println!("{} on {device}: {:.1} s", self.fixture, began.elapsed().as_secs_f64());
        answer
    }

    fn compare(&self) {
        let [expected, found] = [DeviceChoice::Cpu, DeviceChoice::Cuda(0)].map(|device| self.turn(device));
        compare(&[expected], &[found], 1e-4, self.tolerance);
    }
}

#[test]
fn lfm2_audio_speaks_as_on_the_processor() {
    let changes = &[
        (r#""interleaved_n_text": 6"#, r#""interleaved_n_text": 1"#),
        (r#""interleaved_n_audio": 12"#, r#""interleaved_n_audio": 2"#),
    ];
    // The older model differs in its codec alone, which decodes the frames of fewer tokens.
    for (fixture, audio_input, max_tokens) in [("lfm2_audio", true, 3), ("lfm2_mimi", false, 2)] {
        Speaker {
            fixture,
            greedy: Some(r#"{"audio_temperature": 0.0}"#),
            audio_input,
            voice: None,
            options: ("detokenizer", &[]),
            brief: ("config.json", changes),
            max_tokens,
            tolerance: TOLERANCE,
        }
        .compare();
    }
}

#[test]
fn cosyvoice3_speaks_as_on_the_processor() {
    // Two chunks or more, behind a recording's.
    let changes = &[
        ("chunk_size: 25", "chunk_size: 10"),
        ("mix_ratio: [5, 15]", "mix_ratio: [3, 4]\n    max_token_text_ratio: 4"),
    ];
    Speaker {
        fixture: "cosyvoice3",
        greedy: None,
        audio_input: false,
        voice: Some("recorded"),
        options: ("flow", &[("left_chunks", 1)]),
        brief: ("cosyvoice3.yaml", changes),
        max_tokens: 8,
        tolerance: SUMMED_PHASE,
    }
    .compare();
}

#[test]
fn mimo_audio_speaks_as_on_the_processor() {
    Speaker {
        fixture: "mimo_audio",
        greedy: Some(r#"{"text_temperature": 0.0, "audio_temperature": 0.0}"#),
        audio_input: true,
        voice: None,
        // Windows shorter than the response.
        options: ("codec", &[("left_codes", 12), ("right_codes", 4), ("new_codes", 5)]),
        brief: ("config.json", &[]),
        max_tokens: 4,
        tolerance: TOLERANCE,
    }
    .compare();
}

#[test]
fn fun_audio_chat_speaks_as_on_the_processor() {
    // Two chunks or more.
    Speaker {
        fixture: "fun_audio_chat",
        greedy: Some(r#"{"audio_temperature": 0.0}"#),
        audio_input: true,
        voice: None,
        options: ("flow", &[("left_chunks", 1)]),
        brief: ("Fun-CosyVoice3-0.5B-2512/cosyvoice3.yaml", &[("chunk_size: 25", "chunk_size: 10")]),
        max_tokens: 4,
        tolerance: SUMMED_PHASE,
    }
    .compare();
}

/// Families whose sound comes from a spectrogram and a pitch: fixture, file of their settings, voice.
const FLOW_FAMILIES: [(&str, &str, &str); 2] = [
    ("cosyvoice3", "cosyvoice3.yaml", "recorded"),
    ("fun_audio_chat", "Fun-CosyVoice3-0.5B-2512/cosyvoice3.yaml", "中文女"),
];

/// Spectrogram of two chunks of codes, and samples of a spectrogram: of `mel`, or else of that one.
fn mel_and_samples(
    device: DeviceChoice,
    (fixture, settings, voice): (&str, &str, &str),
    mel: Option<&[f32]>,
) -> (Vec<f32>, Vec<f32>) {
    let copy = copy(&folder(fixture).join("checkpoint"));
    let settings = copy.path().join(settings);
    let text = std::fs::read_to_string(&settings).unwrap();
    std::fs::write(&settings, text.replacen("chunk_size: 25", "chunk_size: 10", 1)).unwrap();
    let checkpoint = Checkpoint::open(Source::Folder(copy.path().to_path_buf())).unwrap();
    let mut model = load_model(&checkpoint, &config(device)).unwrap();
    let mut run = |name: &str, items: Vec<StageItem>| {
        let stage = model.stages.iter_mut().find(|stage| stage.name() == name).unwrap();
        let begin = StageItem::Begin(ResponseParams {
            response: 7,
            seed: 5,
            voice: voice.to_owned(),
            audio: true,
            streamed: false,
            tools: Vec::new().into(),
            form: AnswerForm::Free,
            held: None,
            max_tokens: 1000,
            sampling: None,
        });
        run_stage(stage.as_mut(), std::iter::once(begin).chain(items).chain([StageItem::End(StageEnd::Stop)]))
    };
    let codes = (0..16u32).map(|at| StageItem::Codes(vec![at * 13 % 64])).collect();
    let (mut spectrogram, mut frames) = (Vec::new(), 0);
    for item in run("flow", codes) {
        if let StageItem::Latents { rows, count } = item {
            spectrogram.extend(rows);
            frames += count;
        }
    }
    let rows = mel.map_or_else(|| spectrogram.clone(), <[f32]>::to_vec);
    let sound = run("hift", vec![StageItem::Latents { rows, count: frames }]);
    let samples = sound.into_iter().flat_map(|item| if let StageItem::Samples(s) = item { s } else { Vec::new() });
    (spectrogram, samples.collect())
}

/// Each part of the sound within the tolerance, on equal input.
#[test]
fn mel_and_its_sound_are_the_processors() {
    for family in FLOW_FAMILIES {
        let (mel, samples) = mel_and_samples(DeviceChoice::Cpu, family, None);
        let (found, sound) = mel_and_samples(DeviceChoice::Cuda(0), family, Some(&mel));
        assert_eq!((found.len(), sound.len()), (mel.len(), samples.len()));
        assert_eq!((mel.len() / 20, samples.len()), (32, 32 * 480), "two frames a code");
        let off = [difference(&found, &mel), difference(&sound, &samples)];
        println!("{}: mel off by {:.1e}, samples of one mel by {:.1e}", family.0, off[0], off[1]);
        assert!(off.iter().all(|off| *off <= TOLERANCE), "{}: {off:?}", family.0);
    }
}

#[test]
fn covo_audio_speaks_as_on_the_processor() {
    Speaker {
        fixture: "covo_audio",
        greedy: Some(r#"{"temperature": 0.0}"#),
        audio_input: true,
        voice: None,
        // Two windows or more.
        options: ("flow", &[("left_codes", 2), ("new_codes", 2), ("ahead_codes", 1)]),
        brief: ("token2wav/config.json", &[("\"s_steps\": 10", "\"s_steps\": 3")]),
        max_tokens: 9,
        tolerance: TOLERANCE,
    }
    .compare();
}

#[test]
fn ming_speaks_as_on_the_processor() {
    for fixture in ["ming_tts", "ming_flash"] {
        Speaker {
            fixture,
            greedy: None,
            audio_input: false,
            voice: None,
            options: ("speech_lm", &[("most_patches", 6)]),
            brief: ("config.json", &[]),
            max_tokens: 64,
            tolerance: TOLERANCE,
        }
        .compare();
    }
}

#[test]
fn dynin_omni_speaks_as_on_the_processor() {
    Speaker {
        fixture: "dynin_omni",
        greedy: None,
        audio_input: false,
        voice: None,
        options: ("speech_lm", &[("block_steps", 2)]),
        brief: ("generation_config.json", &[("\"max_new_tokens\": 24", "\"max_new_tokens\": 16")]),
        max_tokens: 64,
        tolerance: TOLERANCE,
    }
    .compare();
}

/// Every format loads, and decode steps are captured with it.
#[test]
fn integer_weights_are_loaded() {
    let checkpoint = Checkpoint::open(Source::Folder(root().join("models/demo"))).unwrap();
    for weights in [WeightPolicy::Mixed, WeightPolicy::Int8] {
        let model =
            load_model(&checkpoint, &EngineConfig { weights, sessions: 1, ..config(DeviceChoice::Cuda(0)) }).unwrap();
        // One slot: a step of one row for each stage.
        let eager: Vec<_> = model.stages.iter().map(|stage| stage.eager_steps()).collect();
        assert_eq!(eager, [Some(1); 3], "{weights:?}");
    }
}

/// A short spoken answer on the device, from a checkpoint in a folder.
fn short_answer(checkpoint: &Path, weights: WeightPolicy) -> Response {
    let mut engine = serve(checkpoint, &EngineConfig { weights, ..config(DeviceChoice::Cuda(0)) });
    let session = engine.open();
    submit(&session, Command::text(1, Role::User, "What is the capital of France?"));
    let sampling = Some(Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, repetition_penalty: 1.0 });
    engine.respond(&session, Respond { sampling, max_tokens: Some(3), ..Respond::new(1, 2) }).unwrap()
}

/// Format compressed-tensors: stored integers of four and eight bits equal those of a checkpoint that is quantised at
/// loading.
#[test]
fn stored_integers_answer_with_the_same_bits() {
    // Brief, because the device is simulated.
    let (checkpoint, stored) = (brief_copy(&root().join("models/demo"), 6), tempfile::tempdir().unwrap());
    quantise(checkpoint.path(), stored.path(), WeightPolicy::Mixed, 1, |_| {}).unwrap();
    // The setting applies too: floats of the stored checkpoint are quantised at loading.
    let [expected, found] = [&checkpoint, &stored].map(|folder| short_answer(folder.path(), WeightPolicy::Mixed));
    assert!(!expected.text.is_empty() && !expected.samples.is_empty());
    assert_eq!(found.text, expected.text);
    assert!(found.samples == expected.samples, "other samples");
}

#[test]
fn what_a_device_lacks_is_refused_at_start() {
    let checkpoint = Checkpoint::open(Source::Folder(root().join("models/demo"))).unwrap();
    let refused = |config: &EngineConfig| load_model(&checkpoint, config).map(|_| ()).unwrap_err().to_string();
    let said = refused(&config(DeviceChoice::Cuda(3)));
    assert!(said.contains("engine.device is cuda:3") && said.contains("`cpu`"), "{said}");
    let said = refused(&EngineConfig { cache_mib: 1 << 23, ..config(DeviceChoice::Cuda(0)) });
    assert!(said.contains("MiB free") && said.contains("smaller"), "{said}");
}
