//! The demo page in a real Chromium: open it, speak, and hear the answer. A call of the page in a real Firefox.
//!
//! The tests run in real time, so one after another.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use repartee_media::opus::OpusEncoder;
use repartee_tests::answer_rate::{self, AskedAnswer, FALSE_ALARM};
use repartee_tests::questions::Question;
use repartee_tests::server::TestServer;
use repartee_tests::spectral_similarity::{SIMILAR, Sound, spectral_similarity};
use repartee_tests::{binomial, demo, questions, tools};
use serde::Deserialize;
use tokio::sync::Mutex;

/// Lock of the running test: two conversations at once would slow each other down on a small machine.
static REAL_TIME: Mutex<()> = Mutex::const_new(());

/// Number of calls, and of questions in each.
const CALLS: usize = 4;
const QUESTIONS: usize = 4;
/// Tolerated share of damaged answers at the page: a browser on a busy machine may starve its audio.
const TORN: f64 = 0.02;
/// Tolerated stretching, in ms: a browser stretches the first packets of a call by 70 to 130 ms while its jitter buffer
/// adapts.
const STRETCHED_MS: f64 = 150.0;

/// Page tests in `tests/browser`.
const PAGE_TESTS: [&str; 9] =
    ["page", "said", "controls", "written", "events", "network", "admin", "starting", "firefox"];

/// Report of `tests/browser/conversation.mjs`.
#[derive(Debug, Deserialize)]
struct Conversation {
    /// Turns shown on the page.
    turns: Vec<Turn>,
    /// States of the page, in order.
    states: Vec<String>,
    /// Text of the page's alert; empty without one.
    alert: String,
    /// True if its `<audio>` element plays at full volume.
    audible: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Turn {
    /// Recording of the page's `<audio>` element.
    recording: PathBuf,
    /// Transcript shown on the page.
    answer: String,
    /// Time to the first sound, shown on the page.
    first_sound: String,
    /// Browser statistics of the sound.
    reception: Reception,
}

/// Browser statistics of one answer.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reception {
    /// Number of received packets.
    received: usize,
    /// Number of packets that were lost or late.
    missed: usize,
    /// Concealed sound, in ms; also in pauses and at the end of an answer.
    concealed_ms: f64,
    /// Sound added or removed by the jitter buffer, in ms.
    stretched_ms: f64,
    /// Time in ms without any playback.
    stalled_ms: f64,
}

impl Reception {
    /// True if all of `packets` arrived in time; concealment hides missing ones, so only the statistics tell. The
    /// tolerance covers pauses, whose first silent packet depends on the encoder's history.
    fn is_whole(&self, packets: usize) -> bool {
        self.missed == 0 && self.received + 2 + packets / 50 >= packets
    }

    /// True if the played sound is similar to the generated sound of `said_ms`, with allowance for the stretching of a
    /// call's first packets.
    fn is_true(&self, alike: f64, said_ms: f64) -> bool {
        alike + self.stretched_ms.min(STRETCHED_MS) / said_ms >= SIMILAR
    }

    /// True if the browser's own statistics explain the difference.
    fn accounts_for(&self, alike: f64, said_ms: f64) -> bool {
        alike + (self.concealed_ms + self.stretched_ms + self.stalled_ms) / said_ms >= SIMILAR
    }
}

/// Returns the number of packets for `sound`, without those in its pauses.
fn packets(sound: &Sound) -> Result<usize> {
    let mut encoder = OpusEncoder::new(sound.rate)?;
    let mut packets = 0;
    for frame in sound.samples.chunks(encoder.frame_samples()) {
        let mut frame = frame.to_vec();
        frame.resize(encoder.frame_samples(), 0.0);
        packets += usize::from(!encoder.encode(&frame)?.silent);
    }
    Ok(packets)
}

