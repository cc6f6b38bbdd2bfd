//! Families under test.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use repartee_engine::internals::audio_encoder::front_end::audio_front_end;
use repartee_engine::internals::audio_encoder::layer::AudioLayerShape;
use repartee_engine::internals::audio_encoder::shape::{Convolutions, EncoderShape, Positions};
use repartee_engine::internals::{
    Checkpoint, FamilyVariant, Hearing, Model, cosyvoice3, covo_audio, fun_audio_chat, lfm2_audio, load_model,
    mimo_audio, ming, qwen2_5_omni, qwen3_omni_moe, qwen3_tts, worker_pool,
};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::{Command, EngineUsage, Recording, Respond, Role};
use repartee_kernels::cpu::Cpu;
use repartee_kernels_testkit::replay::ReplayOps;

use super::{Splitter, Subject};
use crate::audio_encoder::Tensors;
use crate::other_family::{self, Form, PIECE_FRAMES};
use crate::{Expected, folder, greedy_copy, root};

/// Qwen3-Omni with a small checkpoint.
pub struct Omni {
    folder: PathBuf,
    /// True if its device replays captured steps.
    replayed: bool,
}

impl Omni {
    /// A fixture with a greedy talker.
    pub fn greedy() -> Self {
        static COPY: OnceLock<tempfile::TempDir> = OnceLock::new();
        let copy = COPY.get_or_init(|| greedy_copy("dense", &Expected::load("dense")));
        Self { folder: copy.path().to_owned(), replayed: false }
    }

    /// The fixture with its own settings: the talker samples.
    pub fn sampling() -> Self {
        Self { folder: folder("dense").join("checkpoint"), replayed: false }
    }

    /// The demo model.
    pub fn demo() -> Self {
        Self { folder: root().join("models/demo"), replayed: false }
    }

    /// Returns the subject on a device that replays captured steps.
    pub fn replayed(self) -> Self {
        Self { replayed: true, ..self }
    }
}

impl Subject for Omni {
    fn model(&self, config: &EngineConfig) -> Model {
        let checkpoint = Checkpoint::open(Source::Folder(self.folder.clone())).unwrap();
        if !self.replayed {
            return load_model(&checkpoint, config).unwrap();
        }
        let pool = worker_pool(config.threads());
        let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
        Model {
            pool,
            ..qwen3_omni_moe::assemble(ops, &checkpoint, FamilyVariant("omni"), config).unwrap().build(config).unwrap()
        }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["thinker", "talker", "code2wav"]
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        static TURNS: OnceLock<[Vec<f32>; 3]> = OnceLock::new();
        let turns = TURNS.get_or_init(|| {
            let expected = Expected::load("dense");
            let [a, b] = ["turn0.audio", "turn1.audio"].map(|name| expected.tensor(name).0);
            let c = b.iter().rev().copied().collect();
            [a, b, c]
        });
        Some(turns[turn].clone())
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        spoken(&self.audio(turn).unwrap(), item, cut)
    }
}

/// Qwen3-Omni with a random audio encoder of a shape that no family has.
pub struct OtherEncoder(pub Omni);

impl Subject for OtherEncoder {
    fn model(&self, config: &EngineConfig) -> Model {
        let checkpoint = Checkpoint::open(Source::Folder(self.0.folder.clone())).unwrap();
        let thinker = qwen3_omni_moe::Config::load(&checkpoint).unwrap().thinker;
        let shape = EncoderShape {
            bins: thinker.audio.tower.num_mel_bins,
            window: 96,
            chunk: 48,
            convolutions: Convolutions::Conv1d,
            positions: Positions::Table("places"),
            layers: 2,
            layer: AudioLayerShape { width: 16, heads: 2, inner: 24, key_bias: false },
            reach: (None, None),
            skip: None,
            pairs: true,
            norm: "last",
            projection: vec![("first", 12), ("second", thinker.text.model.layers.hidden_size)],
        };
        let model = self.0.model(config);
        let ops = Cpu::default().on(model.pool.clone());
        let tower = Tensors::random(&shape).load(&ops, shape);
        Model { hearing: Some(Hearing::Rows(audio_front_end(&ops, tower, &checkpoint).unwrap())), ..model }
    }

