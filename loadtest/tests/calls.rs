//! Real calls to the real gateway with a scripted engine, over both transports.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use repartee::config::{Config, SipAddress};
use repartee::server::Server;
use repartee_load::measure::log::{ScenarioLog, TurnLog};
use repartee_load::measure::playback::GapCause;
use repartee_load::questions;
use repartee_load::run::LoadRunner;
use repartee_load::scenario::Scenario;
use repartee_load::scenario::arrivals::Arrivals;
use repartee_testkit::scripted::{Script, ScriptedEngine};
use tokio::sync::{Semaphore, oneshot};

/// Codec frames of an answer, and its duration.
const FRAMES: u64 = 15;
const ANSWER: Duration = Duration::from_millis(80 * FRAMES);

/// Longest lead of the first packet over the commit event with a known TTFP.
const OVERTAKING: Duration = Duration::from_millis(40);

/// A running gateway, its engine and the load bench.
struct Running {
    bench: LoadRunner,
    engine: Arc<ScriptedEngine>,
    _stop: oneshot::Sender<()>,
}

async fn start(script: Script) -> Running {
    start_with(script, Config::default()).await
}

async fn start_with(script: Script, config: Config) -> Running {
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), ..config };
    let engine = ScriptedEngine::new(script);
    let server = Server::bind(config, engine.clone()).await.unwrap();
    let url = format!("http://{}", server.local_addr());
    let (stop, stopped) = oneshot::channel::<()>();
    tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    let local = LoadRunner::local(&url, questions_folder()).await.unwrap();
    let bench = LoadRunner { pid: Some(std::process::id()), seed: 7, ..local };
    Running { bench, engine, _stop: stop }
}

fn questions_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../tests/questions")
}

fn script() -> Script {
    Script { slots: 8, frames: FRAMES, ..Script::default() }
}

/// Returns a scenario of `callers` who arrive together and ask one question each, about a capital.
fn scenario(callers: usize, more: &str) -> Scenario {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.toml");
    let text = format!(
        "[[scenario]]\nname = \"one\"\nduration_s = 1\ntopics = [\"capitals\"]\n\
         arrivals = {{ kind = \"soak\", callers = {callers}, within_s = 0.2 }}\n{more}"
    );
    std::fs::write(&path, text).unwrap();
    Scenario::load(Some(&path)).unwrap().remove(0)
}

async fn run(script: Script, callers: usize, more: &str) -> ScenarioLog {
    start(script).await.bench.run(&scenario(callers, more)).await.unwrap()
}

/// True if the answer has the engine's length; codecs add a little, and the server some packets of silence.
fn is_whole(turn: &TurnLog) -> bool {
    turn.answer.duration.abs_diff(ANSWER) < Duration::from_millis(200)
}