#[tokio::test(flavor = "multi_thread")]
async fn spoken_questions_are_answered_aloud_in_the_browser() -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let asked = questions::shuffled(questions::all()?)?;
    let (server, recorder) = demo::start_recorded_demo_server().await?;
    let recordings = tools::recordings("browser")?;
    let mut answered = Vec::new();
    for (call, asked) in asked.chunks(QUESTIONS).take(CALLS).enumerate() {
        let folder = recordings.join(call.to_string());
        std::fs::create_dir(&folder)?;
        let turns = converse(&server, asked, folder).await?;
        answered.extend(asked.iter().zip(turns).map(|(question, turn)| (call, question, turn)));
    }
    let mut torn = 0;
    for (call, question, turn) in &answered {
        let said = recorder.response_with_text(*call, &turn.answer)?.sound;
        said.write(&turn.recording.with_extension("said.wav"))?;
        torn += u32::from(turn.is_torn(&question.text, &said)?);
    }
    let of = u32::try_from(answered.len())?;
    let most = binomial::upper_bound(of, TORN, FALSE_ALARM);
    println!("torn: {torn} of {of}; {:.0} % may be, so {most} at most", TORN * 100.0);
    let answers: Vec<_> = answered
        .iter()
        .map(|(_, question, Turn { answer: transcript, recording, .. })| AskedAnswer {
            question,
            transcript,
            recording: recording.clone(),
        })
        .collect();
    answer_rate::check_rates(&answers).await?;
    ensure!(torn <= most, "{torn} of {of} answers were torn on their way to the page");
    Ok(())
}

/// Asks the questions in one call, and checks the page.
async fn converse(server: &TestServer, asked: &[Question], recordings: PathBuf) -> Result<Vec<Turn>> {
    let mut driver = tools::node()?;
    driver.arg(tools::root().join("tests/browser/conversation.mjs")).arg(server.page()).arg(recordings);
    driver.args(asked.iter().map(Question::path));
    let report = tools::output(&mut driver, Duration::from_secs(240)).await?;
    let talk: Conversation = serde_json::from_str(&report).context(report)?;
    ensure!(talk.alert.is_empty(), "{}", talk.alert);
    ensure!(talk.audible, "the page's sound is off");
    ensure!(talk.turns.len() == asked.len(), "{talk:?}");
    let mut states = vec!["connecting", "listening"];
    states.extend(["hearing", "thinking", "speaking", "listening"].repeat(asked.len()));
    ensure!(talk.states == states, "{:?}", talk.states);
    for turn in &talk.turns {
        ensure!(turn.first_sound.ends_with(" ms"), "no time to the first sound: {turn:?}");
    }
    Ok(talk.turns)
}

impl Turn {
    /// True if some of the generated answer `said` was not played. Fails if the played sound differs from the received
    /// sound.
    fn is_torn(&self, asked: &str, said: &Sound) -> Result<bool> {
        let Turn { answer, first_sound, reception, recording } = self;
        let (alike, packets) = (spectral_similarity(said, &Sound::read(recording)?), packets(said)?);
        let said_ms = said.milliseconds();
        println!("{asked} -> {answer} | {first_sound}");
        println!("    {alike:.3} alike, {packets} packets in {said_ms:.0} ms: {reception:?}");
        let (whole, same) = (reception.is_whole(packets), reception.is_true(alike, said_ms));
        ensure!(same || !whole || reception.accounts_for(alike, said_ms), "{answer:?} is not what was played");
        Ok(!whole || !same)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_behaves_as_its_own_tests_say() -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let server = demo::start_demo_server().await?;
    // For work on the page: the named files only.
    let chosen = std::env::var("REPARTEE_PAGE_TESTS").unwrap_or_default();
    for file in PAGE_TESTS.into_iter().filter(|file| chosen.is_empty() || chosen.split(',').any(|one| one == *file)) {
        let mut driver = tools::node()?;
        let path = tools::root().join(format!("tests/browser/{file}.test.mjs"));
        driver.args(["--test", "--test-timeout=60000"]).arg(path);
        driver.env("REPARTEE_URL", server.page());
        driver.env("REPARTEE_PYTHON", tools::root().join("target/tools/python/bin/python"));
        println!("{}", tools::output(&mut driver, Duration::from_secs(300)).await?);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes docs/page.png and docs/admin.png: make screenshots"]
async fn pictures_of_the_pages() -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let server = demo::start_demo_server().await?;
    let mut driver = tools::node()?;
    driver.arg(tools::root().join("tests/browser/screenshots.mjs")).arg(server.page()).arg(tools::root().join("docs"));
    tools::output(&mut driver, Duration::from_secs(120)).await?;
    Ok(())
}