    fn stages(&self) -> &'static [&'static str] {
        self.0.stages()
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        self.0.audio(turn)
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        self.0.input(turn, item, cut)
    }
}

/// Qwen2.5-Omni with a greedy talker.
#[derive(Default)]
pub struct Omni25 {
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl Omni25 {
    const NAME: &str = "omni25";
    /// Upper bound of a response's codes: random weights rarely end a response.
    const CODES: u32 = 12;

    /// A copy of the fixture with a greedy talker and short responses.
    fn folder() -> &'static Path {
        static COPY: OnceLock<tempfile::TempDir> = OnceLock::new();
        let copy = COPY.get_or_init(|| {
            let copy = greedy_copy(Self::NAME, &Expected::load(Self::NAME));
            let path = copy.path().join("generation_config.json");
            let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            config["talker_max_new_tokens"] = Self::CODES.into();
            std::fs::write(&path, config.to_string()).unwrap();
            copy
        });
        copy.path()
    }
}

impl Subject for Omni25 {
    fn model(&self, config: &EngineConfig) -> Model {
        let checkpoint = Checkpoint::open(Source::Folder(Self::folder().to_owned())).unwrap();
        if !self.replayed {
            return load_model(&checkpoint, config).unwrap();
        }
        let pool = worker_pool(config.threads());
        let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
        Model {
            pool,
            ..qwen2_5_omni::assemble(ops, &checkpoint, FamilyVariant("omni"), config).unwrap().build(config).unwrap()
        }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["thinker", "talker", "dit", "bigvgan"]
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        static TURNS: OnceLock<[Vec<f32>; 3]> = OnceLock::new();
        let turns = TURNS.get_or_init(|| {
            let expected = Expected::load(Self::NAME);
            let [a, b] = ["turn0.audio", "turn1.audio"].map(|name| expected.tensor(name).0);
            let c = b.iter().rev().copied().collect();
            [a, b, c]
        });
        Some(turns[turn].clone())
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        spoken(&self.audio(turn).unwrap(), item, cut)
    }
}

/// LFM2.5-Audio with a small checkpoint, which samples codes.
#[derive(Default)]
pub struct Lfm25 {
    /// True for LFM2-Audio, with Mimi.
    pub older: bool,
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl Lfm25 {
    const NAME: &str = "lfm2_audio";
    /// Text tokens, and the frames after them, in turn. The suite's responses are shorter than a published turn.
    const TURNS: (u32, u32) = (1, 2);

    /// A copy of the fixture with short turns.
    fn folder(&self) -> &'static Path {
        static COPIES: [OnceLock<tempfile::TempDir>; 2] = [const { OnceLock::new() }; 2];
        let copy = COPIES[usize::from(self.older)].get_or_init(|| {
            let fixture = if self.older { "lfm2_mimi" } else { Self::NAME };
            let copy = crate::speech::copy(&folder(fixture).join("checkpoint"));
            let path = copy.path().join("config.json");
            let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            config["interleaved_n_text"] = Self::TURNS.0.into();
            config["interleaved_n_audio"] = Self::TURNS.1.into();
            std::fs::write(&path, config.to_string()).unwrap();
            copy
        });
        copy.path()
    }
}

impl Subject for Lfm25 {
    fn model(&self, config: &EngineConfig) -> Model {
        let checkpoint = Checkpoint::open(Source::Folder(self.folder().to_owned())).unwrap();
        if !self.replayed {
            return load_model(&checkpoint, config).unwrap();
        }
        let pool = worker_pool(config.threads());
        let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
        Model {
            pool,
            ..lfm2_audio::assemble(ops, &checkpoint, FamilyVariant("audio"), config).unwrap().build(config).unwrap()
        }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["language_model", "detokenizer"]
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        static TURNS: OnceLock<[Vec<f32>; 3]> = OnceLock::new();
        let turns = TURNS.get_or_init(|| {
            let expected = Expected::load(Self::NAME);
            let [a, b] = ["turn0.audio", "transcript.audio"].map(|name| expected.tensor(name).0);
            let c = b.iter().rev().copied().collect();
            [a, b, c]
        });
        Some(turns[turn].clone())
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        spoken(&self.audio(turn).unwrap(), item, cut)
    }

