//! Stock clients, unmodified, each at a pinned version: `decode conformance` runs these alone.
//!
//! Each completes the conversation of `repartee_tests::conformance::scenario` with a scripted engine. Every event from
//! the server is checked against third-party schemas. The tests run in real time, so one after another.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use repartee::config::Config;
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::Command;
use repartee_media::pcm;
use repartee_testkit::scripted::{Script, ScriptedEngine, voice};
use repartee_tests::conformance::events;
use repartee_tests::conformance::scenario::{ClientReport, Scenario};
use repartee_tests::conformance::tap::WebSocketTap;
use repartee_tests::conformance::verdict::{Conversation, PlayoutSide};
use repartee_tests::conformance::voice::ReceiverTolerance;
use repartee_tests::server::TestServer;
use repartee_tests::spectral_similarity::{SIMILAR, Sound, spectral_similarity};
use repartee_tests::{demo, questions, tools};
use serde::Deserialize;
use serde_json::Value;
use tokio::process::Command as Process;
use tokio::sync::Mutex;
use tokio::time::timeout;

/// Lock of the running test: two conversations at once would slow each other down on a small machine.
pub static REAL_TIME: Mutex<()> = Mutex::const_new(());

/// Timeout for the end of a call after the hang-up.
const HUNG_UP_WITHIN: Duration = Duration::from_secs(10);

/// A stock client and its known errors.
pub struct Client {
    /// Name of the client and of its script.
    pub name: &'static str,
    /// Error codes that it is known to provoke and ignore.
    provokes: &'static [&'static str],
}

impl Client {
    /// A client without known errors.
    pub const fn named(name: &'static str) -> Self {
        Self { name, provokes: &[] }
    }

    /// Returns the command of its Python script.
    pub fn python(&self) -> Result<Process> {
        let mut command = tools::clients_python()?;
        command.arg(tools::root().join(format!("tests/clients/{}.py", self.name)));
        Ok(command)
    }

    /// Returns the command of its Node script.
    fn node(&self) -> Result<Process> {
        let mut command = tools::clients_node()?;
        command.arg(tools::root().join(format!("tests/clients/node/{}.mjs", self.name)));
        Ok(command)
    }

    /// Runs the conversation over a websocket: a whole turn, barge-in during and after generation, another whole turn.
    async fn talks_over_a_websocket(&self, script: Process) -> Result<()> {
        let _alone = REAL_TIME.lock().await;
        let scenario = Scenario::interruptions(self.name)?;
        let (report, seen, commands) = tapped(&scenario, script).await?;
        self.judge(&scenario, &report, &seen, &commands, PlayoutSide::Client).await
    }

    /// Runs the same conversation over TLS. Only the client sees the events.
    async fn talks_over_tls(&self, mut script: Process) -> Result<()> {
        let _alone = REAL_TIME.lock().await;
        let mut scenario = Scenario::interruptions(self.name)?;
        let engine = scenario.engine();
        let server = TestServer::start(scenario.config_with_tls()?, engine.clone()).await?;
        let report: ClientReport = scenario.run(&mut script, &server.address().to_string()).await?;
        self.judge(&scenario, &report, &report.events, &engine.commands(), PlayoutSide::Client).await
    }

    /// Runs the same conversation over WebRTC. Only the client sees the events.
    async fn talks_over_webrtc(&self, script: Process, receiver: ReceiverTolerance) -> Result<()> {
        self.goes_through(Scenario::interruptions(self.name)?, script, receiver).await
    }

    /// Runs two turns of it over WebRTC: an interruption and a whole turn.
    async fn interrupts_over_webrtc(&self, script: Process, receiver: ReceiverTolerance) -> Result<()> {
        let mut scenario = Scenario::interruptions(self.name)?;
        scenario.turns = scenario.turns.into_iter().skip(2).collect();
        self.goes_through(scenario, script, receiver).await
    }

