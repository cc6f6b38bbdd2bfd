//! What is said to a server with a scripted engine and what it answers, and how a client is driven through it: a whole turn, an
//! answer interrupted while it is made, one interrupted when it was made but not yet played, and a last whole turn.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use repartee::auth::KeySet;
use repartee::config::{Config, TlsConfig};
use repartee::server::{PemCertificate, development_certificate};
use repartee_media::{pcm, wav};
use repartee_testkit::scripted::{self, Script, ScriptedEngine, ScriptedResponse};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{questions, tools};

/// Samples a second of all recordings, which is what the wire's PCM has.
pub const RATE: u32 = 24_000;
/// Silence after each question: longer than any client's turn detection waits.
const PAUSE: Duration = Duration::from_millis(1_500);
/// Recordings are whole multiples of this, because some clients send no less.
const PIECE_SAMPLES: usize = RATE as usize / 10;
/// What opens the server.
const KEY: &str = "key-of-the-stock-clients";
/// A client has this long for everything.
const LIMIT: Duration = Duration::from_secs(120);

/// Frames of an answer that is heard to its end.
const WHOLE: u64 = 15;
/// Frames of an answer that is interrupted: four seconds.
const LONG: u64 = 50;
/// Frames after which the one that is interrupted in the making waits.
const HELD: u64 = 25;
/// What the long answers say; each something else, so that what is kept of one is not taken for the other.
const SPELLING: &str = "alfa bravo charlie delta echo foxtrot golf hotel india juliett kilo lima";
const COUNTING: &str = "one two three four five six seven eight nine ten eleven twelve";

/// When a client is done with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AwaitedPart {
    /// It was made and played to its end.
    Finished,
    /// Half a second of it was played; the rest of it is not made before it was interrupted. Then comes the next turn.
    Held,
    /// All of it was made and half a second of it was played. Then comes the next turn.
    Playing,
}

/// One turn of the caller.
#[derive(Debug, Clone, Serialize)]
pub struct ScenarioTurn {
    /// A recording: mono 16 bit little endian at [`RATE`], silence at its end.
    pub say: PathBuf,
    /// How much of the answer is awaited.
    pub until: AwaitedPart,
    /// Sound in front of the silence, in ms.
    #[serde(skip)]
    pub spoken_ms: u64,
    /// What the answer is.
    #[serde(skip)]
    pub answer: ExpectedAnswer,
}

/// An answer as the script has it.
#[derive(Debug, Clone, Default)]
pub struct ExpectedAnswer {
    /// Its text; `None` for how much was heard.
    pub text: Option<&'static str>,
    /// Its frames.
    pub frames: u64,
}

/// The turns of one conversation and where its recordings are.
#[derive(Debug, Clone, Serialize)]
pub struct Scenario {
    /// For what a client records.
    pub folder: PathBuf,
    /// Of all recordings.
    pub rate: u32,
    /// In order.
    pub turns: Vec<ScenarioTurn>,
    /// What opens the server.
    pub key: &'static str,
    /// The server's certificate, where it is spoken to over TLS.
    pub certificate: Option<PathBuf>,
    /// What the client is to offer.
    pub function: Option<OfferedFunction>,
}

/// A function that a client offers, and that the engine calls.
#[derive(Debug, Clone, Serialize)]
pub struct OfferedFunction {
    /// Its name.
    pub name: &'static str,
    /// For the model.
    pub description: &'static str,
    /// JSON schema of its arguments.
    pub parameters: Value,
    /// What it answers.
    pub result: &'static str,
    /// Its arguments as the engine writes them, in pieces.
    #[serde(skip)]
    pub arguments: Vec<&'static str>,
}

/// What a client saw, as its script prints it.
#[derive(Debug, Deserialize)]
pub struct ClientReport {
    /// Name and version of what was run.
    pub client: String,
    /// In order.
    pub answers: Vec<ClientAnswer>,
    /// What the client reported as errors.
    pub errors: Vec<String>,
    /// Every event that came, where nobody else can see them.
    pub events: Vec<Value>,
    /// With what arguments its function was called.
    pub calls: Vec<Value>,
}

