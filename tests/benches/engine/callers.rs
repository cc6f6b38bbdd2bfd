//! One and several callers: hand-off modes, threads, batches, length of the input, memory, and a profile of stages.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use repartee_engine::EngineConfig;
use repartee_engine::HandOff;
use repartee_engine_api::{Command, Respond, SessionHandle};
use repartee_report::ReportRow;
use repartee_testkit::memory::resident;

use crate::bed::{Bed, RATE, Timing, median, sound};

/// A question with an answer of about three seconds.
const LONG: &str = "count-three-to-six.wav";
/// Number of timed repetitions.
const REPEATS: usize = 5;

fn config() -> EngineConfig {
    EngineConfig { sessions: 16, out_of_band: 0, session_tokens: 4096, threads: Some(1), ..EngineConfig::default() }
}

/// Times `callers` sessions that ask the same question at the same moment.
fn together(bed: &mut Bed, callers: usize, question: &[f32]) -> Result<Vec<Timing>> {
    let sessions: Vec<SessionHandle> = (0..callers).map(|_| bed.prefilled(question)).collect::<Result<_>>()?;
    let timings = bed.answers(&sessions.iter().collect::<Vec<_>>(), Respond::new(0, 1))?;
    drop(sessions);
    bed.settle();
    Ok(timings)
}

/// Runs two engines alternately, so that other load on the machine affects both.
fn by_turns<R>(beds: [&mut Bed; 2], mut run: impl FnMut(&mut Bed) -> Result<R>) -> Result<[Vec<R>; 2]> {
    let mut results = [Vec::new(), Vec::new()];
    let [ours, peer] = beds;
    for _ in 0..REPEATS {
        results[0].push(run(ours)?);
        results[1].push(run(peer)?);
    }
    Ok(results)
}

fn ms(durations: impl Iterator<Item = Duration>) -> f64 {
    median(durations.map(|d| d.as_secs_f64() * 1e3).collect())
}

pub fn hand_off(folder: &Path) -> Result<Vec<ReportRow>> {
    let question = sound(LONG)?;
    let full = EngineConfig { hand_off: HandOff::FullPayload, ..config() };
    let (mut chunked, mut full) = (Bed::new(folder, &config())?, Bed::new(folder, &full)?);
    let mut rows = Vec::new();
    for callers in [1, 2, 4, 8] {
        let timings = by_turns([&mut chunked, &mut full], |bed| together(bed, callers, &question))?;
        let [ours, peer] = timings.map(|runs| runs.into_iter().flatten().collect::<Vec<Timing>>());
        let sound = ours.first().context("nobody called")?.sound.as_secs_f64();
        let note =
            format!("{callers} at once, {sound:.1} s of speech each; commit to first samples; peer: full_payload");
        let first = |timings: &[Timing]| ms(timings.iter().map(|timing| timing.first));
        let whole = |timings: &[Timing]| ms(timings.iter().map(|timing| timing.whole));
        rows.push(ReportRow::lower_is_better(
            format!("async_vs_full_ttfp_{callers}"),
            first(&ours),
            first(&peer),
            "ms",
            note,
        ));
        let note = format!("{callers} at once; commit to the end of the answer; peer: full_payload");
        rows.push(ReportRow::lower_is_better(
            format!("async_vs_full_end_{callers}"),
            whole(&ours),
            whole(&peer),
            "ms",
            note,
        ));
    }
    Ok(rows)
}

