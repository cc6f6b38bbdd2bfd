//! Planner tests: alone, and in a simulated engine on a virtual clock that serves thousands of callers in seconds of
//! computing. Prints the gain of deadlines over first come, first served.

mod simulation;
mod step_costs;
mod tenants;

use std::time::{Duration, Instant};

use repartee_engine::internals::{Planner, ReadyRows, RowKind, SchedulingOrder, StepLimits, StepRows, Urgency};

use simulation::{Load, Rush, SimulationResult, simulate};

/// Arrival rates, in callers a second, at which the machine computes half of the time, four fifths of it, and all of it
/// without keeping up.
const HALF_LOADED: f64 = 2.7;
const NEARLY_FULL: f64 = 4.5;
const OVERLOADED: f64 = 6.0;

fn load(rate: f64) -> Load {
    Load { callers: 2000, rate, long_every: 9, long: 2000, at_once: 0, rush: None }
}

fn print(name: &str, outcome: &SimulationResult) {
    println!(
        "{name:<43} {:>4.0} % {:>8.1} {:>8.1} {:>8.1} {:>8.1} {:>9} {:>9} {:>9.2}",
        outcome.busy * 100.0,
        outcome.percentile(50),
        outcome.percentile(95),
        outcome.percentile(99),
        outcome.longest_wait.as_secs_f64() * 1e3,
        outcome.underruns,
        outcome.delayed,
        outcome.silence.as_secs_f64()
    );
}

/// Simulates and prints both orders.
fn compare(name: &str, rate: f64) -> (SimulationResult, SimulationResult) {
    let (deadline, arrival) =
        (simulate(SchedulingOrder::Deadline, load(rate)), simulate(SchedulingOrder::Arrival, load(rate)));
    println!(
        "{:<43} {:>6} {:>8} {:>8} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "", "busy", "p50 ms", "p95 ms", "p99 ms", "max ms", "underruns", "prefill's", "silence s"
    );
    print(&format!("{name}, by deadline"), &deadline);
    print(&format!("{name}, first come, first served"), &arrival);
    assert_eq!((deadline.first_packets.len(), arrival.first_packets.len()), (2000, 2000));
    (deadline, arrival)
}

#[test]
fn deadlines_at_half_load_cost_nothing() {
    let (deadline, arrival) = compare("half loaded", HALF_LOADED);
    assert_eq!(deadline.underruns, 0);
    for percent in [50, 95, 99] {
        let (ours, theirs) = (deadline.percentile_of_short(percent), arrival.percentile_of_short(percent));
        assert!(ours <= theirs, "p{percent} of the first packet: {ours} ms, {theirs} ms by arrival");
        // Long prompts give way to short ones.
        let (ours, theirs) = (deadline.percentile(percent), arrival.percentile(percent));
        assert!(ours <= 1.25 * theirs, "p{percent} of all first packets: {ours} ms, {theirs} ms by arrival");
    }
}

#[test]
fn deadlines_hold_near_full_load() {
    let (deadline, arrival) = compare("nearly full", NEARLY_FULL);
    assert_eq!(deadline.underruns, 0);
    assert!(deadline.percentile(50) <= arrival.percentile(50));
}

#[test]
fn overload_delays_new_callers_alone() {
    let (deadline, arrival) = compare("overloaded for a while", OVERLOADED);
    // Under overload new callers wait, and active responses do not underrun.
    assert!(deadline.underruns * 100 < arrival.underruns, "{} underruns", deadline.underruns);
}

#[test]
fn prefill_delays_no_due_frame() {
    for rate in [HALF_LOADED, NEARLY_FULL] {
        let (deadline, arrival) =
            (simulate(SchedulingOrder::Deadline, load(rate)), simulate(SchedulingOrder::Arrival, load(rate)));
        assert_eq!(deadline.delayed, 0, "{rate} callers a second");
        assert!(arrival.delayed > 0, "nothing could be delayed at {rate} callers a second");
    }
}