    /// Only tokens of turns with all of their frames, because frames stay in the prompt.
    fn spoken_tokens(&self, usage: EngineUsage) -> u32 {
        usage.output_text_tokens.min(usage.output_audio_frames / Self::TURNS.1 * Self::TURNS.0)
    }
}

/// MiMo-Audio with a small checkpoint, which samples text and codes, and with short windows of its codec.
#[derive(Default)]
pub struct MiMo {
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl MiMo {
    const NAME: &str = "mimo_audio";
    /// Settings of the codec: responses of the suite are shorter than a published window.
    const WINDOWS: [(&str, usize); 3] = [("left_codes", 12), ("right_codes", 4), ("new_codes", 5)];
}

impl Subject for MiMo {
    fn model(&self, config: &EngineConfig) -> Model {
        let mut config = config.clone();
        let options = Self::WINDOWS.map(|(name, codes)| (name.to_owned(), codes));
        config.stages.entry("codec".to_owned()).or_default().options.extend(options);
        let checkpoint = Checkpoint::open(Source::Folder(folder(Self::NAME).join("checkpoint"))).unwrap();
        if !self.replayed {
            return load_model(&checkpoint, &config).unwrap();
        }
        let pool = worker_pool(config.threads());
        let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
        let assembly = mimo_audio::assemble(ops, &checkpoint, FamilyVariant("audio"), &config).unwrap();
        Model { pool, ..assembly.build(&config).unwrap() }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["language_model", "codec"]
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        static TURNS: OnceLock<[Vec<f32>; 3]> = OnceLock::new();
        let turns = TURNS.get_or_init(|| {
            let whole = Expected::load(Self::NAME).tensor("turn0.audio").0;
            let both = [&whole[..], &whole.iter().rev().copied().collect::<Vec<_>>()].concat();
            [both[..4600].to_vec(), both[1200..5700].to_vec(), both[2400..].to_vec()]
        });
        Some(turns[turn].clone())
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        spoken(&self.audio(turn).unwrap(), item, cut)
    }

    /// All tokens but the last, whose patches may not all be made, because patches stay in the prompt.
    fn spoken_tokens(&self, usage: EngineUsage) -> u32 {
        usage.output_text_tokens.saturating_sub(1)
    }
}

/// Fun-Audio-Chat with a small checkpoint, which samples codes, and with short chunks of its flow.
#[derive(Default)]
pub struct FunChat {
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl FunChat {
    const NAME: &str = "fun_audio_chat";

    fn folder() -> &'static Path {
        static COPY: OnceLock<tempfile::TempDir> = OnceLock::new();
        let copy = COPY.get_or_init(|| {
            let copy = crate::speech::copy(&folder(Self::NAME).join("checkpoint"));
            let path = copy.path().join("Fun-CosyVoice3-0.5B-2512/cosyvoice3.yaml");
            let text = std::fs::read_to_string(&path).unwrap();
            let (from, to) = ("chunk_size: 25", "chunk_size: 10");
            assert!(text.contains(from), "{from}");
            std::fs::write(&path, text.replacen(from, to, 1)).unwrap();
            copy
        });
        copy.path()
    }
}

impl Subject for FunChat {
    fn model(&self, config: &EngineConfig) -> Model {
        let checkpoint = Checkpoint::open(Source::Folder(Self::folder().to_owned())).unwrap();
        if !self.replayed {
            return load_model(&checkpoint, config).unwrap();
        }
        let pool = worker_pool(config.threads());
        let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
        let assembly = fun_audio_chat::assemble(ops, &checkpoint, FamilyVariant("chat"), config).unwrap();
        Model { pool, ..assembly.build(config).unwrap() }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["language_model", "flow", "hift"]
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        static TURNS: OnceLock<[Vec<f32>; 3]> = OnceLock::new();
        let turns = TURNS.get_or_init(|| {
            let expected = Expected::load(Self::NAME);
            let [a, b] = ["turn0.audio", "turn1.audio"].map(|name| expected.tensor(name).0);
            let c = b.iter().rev().copied().collect();
            [a, b, c]
        });
        Some(turns[turn].clone())
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        spoken(&self.audio(turn).unwrap(), item, cut)
    }
}

/// Covo-Audio-Chat with a small checkpoint, which samples text and codes, and with short windows of its flow.
#[derive(Default)]
pub struct CovoChat {
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl CovoChat {
    const NAME: &str = "covo_audio";
    /// Settings of the flow: responses of the suite are shorter than a published window.
    const WINDOWS: [(&str, usize); 3] = [("left_codes", 4), ("new_codes", 2), ("ahead_codes", 1)];
}

impl Subject for CovoChat {
    fn model(&self, config: &EngineConfig) -> Model {
        let mut config = EngineConfig { accept_licence: vec!["covo-audio".to_owned()], ..config.clone() };
        let options = Self::WINDOWS.map(|(name, codes)| (name.to_owned(), codes));
        config.stages.entry("flow".to_owned()).or_default().options.extend(options);
        let checkpoint = Checkpoint::open(Source::Folder(folder(Self::NAME).join("checkpoint"))).unwrap();
        if !self.replayed {
            return load_model(&checkpoint, &config).unwrap();
        }
        let pool = worker_pool(config.threads());
        let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
        let assembly = covo_audio::assemble(ops, &checkpoint, FamilyVariant("chat"), &config).unwrap();
        Model { pool, ..assembly.build(&config).unwrap() }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["language_model", "flow", "bigvgan"]
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        static TURNS: OnceLock<[Vec<f32>; 3]> = OnceLock::new();
        let turns = TURNS.get_or_init(|| {
            let expected = Expected::load(Self::NAME);
            let [a, b] = ["turn0.audio", "turn1.audio"].map(|name| expected.tensor(name).0);
            let c = a.iter().rev().copied().collect();
            [a, b, c]
        });
        Some(turns[turn].clone())
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        spoken(&self.audio(turn).unwrap(), item, cut)
    }

