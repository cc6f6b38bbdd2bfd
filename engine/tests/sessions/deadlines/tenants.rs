//! Rows of several tenants in the planner's ticks.

use std::time::{Duration, Instant};

use repartee_engine::internals::{Planner, ReadyRows, SchedulingOrder, Urgency};

use super::simulation::{Load, Rush, simulate};
use super::{measured_alike, plan, want};

#[test]
fn tenants_share_prompts_whatever_their_sessions() {
    let (mut planner, start) = (measured_alike(Duration::from_micros(200)), Instant::now());
    let first = |since| Urgency::First { since };
    // Older and shorter prompts of many sessions, renewed in every tick.
    let (mut rush, mut single) = (0, 0);
    for tick in 0..100 {
        let now = start + Duration::from_millis(8) * tick;
        let many = (1..40).map(|slot| ReadyRows { tenant: 1, ..want(slot, 20, first(start), now) });
        let one = ReadyRows { tenant: 2, ..want(50, 2000, first(start + Duration::from_secs(1)), now) };
        let shares = plan(&mut planner, now, &many.chain([one]).collect::<Vec<_>>());
        single += shares.iter().filter(|(slot, _)| *slot == 50).map(|(_, rows)| rows).sum::<usize>();
        rush += shares.iter().filter(|(slot, _)| *slot < 50).map(|(_, rows)| rows).sum::<usize>();
    }
    assert!(single * 10 >= (single + rush) * 4, "{single} rows of one, {rush} of many");
    assert!(rush * 10 >= (single + rush) * 4, "{single} rows of one, {rush} of many");
}

/// Time after which a text is overdue.
const OVERDUE: Duration = Duration::from_secs(1);

/// Urgency of a caller who waits for text, but not for a first packet.
fn overdue_text(now: Instant) -> Urgency {
    Urgency::Text { since: now.checked_sub(OVERDUE).unwrap_or(now) }
}

/// Time that a step takes for each row, beside a millisecond: 16 rows take as long as four steps of one.
const ROW: Duration = Duration::from_micros(250);

/// Rows of a flood's hundred sessions, and of one session of another tenant beside it.
fn flood_and_beside([flood, beside]: [Urgency; 2], now: Instant) -> Vec<ReadyRows> {
    let flood = (0..100).map(|slot| ReadyRows { tenant: 1, ..want(slot, 1, flood, now) });
    flood.chain([ReadyRows { tenant: 2, ..want(200, 1, beside, now) }]).collect()
}

/// Rows of the flood in a tick, and whether the session beside it gets its one.
fn tick(planner: &mut Planner, wants: &[ReadyRows], now: Instant) -> (usize, bool) {
    let shares = plan(planner, now, wants);
    (shares.iter().filter(|(slot, _)| *slot < 100).count(), shares.contains(&(200, 1)))
}

/// The same in a tick in which a row takes `cost`, after one that was so long that the flood has waited for its turn.
fn rows_of_flood(cost: Duration, several: bool, urgencies: [Urgency; 2], now: Instant) -> (usize, bool) {
    let mut planner = measured_alike(cost);
    planner.set_tenants(several);
    let wants = flood_and_beside(urgencies, now);
    plan(&mut planner, now, &wants);
    tick(&mut planner, &wants, now + Duration::from_millis(100))
}

#[test]
fn a_tenant_takes_a_part_of_a_tick() {
    let now = Instant::now() + OVERDUE;
    let playing = |seconds| Urgency::Playing { runs_out: now + Duration::from_secs(seconds) };
    let (first, due, ahead) = (Urgency::First { since: now }, playing(0), playing(60));
    let rows = |cost, several, urgency| rows_of_flood(cost, several, [urgency, overdue_text(now)], now);
    // A row takes a millisecond: eight of one tenant, and another's.
    let row = Duration::from_millis(1);
    let (bounded, served) = rows(row, true, first);
    assert!((6..=8).contains(&bounded) && served, "{bounded} rows of the flood");
    assert!(rows(row, true, ahead).0 <= 8);
    let alone = |urgency| rows_of_flood(row, false, [urgency, first], now);
    assert_eq!(alone(first), (100, true), "one tenant shares with nobody");
    // Of those that are due twice as many, and never none.
    let (due_rows, served) = rows(row, true, due);
    assert!((14..=16).contains(&due_rows) && served, "{due_rows} due rows of the flood");
    assert_eq!(alone(due).0, 100);
    let prompts: Vec<_> = (0..8).map(|slot| want(slot, 64, due, now)).collect();
    let shares = plan(&mut measured_alike(row), now, &prompts);
    assert!(shares.len() == 8 && shares.iter().all(|(_, rows)| *rows >= 16), "one tenant's due prompts: {shares:?}");
    assert!((3..=4).contains(&rows(Duration::from_millis(50), true, due).0));
    // Of slow steps batches remain.
    let (slow, served) = rows(Duration::from_millis(50), true, first);
    assert!((3..=4).contains(&slow) && served, "{slow} rows of slow steps");
}

