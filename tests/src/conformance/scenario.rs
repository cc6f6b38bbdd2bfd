//! The conversation with a scripted engine, and the run of a client through it: a whole turn, an answer interrupted
//! while it is generated, one interrupted after generation but during playback, and a last whole turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use repartee::auth::KeySet;
use repartee::config::{Config, TlsConfig};
use repartee::server::{PemCertificate, development_certificate};
use repartee_media::{pcm, sound_file, wav};
use repartee_testkit::scripted::{self, Script, ScriptedEngine, ScriptedResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{questions, tools};

/// Sample rate of all recordings in Hz, that of the wire's PCM.
pub const RATE: u32 = 24_000;
/// Silence after each question: longer than the wait of any client's turn detection.
const PAUSE: Duration = Duration::from_millis(1_500);
/// Granularity of recordings in samples; some clients send no less.
const PIECE_SAMPLES: usize = RATE as usize / 10;
/// API key of the server.
const KEY: &str = "key-of-the-stock-clients";
/// Timeout of a client's whole run.
const LIMIT: Duration = Duration::from_secs(120);

/// Frames of an answer that is played to its end.
const WHOLE: u64 = 15;
/// Frames of an interrupted answer: four seconds.
const LONG: u64 = 50;
/// Frames after which the answer that is interrupted during generation pauses.
const HELD: u64 = 25;
/// Texts of the two long answers; they differ, so that their truncated texts cannot be confused.
const SPELLING: &str = "alfa bravo charlie delta echo foxtrot golf hotel india juliett kilo lima";
const COUNTING: &str = "one two three four five six seven eight nine ten eleven twelve";

/// Point at which a client is done with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AwaitedPart {
    /// The answer was generated and played to its end.
    Finished,
    /// Half a second was played, and the engine holds back the rest. Then the next turn interrupts it.
    Held,
    /// All of it was generated and half a second was played. Then the next turn interrupts it.
    Playing,
}

/// One turn of the caller, and its answer.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioTurn {
    /// Recording of the turn: mono, 16 bit, little endian, at [`RATE`], with silence at its end.
    pub say: PathBuf,
    /// Part of the answer for which the client waits.
    pub until: AwaitedPart,
    /// Duration of the speech before the silence, in ms.
    #[serde(skip)]
    pub spoken_ms: u64,
    /// Expected answer to the turn.
    #[serde(skip)]
    pub answer: ExpectedAnswer,
}

/// An answer as scripted.
#[derive(Debug, Clone, Default)]
pub struct ExpectedAnswer {
    /// Text of the answer; `None` for the engine's report of the input's duration.
    pub text: Option<&'static str>,
    /// Number of codec frames.
    pub frames: u64,
}

/// Turns of one conversation, written as JSON for the client.
#[derive(Debug, Clone, Serialize)]
pub struct Scenario {
    /// Folder for the client's recordings.
    pub folder: PathBuf,
    /// Sample rate of all recordings, in Hz.
    pub rate: u32,
    /// Turns of the caller, in order.
    pub turns: Vec<ScenarioTurn>,
    /// API key of the server.
    pub key: &'static str,
    /// Certificate of the server, over TLS.
    pub certificate: Option<PathBuf>,
    /// Function that the client offers.
    pub function: Option<OfferedFunction>,
}

/// A function that the client offers and the engine calls.
#[derive(Debug, Clone, Serialize)]
pub struct OfferedFunction {
    /// Name of the function.
    pub name: &'static str,
    /// Description for the model.
    pub description: &'static str,
    /// JSON schema of the arguments.
    pub parameters: Value,
    /// Result that the client returns.
    pub result: &'static str,
    /// Arguments as the engine streams them, in pieces.
    #[serde(skip)]
    pub arguments: Vec<&'static str>,
}

/// Report of a client, printed by its script.
#[derive(Debug, Deserialize)]
pub struct ClientReport {
    /// Name and version of the client.
    pub client: String,
    /// Answers, in the order of the turns.
    pub answers: Vec<ClientAnswer>,
    /// Errors that the client reported.
    pub errors: Vec<String>,
    /// Every received event, if only the client sees them.
    pub events: Vec<Value>,
    /// Arguments of each call of its function.
    pub calls: Vec<Value>,
}

/// One answer as the client received it.
#[derive(Debug, Deserialize)]
pub struct ClientAnswer {
    /// Received transcript of the answer.
    pub transcript: String,
    /// Received or played sound: mono, 16 bit, little endian, at [`RATE`].
    pub sound: PathBuf,
    /// True if the client stopped the answer.
    pub interrupted: bool,
}

impl Scenario {
    /// Creates the conversation of the client `name`, and writes its recordings. What interrupts is clearly longer than a backchannel: a
    /// voice of half a second is near that border, and a lost packet would decide.
    pub fn interruptions(name: &str) -> Result<Self> {
        let folder = tools::recordings(&format!("conformance/{name}"))?;
        let heard = ExpectedAnswer { text: None, frames: WHOLE };
        let long = |text, frames| ExpectedAnswer { text: Some(text), frames };
        let turns = [
            ("nine-times-nine.wav", AwaitedPart::Finished, heard.clone()),
            ("football-game.wav", AwaitedPart::Held, long(SPELLING, HELD)),
            ("capital-of-france.wav", AwaitedPart::Playing, long(COUNTING, LONG)),
            ("three-plus-four.wav", AwaitedPart::Finished, heard),
        ];
        let turns = turns.into_iter().map(|(file, until, answer)| ScenarioTurn::record(&folder, file, until, answer));
        let turns = turns.collect::<Result<_>>()?;
        Ok(Self::of(folder, turns))
    }