#[test]
fn short_prompts_pass_long_ones() {
    // 24 long prompts at once are half a minute of work; callers with short ones come meanwhile.
    let few = Load { callers: 60, rate: 2.0, long_every: usize::MAX, long: 3800, at_once: 0, rush: None };
    let flooded = Load { at_once: 24, ..few };
    let alone = simulate(SchedulingOrder::Deadline, few);
    let (deadline, arrival) =
        (simulate(SchedulingOrder::Deadline, flooded), simulate(SchedulingOrder::Arrival, flooded));
    for percent in [50, 95] {
        let [alone, ours, theirs] = [&alone, &deadline, &arrival].map(|result| result.percentile_of_short(percent));
        println!(
            "p{percent} of short prompts: {alone:.1} ms alone, {ours:.1} ms among long ones, {theirs:.1} ms by arrival"
        );
        assert!(ours * 100.0 < theirs, "p{percent}: {ours} ms, {theirs} ms by arrival");
    }
    for percent in [50, 95] {
        let [alone, ours] = [&alone, &deadline].map(|result| result.percentile_of_short(percent));
        assert!(ours <= f64::max(1.5 * alone, alone + 60.0), "p{percent}: {ours} ms, {alone} ms alone");
    }
    assert_eq!(deadline.first_packets.len(), 84, "the long ones are served too");
    assert_eq!(deadline.underruns, 0);
}

#[test]
fn a_rush_takes_no_turns_of_others() {
    // Twelve sessions of one tenant ask with 1500 rows each; three callers with longer prompts come meanwhile.
    let rush = |apart| Some(Rush { callers: 12, rows: 1500, apart, renewed: false });
    let load = Load { callers: 3, rate: 1.0, long_every: 1, long: 2000, at_once: 0, rush: None };
    let run = |rush| simulate(SchedulingOrder::Deadline, Load { rush, ..load }).percentile(95);
    let (alone, together, apart) = (run(None), run(rush(false)), run(rush(true)));
    println!("p95 of the callers: {alone:.0} ms alone, {apart:.0} ms beside a tenant, {together:.0} ms as one tenant");
    assert!(apart * 2.0 < together, "{apart} ms, {together} ms as sessions of one tenant");
}

#[test]
fn work_ahead_of_time_is_not_pressing() {
    let (mut planner, now) = (measured_alike(Duration::from_micros(200)), Instant::now());
    let mut pressing = |urgencies: &[Urgency]| {
        let wants = urgencies.iter().enumerate().map(|(slot, urgency)| want(slot, 20, *urgency, now)).collect();
        planner.budget(now, &[wants]).is_pressing()
    };
    let playing = |ms| Urgency::Playing { runs_out: now + Duration::from_millis(ms) };
    let ahead = [playing(500), Urgency::Silent { since: now }, Urgency::Background { since: now }];
    assert!(!pressing(&[]) && !pressing(&ahead));
    for due in [playing(100), Urgency::First { since: now }] {
        assert!(pressing(&[ahead[0], due]), "{due:?}");
    }
}

#[test]
fn a_long_prompt_keeps_its_share_of_time() {
    let (mut planner, start) = (measured_alike(Duration::from_millis(1)), Instant::now());
    let long = want(0, 200, Urgency::First { since: start }, start);
    let mut chunks = 0;
    for tick in 1..51 {
        // New callers with short prompts fill each tick.
        let now = start + Duration::from_millis(50) * tick;
        let mut wants = vec![long];
        wants.extend((1..9).map(|slot| want(slot, 20, Urgency::First { since: now }, now)));
        let shares = plan(&mut planner, now, &wants);
        assert!(shares[0].0 != 0, "{shares:?}");
        chunks += usize::from(shares.contains(&(0, 16)));
    }
    // A chunk takes 17 ms; a tenth of the time is 5 ms a tick.
    assert!((10..=15).contains(&chunks), "{chunks} chunks in 50 ticks");
}

