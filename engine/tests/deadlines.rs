//! The planner in a simulated engine, on a virtual clock: thousands of callers, seconds of computing. Prints what deadlines
//! bring against first come, first served.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use repartee_engine::internals::{Limits, Order, Planner, Urgency, Want};
use repartee_kernels::random::uniform;

/// Duration of a codec frame.
const FRAME: Duration = Duration::from_millis(80);
/// Seconds of a step, and for each row: a prompt's or a text's row, a frame of the talker, a frame of the codec. About
/// what the demo model takes on one core.
const COSTS: [(f64, f64); 3] = [(0.000_3, 0.000_05), (0.000_5, 0.000_4), (0.000_8, 0.001_0)];

/// One caller's turn.
struct Caller {
    asked: Instant,
    /// Prompt rows left.
    prompt: usize,
    /// Text tokens left.
    text: usize,
    /// Frames that the text so far allows the talker, and frames that wait for the codec.
    speakable: usize,
    frames: usize,
    /// Frames left.
    left: usize,
    /// When the caller has played everything.
    runs_out: Option<Instant>,
    first: Option<Duration>,
    underruns: usize,
    silent_for: Duration,
}

/// Results of a simulation.
#[derive(Debug, Default, PartialEq)]
struct Outcome {
    first_packets: Vec<Duration>,
    underruns: usize,
    silence: Duration,
    longest_wait: Duration,
    took: Duration,
}

impl Outcome {
    fn percentile(&self, percent: usize) -> f64 {
        self.first_packets[(self.first_packets.len() - 1) * percent / 100].as_secs_f64() * 1e3
    }
}

/// `callers` turns that arrive over time, `rate` of them a second; one in `long_every` brings a prompt of `long` rows.
fn simulate(order: Order, callers: usize, rate: f64, (long_every, long): (usize, usize)) -> Outcome {
    let limits = Limits { batch: 512, chunk: 256 };
    let mut planner = Planner::new(order, vec![limits, limits, Limits { batch: 512, chunk: 32 }]);
    let start = Instant::now();
    let mut now = start;
    let mut arrivals: Vec<(Instant, Caller)> = Vec::new();
    let mut at = 0.0;
    for number in 0..callers {
        // Poisson arrivals, from a table of random numbers that every order sees alike.
        at += -(1.0 - f64::from(uniform(7, number as u64, 0, 0))).ln() / rate;
        let asked = start + Duration::from_secs_f64(at);
        let frames = 12 + (uniform(7, number as u64, 1, 0) * 60.0) as usize;
        let caller = Caller {
            asked,
            prompt: if number % long_every == 0 { long } else { 20 },
            text: frames / 3 + 1,
            speakable: 0,
            frames: 0,
            left: frames,
            runs_out: None,
            first: None,
            underruns: 0,
            silent_for: Duration::ZERO,
        };
        arrivals.push((asked, caller));
    }
    arrivals.reverse();
    let mut here: BTreeMap<usize, Caller> = BTreeMap::new();
    let mut outcome = Outcome::default();
    let mut number = 0;
    loop {
        while arrivals.last().is_some_and(|(at, _)| *at <= now) {
            here.extend(arrivals.pop().map(|(_, caller)| (number, caller)));
            number += 1;
        }
        let wants = |here: &BTreeMap<usize, Caller>| -> Vec<Vec<Want>> {
            let stage = |stage: usize| {
                let want = |(&slot, caller): (&usize, &Caller)| {
                    let rows = match stage {
                        0 if caller.prompt > 0 => caller.prompt,
                        0 => caller.text.min(1),
                        1 => caller.speakable.min(1).min(caller.left),
                        _ => caller.frames,
                    };
                    let ahead = match stage {
                        0 => caller.speakable + caller.frames,
                        1 => caller.frames,
                        _ => 0,
                    };
                    let urgency = match caller.runs_out {
                        None => Urgency::First { since: caller.asked },
                        Some(runs_out) => Urgency::Playing { runs_out: runs_out + FRAME * ahead as u32 },
                    };
                    (rows > 0).then_some(Want { slot, rows, urgency, arrived: caller.asked })
                };
                here.iter().filter_map(want).collect()
            };
            (0..3).map(stage).collect()
        };
        let mut all = wants(&here);
        let mut budget = planner.budget(now, &all);
        let mut idle = true;
        for stage in 0..3 {
            all[stage] = wants(&here).swap_remove(stage);
            let shares = planner.plan(stage, now, &all[stage], &all[stage + 1..], &mut budget);
            let rows: usize = shares.iter().map(|share| share.rows).sum();
            if rows == 0 {
                continue;
            }
            idle = false;
            let took = Duration::from_secs_f64(COSTS[stage].0 + rows as f64 * COSTS[stage].1);
            now += took;
            planner.measured(stage, rows, took);
            for share in shares {
                let caller = here.get_mut(&share.slot).expect("only those who are here have wishes");
                match stage {
                    0 if caller.prompt > 0 => caller.prompt -= share.rows,
                    0 => {
                        caller.text -= 1;
                        // Each text token is spoken in about three frames.
                        caller.speakable += 3;
                    }
                    1 => {
                        caller.speakable -= 1;
                        caller.left -= 1;
                        caller.frames += 1;
                    }
                    _ => {
                        caller.frames -= share.rows;
                        let runs_out = caller.runs_out.unwrap_or(now);
                        if runs_out < now {
                            caller.underruns += 1;
                            caller.silent_for += now - runs_out;
                        }
                        caller.first.get_or_insert(now - caller.asked);
                        caller.runs_out = Some(runs_out.max(now) + FRAME * share.rows as u32);
                    }
                }
            }
            let done: Vec<usize> =
                here.iter().filter(|(_, c)| c.left == 0 && c.frames == 0).map(|(&slot, _)| slot).collect();
            for slot in done {
                let caller = here.remove(&slot).expect("it was just listed");
                outcome.first_packets.extend(caller.first);
                outcome.underruns += caller.underruns;
                outcome.silence += caller.silent_for;
            }
        }
        if idle {
            match arrivals.last() {
                Some((at, _)) => now = *at,
                None => break,
            }
        }
    }
    assert!(here.is_empty(), "{} callers were never served", here.len());
    outcome.first_packets.sort();
    outcome.longest_wait = outcome.first_packets.last().copied().unwrap_or_default();
    outcome.took = now - start;
    outcome
}