    async fn goes_through(&self, scenario: Scenario, mut script: Process, receiver: ReceiverTolerance) -> Result<()> {
        let _alone = REAL_TIME.lock().await;
        let engine = scenario.engine();
        let server = TestServer::start(scenario.config()?, engine.clone()).await?;
        let report: ClientReport = scenario.run(&mut script, &server.address().to_string()).await?;
        // The call ends and frees its slot.
        timeout(HUNG_UP_WITHIN, engine.open_sessions().wait_for(|open| *open == 0))
            .await
            .context("a call goes on")??;
        self.judge(&scenario, &report, &report.events, &engine.commands(), PlayoutSide::Server(receiver)).await
    }

    /// Runs a turn with a function call, whose result is answered aloud.
    async fn offers_a_function(&self, script: Process) -> Result<()> {
        let _alone = REAL_TIME.lock().await;
        let scenario = Scenario::call(self.name)?;
        let (report, seen, commands) = tapped(&scenario, script).await?;
        events::check(&seen, &scenario.folder).await?;
        let (scenario, report, events, commands) = (&scenario, &report, &seen[..], &commands[..]);
        Conversation { scenario, report, events, commands, clock: PlayoutSide::Client, provoked: self.provokes }
            .judge_call()
    }

    async fn judge(
        &self,
        scenario: &Scenario,
        report: &ClientReport,
        events: &[Value],
        commands: &[Command],
        clock: PlayoutSide,
    ) -> Result<()> {
        println!("{}", report.client);
        events::check(events, &scenario.folder).await?;
        Conversation { scenario, report, events, commands, clock, provoked: self.provokes }.judge()
    }
}

/// Runs a client through a scenario over a websocket. Returns its report, the server's events and the engine's
/// commands. The wire's events are written to files, also if the client fails.
async fn tapped(scenario: &Scenario, mut script: Process) -> Result<(ClientReport, Vec<Value>, Vec<Command>)> {
    let engine = scenario.engine();
    let server = TestServer::start(scenario.config()?, engine.clone()).await?;
    let tap = WebSocketTap::before(server.address()).await?;
    let report = scenario.run(&mut script, &tap.address().to_string()).await;
    let seen = tap.server_events()?;
    keep(&scenario.folder, "from-client.jsonl", &tap.client_events()?)?;
    keep(&scenario.folder, "from-server.jsonl", &seen)?;
    Ok((report?, seen, engine.commands()))
}

/// Asks the demo model. Checks the model's input and the client's recording of the answer; `exactly` compares samples.
async fn asks_the_demo_model(name: &str, mut script: Process, exactly: bool) -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let asked = ["capital-of-france.wav", "nine-times-nine.wav", "month-before-may.wav"];
    let asked = asked.into_iter().map(questions::named).collect::<Result<Vec<_>>>()?;
    let scenario = Scenario::questions(name, &asked)?;
    let (server, recorder) = demo::start_recorded_demo_server().await?;
    let report: ClientReport = scenario.run(&mut script, &server.address().to_string()).await?;
    ensure!(report.errors.is_empty(), "the client complains: {:?}", report.errors);
    ensure!(report.answers.len() == asked.len(), "{} answers to {} questions", report.answers.len(), asked.len());
    for (index, (question, answer)) in asked.iter().zip(&report.answers).enumerate() {
        recorder.check_input_turn(0, index, question)?;
        let said = recorder.response_with_text(0, &answer.transcript)?.sound;
        said.write(&scenario.folder.join(format!("{index}-said.wav")))?;
        let played = Sound::read(&answer.as_wav()?)?;
        let similarity = spectral_similarity(&said, &played);
        println!("{} -> {} | {similarity:.3} similar", question.text, answer.transcript);
        ensure!(similarity > SIMILAR, "{} was not heard as it was said: {similarity:.3}", answer.transcript);
        ensure!(!exactly || played.has_samples_of(&said), "{} has other samples than what was said", answer.transcript);
    }
    Ok(())
}