/// Compares parallel stages on two threads with sequential stages on one.
pub fn threads(folder: &Path) -> Result<Vec<ReportRow>> {
    let question = sound(LONG)?;
    let two = EngineConfig { threads: Some(2), ..config() };
    let (mut two, mut one) = (Bed::new(folder, &two)?, Bed::new(folder, &config())?);
    let mut rows = Vec::new();
    for callers in [1, 8] {
        let timings = by_turns([&mut two, &mut one], |bed| together(bed, callers, &question))?;
        let [ours, peer] = timings.map(|runs| runs.into_iter().flatten().collect::<Vec<Timing>>());
        let suffix = if callers == 1 { String::new() } else { format!("_{callers}") };
        let note = |what: &str| format!("{callers} at once; {what}; peer: one thread");
        let first = |timings: &[Timing]| ms(timings.iter().map(|timing| timing.first));
        let whole = |timings: &[Timing]| ms(timings.iter().map(|timing| timing.whole));
        let name = format!("answer_two_threads{suffix}");
        rows.push(ReportRow::lower_is_better(
            name,
            whole(&ours),
            whole(&peer),
            "ms",
            note("commit to the end of the answer"),
        ));
        let name = format!("ttfp_two_threads{suffix}");
        rows.push(ReportRow::lower_is_better(name, first(&ours), first(&peer), "ms", note("commit to first samples")));
    }
    Ok(rows)
}

pub fn batches(folder: &Path) -> Result<Vec<ReportRow>> {
    const CALLERS: usize = 8;
    let question = sound(LONG)?;
    let alone = EngineConfig { batch: false, ..config() };
    let (mut batched, mut serial) = (Bed::new(folder, &config())?, Bed::new(folder, &alone)?);
    // Milliseconds of every stage per second of speech; the last value is the total.
    let run = |bed: &mut Bed| -> Result<Vec<f64>> {
        let before = bed.times();
        let timings = together(bed, CALLERS, &question)?;
        let speech: f64 = timings.iter().map(|timing| timing.sound.as_secs_f64()).sum();
        let stages = bed.times().into_iter().zip(before).map(|(after, before)| after.1 - before.1);
        let whole = timings.iter().map(|timing| timing.whole).max().unwrap_or_default();
        Ok(stages.chain([whole]).map(|duration| duration.as_secs_f64() * 1e3 / speech).collect())
    };
    let runs = by_turns([&mut batched, &mut serial], run)?;
    let [ours, peer] = runs.map(|runs| {
        let column = |at: usize| median(runs.iter().map(|run| run[at]).collect());
        (0..runs[0].len()).map(column).collect::<Vec<f64>>()
    });
    let note = format!("{CALLERS} at once; a second of speech; peer: the same, each stepped alone");
    let mut rows = Vec::new();
    for (at, (name, ..)) in batched.times().into_iter().enumerate().skip(1) {
        rows.push(ReportRow::lower_is_better(
            format!("batch8_vs_serial_{name}"),
            ours[at],
            peer[at],
            "ms",
            note.clone(),
        ));
    }
    let last = ours.len() - 1;
    rows.push(ReportRow::lower_is_better("batch8_vs_serial_everything", ours[last], peer[last], "ms", note));
    Ok(rows)
}

pub fn input_length(folder: &Path) -> Result<Vec<ReportRow>> {
    let question = sound("three-plus-four.wav")?;
    let mut bed = Bed::new(folder, &config())?;
    let window = RATE;
    let mut rows = Vec::new();
    for seconds in [1, 10, 60] {
        // The question is at the end of the turn, after near silence; half a window stays open at any length.
        let length = seconds * RATE + window / 2;
        let noise = |i: usize| ((i * 7919) % 1000) as f32 * 2e-6;
        let mut turn: Vec<f32> = (0..length.saturating_sub(question.len())).map(noise).collect();
        turn.extend(&question[question.len() - (length - turn.len()).min(question.len())..]);
        let open = turn.len() % window;
        let mut time = |silently: bool| -> Result<f64> {
            let mut firsts = Vec::new();
            for _ in 0..REPEATS {
                let session = if silently {
                    bed.prefilled(&turn)?
                } else {
                    let session = bed.open()?;
                    session.submit(Command::Append(turn.clone()))?;
                    session
                };
                let timing = bed.answers(&[&session], Respond { max_tokens: Some(2), ..Respond::new(0, 1) })?;
                firsts.push(timing[0].first);
                drop(session);
                bed.settle();
            }
            Ok(ms(firsts.into_iter()))
        };
        let note = format!(
            "{:.1} s of sound, window of {} ms open at the commit; peer: all of it read after the commit",
            turn.len() as f64 / RATE as f64,
            open * 1000 / RATE
        );
        rows.push(ReportRow::lower_is_better(
            format!("ttfp_by_input_length_{seconds}s"),
            time(true)?,
            time(false)?,
            "ms",
            note,
        ));
    }
    Ok(rows)
}

