//! Soak test: sessions are aborted at random moments, and every resource is freed.

#![allow(clippy::unwrap_used)] // Helpers of tests: a panic is their report.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, Event, OpenError, Respond, SessionHandle, SpeechEngine};
use repartee_kernels::random::uniform;
use repartee_testkit::memory::resident;

use repartee_engine_testkit::{Expected, difference, greedy_copy};

const SLOTS: usize = 64;
/// Number of threads that open and abort sessions.
const CALLERS: usize = 8;
/// Number of aborts after which memory counts as settled.
const SETTLED: usize = 1000;
/// Upper bound of growth after that: the allocator settles after some ten thousand aborts, 1.5 MB higher. A leak of 300
/// bytes an abort exceeds it.
const ALLOCATOR: u64 = 2 << 20;
/// Lock of the test that measures, because resident memory belongs to the whole process.
static MEMORY: Mutex<()> = Mutex::new(());

fn respond(number: u64) -> Respond {
    Respond::new(number, 1000 + number)
}

/// Uses a session and aborts it at a point that `seed` decides.
fn use_and_abort(session: SessionHandle, audio: &[f32], seed: u64) {
    let draw = |what: u64, below: usize| (uniform(seed, what, 0, 0) * below as f32) as usize;
    let spoken = &audio[..1 + draw(0, audio.len() - 1)];
    for slice in spoken.chunks(400 + draw(1, 4000)) {
        session.submit_blocking(Command::Append(slice.to_vec())).unwrap();
    }
    if draw(6, 4) == 0 {
        // A speculation and an out-of-band response.
        session.submit_blocking(Command::BeginSpeculation { item: 8, respond: respond(8) }).unwrap();
        session.submit_blocking(Command::Respond(Respond { out_of_band: true, ..respond(9) })).unwrap();
        for _ in 0..draw(7, 10) {
            session.try_next_event();
            std::thread::yield_now();
        }
        if draw(8, 2) == 0 {
            session.submit_blocking(Command::AbortSpeculation { response: 8 }).unwrap();
        }
    } else if draw(2, 5) > 0 {
        session.submit_blocking(Command::Commit { item: 0 }).unwrap();
        session.submit_blocking(Command::Respond(respond(0))).unwrap();
        for _ in 0..draw(3, 40) {
            match session.next_event_blocking() {
                Some(Event::SegmentFinished { .. }) | None => break,
                Some(_) => {}
            }
        }
        match draw(4, 4) {
            0 => session.submit_blocking(Command::Cancel { response: 0 }).unwrap(),
            1 => session.submit_blocking(Command::Respond(respond(1))).unwrap(),
            _ => {}
        }
    }
    // Half of them drop the handle, half wait until the engine has freed the session.
    if draw(5, 2) == 0 {
        session.close();
    }
}

/// Runs a response in every slot at once, so that all state has been in use before memory is measured.
fn touch_everything(engine: &Engine, audio: &[f32]) {
    let sessions: Vec<SessionHandle> = (0..SLOTS).map(|_| engine.open().unwrap()).collect();
    for session in &sessions {
        session.submit_blocking(Command::Append(audio.to_vec())).unwrap();
        session.submit_blocking(Command::Commit { item: 0 }).unwrap();
        session.submit_blocking(Command::Respond(respond(0))).unwrap();
    }
    for session in sessions {
        while !matches!(session.next_event_blocking().unwrap(), Event::SegmentFinished { .. } | Event::Failed { .. }) {}
        session.close();
    }
}