/// Prompt rows of eight prompts in half a second of ticks, beside the rows that another caller waits for in a later
/// stage.
fn rows_of_prompts(rows: usize, urgency: Urgency, beside: &[ReadyRows], start: Instant) -> usize {
    let limits = StepLimits { batch: 512, chunk: 256 };
    let mut planner = Planner::new(SchedulingOrder::Deadline, vec![limits, limits]);
    for (stage, kind) in [(0, RowKind::Prefill), (1, RowKind::Decode)] {
        for rows in [1, 16, 32, 100] {
            planner.measured(stage, StepRows::of(kind, rows), Duration::from_micros(200) * rows as u32);
        }
    }
    let prompts: Vec<ReadyRows> = (1..9).map(|slot| want(slot, rows, urgency, start)).collect();
    let ticks = (0..50).map(|tick| {
        let now = start + Duration::from_millis(10) * tick;
        let later = [beside.to_vec()];
        let mut budget = planner.budget(now, &[prompts.clone(), later[0].clone()]);
        planner.plan(0, now, &prompts, &later, &mut budget).iter().map(|share| share.rows).sum::<usize>()
    });
    ticks.sum()
}

#[test]
fn long_prompts_give_way_to_near_callers() {
    let start = Instant::now();
    let first = Urgency::First { since: start };
    let rows_of_long_prompts = |beside: &[ReadyRows]| rows_of_prompts(2000, first, beside, start);
    let alone = rows_of_long_prompts(&[]);
    assert!(alone >= 50 * 30, "8 ms a tick are 40 rows: {alone}");
    // A tenth of half a second is 250 rows.
    let beside = rows_of_long_prompts(&[want(10, 1, first, start)]);
    assert!((200..=250).contains(&beside), "{beside} rows beside a caller who is near");
    // Text that goes on, and one of the long ones themselves, are no reason.
    let text = Urgency::Text { since: start };
    assert_eq!(rows_of_long_prompts(&[want(10, 1, text, start)]), alone);
    // Prompts that nobody waits for give way whatever their length.
    let silent = Urgency::Silent { since: start.checked_sub(Duration::from_secs(2)).unwrap_or(start) };
    let beside = rows_of_prompts(20, silent, &[want(10, 1, first, start)], start);
    assert!((150..=250).contains(&beside), "{beside} rows of silent prefill");
}

/// A planner whose first stage encodes units of 12 ms, and whose second decodes rows of 1 ms.
fn encoding() -> Planner {
    let limits = StepLimits { batch: 512, chunk: 448 };
    let mut planner = Planner::new(SchedulingOrder::Deadline, vec![limits, limits]).with_bounded_windows(0);
    for units in [1, 2, 4, 8, 60] {
        planner.measured(0, StepRows::of(RowKind::Window, units), Duration::from_millis(12) * units as u32);
    }
    planner.measured(1, StepRows::of(RowKind::Decode, 1), Duration::from_millis(1));
    planner
}

fn windows(units: usize, urgency: Urgency, now: Instant) -> ReadyRows {
    ReadyRows { kind: RowKind::Window, ..want(0, units, urgency, now) }
}

#[test]
fn long_windows_delay_no_due_frame() {
    let (mut planner, start) = (encoding(), Instant::now());
    // A window of 60 units is heard while a neighbour's frame of 80 ms is due at each tick's end.
    let (mut left, mut now, mut most) = (60, start, 0);
    for _ in 0..10_000 {
        let upload = windows(left, Urgency::Background { since: start }, now);
        let runs_out = now + Duration::from_millis(80);
        let due = [want(1, 1, Urgency::Playing { runs_out }, now)];
        let mut budget = planner.budget(now, &[vec![upload], due.to_vec()]);
        let units: usize =
            planner.plan(0, now, &[upload], &[due.to_vec()], &mut budget).iter().map(|share| share.rows).sum();
        assert_eq!(planner.plan(1, now, &due, &[], &mut budget).len(), 1, "the frame is made");
        most = most.max(units);
        left -= units;
        now += Duration::from_millis(12) * units as u32 + Duration::from_millis(1);
        if left == 0 {
            break;
        }
    }
    assert_eq!((left, most), (0, 1), "units left, and most of a tick");
}

