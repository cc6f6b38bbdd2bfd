//! Tick loops of one engine under many callers: loops of one thread each beside one loop with all threads.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use repartee_engine::{Engine, EngineConfig, Source};
use repartee_engine_api::{Command, Event, Respond, Role, SessionHandle, SpeechEngine};
use repartee_report::{Report, ReportRow};
use repartee_tests::tools;

/// Sessions that are asked at the same moment.
const SESSIONS: usize = 64;
/// Tokens of text of each answer, at most.
const TOKENS: u32 = 24;
/// Measurements of each number of loops, of which the fastest counts: others may disturb one.
const REPEATS: usize = 3;

/// Sound of all sessions, and its times.
struct Answers {
    /// Time from the questions to the end of the last answer.
    took: Duration,
    /// The same to the first sound, in the order of the sessions.
    first: Vec<Duration>,
    /// All sound, in seconds.
    sound: f64,
}

/// Measures one loop with all threads of this machine, as many loops of one thread, and one loop of one thread, in turns, with
/// all sessions and with one; writes `target/report/loops.json`.
pub fn rows(model: &Path) -> Result<Vec<ReportRow>> {
    let threads = std::thread::available_parallelism()?.get();
    let mut fastest = [(f64::INFINITY, f64::INFINITY, f64::INFINITY); 3];
    for _ in 0..REPEATS {
        for (fastest, (loops, threads)) in fastest.iter_mut().zip([(1, threads), (threads, threads), (1, 1)]) {
            let config = EngineConfig {
                loops,
                threads: Some(threads),
                sessions: SESSIONS,
                session_tokens: 512,
                ..EngineConfig::default()
            };
            let engine = Engine::start(Source::Folder(model.to_owned()), &config)?;
            let all = ask(&engine, SESSIONS)?;
            let alone = ask(&engine, 1)?;
            let mut first = all.first;
            first.sort();
            let last_first = first.last().context("there are sessions")?.as_secs_f64();
            fastest.0 = fastest.0.min(1e3 * all.took.as_secs_f64() / all.sound);
            fastest.1 = fastest.1.min(1e3 * last_first);
            fastest.2 = fastest.2.min(1e3 * alone.first.first().context("there is a session")?.as_secs_f64());
        }
    }
    let [one, several, thread] = fastest;
    let row = |name: &str, ours: f64, peer: f64, what: &str| {
        let note = format!("{what}, {threads} loops of one thread; peer: one loop of {threads} threads");
        ReportRow::lower_is_better(name, ours, peer, "ms", note)
    };
    let sound = format!("for a second of sound, {SESSIONS} answers at once");
    let of_thread = format!("{sound}, {threads} loops of one thread; peer: one loop of one thread");
    let rows = vec![
        ReportRow::lower_is_better("loops_sound_vs_thread", several.0, thread.0, "ms", of_thread),
        row("loops_sound", several.0, one.0, &sound),
        row("loops_first_sound", several.1, one.1, &format!("to the first sound of the last of {SESSIONS}")),
        row("loops_alone", several.2, one.2, "to the first sound of a caller alone"),
    ];
    Report::new("loops", rows.clone()).write(&tools::root().join("target/report/loops.json"))?;
    Ok(rows)
}

/// Asks `count` new sessions at the same moment, each on a thread that listens.
fn ask(engine: &Engine, count: usize) -> Result<Answers> {
    // Those of before end within a tick.
    while engine.occupancy().0 > 0 {
        std::thread::yield_now();
    }
    let sessions = (0..count).map(|_| engine.open()).collect::<Result<Vec<SessionHandle>, _>>()?;
    let begun = Instant::now();
    for (number, session) in (0..).zip(&sessions) {
        session.submit_blocking(Command::text(1, Role::User, format!("Tell me about the number {number}.")))?;
        let respond = Respond { seed: number, max_tokens: Some(TOKENS), ..Respond::new(1, 2) };
        session.submit_blocking(Command::Respond(respond))?;
    }
    let heard = std::thread::scope(|scope| {
        let listeners: Vec<_> = sessions.iter().map(|session| scope.spawn(move || listen(session, begun))).collect();
        listeners.into_iter().map(|one| one.join().ok().flatten()).collect::<Option<Vec<_>>>()
    });
    let (took, heard) = (begun.elapsed(), heard.context("an answer failed")?);
    let samples: usize = heard.iter().map(|(_, samples)| samples).sum();
    let sound = samples as f64 / f64::from(engine.info().output_rate);
    Ok(Answers { took, first: heard.into_iter().map(|(first, _)| first).collect(), sound })
}

/// Time to the first sound of an answer, and its samples; `None` if it fails.
fn listen(session: &SessionHandle, begun: Instant) -> Option<(Duration, usize)> {
    let (mut first, mut heard) = (None, 0);
    loop {
        match session.next_event_blocking()? {
            Event::Audio { samples, .. } => {
                first.get_or_insert_with(|| begun.elapsed());
                heard += samples.len();
            }
            Event::SegmentFinished { .. } => return first.zip(Some(heard)),
            Event::Failed { .. } => return None,
            _ => {}
        }
    }
}