    /// All tokens but the last, whose codes may not all be drawn, because codes stay in the prompt.
    fn spoken_tokens(&self, usage: EngineUsage) -> u32 {
        usage.output_text_tokens.saturating_sub(1)
    }
}

/// The synthetic family of `other_family`.
pub struct Other(pub Form);

impl Subject for Other {
    fn model(&self, config: &EngineConfig) -> Model {
        other_family::model(self.0, config)
    }

    fn stages(&self) -> &'static [&'static str] {
        &["writer", "speaker", "refiner", "vocoder"]
    }

    fn audio(&self, turn: usize) -> Option<Vec<f32>> {
        (self.0 == Form::Hearing).then(|| other_audio(turn))
    }

    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command> {
        match self.0 {
            Form::Hearing => spoken(&other_audio(turn), item, cut),
            Form::GivenText => vec![Command::text(item, Role::User, TEXTS[turn])],
        }
    }

    fn request(&self, respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
        if self.0 == Form::Hearing { vec![Command::Respond(respond)] } else { streamed(respond, cut) }
    }

    /// Only tokens with all of their frames, because frames stay in the prompt.
    fn spoken_tokens(&self, usage: EngineUsage) -> u32 {
        usage.output_text_tokens.min(usage.output_audio_frames / PIECE_FRAMES as u32)
    }
}

/// User messages for a family without audio input.
pub(crate) const TEXTS: [&str; 3] = ["read this like a friend", "now a little louder", "and slowly"];

/// Commands of a request whose text streams in.
pub(crate) fn streamed(respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
    let response = respond.response;
    let text = "once upon a time there was a small house by the sea";
    let mut commands = vec![Command::Respond(Respond { streamed: true, ..respond })];
    let pieces = pieces(text.as_bytes(), cut).map(|piece| String::from_utf8(piece.to_vec()).unwrap());
    commands.extend(pieces.map(|text| Command::StreamText { response, text }));
    commands.push(Command::EndText { response });
    commands
}

/// Qwen3-TTS with sampling.
#[derive(Default)]
pub struct Tts {
    /// True if text streams in; otherwise the user's message is spoken.
    pub streamed: bool,
    /// True if its voice is cloned from a recording with a transcript.
    pub cloned: bool,
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl Tts {
    /// Name of the cloned voice.
    const CLONED: &str = "mine";

    fn checkpoint(&self) -> &'static str {
        if self.cloned { "tts_clone" } else { "tts_custom" }
    }
}

impl Subject for Tts {
    fn model(&self, config: &EngineConfig) -> Model {
        let checkpoint = Checkpoint::open(Source::Folder(folder(self.checkpoint()).join("checkpoint"))).unwrap();
        let mut model = if self.replayed {
            let pool = worker_pool(config.threads());
            let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
            Model {
                pool,
                ..qwen3_tts::assemble(ops, &checkpoint, FamilyVariant("tts"), config).unwrap().build(config).unwrap()
            }
        } else {
            load_model(&checkpoint, config).unwrap()
        };
        if self.cloned {
            let samples = Expected::load(self.checkpoint()).tensor("run1.voice.audio").0;
            model.voices.enrol(Self::CLONED, &Recording { samples, text: "dog and".to_owned() }).unwrap();
        }
        model
    }