/// Time of a tick whose steps, of these durations, run at once on some threads, each taking the next step when it is free.
fn makespan(steps: &[Duration], threads: usize) -> Duration {
    let mut free = vec![Duration::ZERO; threads];
    for step in steps {
        if let Some(first) = free.iter_mut().min() {
            *first += *step;
        }
    }
    free.into_iter().max().unwrap_or_default()
}

#[test]
fn parallel_steps_end_before_a_frame_is_due() {
    let now = Instant::now();
    let unit = Duration::from_millis(5);
    for (stages, threads) in [(2, 1), (3, 2), (4, 2), (4, 3), (4, 4), (5, 2)] {
        let mut planner = Planner::new(SchedulingOrder::Deadline, vec![StepLimits { batch: 64, chunk: 64 }; stages]);
        for (stage, rows) in (0..stages).flat_map(|stage| [1, 2, 4, 8].map(|rows| (stage, rows))) {
            planner.measured(stage, StepRows::of(RowKind::Window, rows), unit * rows as u32);
        }
        // Each stage has more work than fits, and the last one a frame that is due.
        let runs_out = now + Duration::from_millis(200);
        let mut wants: Vec<Vec<ReadyRows>> =
            (0..stages).map(|_| vec![windows(60, Urgency::First { since: now }, now)]).collect();
        wants[stages - 1].push(want(1, 1, Urgency::Playing { runs_out }, now));
        let each = planner.budget(now, &wants).of_parallel_steps(stages, threads);
        let steps: Vec<Duration> = (0..stages)
            .map(|at| {
                let shares = planner.plan(at, now, &wants[at], &[], &mut each.clone());
                unit * shares.iter().map(|share| share.rows).sum::<usize>() as u32
            })
            .collect();
        // The last stage first, as the scheduler orders them.
        let steps: Vec<Duration> = steps.into_iter().rev().collect();
        assert!(steps.iter().all(|step| !step.is_zero()), "each stage goes on: {steps:?}");
        let took = makespan(&steps, threads);
        assert!(took < Duration::from_millis(170), "{took:?} of {stages} stages on {threads} threads: {steps:?}");
    }
}

#[test]
fn windows_take_short_ticks_alone_too() {
    // A caller may come at any moment: three units are 36 ms.
    let now = Instant::now();
    for urgency in [Urgency::Background { since: now }, Urgency::First { since: now }] {
        let mut planner = encoding();
        let wants = [windows(60, urgency, now)];
        assert_eq!(plan(&mut planner, now, &wants), [(0, 3)], "{urgency:?}");
    }
    // A unit of more is one.
    let mut planner = encoding();
    (0..8).for_each(|_| planner.measured(0, StepRows::of(RowKind::Window, 1), Duration::from_millis(90)));
    for urgency in [Urgency::Background { since: now }, Urgency::First { since: now }] {
        assert_eq!(plan(&mut planner, now, &[windows(60, urgency, now)]), [(0, 1)], "{urgency:?}");
    }
}

#[test]
fn prompts_of_several_slots_take_short_ticks() {
    let now = Instant::now();
    let waiting = |slot| want(slot, 2000, Urgency::First { since: now }, now);
    // A row costs 0.2 ms: 8 ms are worth 35 rows.
    let mut planner = measured_alike(Duration::from_micros(200));
    let rows: usize = plan(&mut planner, now, &[waiting(0), waiting(1)]).iter().map(|(_, rows)| rows).sum();
    assert!((25..=35).contains(&rows), "{rows} rows");
    // A step costs 100 ms and a row 1 ms: six steps' time, so that a row costs little more than in long ticks.
    let mut planner = Planner::new(SchedulingOrder::Deadline, vec![StepLimits { batch: 512, chunk: 256 }]);
    for rows in [1, 5, 20, 100, 256] {
        planner.measured(0, StepRows::of(RowKind::Prefill, rows), Duration::from_millis(100 + rows as u64));
    }
    planner.measured(0, StepRows::of(RowKind::Decode, 1), Duration::from_millis(101));
    let rows: usize = plan(&mut planner, now, &[waiting(0), waiting(1)]).iter().map(|(_, rows)| rows).sum();
    assert!((400..=512).contains(&rows), "{rows} rows");
}