/// Asserts that there are `calls` calls without errors, each with one complete answer.
fn check(log: &ScenarioLog, calls: usize) {
    assert_eq!(log.errors.len(), 0, "{:?}", log.errors);
    assert_eq!((log.calls.len(), log.turns.len()), (calls, calls));
    assert!(log.calls.iter().all(|call| call.setup.is_some() && call.ended > call.began));
    for turn in &log.turns {
        assert!(is_whole(turn), "{turn:?}");
        // The scripted answer contains none of the key's words.
        assert_eq!(turn.correct, Some(false));
        // The commit event and the sound travel separately. If the event is very late, its times are unknown.
        let waited = turn.endpointing.zip(turn.ttfp).map(|(endpointing, ttfp)| endpointing + ttfp);
        assert!(waited.is_none_or(|waited| turn.to_sound + OVERTAKING >= waited), "{turn:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn webrtc_answers_are_heard_whole() {
    let log = run(script(), 3, "").await;
    check(&log, 3);
    for call in &log.calls {
        let report = call.rtp.unwrap();
        assert_eq!(
            (report.counts.lost, report.counts.late_or_duplicate, report.counts.corrupt),
            (0, 0, 0),
            "{report:?}"
        );
        assert!(report.counts.received >= FRAMES * 4, "{report:?}");
        assert!(report.round_trip.is_some() && report.jitter.is_some(), "{report:?}");
    }
    assert!(log.samples.iter().all(|sample| sample.server_cores.is_some() && sample.server_memory.is_some()));
    assert!(log.samples.iter().any(|sample| sample.calls == 3));
    assert!(log.server_underruns.is_some());
    assert!(!log.server_stages.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn sip_answers_are_heard_whole() {
    let mut config = Config::default();
    let address = repartee_load::server::free_sip_address().unwrap();
    config.sip.listen = vec![SipAddress::udp(address)];
    config.sip.peers = vec!["127.0.0.1/32".parse().unwrap()];
    let server = start_with(script(), config).await;
    let log = server.bench.run(&scenario(1, &format!("transport = \"sip\"\nsip = \"{address}\""))).await.unwrap();
    check(&log, 1);
    assert!(log.turns.iter().all(|turn| turn.ttfp.is_some() && turn.answer.gaps.is_empty()), "{:?}", log.turns);
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_answers_are_heard_whole() {
    let log = run(script(), 2, "transport = \"websocket\"\nend_of_turn = \"client\"").await;
    check(&log, 2);
    // The caller ends its turn, so the commit is known, and all sound arrives before the buffer runs out.
    assert!(log.turns.iter().all(|turn| turn.endpointing.is_some() && turn.answer.gaps.is_empty()), "{:?}", log.turns);
    let served = run(script(), 1, "transport = \"websocket\"").await;
    check(&served, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn barge_in_ends_the_answer() {
    let long = Script { frames: 60, ..script() };
    let log = run(long, 1, "interrupt_after_s = 0.4").await;
    assert_eq!((log.errors.len(), log.turns.len()), (0, 1), "{:?}", log.errors);
    // The answer is more than four seconds long; it ends while the caller still speaks.
    let asked = questions::load(&questions_folder(), &["capitals".to_owned()]).unwrap();
    let shortest = asked.iter().map(|question| question.utterance.speech_end).min().unwrap();
    let silent = log.turns[0].barge_in.unwrap();
    assert!(silent < shortest, "{silent:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_packets_are_counted_and_made_up() {
    let log = run(script(), 2, "network = { loss = 0.08, duplicate = 0.05, reorder = 0.02, delay_ms = 10 }").await;
    assert_eq!((log.errors.len(), log.turns.len()), (0, 2), "{:?}", log.errors);
    let counts = log.calls.iter().map(|call| call.rtp.unwrap().counts);
    assert!(counts.map(|counts| counts.lost).sum::<u64>() > 0);
    let concealed: Duration = log.turns.iter().map(|turn| turn.answer.concealed).sum();
    assert!(concealed > Duration::ZERO);
}

#[tokio::test(flavor = "multi_thread")]
async fn stall_of_the_engine_is_one_gap() {
    let gate = Arc::new(Semaphore::new(8));
    let running = start(Script { gate: Some(gate.clone()), ..script() }).await;
    let mut frames = running.engine.frames();
    let stall = async {
        let made = frames.wait_for(|frames| *frames == 8);
        tokio::time::timeout(Duration::from_secs(30), made).await.expect("the call is answered").unwrap();
        // The finished frames play for 640 ms, and the caller's buffer for 60 ms more.
        tokio::time::sleep(Duration::from_millis(2_000)).await;
        gate.close();
    };
    let one = scenario(1, "");
    let (log, ()) = tokio::join!(running.bench.run(&one), stall);
    let log = log.unwrap();
    check(&log, 1);
    let long: Vec<_> =
        log.turns[0].answer.gaps.iter().filter(|gap| gap.duration > Duration::from_millis(300)).collect();
    assert_eq!(long.len(), 1, "{:?}", log.turns[0]);
    assert!([GapCause::Underrun, GapCause::Hole].contains(&long[0].cause));
    assert_eq!(log.server_underruns, Some(1.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_errors_with_their_code() {
    let log = run(Script { slots: 1, ..script() }, 2, "").await;
    assert_eq!((log.calls.len(), log.turns.len()), (2, 1));
    assert_eq!(log.errors.keys().collect::<Vec<_>>(), ["the call was refused: 503 session_limit_reached"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn soak_callers_call_again() {
    let mut soak = scenario(2, "turns = 2\nthink_s = 0.1");
    soak.duration_s = 12.0;
    soak.arrivals = Arrivals::Soak { callers: 2, within_s: 0.2, call_again: true };
    let log = start(script()).await.bench.run(&soak).await.unwrap();
    assert_eq!(log.errors.len(), 0, "{:?}", log.errors);
    assert!(log.calls.len() > 2, "{} calls", log.calls.len());
    // Each call asks at least one question and at most its number of turns.
    assert!((log.calls.len()..=log.calls.len() * 2).contains(&log.turns.len()), "{}", log.turns.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_hang_up_and_leave_nothing() {
    let mut config = Config::default();
    // A hang-up before the call is connected is detected only after this time.
    config.webrtc.connect_within = Duration::from_secs(2);
    let running = start_with(script(), config).await;
    let churn = scenario(6, "hang_up_after_s = 0.8");
    let log = running.bench.run(&churn).await.unwrap();
    assert_eq!((log.calls.len(), log.errors.len()), (6, 0), "{:?}", log.errors);
    let mut open = running.engine.open_sessions();
    let freed = open.wait_for(|open| *open == 0);
    tokio::time::timeout(Duration::from_secs(10), freed).await.expect("every session ends").unwrap();
}