#[test]
fn a_near_caller_shortens_anothers_part() {
    let now = Instant::now() + OVERDUE;
    let (first, due) = (Urgency::First { since: now }, Urgency::Playing { runs_out: now });
    let rows = |flood, beside| rows_of_flood(ROW, true, [flood, beside], now);
    for (flood, whole, part) in [(due, 54..=64, 12..=17), (first, 26..=32, 12..=17)] {
        let (far, near) = (rows(flood, overdue_text(now)), rows(flood, first));
        assert!(whole.contains(&far.0), "{} rows beside a caller who reads", far.0);
        assert!(part.contains(&near.0) && near.1, "{} rows beside one who is near", near.0);
    }
    // Callers of the same tenant are no reason.
    let mut planner = measured_alike(ROW);
    planner.set_tenants(true);
    let flood = (0..100).map(|slot| want(slot, 1, due, now)).chain([want(200, 1, first, now)]);
    let shares = plan(&mut planner, now, &flood.collect::<Vec<_>>());
    assert!((54..=100).contains(&shares.iter().filter(|(slot, _)| *slot < 100).count()), "{shares:?}");
}

/// Ticks of a second beside a flood, in which a row takes `row`: rows of the flood, and the time that each tick takes. The
/// session beside it is in every tick in which the flood is not.
fn ticks_beside(row: Duration, urgencies: [Urgency; 2], start: Instant) -> Vec<(usize, Duration)> {
    let mut planner = measured_alike(row);
    planner.set_tenants(true);
    let (mut passed, mut ticks) = (Duration::ZERO, Vec::new());
    while passed < Duration::from_secs(1) {
        let now = start + passed;
        let (flood, served) = tick(&mut planner, &flood_and_beside(urgencies, now), now);
        assert!(served || flood > 0, "after {ticks:?}");
        ticks.push((flood, Duration::from_millis(1) + row * (flood as u32 + u32::from(served))));
        passed += ticks[ticks.len() - 1].1;
    }
    ticks
}

#[test]
fn a_light_tenant_gets_short_ticks() {
    let start = Instant::now();
    let ticks = ticks_beside(ROW, [Urgency::Playing { runs_out: start }, Urgency::First { since: start }], start);
    assert_eq!(ticks[0].0, 0, "the first tick is short");
    let of = |ticks: &[(usize, Duration)]| ticks.iter().map(|tick| tick.1).sum::<Duration>();
    let longest = ticks.split(|(flood, _)| *flood > 0).map(of).max().unwrap();
    assert!(longest <= Duration::from_millis(20), "the flood waits for {longest:?}");
    let short = ticks.split(|(flood, _)| *flood > 0).map(of).sum::<Duration>().div_duration_f64(of(&ticks));
    assert!((0.4..=0.52).contains(&short), "{short} of the time without the flood");
}

#[test]
fn cheap_rows_wait_for_no_turn() {
    let start = Instant::now();
    let urgencies = [Urgency::Playing { runs_out: start }, Urgency::First { since: start }];
    // A hundred rows take half as long again as one.
    let ticks = ticks_beside(Duration::from_micros(5), urgencies, start);
    assert!(ticks.iter().all(|(flood, _)| *flood > 0), "{ticks:?}");
}

#[test]
fn a_busy_tenants_first_packets_delay_nobody() {
    let start = Instant::now();
    // Its callers are near their first packets; whoever asks for less is in every tick.
    let first = Urgency::First { since: start };
    for beside in
        [Urgency::Playing { runs_out: start }, Urgency::Playing { runs_out: start + Duration::from_secs(1) }, first]
    {
        let mut planner = measured_alike(ROW);
        planner.set_tenants(true);
        for number in 0..20 {
            let now = start + Duration::from_millis(5) * number;
            assert!(tick(&mut planner, &flood_and_beside([first, beside], now), now).1, "{beside:?}");
        }
    }
    // Of two that ask for as much both are.
    let mut planner = measured_alike(ROW);
    planner.set_tenants(true);
    let equal = [1, 2].map(|tenant| ReadyRows { tenant, ..want(tenant as usize, 1, first, start) });
    assert_eq!(plan(&mut planner, start, &equal).len(), 2);
}

#[test]
fn a_busy_tenant_delays_no_first_packet() {
    let load = Load { callers: 100, rate: 0.5, long_every: usize::MAX, long: 2000, at_once: 0, rush: None };
    let run = |rush| simulate(SchedulingOrder::Deadline, Load { rush, ..load });
    let alone = run(None);
    for rows in [20, 200] {
        let beside = run(Some(Rush { callers: 32, rows, apart: true, renewed: true }));
        for percent in [50, 95] {
            let [alone, beside] = [&alone, &beside].map(|result| result.percentile(percent));
            println!("p{percent} of the callers: {alone:.0} ms alone, {beside:.0} ms beside 32 with {rows} rows");
            assert!(beside <= f64::max(1.5 * alone, alone + 60.0), "p{percent}: {beside} ms, {alone} ms alone");
        }
        assert_eq!(beside.underruns, 0);
    }
}