/// Aborts sessions until `enough(number, time since the start)`.
fn soak(enough: impl Fn(usize, Duration) -> bool + Sync) {
    let _alone = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    let demo = demo_answers();
    let expected = Expected::load("dense");
    let folder = greedy_copy("dense", &expected);
    // The smallest pools: pages touched late for the first time would look like growth.
    let config = EngineConfig { sessions: SLOTS, session_tokens: 1024, ..EngineConfig::default() };
    let engine = Engine::start(Source::Folder(folder.path().to_path_buf()), &config).unwrap();
    let audio = expected.tensor("turn1.audio").0;
    touch_everything(&engine, &audio);
    let (aborts, settled) = (AtomicUsize::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for caller in 0..CALLERS {
            let (engine, audio, aborts, settled, enough) = (&engine, &audio, &aborts, &settled, &enough);
            scope.spawn(move || {
                let mut held = Vec::new();
                for life in 0.. {
                    let seed = (caller * 1_000_000 + life) as u64;
                    match engine.open() {
                        // Some stay open for a while, so that most slots are taken at times.
                        Ok(session) if seed.is_multiple_of(7) && held.len() < 7 => held.push(session),
                        Ok(session) => use_and_abort(session, audio, seed),
                        Err(OpenError::Full { .. }) => held.clear(),
                        Err(error) => panic!("{error}"),
                    }
                    if seed.is_multiple_of(50) {
                        held.clear();
                    }
                    let count = aborts.fetch_add(1, Ordering::Relaxed) + 1;
                    if count == SETTLED {
                        settled.store(resident(), Ordering::Relaxed);
                    }
                    if enough(count, begun.elapsed()) {
                        return;
                    }
                }
            });
        }
    });
    let count = aborts.load(Ordering::Relaxed);
    assert!(count > SETTLED, "only {count} aborts: nothing was learnt");

    // Every slot is free again, and all can be taken together.
    let mut all: Vec<SessionHandle> = Vec::new();
    let since = Instant::now();
    while all.len() < SLOTS {
        assert!(since.elapsed() < Duration::from_secs(60), "slots stay taken");
        match engine.open() {
            Ok(session) => all.push(session),
            // Dropped sessions are freed on the engine's thread; closing one waits for that thread.
            Err(OpenError::Full { .. }) => match all.pop() {
                Some(session) => session.close(),
                None => std::thread::yield_now(),
            },
            Err(error) => panic!("{error}"),
        }
    }
    for session in all {
        session.close();
    }
    assert_eq!(engine.occupancy(), (0, SLOTS));
    assert_eq!(engine.held(), 0, "blocks, edges or slots are still taken");
    let (before, after) = (settled.load(Ordering::Relaxed), resident());
    println!("{count} aborts; resident {} MB after {SETTLED}, {} MB at the end", before >> 20, after >> 20);
    assert!(after <= before + before / 20 + ALLOCATOR, "resident memory grew from {before} to {after} bytes");

    // Responses are as before.
    let session = engine.open().unwrap();
    session.submit_blocking(Command::Append(expected.tensor("turn0.audio").0)).unwrap();
    session.submit_blocking(Command::Commit { item: 0 }).unwrap();
    session.submit_blocking(Command::Respond(respond(0))).unwrap();
    let mut samples = Vec::new();
    loop {
        match session.next_event_blocking().unwrap() {
            Event::Audio { samples: more, .. } => samples.extend(more),
            Event::SegmentFinished { .. } => break,
            Event::Failed { error, .. } => panic!("{error}"),
            _ => {}
        }
    }
    assert!(difference(&samples, &expected.tensor("turn0.waveform").0) <= 1e-4);
    drop(session);
    drop(engine);
    assert_eq!(demo_answers(), demo);
}

/// Texts of the default model's answers to three questions.
fn demo_answers() -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let engine = Engine::start(Source::Folder(root.join("models/demo")), &EngineConfig::default()).unwrap();
    let mut answers = Vec::new();
    for question in ["three-plus-four", "capital-of-france", "month-before-may"] {
        let wav = std::fs::read(root.join(format!("tests/questions/{question}.wav"))).unwrap();
        // 16 kHz, mono, 16 bit, after the usual header.
        let samples = wav[44..].as_chunks().0.iter().map(|&s| f32::from(i16::from_le_bytes(s)) / 32_768.0).collect();
        let session = engine.open().unwrap();
        session.submit_blocking(Command::Append(samples)).unwrap();
        session.submit_blocking(Command::Commit { item: 0 }).unwrap();
        session.submit_blocking(Command::Respond(respond(0))).unwrap();
        let mut text = String::new();
        loop {
            match session.next_event_blocking().unwrap() {
                Event::Text { text: more, .. } => text += &more,
                Event::SegmentFinished { .. } => break,
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        assert!(!text.is_empty() && !answers.contains(&text), "{question}: {text:?} after {answers:?}");
        answers.push(text);
    }
    answers
}

#[test]
fn aborted_sessions_leave_nothing_behind() {
    soak(|count, since| count > SETTLED && since > Duration::from_secs(30));
}

#[test]
#[ignore = "minutes: make test-long"]
fn ten_thousand_aborted_sessions_leave_nothing_behind() {
    soak(|count, _| count >= 10_000);
}