    fn stages(&self) -> &'static [&'static str] {
        &["reader", "talker", "code2wav"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::text(item, Role::User, TEXTS[turn])]
    }

    fn request(&self, respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
        let voice = self.cloned.then(|| Self::CLONED.to_owned());
        let respond = Respond { voice, ..respond };
        if self.streamed { streamed(respond, cut) } else { vec![Command::Respond(respond)] }
    }

    fn writes(&self) -> bool {
        false
    }
}

/// CosyVoice3, with a recorded voice if text streams in.
#[derive(Default)]
pub struct Cosy {
    /// True if text streams in; otherwise the user's message is spoken.
    pub streamed: bool,
    /// True if its voice is cloned from a recording with a transcript.
    pub cloned: bool,
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl Cosy {
    /// Name of the cloned voice.
    const CLONED: &str = "mine";
    /// Fields of the copied fixture: short chunks, turns and responses.
    const FIELDS: [(&str, &str); 2] = [
        ("chunk_size: 25", "chunk_size: 10"),
        ("mix_ratio: [5, 15]", "mix_ratio: [3, 4]\n    max_token_text_ratio: 2"),
    ];

    fn folder() -> &'static Path {
        static COPY: OnceLock<tempfile::TempDir> = OnceLock::new();
        let copy = COPY.get_or_init(|| {
            let copy = crate::speech::copy(&folder("cosyvoice3").join("checkpoint"));
            let path = copy.path().join("cosyvoice3.yaml");
            let mut text = std::fs::read_to_string(&path).unwrap();
            for (from, to) in Self::FIELDS {
                assert!(text.contains(from), "{from}");
                text = text.replacen(from, to, 1);
            }
            std::fs::write(&path, text).unwrap();
            copy
        });
        copy.path()
    }
}

impl Subject for Cosy {
    fn model(&self, config: &EngineConfig) -> Model {
        let checkpoint = Checkpoint::open(Source::Folder(Self::folder().to_owned())).unwrap();
        let mut model = if self.replayed {
            let pool = worker_pool(config.threads());
            let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
            let assembly = cosyvoice3::assemble(ops, &checkpoint, FamilyVariant("tts"), config).unwrap();
            Model { pool, ..assembly.build(config).unwrap() }
        } else {
            load_model(&checkpoint, config).unwrap()
        };
        if self.cloned {
            let samples = Expected::load("cosyvoice3_voice").tensor("samples").0;
            model.voices.enrol(Self::CLONED, &Recording { samples, text: "the sea".to_owned() }).unwrap();
        }
        model
    }

    fn stages(&self) -> &'static [&'static str] {
        &["reader", "speech_lm", "flow", "hift"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::text(item, Role::User, TEXTS[turn])]
    }

    fn request(&self, respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
        // A voice without a recording, so that both kinds are tested.
        let own = (!self.streamed).then_some("vector");
        let voice = if self.cloned { Some(Self::CLONED) } else { own }.map(str::to_owned);
        let respond = Respond { voice, ..respond };
        if self.streamed { streamed(respond, cut) } else { vec![Command::Respond(respond)] }
    }

    fn writes(&self) -> bool {
        false
    }
}

/// Ming with the small checkpoint of Ming-omni-tts.
#[derive(Default)]
pub struct MingTts {
    /// True if text streams in; otherwise the user's message is spoken.
    pub streamed: bool,
    /// True if its device replays captured steps.
    pub replayed: bool,
}

impl MingTts {
    /// Most patches of an utterance, which has at least five: random weights end some in time.
    const PATCHES: usize = 6;