#[test]
fn equal_arrivals_give_equal_plans() {
    let run = || simulate(SchedulingOrder::Deadline, Load { callers: 300, ..load(NEARLY_FULL) });
    assert_eq!(run(), run());
}

/// A planner whose single stage costs a millisecond for a step, and a duration for each row of these kinds.
fn measured(kinds: &[(RowKind, Duration)]) -> Planner {
    let mut planner = Planner::new(SchedulingOrder::Deadline, vec![StepLimits { batch: 512, chunk: 256 }]);
    for &(kind, row) in kinds {
        for rows in [1, 5, 20, 100, 3, 50, 256] {
            planner.measured(0, StepRows::of(kind, rows), Duration::from_millis(1) + row * rows as u32);
        }
    }
    planner
}

/// Like [`measured`], with one cost for prompt rows and decode rows.
fn measured_alike(row: Duration) -> Planner {
    measured(&[(RowKind::Prefill, row), (RowKind::Decode, row)])
}

fn want(slot: usize, rows: usize, urgency: Urgency, now: Instant) -> ReadyRows {
    let kind = if rows > 1 { RowKind::Prefill } else { RowKind::Decode };
    ReadyRows { slot, tenant: 0, rows, kind, urgency, arrived: now }
}

fn plan(planner: &mut Planner, now: Instant, wants: &[ReadyRows]) -> Vec<(usize, usize)> {
    let mut budget = planner.budget(now, &[wants.to_vec()]);
    planner.plan(0, now, wants, &[], &mut budget).into_iter().map(|share| (share.slot, share.rows)).collect()
}

#[test]
fn underruns_precede_first_packets_and_the_rest() {
    let (mut planner, now) = (measured_alike(Duration::from_micros(500)), Instant::now());
    let after = |ms| Urgency::Playing { runs_out: now + Duration::from_millis(ms) };
    let wants = [
        want(0, 1, after(5000), now),
        want(1, 1, Urgency::First { since: now }, now),
        want(2, 1, after(10), now),
        want(3, 1, after(100), now),
    ];
    let order = plan(&mut planner, now, &wants);
    assert_eq!(&order[..3], [(2, 1), (3, 1), (1, 1)]);
    // The last one is added, because it adds little to the step.
    assert_eq!(order.get(3), Some(&(0, 1)));
}

#[test]
fn background_work_comes_after_everything() {
    let (mut planner, now) = (measured_alike(Duration::from_millis(1)), Instant::now());
    let longest = now - Duration::from_secs(100);
    let background = want(0, 200, Urgency::Background { since: longest }, longest);
    assert_eq!(plan(&mut planner, now, &[background]), [(0, 200)], "alone it takes what the stage takes");
    let far = want(1, 1, Urgency::Playing { runs_out: now + Duration::from_secs(60) }, now);
    let silent = want(2, 10, Urgency::Silent { since: now }, now);
    let order = |planner: &mut Planner, wants: &[ReadyRows]| -> Vec<usize> {
        plan(planner, now, wants).iter().map(|(slot, _)| *slot).collect()
    };
    assert_eq!(order(&mut planner, &[background, silent, far]), [2, 1], "the tick's time for prompts is used up");
    assert_eq!(order(&mut planner, &[background, far]), [1, 0]);
    // With a first packet waiting, it gets no chunk that would delay it.
    let first = want(3, 40, Urgency::First { since: now }, now);
    assert_eq!(order(&mut planner, &[background, first]), [3]);
}

