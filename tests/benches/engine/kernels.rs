//! Single operations of the device: sampling from a large vocabulary, and the overhead of a parallel region.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::simd::SimdLevel;
use repartee_kernels::cpu::{math, sample};
use repartee_kernels::random::uniform;
use repartee_report::ReportRow;

use crate::bed::median;

/// Vocabulary size of a large language model.
const VOCABULARY: usize = 151_936;
/// Number of timed repetitions.
const REPEATS: usize = 31;
/// Number of timed regions.
const REGIONS: usize = 2000;
/// Idle time after which a worker sleeps.
const IDLE: Duration = Duration::from_millis(2);

pub fn rows() -> Result<Vec<ReportRow>> {
    let level = SimdLevel::detect();
    let logits: Vec<f32> = (0..VOCABULARY)
        // The sum of four uniform numbers is about normal: a few likely ids and a long tail.
        .map(|id| (0..4).map(|i| uniform(3, id as u64, i, 0) * 5.0).sum())
        .collect();
    let time = |choose: &dyn Fn(&mut [f32])| {
        let one = || {
            let mut row = logits.clone();
            let begun = Instant::now();
            choose(black_box(&mut row));
            begun.elapsed().as_secs_f64() * 1e3
        };
        median((0..REPEATS).map(|_| one()).collect())
    };
    let ours = time(&|row| sample::top_p(level, row, 0.9));
    let sorted = time(&|row| sort_and_cut(level, row, 0.9));
    let mut rows = vec![ReportRow::lower_is_better(
        "top_p",
        ours,
        sorted,
        "ms",
        format!("{VOCABULARY} ids; peer: sorting them by comparisons"),
    )];

    let pool = Pool::new(2)?;
    let region = timed(&pool, Duration::ZERO, |pool| pool.run(2, |_| {}));
    rows.push(ReportRow::without_peer("pool_region", region, "us", "two threads, two tasks that do nothing"));
    let hand_off = timed(&pool, Duration::ZERO, meet);
    rows.push(ReportRow::without_peer(
        "pool_hand_off",
        hand_off,
        "us",
        "until both threads have met in a region and left it",
    ));
    let asleep = timed(&pool, IDLE, meet);
    rows.push(ReportRow::without_peer("pool_wake", asleep, "us", "the same when the worker sleeps"));
    Ok(rows)
}

/// Returns the median time of a region, in microseconds. The pool idles for `idle` before each.
fn timed(pool: &Pool, idle: Duration, region: impl Fn(&Pool)) -> f64 {
    let count = if idle.is_zero() { REGIONS } else { REGIONS / 20 };
    let one = |_| {
        let idle_until = Instant::now() + idle;
        while let Some(rest) = idle_until.checked_duration_since(Instant::now()).filter(|rest| !rest.is_zero()) {
            thread::park_timeout(rest);
        }
        let begun = Instant::now();
        region(pool);
        begun.elapsed().as_secs_f64() * 1e6
    };
    median((0..count).map(one).collect())
}

/// Runs two tasks that wait for each other: both threads of the pool are free, so each takes one.
fn meet(pool: &Pool) {
    let arrived = AtomicUsize::new(0);
    pool.run(2, |_| {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < 2 {
            std::hint::spin_loop();
        }
    });
}

/// Filters logits like [`sample::top_p`], by a comparison sort.
fn sort_and_cut(level: SimdLevel, logits: &mut [f32], p: f32) {
    let mut probabilities = logits.to_vec();
    math::softmax(level, &mut probabilities);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    order.pop();
    let mut sum = 0.0;
    for id in order {
        sum += probabilities[id];
        if sum > 1.0 - p {
            break;
        }
        logits[id] = f32::NEG_INFINITY;
    }
}
