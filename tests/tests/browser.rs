//! What a person does: open the page in a real Chromium, speak, and hear the answer.
//!
//! Real time, so one after another.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use repartee_media::opus::OpusEncoder;
use repartee_tests::questions::Question;
use repartee_tests::recording_engine::RecordingEngine;
use repartee_tests::server::Running;
use repartee_tests::spectral_similarity::{SIMILAR, Sound, spectral_similarity};
use repartee_tests::{asr, demo, questions, tools};
use serde::Deserialize;
use tokio::sync::Mutex;

/// Held by the test that runs: two conversations at once would slow each other down on a small machine.
static REAL_TIME: Mutex<()> = Mutex::const_new(());

/// A question whose answer was torn on its way is asked again in a new call: on a busy machine a browser may have no time for its
/// sound, which is nobody's defect unless it happens each time.
const CALLS: usize = 3;
/// A browser stretches the first packets of a call by 70 to 130 ms while it learns how evenly they come.
const STRETCHED_MS: f64 = 150.0;

/// What `tests/browser/conversation.mjs` saw of the page.
#[derive(Debug, Deserialize)]
struct Conversation {
    /// The list of turns.
    turns: Vec<Turn>,
    /// The states that the page went through.
    states: Vec<String>,
    /// What its alert says; empty when there is none.
    alert: String,
    /// Its <audio> element plays at full volume.
    audible: bool,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Turn {
    /// What the page's own <audio> element played.
    recording: PathBuf,
    /// The transcript that the page shows.
    answer: String,
    /// The time to the first sound that it shows.
    first_sound: String,
    /// What the browser reports of the sound.
    reception: Reception,
}

/// What became of an answer on its way to the <audio> element, as the browser counts it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reception {
    /// Packets that came.
    received: usize,
    /// Packets that never came, or too late.
    missed: usize,
    /// Sound made up for want of packets, in milliseconds; also where an answer pauses or ends.
    concealed_ms: f64,
    /// Sound added or taken away to even out when packets come.
    stretched_ms: f64,
    /// For so long it had no time to play anything.
    stalled_ms: f64,
}

impl Reception {
    /// Whether all of `packets` came in time. A browser mends the sound of missing ones so well that it has to be asked. Where a
    /// pause begins to count as one depends on what the encoder has heard before.
    fn is_whole(&self, packets: usize) -> bool {
        self.missed == 0 && self.received + 2 + packets / 50 >= packets
    }

    /// Whether what was played is what was said, which took `said_ms`: so much of it is alike, or was stretched as it is with the
    /// first packets of any call.
    fn is_true(&self, alike: f64, said_ms: f64) -> bool {
        alike + self.stretched_ms.min(STRETCHED_MS) / said_ms >= SIMILAR
    }

    /// Whether the browser itself can have made the difference, by what it says of its playing.
    fn accounts_for(&self, alike: f64, said_ms: f64) -> bool {
        alike + (self.concealed_ms + self.stretched_ms + self.stalled_ms) / said_ms >= SIMILAR
    }
}

/// How many packets it takes to send `sound`: all but those in its pauses.
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
    let mut asked = questions::shuffled(3)?;
    let (server, recorder) = demo::serve_recorded().await?;
    let recordings = tools::recordings("browser")?;
    for call in 0..CALLS {
        let folder = recordings.join(call.to_string());
        std::fs::create_dir(&folder)?;
        asked = torn_answers(asked, &server, &recorder, &folder).await?;
        if asked.is_empty() {
            return Ok(());
        }
    }
    bail!("in each of {CALLS} calls the answer was torn before the page could play it: {asked:?}")
}

/// Asks in one call, and judges what the page shows and plays. Returns the questions whose answers were torn.
async fn torn_answers(
    asked: Vec<Question>,
    server: &Running,
    recorder: &RecordingEngine,
    recordings: &Path,
) -> Result<Vec<Question>> {
    let mut driver = tools::node()?;
    driver.arg(tools::root().join("tests/browser/conversation.mjs")).arg(server.page()).arg(recordings);
    driver.args(asked.iter().map(Question::path));
    let report = tools::output(&mut driver, Duration::from_secs(240)).await?;
    let talk: Conversation = serde_json::from_str(&report).context(report)?;

    assert_eq!(talk.alert, "");
    assert!(talk.audible, "the page's sound is off");
    assert_eq!(talk.turns.len(), asked.len(), "{talk:?}");
    let mut states = vec!["connecting", "listening"];
    states.extend(["hearing", "thinking", "speaking", "listening"].repeat(asked.len()));
    assert_eq!(talk.states, states);

    let (mut sounds, mut paths, mut played) = (Vec::new(), Vec::new(), Vec::new());
    for (index, turn) in talk.turns.iter().enumerate() {
        let said = recorder.said(&turn.answer)?.sound;
        let path = recordings.join(format!("{index}-said.wav"));
        said.write(&path)?;
        sounds.push(said);
        paths.push(path);
        played.push(turn.recording.clone());
    }
    let heard = asr::transcribe_both(&paths, &played).await?;
    let mut torn = Vec::new();
    for (((question, turn), said), heard) in asked.into_iter().zip(&talk.turns).zip(&sounds).zip(heard) {
        let Turn { answer, first_sound, reception, .. } = turn;
        let (alike, packets) = (spectral_similarity(said, &Sound::read(&turn.recording)?), packets(said)?);
        println!("{} -> shown: {answer} | heard: {heard:?} | {first_sound}", question.text);
        println!("    {alike:.3} alike, {packets} packets in {:.0} ms: {reception:?}", said.milliseconds());
        ensure!(question.is_answered_by(answer), "shown for {}: {answer}", question.text);
        let understood = heard.iter().any(|words| question.is_answered_by(words));
        ensure!(understood, "heard for {}: {heard:?} (shown: {answer})", question.text);
        ensure!(first_sound.ends_with(" ms"), "no time to the first sound: {turn:?}");
        let said_ms = said.milliseconds();
        let (whole, same) = (reception.is_whole(packets), reception.is_true(alike, said_ms));
        ensure!(same || !whole || reception.accounts_for(alike, said_ms), "{answer:?} is not what was played");
        if !whole || !same {
            torn.push(question);
        }
    }
    Ok(torn)
}

#[tokio::test(flavor = "multi_thread")]
async fn page_behaves_as_its_own_tests_say() -> Result<()> {
    let _alone = REAL_TIME.lock().await;
    let server = demo::serve().await?;
    let mut driver = tools::node()?;
    driver.args(["--test", "--test-timeout=60000"]).arg(tools::root().join("tests/browser/page.test.mjs"));
    driver.env("REPARTEE_URL", server.page());
    println!("{}", tools::output(&mut driver, Duration::from_secs(300)).await?);
    Ok(())
}