#[test]
fn deadlines_beat_arrival_order() {
    println!(
        "{:<47} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10}",
        "", "p50 ms", "p95 ms", "p99 ms", "max ms", "underruns", "silence s"
    );
    for (load, rate) in [("half loaded", 6.0), ("nearly full", 10.0), ("overloaded for a while", 13.0)] {
        let run = |order| simulate(order, 2000, rate, (9, 2000));
        let (deadline, arrival) = (run(Order::Deadline), run(Order::Arrival));
        for (name, outcome) in [("by deadline", &deadline), ("first come, first served", &arrival)] {
            println!(
                "{:<47} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {:>10} {:>10.2}",
                format!("{load}, {name}"),
                outcome.percentile(50),
                outcome.percentile(95),
                outcome.percentile(99),
                outcome.longest_wait.as_secs_f64() * 1e3,
                outcome.underruns,
                outcome.silence.as_secs_f64()
            );
        }
        assert_eq!(deadline.first_packets.len(), 2000);
        assert!(deadline.underruns <= arrival.underruns, "{load}: {} underruns", deadline.underruns);
        // Beyond what the machine can do somebody has to wait: new callers do, and nobody is cut off in mid-word.
        if rate < 12.0 {
            assert!(deadline.percentile(95) <= arrival.percentile(95), "{load}: first packets are later");
        } else {
            assert!(deadline.underruns * 100 < arrival.underruns, "{load}: {} underruns", deadline.underruns);
        }
    }
}

#[test]
fn equal_arrivals_give_equal_plans() {
    let run = || simulate(Order::Deadline, 300, 10.0, (9, 2000));
    let (a, b) = (run(), run());
    assert_eq!(a.first_packets, b.first_packets);
    assert_eq!(a.underruns, b.underruns);
}

