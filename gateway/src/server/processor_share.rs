//! The share of the processors that one websocket can take from others.
//!
//! Bytes that a client sends cost more work in some forms than in others: a message of single bytes, each in a frame of
//! its own, takes many times that of one frame. So it is the processor's time that is bounded, whatever it is spent
//! on: once websockets together take a part of the machine, the keys of those that take most of it share that part evenly, and
//! the websockets of a key the key's. So one that takes a little more than a call, as a client that sends a whole question
//! at once, is not held to what the flood of another key gets.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::allowance::{Allowance, LONGEST_PAUSE, thread_time};
use crate::auth::KeyId;
use crate::headroom::Headroom;

/// Share of the machine that all websockets may take before those that take most are held to an even share of it.
const ALL: f64 = 0.25;
/// The same while the processors are full, when what websockets take is missing in the engine.
const ALL_OF_FULL: f64 = 0.1;
/// Processor time that all of them may take at once.
const BURST: f64 = 0.05;
/// Share of one processor that a connection may take in any case, however many there are: three times what a call takes of
/// a server's (0.6 % of an AMD EPYC's).
const SHARE: f64 = 0.02;
/// Seconds of processor time that a quiet connection saves up.
const SAVED: f64 = 0.1;
/// Seconds that a new connection has: one that reconnects gains little.
const FIRST: f64 = 0.01;
/// Seconds of processor time that are not worth a pause.
const LEAST_DEBT: f64 = 1e-4;
/// Time for which the connections that take much are counted. A pause is short: at one moment hardly any of them is in one.
const PERIOD: Duration = Duration::from_secs(1);

/// Processor time of all websockets.
#[derive(Debug, Clone)]
pub(super) struct ProcessorShares {
    together: Arc<Mutex<Together>>,
    headroom: Headroom,
    processors: f64,
}

/// All websockets together.
#[derive(Debug)]
struct Together {
    allowance: Allowance,
    /// Beginning of this period.
    period: Instant,
    /// Connections of each key that took more than half of [`SHARE`] in this period, and in the one before it: one that is held to
    /// [`SHARE`] counts.
    demanding: [HashMap<Option<KeyId>, usize>; 2],
}

impl Together {
    /// Begins the next period if this one is over; then `all` tells the processors that all websockets may take in it.
    fn advance(&mut self, now: Instant, all: impl FnOnce() -> f64) {
        let passed = now.saturating_duration_since(self.period);
        if passed < PERIOD {
            return;
        }
        let [this, before] = &mut self.demanding;
        *before = std::mem::take(this);
        if passed >= 2 * PERIOD {
            before.clear();
        }
        self.period = now;
        self.allowance.share = all();
    }

    /// Share of one processor of a demanding connection with this key.
    fn share(&self, key: Option<KeyId>) -> f64 {
        let [this, before] = &self.demanding;
        let others = this.keys().chain(before.keys().filter(|key| !this.contains_key(key)));
        let keys = others.filter(|other| **other != key).count() + 1;
        let own = self.demanding.iter().filter_map(|period| period.get(&key)).max();
        (self.allowance.share / (keys * own.copied().unwrap_or(1)) as f64).max(SHARE)
    }
}

impl ProcessorShares {
    /// Creates the shares of this machine, of which this headroom is left.
    pub fn of(headroom: &Headroom) -> Self {
        Self::new(available_parallelism().map_or(1, NonZeroUsize::get), headroom.clone())
    }

    /// Creates the shares of a machine with this many processors.
    fn new(processors: usize, headroom: Headroom) -> Self {
        let processors = processors as f64;
        let allowance = Allowance::full(BURST, ALL * processors);
        let together = Together { allowance, period: Instant::now(), demanding: Default::default() };
        Self { together: Arc::new(Mutex::new(together)), headroom, processors }
    }

    /// Processors that all websockets may take now.
    fn all(&self) -> f64 {
        self.processors * if self.headroom.has_full_processors() { ALL_OF_FULL } else { ALL }
    }

