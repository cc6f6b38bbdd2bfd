//! `make bench-interruptions`: false and missed interruptions over a matrix of echoes, voices and backchannels, with a
//! playback that can be paused (WebRTC, ours) and one that cannot (a websocket, the peer). It uses the recordings on
//! which no threshold was chosen; with `-- chosen`, the others. It runs on a virtual clock.

use anyhow::{Context as _, Result};
use repartee_report::{Report, ReportRow};
use repartee_tests::interruptions::{DataSet, Recordings, RoomConditions, Scene, simulate};
use repartee_tests::tools;

/// Longest time from the caller's last word to the announcement, in ms.
const LATE_MS: usize = 200;

fn main() -> Result<()> {
    let set = if std::env::args().any(|argument| argument == "chosen") { DataSet::Chosen } else { DataSet::Judged };
    let recordings = Recordings::load(&tools::root().join("tests/interruptions"), set)?;
    let conditions = recordings.conditions.first().context("there are no conditions")?;
    let mut rows = Vec::new();
    println!(
        "| echo | pausable | false interruptions | pauses a minute | by backchannels | missed, caller at {:?} dB | silent after, median / p95 | last sound after | announced after |",
        conditions.callers_db
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let mut all = [Measured::default(), Measured::default()];
    for echo_db in &conditions.echoes_db {
        let mut measured = [false, true].map(|_| Measured::default());
        for (measured, pausable) in measured.iter_mut().zip([true, false]) {
            measured.missed = vec![(0, 0); conditions.callers_db.len()];
            measure(&recordings, conditions, *echo_db, pausable, measured)?;
        }
        let name = echo_db.map_or("headphones".into(), |db| format!("echo of {db} dB"));
        let [ours, peer] = measured;
        for (measured, pausable) in [(&ours, "yes"), (&peer, "no")] {
            println!("| {name} | {pausable} | {} |", measured.cells().join(" | "));
        }
        rows.extend(ours.rows(&name, &peer, conditions));
        for (all, measured) in all.iter_mut().zip([ours, peer]) {
            all.add(measured);
        }
    }
    for (measured, pausable) in [(&all[0], "yes"), (&all[1], "no")] {
        println!("| all | {pausable} | {} |", measured.cells().join(" | "));
    }
    rows.extend(all[0].rows("all echoes", &all[1], conditions));
    let name = if set == DataSet::Judged { "interruptions" } else { "interruptions-chosen" };
    let path = tools::root().join(format!("target/report/{name}.json"));
    Report::new(name, rows).write(&path)?;
    println!("\n{}", path.display());
    Ok(())
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
    pausable: bool,
    measured: &mut Measured,
) -> Result<()> {
    let RoomConditions { room_ms: room, delays_ms, callers_db, begins_ms, .. } = conditions;
    for delay_ms in if echo_db.is_some() { &delays_ms[..] } else { &delays_ms[..1] } {
        let scene = |answer, caller, caller_db, begins_ms| {
            simulate(&Scene { answer, caller, caller_db, begins_ms, echo_db, delay_ms: *delay_ms, room, pausable })
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
        let note = "beside a playback that cannot be paused";
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