    /// Creates a turn that is answered with a call of the client's function, then aloud with its result.
    pub fn call(name: &str) -> Result<Self> {
        let folder = tools::recordings(&format!("conformance/{name}_calls"))?;
        let answer = ExpectedAnswer { text: None, frames: WHOLE };
        let turns = vec![ScenarioTurn::record(&folder, "nine-times-nine.wav", AwaitedPart::Finished, answer)?];
        let function = OfferedFunction {
            name: "get_weather",
            description: "The weather in a city.",
            parameters: json!({
                "type": "object",
                "properties": {"city": {"type": "string", "description": "Its name."}},
                "required": ["city"],
                "additionalProperties": false,
            }),
            result: "sunny, 21 degrees",
            arguments: vec!["{\"city\"", ": \"Pa", "ris\"}"],
        };
        Ok(Self { function: Some(function), ..Self::of(folder, turns) })
    }

    /// Creates a conversation of questions, each answered to its end.
    pub fn questions(name: &str, asked: &[questions::Question]) -> Result<Self> {
        let folder = tools::recordings(&format!("conformance/{name}"))?;
        let turn = |question: &questions::Question| {
            ScenarioTurn::record(&folder, &question.file, AwaitedPart::Finished, ExpectedAnswer::default())
        };
        let turns = asked.iter().map(turn).collect::<Result<_>>()?;
        Ok(Self::of(folder, turns))
    }

    fn of(folder: PathBuf, turns: Vec<ScenarioTurn>) -> Self {
        Self { folder, rate: RATE, turns, key: KEY, certificate: None, function: None }
    }

    /// Returns the server's settings: it accepts [`Self::key`] only.
    pub fn config(&self) -> Result<Config> {
        Ok(Config { api_keys: KeySet::parse(self.key)?, ..Config::default() })
    }

    /// Like [`Self::config`], with TLS and a new self-signed certificate.
    pub fn config_with_tls(&mut self) -> Result<Config> {
        let PemCertificate { certificate, key } = development_certificate(vec!["127.0.0.1".into()])?;
        let path = |name: &str, pem: String| {
            let path = self.folder.join(name);
            std::fs::write(&path, pem).map(|()| Some(path))
        };
        let (certificate, key) = (path("certificate.pem", certificate)?, path("key.pem", key)?);
        self.certificate.clone_from(&certificate);
        Ok(Config { tls: TlsConfig { certificate, key, ..TlsConfig::default() }, ..self.config()? })
    }

    /// Creates the scripted engine of this conversation.
    pub fn engine(&self) -> Arc<ScriptedEngine> {
        let responses = self.turns.iter().map(|turn| ScriptedResponse {
            text: turn.answer.text.map(str::to_owned),
            frames: if turn.until == AwaitedPart::Held { LONG } else { turn.answer.frames },
            hold_after_frames: (turn.until == AwaitedPart::Held).then_some(turn.answer.frames),
        });
        let mut responses: Vec<_> = responses.collect();
        let call = self.function.as_ref().map(|function| {
            // The function call is a separate response.
            responses.insert(0, ScriptedResponse::default());
            (function.name.to_owned(), function.arguments.iter().map(|piece| (*piece).to_owned()).collect())
        });
        ScriptedEngine::new(Script { responses, call, ..Script::default() })
    }

    /// Runs a client's script with `address` and the path of this scenario, and parses its report.
    pub async fn run<R: DeserializeOwned>(&self, client: &mut Command, address: &str) -> Result<R> {
        let path = self.folder.join("scenario.json");
        std::fs::write(&path, serde_json::to_vec_pretty(self)?)?;
        let said = tools::output(client.arg(address).arg(path), LIMIT).await?;
        // Some clients print a banner first.
        let report = said.trim_end().lines().last().unwrap_or_default();
        serde_json::from_str(report).context(said)
    }
}

impl ClientAnswer {
    /// Writes its sound as a wav file beside the raw one. Returns the path.
    pub fn as_wav(&self) -> Result<PathBuf> {
        let path = self.sound.with_extension("wav");
        let samples = pcm::decode_i16le(&std::fs::read(&self.sound)?)?;
        std::fs::write(&path, wav::encode(&samples, RATE)?)?;
        Ok(path)
    }
}

impl ScenarioTurn {
    fn record(folder: &Path, file: &str, until: AwaitedPart, answer: ExpectedAnswer) -> Result<Self> {
        let recording = std::fs::read(questions::named(file)?.path())?;
        let mut sound = sound_file::read(&recording[..], RATE, LIMIT)?;
        let spoken_ms = sound.len() as u64 * 1_000 / u64::from(RATE);
        let length = sound.len() + (PAUSE.as_millis() * u128::from(RATE) / 1_000) as usize;
        sound.resize(length.next_multiple_of(PIECE_SAMPLES), 0.0);
        let say = folder.join(file).with_extension("pcm");
        std::fs::write(&say, pcm::encode_i16le(&sound))?;
        Ok(Self { say, until, spoken_ms, answer })
    }
}

impl ExpectedAnswer {
    /// Returns the answer's sound as websocket PCM.
    pub fn sound(&self) -> Vec<u8> {
        (0..self.frames).flat_map(|frame| pcm::encode_i16le(&scripted::voice(frame))).collect()
    }

    /// Returns the duration in ms.
    pub fn milliseconds(&self) -> u64 {
        self.frames * 80
    }
}