    /// Runs the `work` of a connection with this API key, or an ephemeral key of it, and pauses it while it has taken more than
    /// its share and others may want it.
    pub async fn run<W: Future>(self, key: Option<KeyId>, work: W) -> W::Output {
        self.paced(key, work, thread_time).await
    }

    async fn paced<W: Future>(self, key: Option<KeyId>, work: W, processor_time: impl Fn() -> Duration) -> W::Output {
        let mut work = pin!(work);
        let mut own = Connection {
            allowance: Allowance { left: FIRST, most: SAVED, share: SHARE, at: Instant::now() },
            key,
            period: Instant::now(),
            used: 0.0,
            shares: &self,
        };
        loop {
            let polled = poll_fn(|context| {
                let begun = processor_time();
                let polled = work.as_mut().poll(context);
                let took = processor_time().saturating_sub(begun);
                match polled {
                    Poll::Ready(output) => Poll::Ready(Ok(output)),
                    Poll::Pending => own.take(took).map_or(Poll::Pending, |pause| Poll::Ready(Err(pause))),
                }
            });
            match polled.await {
                Ok(output) => return output,
                // A wake during the pause is not lost: the work is polled after it.
                Err(pause) => sleep(pause).await,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Together> {
        // Counts and times: a panic cannot leave them half changed.
        self.together.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processor time of one websocket.
struct Connection<'a> {
    allowance: Allowance,
    key: Option<KeyId>,
    /// Period of its last poll, and seconds that it took in it.
    period: Instant,
    used: f64,
    shares: &'a ProcessorShares,
}

impl Connection<'_> {
    /// Takes the connection's time; returns the pause after which it is paid for, if it has to wait.
    fn take(&mut self, took: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut together = self.shares.lock();
        together.advance(now, || self.shares.all());
        if self.period != together.period {
            (self.period, self.used) = (together.period, 0.0);
        }
        let used = self.used + took.as_secs_f64();
        let few = SHARE / 2.0 * PERIOD.as_secs_f64();
        if std::mem::replace(&mut self.used, used) <= few && used > few {
            *together.demanding[0].entry(self.key).or_default() += 1;
        }
        let is_crowded = together.allowance.take(took, now) < 0.0;
        self.allowance.share = together.share(self.key);
        if self.allowance.take(took, now) >= -LEAST_DEBT {
            return None;
        }
        if !is_crowded {
            self.allowance.left = 0.0;
            return None;
        }
        let pause = -self.allowance.left / self.allowance.share;
        Some(Duration::from_secs_f64(pause.min(LONGEST_PAUSE.as_secs_f64())))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use futures_util::future::join_all;
    use tokio::task::yield_now;

    use super::*;
    use crate::headroom::LoadSample;

    /// Runs `polls` polls of `each`, by a clock of the processor that moves with them alone; returns the seconds that they
    /// took.
    async fn seconds(shares: &ProcessorShares, polls: u32, each: Duration, between: Duration) -> f64 {
        seconds_of(None, shares, polls, each, between).await
    }

    /// The same, of a connection with this key.
    async fn seconds_of(
        key: Option<KeyId>,
        shares: &ProcessorShares,
        polls: u32,
        each: Duration,
        between: Duration,
    ) -> f64 {
        let spent = Cell::new(Duration::ZERO);
        let begun = Instant::now();
        let work = async {
            for _ in 0..polls {
                spent.set(spent.get() + each);
                if between.is_zero() { yield_now().await } else { sleep(between).await }
            }
        };
        shares.clone().paced(key, work, || spent.get()).await;
        begun.elapsed().as_secs_f64()
    }

    /// Shares of a machine that websockets have taken more than their part of.
    fn crowded() -> ProcessorShares {
        // What a machine of almost no processor may take is less than any connection's share.
        let shares = ProcessorShares { processors: 1e-9, ..ProcessorShares::new(1, Headroom::default()) };
        let mut together = shares.lock();
        (together.allowance.left, together.allowance.share) = (-1.0, 1e-9);
        drop(together);
        shares
    }

    #[tokio::test(start_paused = true)]
    async fn endless_work_gets_a_small_share() {
        let took = seconds(&crowded(), 1_000, Duration::from_millis(1), Duration::ZERO).await;
        assert!((49.0..51.0).contains(&took), "1 s of work took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn endless_work_of_all_is_bounded() {
        let shares = ProcessorShares::new(2, Headroom::default());
        let both = || seconds(&shares, 2_000, Duration::from_millis(1), Duration::from_micros(10));
        let (one, other) = tokio::join!(both(), both());
        let took = one.max(other);
        assert!(took >= 7.9, "4 s of work on half a processor took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn many_floods_of_short_polls_are_bounded() {
        let shares = ProcessorShares::new(2, Headroom::default());
        let floods =
            || (0..8).map(|_| seconds(&shares, 10_000, Duration::from_micros(100), Duration::from_micros(300)));
        let took = join_all(floods()).await.into_iter().fold(0.0, f64::max);
        assert!(took >= 14.0, "8 s of work on half a processor took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn full_processors_leave_websockets_less() {
        let headroom = Headroom::default();
        let shares = ProcessorShares::new(2, headroom.clone());
        let work = || seconds(&shares, 500, Duration::from_millis(1), Duration::from_micros(10));
        let took = work().await;
        assert!((0.8..1.1).contains(&took), "0.5 s of work on half a processor took {took} s");
        let full = LoadSample {
            covers: Duration::from_secs(1),
            processors: 1.0,
            left_by_others: 1.0,
            ..LoadSample::default()
        };
        (0..100).for_each(|_| headroom.observe(full, std::time::Instant::now()));
        let took = work().await;
        assert!((2.0..2.6).contains(&took), "0.5 s of work on a fifth of a processor took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn floods_leave_other_keys_a_part() {
        let shares = ProcessorShares::new(2, Headroom::default());
        let flood = || seconds(&shares, 60_000, Duration::from_millis(1), Duration::from_micros(10));
        let floods = join_all((0..12).map(|_| flood()));
        // A client that sends whole questions takes 24 ms of a processor each third of a second, 7 %.
        let asks = async {
            sleep(Duration::from_secs(1)).await;
            seconds_of(
                Some(KeyId::of_key("the-key-of-another-tenant")),
                &shares,
                30,
                Duration::from_millis(24),
                Duration::from_millis(300),
            )
            .await
        };
        let took = tokio::select! {
            took = asks => took,
            _ = floods => panic!("the floods ended first"),
        };
        assert!(took < 10.0, "30 questions in {took} s");
        sleep(2 * PERIOD).await;
        seconds(&shares, 1, Duration::ZERO, Duration::ZERO).await;
        assert_eq!(shares.lock().share(None), 0.5, "connections that ended demand nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_alone_is_not_paused() {
        let took = seconds(
            &ProcessorShares::new(4, Headroom::default()),
            100,
            Duration::from_millis(1),
            Duration::from_millis(1),
        )
        .await;
        assert!((0.1..0.11).contains(&took), "0.1 s of work took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn the_work_of_a_call_is_never_paused() {
        let took = seconds(&crowded(), 500, Duration::from_micros(380), Duration::from_millis(20)).await;
        assert!((10.0..10.6).contains(&took), "500 packets of 20 ms took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_connection_saves_up_for_a_burst() {
        let spent = Cell::new(Duration::ZERO);
        let work = async {
            sleep(Duration::from_secs(5)).await;
            let begun = Instant::now();
            for _ in 0..95 {
                spent.set(spent.get() + Duration::from_millis(1));
                yield_now().await;
            }
            begun.elapsed()
        };
        assert_eq!(crowded().paced(None, work, || spent.get()).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_poll_pauses_a_second_at_most() {
        let took = seconds(&crowded(), 1, Duration::from_secs(60), Duration::ZERO).await;
        assert!((0.99..1.01).contains(&took), "the pause was {took} s");
    }
}
