//! `make bench-interruptions`: false and missed interruptions over a matrix of echoes, voices and backchannels, with a
//! playback that can be paused (WebRTC) and one that cannot (a websocket), with the echo cancelled (ours) and without (the
//! peer). It uses the recordings on which no threshold was chosen; with `-- chosen`, the others. Then it counts who interrupts
//! among the judged starts; `-- starts` does that alone. It runs on a virtual clock, but for the cost of cancelling.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use repartee_media::call_echo::CallEcho;
use repartee_media::vad::{BargeInPolicy, RATE, TurnDetector};
use repartee_report::{Report, ReportRow};
use repartee_tests::interruption_starts::{self, GroupResult};
use repartee_tests::interruptions::{DataSet, Recordings, RoomConditions, Scene, simulate};
use repartee_tests::tools;

/// Echo beside which the judged starts are counted, in dB.
const STARTS_ECHO_DB: f32 = -20.0;
/// Longest time from the caller's last word to the announcement, in ms.
const LATE_MS: usize = 200;

fn main() -> Result<()> {
    let set = if std::env::args().any(|argument| argument == "chosen") { DataSet::Chosen } else { DataSet::Judged };
    let recordings = Recordings::load(&tools::root().join("tests/interruptions"), set)?;
    let conditions = recordings.conditions.first().context("there are no conditions")?;
    if std::env::args().any(|argument| argument == "starts") {
        return count_starts(&recordings).map(drop);
    }
    let mut rows = Vec::new();
    println!(
        "| echo | transport | cancelled | false interruptions | pauses a minute | by backchannels | missed, caller at {:?} dB | silent after, median / p95 | last sound after | announced after |",
        conditions.callers_db
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (transport, pausable) in [("WebRTC", true), ("websocket", false)] {
        let mut all = [Measured::default(), Measured::default()];
        for echo_db in &conditions.echoes_db {
            let mut measured = [false, true].map(|_| Measured::default());
            for (measured, cancels) in measured.iter_mut().zip([true, false]) {
                measured.missed = vec![(0, 0); conditions.callers_db.len()];
                measure(&recordings, conditions, *echo_db, (pausable, cancels), measured)?;
            }
            let name = echo_db.map_or("headphones".into(), |db| format!("echo of {db} dB"));
            print_rows(&name, transport, &measured);
            let [ours, peer] = measured;
            rows.extend(ours.rows(&format!("{transport}, {name}"), &peer, conditions));
            for (all, measured) in all.iter_mut().zip([ours, peer]) {
                all.add(measured);
            }
        }
        print_rows("all", transport, &all);
        rows.extend(all[0].rows(&format!("{transport}, all echoes"), &all[1], conditions));
    }
    rows.extend(costs(&recordings)?);
    if set == DataSet::Judged {
        rows.extend(count_starts(&recordings)?);
    }
    let name = if set == DataSet::Judged { "interruptions" } else { "interruptions-chosen" };
    let path = tools::root().join(format!("target/report/{name}.json"));
    Report::new(name, rows).write(&path)?;
    println!("\n{}", path.display());
    Ok(())
}

fn print_rows(echo: &str, transport: &str, measured: &[Measured; 2]) {
    for (measured, cancelled) in measured.iter().zip(["yes", "no"]) {
        println!("| {echo} | {transport} | {cancelled} | {} |", measured.cells().join(" | "));
    }
}

/// Counts who interrupts among the judged starts, by each policy.
fn count_starts(recordings: &Recordings) -> Result<Vec<ReportRow>> {
    let mut rows = Vec::new();
    for (name, policy) in [
        ("immediate", BargeInPolicy::Immediate),
        ("eager", BargeInPolicy::Eager),
        ("balanced", BargeInPolicy::Balanced),
        ("patient", BargeInPolicy::Patient),
    ] {
        println!("\nBy the policy \"{name}\":");
        rows.extend(count_starts_by(recordings, policy, name)?);
    }
    Ok(rows)
}

/// Counts who interrupts among the judged starts by one policy.
fn count_starts_by(recordings: &Recordings, policy: BargeInPolicy, policy_name: &str) -> Result<Vec<ReportRow>> {
    let starts = interruption_starts::load(&tools::root().join("tests/interruptions"))?;
    let mut rows = Vec::new();
    println!("\n| transport | echo | start | interrupts | silent after, median / p95 |\n|---|---|---|---|---|");
    for (transport, pausable) in [("WebRTC", true), ("websocket", false)] {
        for echo_db in [None, Some(STARTS_ECHO_DB)] {
            let echo = echo_db.map_or("headphones".into(), |db| format!("echo of {db} dB"));
            let groups = interruption_starts::measure(recordings, &starts, echo_db, pausable, policy)?;
            let mut all: [GroupResult; 2] = Default::default();
            let mut row = |name: &str, group: &GroupResult| {
                let (interrupted, count) = group.interrupted;
                let (p50, p95) = (at(&group.silent_ms, 50), at(&group.silent_ms, 95));
                println!("| {transport} | {echo} | {name} | {interrupted} of {count} | {p50} / {p95} ms |");
                let wrong = if group.is_to_interrupt { count - interrupted } else { interrupted };
                let measure = if group.is_to_interrupt { "missed" } else { "interrupts" };
                let share = 100.0 * wrong as f64 / count.max(1) as f64;
                rows.push(ReportRow::without_peer(
                    format!("{policy_name}, {transport}, {echo}: {name}: {measure}"),
                    share,
                    "%",
                    "",
                ));
            };
            for (name, group) in &groups {
                row(name, group);
                all[usize::from(group.is_to_interrupt)].add(group);
            }
            for (name, group) in ["all that do not interrupt", "all that interrupt"].iter().zip(&all) {
                row(name, group);
            }
        }
    }
    Ok(rows)
}

/// Measures the processor time of 20 ms of input: with an echo, with headphones until the canceller ends, after that, and of the
/// detector beside it.
fn costs(recordings: &Recordings) -> Result<Vec<ReportRow>> {
    let played: Vec<f32> = recordings.answers.iter().flat_map(|answer| &answer.samples).map(|at| 0.1 * at).collect();
    let noise = |at: usize| if at.is_multiple_of(2) { 3e-4 } else { -3e-4 };
    let echo: Vec<f32> =
        (0..played.len()).map(|at| noise(at) + at.checked_sub(2_400).map_or(0.0, |from| 0.3 * played[from])).collect();
    let quiet: Vec<f32> = (0..played.len()).map(noise).collect();
    let mut rows = Vec::new();
    let mut row = |name: &str, mut times: Vec<Duration>| {
        times.sort_unstable();
        let total: Duration = times.iter().sum();
        let mean = total.as_secs_f64() * 1e6 / times.len().max(1) as f64;
        let most = times.last().map_or(0.0, Duration::as_secs_f64) * 1e6;
        println!("{name}: {mean:.0} µs a packet, at most {most:.0} µs, {:.2} % of a core", mean / 200.0);
        rows.push(ReportRow::without_peer(format!("{name}, 20 ms of input"), mean, "µs", "mean"));
    };
    println!();
    for (name, input) in [("cancelling an echo", &echo), ("seeking an echo beside headphones", &quiet)] {
        row(name, cancel(&mut CallEcho::new(), &played, input)?);
    }
    let mut ended = CallEcho::new();
    let pause = vec![0.0; 2 * RATE as usize];
    for _ in 0..2 {
        cancel(&mut ended, &[&played[..], &pause].concat(), &[&quiet[..], &pause].concat())?;
    }
    row("an ended canceller", cancel(&mut ended, &played, &quiet)?);
    let mut detector = TurnDetector::default();
    let detect = |input: &[f32]| {
        let begun = Instant::now();
        std::hint::black_box(detector.push(input));
        begun.elapsed()
    };
    row("the turn detector", quiet.chunks_exact(320).map(detect).collect());
    Ok(rows)
}

/// Cancels `input` beside `played`; returns the time of each packet.
fn cancel(echo: &mut CallEcho, played: &[f32], input: &[f32]) -> Result<Vec<Duration>> {
    let start = Instant::now();
    let mut times = Vec::new();
    let (mut heard, mut plain) = (Vec::with_capacity(640), Vec::with_capacity(640));
    for (number, (played, input)) in (1..).zip(played.chunks_exact(320).zip(input.chunks_exact(320))) {
        let due = start + Duration::from_millis(20) * (number - 1);
        heard.clear();
        heard.extend_from_slice(input);
        let begun = Instant::now();
        echo.push_playback(played, RATE, due)?;
        echo.note_input(Duration::from_millis(20), due + Duration::from_millis(20));
        if echo.begin_piece() {
            plain.clear();
            echo.cancel(&mut heard, &mut plain);
        } else {
            let mut rest = Vec::new();
            echo.flush(&mut rest, &mut Vec::new());
            echo.hear(&heard);
        }
        times.push(begun.elapsed());
    }
    Ok(times)
}

/// Results of one echo level.
#[derive(Debug, Default)]
struct Measured {
    /// Answers interrupted by their own echo, and all answers.
    by_echo: (usize, usize),
    /// Pauses caused by an echo, and duration of the playback in ms.
    pauses: (usize, usize),
    /// Answers interrupted by a backchannel, and all backchannels.
    by_backchannel: (usize, usize),
    /// Missed callers, and all callers, by level.
    missed: Vec<(usize, usize)>,
    /// First sample of the voice to the first silence, for callers as loud as the playback.
    silent_ms: Vec<usize>,
    /// First sample of the voice to the last sound, for the same callers.
    last_sound_ms: Vec<usize>,
    /// First sample of the voice to its announcement, for all callers who were noticed.
    announced_ms: Vec<usize>,
}

fn measure(
    recordings: &Recordings,
    conditions: &RoomConditions,
    echo_db: Option<f32>,
    (pausable, cancels): (bool, bool),
    measured: &mut Measured,
) -> Result<()> {
    let RoomConditions { room_ms: room, delays_ms, callers_db, begins_ms, .. } = conditions;
    for delay_ms in if echo_db.is_some() { &delays_ms[..] } else { &delays_ms[..1] } {
        let scene = |answer, caller, caller_db, begins_ms| {
            simulate(&Scene {
                answer,
                caller,
                caller_db,
                begins_ms,
                echo_db,
                delay_ms: *delay_ms,
                room,
                pausable,
                cancels,
                policy: BargeInPolicy::Immediate,
            })
        };
        for answer in &recordings.answers {
            let outcome = scene(&answer.samples, &[], 0.0, 0)?;
            measured.by_echo.0 += usize::from(outcome.announced.is_some());
            measured.by_echo.1 += 1;
            measured.pauses.0 += outcome.pauses.len();
            measured.pauses.1 += outcome.frames_sent_ms.len() * 20;
        }
        for (level, caller_db) in callers_db.iter().enumerate() {
            for (turn, begins_ms) in begins_ms.iter().enumerate() {
                let answer =
                    |number: usize| &recordings.answers[(number + turn) % recordings.answers.len()].samples[..];
                for (number, caller) in recordings.callers.iter().enumerate() {
                    let outcome = scene(answer(number), &caller.samples, *caller_db, *begins_ms)?;
                    let until = begins_ms + caller.samples.len() / 16 + LATE_MS;
                    measured.missed[level].1 += 1;
                    match outcome.announced.filter(|at| (*begins_ms..=until).contains(at)) {
                        Some(at) => {
                            measured.announced_ms.push(at - begins_ms);
                            if *caller_db == 0.0 {
                                measured.silent_ms.extend(outcome.silent_after(*begins_ms));
                                measured.last_sound_ms.extend(outcome.last_sound_after(*begins_ms));
                            }
                        }
                        None => measured.missed[level].0 += 1,
                    }
                }
                // Inaudible backchannels are skipped.
                for (number, backchannel) in recordings.backchannels.iter().enumerate().filter(|_| *caller_db >= -12.0)
                {
                    let outcome = scene(answer(number), &backchannel.samples, *caller_db, *begins_ms)?;
                    measured.by_backchannel.0 += usize::from(outcome.announced.is_some());
                    measured.by_backchannel.1 += 1;
                }
            }
        }
    }
    measured.silent_ms.sort_unstable();
    measured.last_sound_ms.sort_unstable();
    measured.announced_ms.sort_unstable();
    Ok(())
}

impl Measured {
    fn add(&mut self, other: Self) {
        for (all, one) in [
            (&mut self.by_echo, other.by_echo),
            (&mut self.pauses, other.pauses),
            (&mut self.by_backchannel, other.by_backchannel),
        ] {
            *all = (all.0 + one.0, all.1 + one.1);
        }
        self.missed.resize(other.missed.len(), (0, 0));
        for (all, one) in self.missed.iter_mut().zip(other.missed) {
            *all = (all.0 + one.0, all.1 + one.1);
        }
        self.silent_ms.extend(other.silent_ms);
        self.last_sound_ms.extend(other.last_sound_ms);
        self.announced_ms.extend(other.announced_ms);
        self.silent_ms.sort_unstable();
        self.last_sound_ms.sort_unstable();
        self.announced_ms.sort_unstable();
    }

    fn pauses_a_minute(&self) -> f64 {
        self.pauses.0 as f64 * 60_000.0 / self.pauses.1.max(1) as f64
    }

    fn cells(&self) -> Vec<String> {
        let of = |(wrong, all): (usize, usize)| format!("{wrong} of {all}");
        vec![
            of(self.by_echo),
            format!("{:.1}", self.pauses_a_minute()),
            of(self.by_backchannel),
            self.missed.iter().copied().map(of).collect::<Vec<_>>().join(", "),
            format!("{} / {} ms", at(&self.silent_ms, 50), at(&self.silent_ms, 95)),
            format!("{} / {} ms", at(&self.last_sound_ms, 50), at(&self.last_sound_ms, 95)),
            format!("{} / {} ms", at(&self.announced_ms, 50), at(&self.announced_ms, 95)),
        ]
    }

    fn rows(&self, name: &str, peer: &Self, conditions: &RoomConditions) -> Vec<ReportRow> {
        let note = "beside the echo that is not cancelled";
        let row = |measure: &str, ours: f64, peer: f64, unit: &str| {
            ReportRow::lower_is_better(format!("{name}: {measure}"), ours, peer, unit, note)
        };
        let share = |(wrong, all): (usize, usize)| 100.0 * wrong as f64 / all.max(1) as f64;
        let mut rows = vec![
            row("answers interrupted by their echo", share(self.by_echo), share(peer.by_echo), "%"),
            row("pauses made by an echo", self.pauses_a_minute(), peer.pauses_a_minute(), "a minute"),
            row("answers interrupted by a backchannel", share(self.by_backchannel), share(peer.by_backchannel), "%"),
        ];
        for ((ours, theirs), caller_db) in self.missed.iter().zip(&peer.missed).zip(&conditions.callers_db) {
            rows.push(row(&format!("missed callers at {caller_db} dB"), share(*ours), share(*theirs), "%"));
        }
        for (measure, [ours, theirs]) in [
            ("voice to silence", [&self.silent_ms, &peer.silent_ms]),
            ("voice to last sound", [&self.last_sound_ms, &peer.last_sound_ms]),
            ("voice to announcement", [&self.announced_ms, &peer.announced_ms]),
        ] {
            for percent in [50, 95] {
                let [ours, theirs] = [ours, theirs].map(|times| at(times, percent) as f64);
                rows.push(row(&format!("{measure}, p{percent}"), ours, theirs, "ms"));
            }
        }
        rows
    }
}

/// Returns a percentile of sorted times; 0 if empty.
fn at(times: &[usize], percent: usize) -> usize {
    times.get((times.len().saturating_sub(1) * percent).div_ceil(100)).copied().unwrap_or_default()
}