#[test]
fn background_work_keeps_a_share_of_time() {
    // A window takes 10 ms; callers with long prompts of another stage wait all the time.
    let limits = StepLimits { batch: 512, chunk: 256 };
    let mut planner = Planner::new(SchedulingOrder::Deadline, vec![limits, limits]);
    planner.measured(0, StepRows::of(RowKind::Window, 1), Duration::from_millis(10));
    planner.measured(1, StepRows::of(RowKind::Prefill, 100), Duration::from_millis(20));
    let start = Instant::now();
    let first = Urgency::First { since: start };
    let windows = ReadyRows { kind: RowKind::Window, ..want(0, 8, Urgency::Background { since: start }, start) };
    let long: Vec<ReadyRows> = (1..9).map(|slot| want(slot, 2000, first, start)).collect();
    let ticks = (0..100).map(|tick| {
        let now = start + Duration::from_millis(10) * tick;
        let mut budget = planner.budget(now, &[vec![windows], long.clone()]);
        planner
            .plan(0, now, &[windows], std::slice::from_ref(&long), &mut budget)
            .iter()
            .map(|share| share.rows)
            .sum::<usize>()
    });
    // A tenth of a second is worth ten windows.
    let windows: usize = ticks.sum();
    assert!((8..=10).contains(&windows), "{windows} windows in a second");
}

#[test]
fn a_prompt_is_cut_to_the_time_left() {
    let (mut planner, now) = (measured_alike(Duration::from_millis(1)), Instant::now());
    let prompt = want(0, 2000, Urgency::First { since: now }, now);
    assert_eq!(plan(&mut planner, now, &[prompt]), [(0, 256)], "alone it takes what the stage takes");
    let listener = want(1, 1, Urgency::Playing { runs_out: now + Duration::from_millis(120) }, now);
    let shares = plan(&mut planner, now, &[prompt, listener]);
    assert_eq!(shares[0], (1, 1));
    let rows = shares[1].1;
    assert!((16..=90).contains(&rows), "90 ms leave room for some rows, not for {rows}");
}

#[test]
fn decode_costs_do_not_throttle_prefill() {
    let costs = [(RowKind::Prefill, Duration::from_micros(50)), (RowKind::Decode, Duration::from_millis(5))];
    let (mut planner, now) = (measured(&costs), Instant::now());
    let playing = Urgency::Playing { runs_out: now + Duration::from_millis(120) };
    let prompt = want(0, 2000, Urgency::First { since: now }, now);
    assert_eq!(plan(&mut planner, now, &[prompt, want(1, 1, playing, now)]), [(1, 1), (0, 256)]);
    // Cheap prefill does not make frames look cheap either.
    let callers: Vec<ReadyRows> = (1..60).map(|slot| want(slot, 1, Urgency::First { since: now }, now)).collect();
    let mut wants = vec![want(0, 1, playing, now)];
    wants.extend(callers);
    let frames = plan(&mut planner, now, &wants).len();
    assert!((10..=18).contains(&frames), "90 ms leave room for some frames of 5 ms, not for {frames}");
}

#[test]
fn falling_costs_make_nothing_free() {
    // Large steps that happened to be fast: a line through them falls.
    let mut planner = Planner::new(SchedulingOrder::Deadline, vec![StepLimits { batch: 512, chunk: 256 }]);
    for (rows, ms) in [(1, 40), (2, 39), (4, 38), (40, 30)] {
        for kind in [RowKind::Prefill, RowKind::Decode] {
            planner.measured(0, StepRows::of(kind, rows), Duration::from_millis(ms));
        }
    }
    let now = Instant::now();
    let due = want(0, 1, Urgency::Playing { runs_out: now + Duration::from_millis(130) }, now);
    let shares = plan(&mut planner, now, &[due, want(1, 2000, Urgency::First { since: now }, now)]);
    assert_eq!(shares[0], (0, 1));
    assert!(shares[1].1 <= 80, "60 ms do not pay {} rows", shares[1].1);
}

#[test]
fn unmeasured_prompts_get_a_least_chunk() {
    let (mut planner, now) = (measured(&[(RowKind::Decode, Duration::from_millis(1))]), Instant::now());
    let due = want(0, 1, Urgency::Playing { runs_out: now + Duration::from_millis(130) }, now);
    let prompt = want(1, 2000, Urgency::First { since: now }, now);
    assert_eq!(plan(&mut planner, now, &[due, prompt]), [(0, 1), (1, 16)]);
}

