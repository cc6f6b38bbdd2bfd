//! Rows of several tenants in the planner's ticks.

use std::time::{Duration, Instant};

use repartee_engine::internals::{ReadyRows, Urgency};

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

/// Rows that a flood of a hundred sessions gets in a tick in which a row takes `cost`, and whether the session beside it, of
/// another tenant, gets its one.
fn rows_of_flood(cost: Duration, several: bool, [flood, beside]: [Urgency; 2], now: Instant) -> (usize, bool) {
    let mut planner = measured_alike(cost);
    planner.set_tenants(several);
    let flood = (0..100).map(|slot| ReadyRows { tenant: 1, ..want(slot, 1, flood, now) });
    let beside = ReadyRows { tenant: 2, ..want(200, 1, beside, now) };
    let shares = plan(&mut planner, now, &flood.chain([beside]).collect::<Vec<_>>());
    (shares.iter().filter(|(slot, _)| *slot < 100).count(), shares.contains(&(200, 1)))
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
    // A step takes a millisecond and a quarter of one for each row: 16 rows take as long as four steps of one.
    let rows = |flood, beside| rows_of_flood(Duration::from_micros(250), true, [flood, beside], now);
    for (flood, whole, part) in [(due, 54..=64, 12..=17), (first, 26..=32, 12..=17)] {
        let (far, near) = (rows(flood, overdue_text(now)), rows(flood, first));
        assert!(whole.contains(&far.0), "{} rows beside a caller who reads", far.0);
        assert!(part.contains(&near.0) && near.1, "{} rows beside one who is near", near.0);
    }
    // Callers of the same tenant are no reason.
    let mut planner = measured_alike(Duration::from_micros(250));
    planner.set_tenants(true);
    let flood = (0..100).map(|slot| want(slot, 1, due, now)).chain([want(200, 1, first, now)]);
    let shares = plan(&mut planner, now, &flood.collect::<Vec<_>>());
    assert!((54..=100).contains(&shares.iter().filter(|(slot, _)| *slot < 100).count()), "{shares:?}");
}