/// One answer as a client saw it.
#[derive(Debug, Deserialize)]
pub struct ClientAnswer {
    /// All that came of its transcript.
    pub transcript: String,
    /// All that came of its sound, or was played of it: mono 16 bit little endian at [`RATE`].
    pub sound: PathBuf,
    /// Whether the client gave it up.
    pub interrupted: bool,
}

impl Scenario {
    /// The conversation of the client `name`, with its recordings in place.
    pub fn interruptions(name: &str) -> Result<Self> {
        let folder = tools::recordings(&format!("conformance/{name}"))?;
        let heard = ExpectedAnswer { text: None, frames: WHOLE };
        let long = |text, frames| ExpectedAnswer { text: Some(text), frames };
        let turns = [
            ("nine-times-nine.wav", AwaitedPart::Finished, heard.clone()),
            ("football-game.wav", AwaitedPart::Held, long(SPELLING, HELD)),
            ("how-are-you.wav", AwaitedPart::Playing, long(COUNTING, LONG)),
            ("three-plus-four.wav", AwaitedPart::Finished, heard),
        ];
        let turns = turns.into_iter().map(|(file, until, answer)| ScenarioTurn::record(&folder, file, until, answer));
        let turns = turns.collect::<Result<_>>()?;
        Ok(Self::of(folder, turns))
    }

    /// A turn that is answered with a call of the client's function, and then aloud with its result.
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

    /// Questions of which each is answered to its end.
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

    /// A server's settings: it takes [`Self::key`] and no other.
    pub fn config(&self) -> Result<Config> {
        Ok(Config { api_keys: KeySet::parse(self.key)?, ..Config::default() })
    }

    /// The same for a server that speaks TLS, with a certificate that is made for it.
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

    /// An engine that answers so.
    pub fn engine(&self) -> Arc<ScriptedEngine> {
        let responses = self.turns.iter().map(|turn| ScriptedResponse {
            text: turn.answer.text.map(str::to_owned),
            frames: if turn.until == AwaitedPart::Held { LONG } else { turn.answer.frames },
            hold_after_frames: (turn.until == AwaitedPart::Held).then_some(turn.answer.frames),
        });
        let mut responses: Vec<_> = responses.collect();
        let call = self.function.as_ref().map(|function| {
            // The call is a response of its own.
            responses.insert(0, ScriptedResponse::default());
            (function.name.to_owned(), function.arguments.iter().map(|piece| (*piece).to_owned()).collect())
        });
        ScriptedEngine::new(Script { responses, call, ..Script::default() })
    }

    /// Has a client's script go through it, and reads what it says: it gets `address` and the path of this scenario.
    pub async fn run<R: DeserializeOwned>(&self, client: &mut Command, address: &str) -> Result<R> {
        let path = self.folder.join("scenario.json");
        std::fs::write(&path, serde_json::to_vec_pretty(self)?)?;
        let said = tools::output(client.arg(address).arg(path), LIMIT).await?;
        // Some clients print their own greetings first.
        let report = said.trim_end().lines().last().unwrap_or_default();
        serde_json::from_str(report).context(said)
    }
}

impl ClientAnswer {
    /// Its sound as a wav file beside the raw one.
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
        let mut sound = wav::read(&recording[..], RATE, LIMIT)?;
        let spoken_ms = sound.len() as u64 * 1_000 / u64::from(RATE);
        let length = sound.len() + (PAUSE.as_millis() * u128::from(RATE) / 1_000) as usize;
        sound.resize(length.next_multiple_of(PIECE_SAMPLES), 0.0);
        let say = folder.join(file).with_extension("pcm");
        std::fs::write(&say, pcm::encode_i16le(&sound))?;
        Ok(Self { say, until, spoken_ms, answer })
    }
}

impl ExpectedAnswer {
    /// The answer's sound as a websocket carries it.
    pub fn sound(&self) -> Vec<u8> {
        (0..self.frames).flat_map(|frame| pcm::encode_i16le(&scripted::voice(frame))).collect()
    }

    /// How long it is.
    pub fn milliseconds(&self) -> u64 {
        self.frames * 80
    }
}