#[test]
fn few_windows_are_no_short_chunk() {
    let (mut planner, now) = (measured(&[(RowKind::Window, Duration::from_millis(20))]), Instant::now());
    let window = |slot, rows, urgency| ReadyRows { kind: RowKind::Window, ..want(slot, rows, urgency, now) };
    let due = window(0, 1, Urgency::Playing { runs_out: now + Duration::from_millis(180) });
    let waiting = window(1, 20, Urgency::First { since: now });
    let shares = plan(&mut planner, now, &[due, waiting]);
    assert!(shares.len() == 2 && (1..=6).contains(&shares[1].1), "{shares:?}");
}

#[test]
fn no_slot_starves() {
    let (mut planner, start) = (measured_alike(Duration::from_millis(1)), Instant::now());
    // One slot is always about to underrun, and one always waits for a first packet.
    let silent = want(9, 200, Urgency::Silent { since: start }, start);
    let plenty = want(8, 1, Urgency::Playing { runs_out: start + Duration::from_secs(2) }, start);
    let (mut silent_at, mut plenty_at) = (None, None);
    for tick in 0..400u32 {
        let now = start + Duration::from_millis(10) * tick;
        let pressing = want(0, 1, Urgency::Playing { runs_out: now + Duration::from_millis(130) }, start);
        let waiting = want(1, 1, Urgency::First { since: now }, now);
        let shares = plan(&mut planner, now, &[silent, plenty, pressing, waiting]);
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

#[test]
fn a_prompt_without_time_gets_rare_chunks() {
    let (mut planner, start) = (measured_alike(Duration::from_millis(1)), Instant::now());
    let mut chunks = Vec::new();
    for tick in 0..50u32 {
        let now = start + Duration::from_millis(10) * tick;
        let due = want(0, 1, Urgency::Playing { runs_out: now + Duration::from_millis(20) }, start);
        let prompt = want(1, 2000, Urgency::First { since: start }, start);
        chunks.extend(plan(&mut planner, now, &[due, prompt]).into_iter().filter(|(slot, _)| *slot == 1));
    }
    assert_eq!(chunks, [(1, 16); 5], "one of the least size each 100 ms");
}

#[test]
fn small_batches_starve_no_prompt() {
    for batch in 1..16 {
        for order in [SchedulingOrder::Deadline, SchedulingOrder::Arrival] {
            let mut planner = Planner::new(order, vec![StepLimits { batch, chunk: 256 }]);
            let start = Instant::now();
            let mut left = 40;
            for tick in 0..40 * 16 {
                let now = start + Duration::from_millis(10) * tick;
                // From two rows on a neighbour decodes in each tick.
                let neighbour = want(1, 1, Urgency::Playing { runs_out: now + Duration::from_millis(100) }, now);
                let mut wants = vec![neighbour];
                wants.truncate(usize::from(batch > 1));
                if left > 0 {
                    wants.push(want(0, left, Urgency::First { since: start }, start));
                }
                let shares = plan(&mut planner, now, &wants);
                left -= shares.iter().find(|(slot, _)| *slot == 0).map_or(0, |(_, rows)| *rows);
            }
            assert_eq!(left, 0, "{order:?} in batches of {batch}");
        }
    }
}

#[test]
fn text_ranks_behind_due_speech() {
    let (mut planner, now) = (measured_alike(Duration::from_millis(1)), Instant::now());
    let text = |ms| want(0, 1, Urgency::Text { since: now - Duration::from_millis(ms) }, now);
    let first = want(1, 1, Urgency::First { since: now }, now);
    let due = want(2, 1, Urgency::Playing { runs_out: now + Duration::from_millis(100) }, now);
    assert_eq!(plan(&mut planner, now, &[text(0), due, first])[..2], [(2, 1), (1, 1)]);
    assert_eq!(plan(&mut planner, now, &[text(300), due, first])[0], (2, 1), "due speech comes first all the same");
    assert!(plan(&mut planner, now, &[text(300), due, first]).contains(&(0, 1)), "but the text goes on");
}
