//! Status of an engine: progress of its start, ticks, queues and caches.
#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use repartee_engine::{Engine, EngineConfig, Source, StartProgress, StartStage};
use repartee_engine_api::{Command, Event, Respond, Role, SessionHandle, SpeechEngine};

use repartee_engine_testkit::{Expected, greedy_copy};

/// Upper bound of every wait in these tests.
const PATIENCE: Duration = Duration::from_secs(60);

fn started(progress: impl Fn(StartProgress) + Send + Sync + 'static) -> Engine {
    let folder = greedy_copy("dense", &Expected::load("dense"));
    let config = EngineConfig { sessions: 4, cache_mib: 512, session_tokens: 4096, ..EngineConfig::default() };
    Engine::start_with_progress(Source::Folder(folder.path().to_path_buf()), &config, progress).unwrap()
}

/// Length of a queue at the end of the last tick.
fn queue(engine: &Engine, name: &str) -> u64 {
    let queues = engine.load().queues;
    queues.iter().find(|(queue, _)| *queue == name).unwrap_or_else(|| panic!("{name} in {queues:?}")).1
}

fn until(what: &str, reached: impl Fn() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

fn ask(session: &SessionHandle, number: u64) {
    session.submit_blocking(Command::text(number, Role::User, "one two three")).unwrap();
    let respond = Respond { max_tokens: Some(8), ..Respond::new(number, 100 + number) };
    session.submit_blocking(Command::Respond(respond)).unwrap();
}

fn listen(session: &SessionHandle) {
    while !matches!(session.next_event_blocking().expect("the session goes on"), Event::SegmentFinished { .. }) {}
}

#[test]
fn a_start_tells_how_far_it_is() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let keep = told.clone();
    started(move |progress| keep.lock().unwrap().push(progress));
    let told = told.lock().unwrap();
    assert_eq!(told[0], StartProgress::BEGIN);
    assert_eq!(*told.last().unwrap(), StartProgress { stage: StartStage::WarmUp, fraction: 1.0 });
    assert!(told.windows(2).all(|pair| pair[0].fraction <= pair[1].fraction), "{told:?}");
    let weights = told.iter().filter(|progress| progress.stage == StartStage::Weights);
    let between = weights.filter(|progress| progress.fraction > 0.1 && progress.fraction < 0.9);
    assert!(between.count() > 5, "{told:?}");
}

#[test]
fn ticks_queues_and_caches_are_counted() {
    let engine = started(|_| {});
    let session = engine.open().unwrap();
    let before = engine.load();
    ask(&session, 1);
    until("events wait for their reader", || queue(&engine, "events") > 0);
    listen(&session);
    ask(&session, 2);
    listen(&session);
    until("nothing waits", || {
        ["commands", "windows", "responses", "events"].iter().all(|name| queue(&engine, name) == 0)
    });
    let load = engine.load();
    assert!(load.ticks > before.ticks && load.tick_time > before.tick_time, "{load:?} after {before:?}");
    assert!(load.due_time > before.due_time && load.due_time <= load.tick_time, "callers wait: {load:?}");
    assert!(load.ticks_within.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1), "{load:?}");
    let (_, in_time) = load.ticks_within.last().unwrap();
    assert!((1..=load.ticks).contains(in_time), "{load:?}");
    let work = engine.work();
    let thinker = work.iter().find(|work| work.stage == "thinker").unwrap();
    // Both prompts begin alike.
    assert!(thinker.reused > 0 && thinker.reused < thinker.prompted, "{thinker:?}");
    assert!(thinker.blocks > 0 && thinker.blocks < thinker.capacity, "{thinker:?}");
    let encoder = work.iter().find(|work| work.stage == "encoder").unwrap();
    assert_eq!((encoder.capacity, encoder.prompted), (0, 0), "it has no cache");
}