/// Writes one event per line.
fn keep(folder: &Path, name: &str, events: &[Value]) -> Result<()> {
    let lines: Vec<String> = events.iter().map(|event| format!("{event}\n")).collect();
    Ok(std::fs::write(folder.join(name), lines.concat())?)
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_over_the_websocket() -> Result<()> {
    let client = Client::named("pypi_openai");
    client.talks_over_a_websocket(client.python()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_agents_over_the_websocket() -> Result<()> {
    let client = Client::named("pypi_openai_agents");
    client.talks_over_a_websocket(client.python()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_livekit_agents_over_the_websocket() -> Result<()> {
    // It cancels responses that the server has already cancelled.
    let client = Client { provokes: &["response_cancel_not_active"], ..Client::named("pypi_livekit_agents") };
    client.talks_over_a_websocket(client.python()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_pipecat_over_the_websocket() -> Result<()> {
    let client = Client::named("pypi_pipecat");
    client.talks_over_a_websocket(client.python()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_aiortc_over_webrtc() -> Result<()> {
    let client = Client::named("pypi_aiortc");
    client.talks_over_webrtc(client.python()?, ReceiverTolerance::AIORTC).await
}

/// The browser's own WebRTC, over an address of an interface: Firefox offers none of loopback.
#[tokio::test(flavor = "multi_thread")]
async fn debian_firefox_over_webrtc() -> Result<()> {
    let client = Client::named("firefox_webrtc");
    client.interrupts_over_webrtc(client.node()?, ReceiverTolerance::BROWSER).await
}

/// `webrtcbin` with one transport for all sections, over libnice.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "on a busy machine it misses the first packet of an answer: make conformance and the long suite run it"]
async fn debian_gstreamer_and_libnice_over_webrtc() -> Result<()> {
    let client = Client::named("debian_gstreamer");
    let mut script = tools::system_python()?;
    script.arg(tools::root().join("tests/clients/debian_gstreamer.py"));
    client.interrupts_over_webrtc(script, ReceiverTolerance::GSTREAMER).await
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_openai_over_the_websocket_and_tls() -> Result<()> {
    let client = Client::named("npm_openai");
    client.talks_over_tls(client.node()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_agents_realtime_over_the_websocket() -> Result<()> {
    let client = Client::named("npm_agents_realtime_websocket");
    client.talks_over_a_websocket(client.node()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_agents_realtime_over_webrtc_in_chromium() -> Result<()> {
    let client = Client::named("npm_agents_realtime_webrtc");
    client.talks_over_webrtc(client.node()?, ReceiverTolerance::BROWSER).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_aiortc_and_demo_model_over_webrtc() -> Result<()> {
    let script = Client::named("pypi_aiortc").python()?;
    asks_the_demo_model("demo_aiortc", script, false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_agents_realtime_and_demo_model_over_websocket() -> Result<()> {
    let script = Client::named("npm_agents_realtime_websocket").node()?;
    asks_the_demo_model("demo_agents_realtime", script, true).await
}

/// Report of `pypi_openai_baseline.py`.
#[derive(Debug, Deserialize)]
struct Baseline {
    models: Vec<String>,
    whole: Completion,
    streamed: Completion,
    usage: Vec<Value>,
    refused: Vec<String>,
    complaints: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Completion {
    transcript: String,
    sound: String,
    finish: String,
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_in_one_upload() -> Result<()> {
    let client = Client::named("pypi_openai_baseline");
    let mut scenario = Scenario::interruptions(client.name)?;
    // Every upload is a separate conversation, so each gets the answer of the first turn.
    scenario.turns.truncate(1);
    let server = TestServer::start(scenario.config()?, scenario.engine()).await?;
    let baseline: Baseline = scenario.run(&mut client.python()?, &server.address().to_string()).await?;
    ensure!(baseline.complaints.is_empty(), "{:?}", baseline.complaints);
    ensure!(baseline.models == ["scripted"], "{:?}", baseline.models);
    let turn = &scenario.turns[0];
    let said_ms = std::fs::metadata(&turn.say)?.len() * 1_000 / 48_000;
    for answer in [&baseline.whole, &baseline.streamed] {
        ensure!(answer.transcript == format!("I heard {said_ms} ms."), "{}", answer.transcript);
        ensure!(answer.finish == "stop", "{}", answer.finish);
        ensure!(STANDARD.decode(&answer.sound)? == turn.answer.sound(), "another sound than what was made");
    }
    // Both answers, of one day or of two around midnight.
    let sum = |field: &str| baseline.usage.iter().filter_map(|row| row[field].as_u64()).sum::<u64>();
    ensure!((sum("num_model_requests"), sum("output_audio_tokens")) == (2, 2 * turn.answer.frames), "{baseline:?}");
    let named = ["/v1/chat/completions", "embeddings are not served", "docs/live.md"];
    ensure!(baseline.refused.len() == named.len(), "{:?}", baseline.refused);
    for (refused, name) in baseline.refused.iter().zip(named) {
        ensure!(refused.contains(name), "{refused} does not name {name}");
    }
    Ok(())
}

/// Report of `pypi_openai_speech.py`; sound in base64.
#[derive(Debug, Deserialize)]
struct Speech {
    client: String,
    wav: String,
    pcm: String,
    opus: String,
    mp3: String,
    /// Sound of the FLAC file, decoded by FFmpeg.
    flac: String,
    events: String,
    /// Sound at twice the speed.
    fast: String,
    /// Sound of the created voice.
    voice: String,
    refused: String,
    /// Id of the created voice.
    made: String,
    /// True if the voice and its consent were deleted.
    gone: bool,
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_has_a_text_read_aloud() -> Result<()> {
    let client = Client::named("pypi_openai_speech");
    let scenario = Scenario::call(client.name)?;
    let engine = ScriptedEngine::new(Script { accepts_enrolment: true, ..Script::default() });
    let server = TestServer::start(scenario.config()?, engine.clone()).await?;
    let speech: Speech = scenario.run(&mut client.python()?, &server.address().to_string()).await?;
    println!("{}", speech.client);
    // One frame per word of "The weather in a city."
    let said = pcm::encode_i16le(&(0..5).flat_map(voice).collect::<Vec<_>>());
    let sounds =
        [speech.wav, speech.pcm, speech.opus, speech.mp3, speech.events, speech.voice, speech.flac, speech.fast];
    let [wav, pcm, opus, mp3, events, voiced, flac, fast] = sounds.map(|sound| STANDARD.decode(sound));
    ensure!(wav?.get(44..) == Some(&said[..]), "another sound in the wav file");
    ensure!(pcm? == said && events? == said && flac? == said, "another sound than what was made");
    ensure!(fast?.len() == said.len() / 2, "twice the speed");
    let opus = opus?;
    ensure!(opus.starts_with(b"OggS") && opus.windows(8).any(|window| window == b"OpusHead"), "no Opus in Ogg");
    let mp3 = mp3?;
    ensure!(mp3.len() % 288 == 0 && mp3.starts_with(&[0xff]), "no frames of MP3 at 24 kHz and 96 kbit/s");
    ensure!(speech.refused.starts_with("response_format: "), "{}", speech.refused);
    let asked_for = |command: &Command| match command {
        Command::Respond(respond) => respond.voice.clone(),
        _ => None,
    };
    let voices: Vec<_> = engine.commands().iter().filter_map(asked_for).collect();
    ensure!(voiced? == said && voices.last() == Some(&speech.made), "the voice that was made speaks: {voices:?}");
    ensure!(speech.gone && engine.enrolled().is_empty(), "it is deleted");
    Ok(())
}

/// Report of `pypi_openai_transcription.py`.
#[derive(Debug, Deserialize)]
struct Transcription {
    session: String,
    created: String,
    transcripts: Vec<String>,
    deltas: Vec<String>,
    refusals: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_transcribes_over_the_websocket() -> Result<()> {
    let client = Client::named("pypi_openai_transcription");
    let scenario = Scenario::interruptions(client.name)?;
    let engine = ScriptedEngine::new(Script { has_transcription: true, ..Script::default() });
    let server = TestServer::start(scenario.config()?, engine.clone()).await?;
    let tap = WebSocketTap::before(server.address()).await?;
    let seen: Transcription = scenario.run(&mut client.python()?, &tap.address().to_string()).await?;
    let events = tap.server_events()?;
    events::check(&events, &scenario.folder).await?;
    ensure!((&*seen.session, &*seen.created) == ("transcription", "transcription"), "{seen:?}");
    ensure!(seen.refusals == ["not_in_transcription_session"], "{seen:?}");
    ensure!(seen.deltas == seen.transcripts, "{seen:?}");
    // The second turn is whole; the first was cut out by turn detection.
    let length =
        |turn: usize| Ok::<_, anyhow::Error>(std::fs::metadata(&scenario.turns[turn].say)?.len() * 1_000 / 48_000);
    let of = |transcript: &str| transcript.strip_prefix("words of ")?.strip_suffix(" ms")?.parse().ok();
    let [cut, whole] = &seen.transcripts[..] else { anyhow::bail!("{seen:?}") };
    let (cut, whole) = (of(cut).context("no words")?, of(whole).context("no words")?);
    ensure!((scenario.turns[0].spoken_ms / 2..length(0)?).contains(&cut), "{cut} ms of {} ms", length(0)?);
    ensure!(whole == length(1)?, "{whole} ms of {} ms", length(1)?);
    let answered = events.iter().filter_map(|event| event["type"].as_str()).find(|kind| kind.starts_with("response."));
    ensure!(answered.is_none(), "{answered:?}");
    Ok(())
}

/// Report of `pypi_openai_files.py`.
#[derive(Debug, Deserialize)]
struct TranscribedFile {
    client: String,
    texts: BTreeMap<String, String>,
    deltas: Vec<String>,
    done: String,
    words: Vec<String>,
    segments: Vec<String>,
    translated: String,
    refused: String,
    complaints: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_has_a_file_written_down() -> Result<()> {
    let client = Client::named("pypi_openai_files");
    let scenario = Scenario::interruptions(client.name)?;
    let checkpoint = Path::new(env!("CARGO_MANIFEST_DIR")).join("parity/fixtures/whisper/checkpoint");
    let engine = Engine::start(Source::Folder(checkpoint), &EngineConfig::default())?;
    let server = TestServer::start(scenario.config()?, Arc::new(engine)).await?;
    let seen: TranscribedFile = scenario.run(&mut client.python()?, &server.address().to_string()).await?;
    println!("{}", seen.client);
    ensure!(seen.complaints.is_empty(), "{}", seen.complaints.join("\n"));
    let text = seen.texts.get("json").filter(|text| !text.is_empty()).context("no text")?;
    ensure!(seen.texts["verbose_json"] == *text && seen.texts["text"].trim_end() == text, "{seen:?}");
    ensure!(seen.done == *text && seen.deltas.concat() == *text, "{seen:?}");
    ensure!(seen.segments.concat().trim() == text, "{seen:?}");
    ensure!(seen.words.concat() == text.split_whitespace().collect::<String>(), "{seen:?}");
    let cues = seen.segments.len();
    ensure!(["srt", "vtt"].iter().all(|kind| seen.texts[*kind].matches(" --> ").count() == cues), "{seen:?}");
    ensure!(!seen.translated.is_empty() && seen.translated != *text, "{seen:?}");
    ensure!(seen.refused.starts_with("response_format: "), "{}", seen.refused);
    Ok(())
}

/// Report of `pypi_openai_shapes.py`.
#[derive(Debug, Deserialize)]
struct Shapes {
    client: String,
    fields: usize,
    refused: usize,
    complaints: Vec<String>,
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_fields_in_every_form() -> Result<()> {
    let client = Client::named("pypi_openai_shapes");
    let scenario = Scenario::interruptions(client.name)?;
    let server = TestServer::start(Config::default(), scenario.engine()).await?;
    let seen: Shapes = scenario.run(&mut client.python()?, &server.address().to_string()).await?;
    println!("{}: {} fields, {} refusals", seen.client, seen.fields, seen.refused);
    ensure!(seen.complaints.is_empty(), "{}", seen.complaints.join("\n"));
    ensure!(seen.fields > 60 && seen.refused > 100, "{seen:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_openai_agents_offers_a_function() -> Result<()> {
    let client = Client::named("pypi_openai_agents");
    client.offers_a_function(client.python()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_livekit_agents_offers_a_function() -> Result<()> {
    let client = Client::named("pypi_livekit_agents");
    client.offers_a_function(client.python()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn pypi_pipecat_offers_a_function() -> Result<()> {
    let client = Client::named("pypi_pipecat");
    client.offers_a_function(client.python()?).await
}

#[tokio::test(flavor = "multi_thread")]
async fn npm_agents_realtime_offers_a_function() -> Result<()> {
    let client = Client::named("npm_agents_realtime_websocket");
    client.offers_a_function(client.node()?).await
}