    /// A copy of the fixture with short solves, which take most of the suite's time.
    fn folder() -> &'static Path {
        static COPY: OnceLock<tempfile::TempDir> = OnceLock::new();
        let copy = COPY.get_or_init(|| {
            let copy = crate::speech::copy(&folder("ming_tts").join("checkpoint"));
            let path = copy.path().join("config.json");
            let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            config["ditar_config"]["steps"] = 2.into();
            config["ditar_config"]["history_patch_size"] = 4.into();
            std::fs::write(&path, config.to_string()).unwrap();
            copy
        });
        copy.path()
    }
}

impl Subject for MingTts {
    fn model(&self, config: &EngineConfig) -> Model {
        let mut config = config.clone();
        let options = &mut config.stages.entry("speech_lm".to_owned()).or_default().options;
        options.insert("most_patches".to_owned(), Self::PATCHES);
        let checkpoint = Checkpoint::open(Source::Folder(Self::folder().to_owned())).unwrap();
        if !self.replayed {
            return load_model(&checkpoint, &config).unwrap();
        }
        let pool = worker_pool(config.threads());
        let ops = ReplayOps::new(Cpu::default().on(pool.clone()));
        let assembly = ming::assemble(ops, &checkpoint, FamilyVariant("tts"), &config).unwrap();
        Model { pool, ..assembly.build(&config).unwrap() }
    }

    fn stages(&self) -> &'static [&'static str] {
        &["reader", "speech_lm", "vae"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::text(item, Role::User, TEXTS[turn])]
    }

    fn request(&self, respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
        if self.streamed { streamed(respond, cut) } else { vec![Command::Respond(respond)] }
    }

    fn writes(&self) -> bool {
        false
    }
}

/// Dynin-Omni with its small checkpoint.
#[derive(Default)]
pub struct Dynin {
    /// True if text streams in; otherwise the user's message is spoken.
    pub streamed: bool,
}

impl Subject for Dynin {
    fn model(&self, config: &EngineConfig) -> Model {
        let folder = folder("dynin_omni").join("checkpoint");
        load_model(&Checkpoint::open(Source::Folder(folder)).unwrap(), config).unwrap()
    }

    fn stages(&self) -> &'static [&'static str] {
        &["reader", "speech_lm", "uvits"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::text(item, Role::User, TEXTS[turn])]
    }

    fn request(&self, respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
        if self.streamed { streamed(respond, cut) } else { vec![Command::Respond(respond)] }
    }

    fn writes(&self) -> bool {
        false
    }
}

/// Kokoro, which speaks the user's message or text that streams in.
pub struct ClauseVoice {
    /// True if text streams in.
    pub streamed: bool,
}

impl Subject for ClauseVoice {
    fn model(&self, config: &EngineConfig) -> Model {
        load_model(&Checkpoint::open(Source::Folder(folder("kokoro"))).unwrap(), config).unwrap()
    }

    fn stages(&self) -> &'static [&'static str] {
        &["reader", "kokoro"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::text(item, Role::User, TEXTS[turn])]
    }

    fn request(&self, respond: Respond, cut: Splitter<'_>) -> Vec<Command> {
        if self.streamed { streamed(respond, cut) } else { vec![Command::Respond(respond)] }
    }

    fn writes(&self) -> bool {
        false
    }
}

/// A turn of tones and noise, different in each turn.
pub(crate) fn other_audio(turn: usize) -> Vec<f32> {
    let sample = |i: usize| {
        let (i, pitch) = (i as f32, (turn + 2) as f32);
        let noise = ((i * 12.9898).sin() * 43_758.547).fract() * 0.05;
        (i * 0.01 * pitch).sin() * (0.2 + 0.15 * (i * 0.0007 * pitch).sin()) + noise
    };
    (0..9000 + 3517 * turn).map(sample).collect()
}

/// Commands that append a turn in pieces and commit it.
pub(crate) fn spoken(samples: &[f32], item: u64, cut: Splitter<'_>) -> Vec<Command> {
    let pieces = pieces(samples, cut).map(|piece| Command::Append(piece.to_vec()));
    pieces.chain([Command::Commit { item }]).collect()
}

fn pieces<'a, T>(mut rest: &'a [T], cut: Splitter<'_>) -> impl Iterator<Item = &'a [T]> {
    std::iter::from_fn(move || {
        let (piece, after) = rest.split_at(cut().clamp(1, rest.len().max(1)).min(rest.len()));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}