pub fn memory(folder: &Path) -> Result<Vec<ReportRow>> {
    const SESSIONS: usize = 16;
    let mut bed = Bed::new(folder, &config())?;
    let before = resident() as f64;
    let sessions: Vec<SessionHandle> = (0..SESSIONS).map(|_| bed.open()).collect::<Result<_>>()?;
    bed.settle();
    let each = |bytes: f64| bytes.max(0.0) / SESSIONS as f64 / 1024.0;
    let mut rows = vec![ReportRow::without_peer(
        "session_at_rest",
        each(resident() as f64 - before),
        "KiB",
        "resident memory, mean of 16 sessions",
    )];
    let minute: Vec<f32> = (0..60 * RATE).map(|i| ((i * 7919) % 1000) as f32 * 2e-5).collect();
    for session in &sessions {
        for slice in minute.chunks(RATE) {
            session.submit(Command::Append(slice.to_vec()))?;
            bed.settle();
        }
        session.submit(Command::Commit { item: 0 })?;
    }
    bed.settle();
    let note = "resident memory, mean of 16 sessions: keys and values of two stages, and the encoded windows";
    rows.push(ReportRow::without_peer("session_after_a_60_s_turn", each(resident() as f64 - before), "KiB", note));
    drop(sessions);
    bed.settle();

    let question = sound("football-game.wav")?;
    let session = bed.open()?;
    let mut settled = 0.0;
    const TURNS: u64 = 1000;
    for turn in 1..=TURNS {
        session.submit(Command::Append(question.clone()))?;
        bed.answers(&[&session], Respond { max_tokens: Some(1), ..Respond::new(turn, turn) })?;
        for item in [2 * turn, 2 * turn + 1] {
            session.submit(Command::Delete { item })?;
        }
        if turn == 100 {
            settled = resident() as f64;
        }
    }
    let note = format!("resident memory of the process after {TURNS} turns of one session, over that after 100");
    rows.push(ReportRow::without_peer("growth_over_1000_turns", (resident() as f64 - settled) / 1024.0, "KiB", note));
    Ok(rows)
}

pub fn profile(folder: &Path) -> Result<Vec<ReportRow>> {
    let question = sound(LONG)?;
    let mut bed = Bed::new(folder, &config())?;
    let before = bed.times();
    let mut wall = Duration::ZERO;
    for _ in 0..REPEATS {
        let begun = Instant::now();
        let session = bed.prefilled(&question)?;
        bed.answers(&[&session], Respond::new(0, 1))?;
        wall += begun.elapsed();
        drop(session);
        bed.settle();
    }
    let mut rows = Vec::new();
    let mut computed = Duration::ZERO;
    for (after, before) in bed.times().into_iter().zip(before) {
        let spent = after.1 - before.1;
        computed += spent;
        let note = format!(
            "{} steps, {:.2} ms each",
            after.2 - before.2,
            spent.as_secs_f64() * 1e3 / (after.2 - before.2).max(1) as f64
        );
        rows.push(ReportRow::without_peer(format!("share_{}", after.0), share(spent, wall), "%", note));
    }
    let note = "log-mel, commands, prompts, planning, routing, events";
    rows.push(ReportRow::without_peer(
        "share_outside_of_stages",
        share(wall.saturating_sub(computed), wall),
        "%",
        note,
    ));
    Ok(rows)
}

fn share(part: Duration, whole: Duration) -> f64 {
    part.as_secs_f64() * 100.0 / whole.as_secs_f64()
}