/// A planner whose single stage costs a millisecond for a step and so much for each row.
fn measured(row: Duration) -> Planner {
    let mut planner = Planner::new(Order::Deadline, vec![Limits { batch: 512, chunk: 256 }]);
    for rows in [1, 5, 20, 100, 3, 50] {
        planner.measured(0, rows, Duration::from_millis(1) + row * rows as u32);
    }
    planner
}

fn want(slot: usize, rows: usize, urgency: Urgency, now: Instant) -> Want {
    Want { slot, rows, urgency, arrived: now }
}

fn plan(planner: &Planner, now: Instant, wants: &[Want]) -> Vec<(usize, usize)> {
    let mut budget = planner.budget(now, &[wants.to_vec()]);
    planner.plan(0, now, wants, &[], &mut budget).into_iter().map(|share| (share.slot, share.rows)).collect()
}

#[test]
fn costs_are_fitted_to_measurements() {
    let cost = measured(Duration::from_millis(1)).cost(0);
    assert!((cost.row() - 0.001).abs() < 1e-6 && (cost.fixed() - 0.001).abs() < 1e-6, "{cost:?}");
}

#[test]
fn underruns_precede_first_packets_and_the_rest() {
    let (planner, now) = (measured(Duration::from_micros(500)), Instant::now());
    let after = |ms| Urgency::Playing { runs_out: now + Duration::from_millis(ms) };
    let wants = [
        want(0, 1, after(5000), now),
        want(1, 1, Urgency::First { since: now }, now),
        want(2, 1, after(10), now),
        want(3, 1, after(100), now),
    ];
    let order = plan(&planner, now, &wants);
    assert_eq!(&order[..3], [(2, 1), (3, 1), (1, 1)]);
    // The last one rides along, because its row costs no more than the step itself.
    assert_eq!(order.get(3), Some(&(0, 1)));
}

#[test]
fn a_chunked_prompt_delays_no_due_frame() {
    let (planner, now) = (measured(Duration::from_millis(1)), Instant::now());
    let prompt = want(0, 2000, Urgency::First { since: now }, now);
    assert_eq!(plan(&planner, now, &[prompt]), [(0, 256)], "alone it takes what the stage takes");
    let listener = want(1, 1, Urgency::Playing { runs_out: now + Duration::from_millis(180) }, now);
    let shares = plan(&planner, now, &[prompt, listener]);
    assert_eq!(shares[0], (1, 1));
    let rows = shares[1].1;
    assert!((16..=60).contains(&rows), "60 ms leave room for some rows, not for {rows}");
}

#[test]
fn no_slot_starves() {
    let (planner, start) = (measured(Duration::from_millis(1)), Instant::now());
    // One slot is always about to underrun, and one always waits for a first packet.
    let silent = want(9, 200, Urgency::Silent { since: start }, start);
    let plenty = want(8, 1, Urgency::Playing { runs_out: start + Duration::from_secs(2) }, start);
    let (mut silent_at, mut plenty_at) = (None, None);
    for tick in 0..400u32 {
        let now = start + Duration::from_millis(10) * tick;
        let pressing = want(0, 1, Urgency::Playing { runs_out: now + Duration::from_millis(130) }, start);
        let waiting = want(1, 1, Urgency::First { since: now }, now);
        let shares = plan(&planner, now, &[silent, plenty, pressing, waiting]);
        assert!(shares.contains(&(0, 1)));
        silent_at = silent_at.or(shares.iter().any(|(slot, _)| *slot == 9).then_some(now));
        plenty_at = plenty_at.or(shares.iter().any(|(slot, _)| *slot == 8).then_some(now));
    }
    assert!(silent_at.is_some_and(|at| at <= start + Duration::from_millis(1100)), "silent prefill starves");
    assert!(
        plenty_at.is_some_and(|at| at <= start + Duration::from_secs(2)),
        "the slot with most audio ahead underran"
    );
}
