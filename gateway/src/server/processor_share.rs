//! The share of the processors that one websocket can take from others.
//!
//! Bytes that a client sends cost more work in some forms than in others: a message of single bytes, each in a frame of
//! its own, takes many times that of one frame. So it is the processor's time that is bounded, whatever it is spent
//! on: once websockets together take a part of the machine, those that take most of it share that part evenly. So one that
//! takes a little more than a call, as a client that sends a whole question at once, is not held to what a flood gets.

use std::future::{Future, poll_fn};
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::allowance::{Allowance, LONGEST_PAUSE, thread_time};

/// Share of the machine that all websockets may take before those that take most are held to an even share of it.
const ALL: f64 = 0.25;
/// Processor time that all of them may take at once.
const BURST: f64 = 0.05;
/// Share of one processor that a connection may take in any case. A call takes less than a hundredth of an x86-64 server's, and may take more of a
/// small board's.
const SHARE: f64 = 0.05;
/// Seconds of processor time that a quiet connection saves up.
const SAVED: f64 = 0.1;
/// Seconds that a new connection has: one that reconnects gains little.
const FIRST: f64 = 0.01;
/// Seconds of processor time that are not worth a pause.
const LEAST_DEBT: f64 = 1e-4;

/// Processor time of all websockets.
#[derive(Debug, Clone)]
pub(super) struct ProcessorShares(Arc<Mutex<Together>>);

/// All websockets together.
#[derive(Debug)]
struct Together {
    allowance: Allowance,
    /// Connections that are paused, because they have taken more than an even share.
    demanding: usize,
}

impl Together {
    /// Share of one processor of a demanding connection.
    fn share(&self) -> f64 {
        (self.allowance.share / self.demanding.max(1) as f64).max(SHARE)
    }
}

impl Default for ProcessorShares {
    /// Creates the shares of this machine.
    fn default() -> Self {
        Self::new(available_parallelism().map_or(1, NonZeroUsize::get))
    }
}

impl ProcessorShares {
    /// Creates the shares of a machine with this many processors.
    fn new(processors: usize) -> Self {
        let allowance = Allowance::full(BURST, ALL * processors as f64);
        Self(Arc::new(Mutex::new(Together { allowance, demanding: 0 })))
    }

    /// Runs a connection's `work`, and pauses it while it has taken more than its share and others may want it.
    pub async fn run<W: Future>(self, work: W) -> W::Output {
        self.paced(work, thread_time).await
    }

    async fn paced<W: Future>(self, work: W, processor_time: impl Fn() -> Duration) -> W::Output {
        let mut work = pin!(work);
        let mut own = Connection {
            allowance: Allowance { left: FIRST, most: SAVED, share: SHARE, at: Instant::now() },
            demands: false,
            together: &self,
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
        // Plain numbers: a panic cannot leave them half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processor time of one websocket.
struct Connection<'a> {
    allowance: Allowance,
    /// True while it is paused, because it has taken more than an even share.
    demands: bool,
    together: &'a ProcessorShares,
}

impl Connection<'_> {
    /// Takes the connection's time; returns the pause after which it is paid for, if it has to wait.
    fn take(&mut self, took: Duration) -> Option<Duration> {
        let now = Instant::now();
        let mut together = self.together.lock();
        let is_crowded = together.allowance.take(took, now) < 0.0;
        self.allowance.share = together.share();
        let is_indebted = self.allowance.take(took, now) < -LEAST_DEBT;
        // A connection that is not paused may have nothing more to do, and would never take its demand back.
        self.set_demand(&mut together, is_indebted && is_crowded);
        if !is_indebted {
            return None;
        }
        if !is_crowded {
            self.allowance.left = 0.0;
            return None;
        }
        Some(Duration::from_secs_f64((-self.allowance.left / together.share()).min(LONGEST_PAUSE.as_secs_f64())))
    }

    fn set_demand(&mut self, together: &mut Together, demands: bool) {
        match (std::mem::replace(&mut self.demands, demands), demands) {
            (false, true) => together.demanding += 1,
            (true, false) => together.demanding = together.demanding.saturating_sub(1),
            _ => {}
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let together = self.together;
        self.set_demand(&mut together.lock(), false);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::task::yield_now;

    use super::*;

    /// Runs `polls` polls of `each`, by a clock of the processor that moves with them alone; returns the seconds that they
    /// took.
    async fn seconds(shares: &ProcessorShares, polls: u32, each: Duration, between: Duration) -> f64 {
        let spent = Cell::new(Duration::ZERO);
        let begun = Instant::now();
        let work = async {
            for _ in 0..polls {
                spent.set(spent.get() + each);
                if between.is_zero() { yield_now().await } else { sleep(between).await }
            }
        };
        shares.clone().paced(work, || spent.get()).await;
        begun.elapsed().as_secs_f64()
    }

    /// Shares of a machine that websockets have taken more than their part of.
    fn crowded() -> ProcessorShares {
        let shares = ProcessorShares::new(1);
        let mut all = shares.lock();
        (all.allowance.left, all.allowance.share) = (-1.0, 1e-9);
        drop(all);
        shares
    }

    #[tokio::test(start_paused = true)]
    async fn endless_work_gets_a_small_share() {
        let took = seconds(&crowded(), 1_000, Duration::from_millis(1), Duration::ZERO).await;
        assert!((19.5..20.5).contains(&took), "1 s of work took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn endless_work_of_all_is_bounded() {
        let shares = ProcessorShares::new(2);
        let both = || seconds(&shares, 2_000, Duration::from_millis(1), Duration::from_micros(10));
        let (one, other) = tokio::join!(both(), both());
        let took = one.max(other);
        assert!(took >= 7.9, "4 s of work on half a processor took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn floods_leave_others_an_even_share() {
        let shares = ProcessorShares::new(2);
        let flood = || seconds(&shares, 60_000, Duration::from_millis(1), Duration::from_micros(10));
        let floods = async { tokio::join!(flood(), flood(), flood(), flood()) };
        // A client that sends whole questions takes 24 ms of a processor each third of a second, 7 %.
        let asks = async {
            sleep(Duration::from_secs(1)).await;
            seconds(&shares, 30, Duration::from_millis(24), Duration::from_millis(300)).await
        };
        let took = tokio::select! {
            took = asks => took,
            _ = floods => panic!("the floods ended first"),
        };
        assert!(took < 10.0, "30 questions in {took} s");
        assert_eq!(shares.lock().demanding, 0, "connections that ended demand nothing");
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_alone_is_not_paused() {
        let took = seconds(&ProcessorShares::new(4), 100, Duration::from_millis(1), Duration::from_millis(1)).await;
        assert!((0.1..0.11).contains(&took), "0.1 s of work took {took} s");
    }

    #[tokio::test(start_paused = true)]
    async fn work_beside_nobody_demands_nothing() {
        let shares = ProcessorShares::new(4);
        let spent = Cell::new(Duration::ZERO);
        let work = async {
            for _ in 0..20 {
                spent.set(spent.get() + Duration::from_millis(40));
                sleep(Duration::from_millis(100)).await;
                // It took more than its share, and is not polled again while it is quiet.
                assert_eq!(shares.lock().demanding, 0);
            }
        };
        shares.clone().paced(work, || spent.get()).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_work_of_a_call_is_never_paused() {
        let took = seconds(&crowded(), 500, Duration::from_micros(980), Duration::from_millis(20)).await;
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
        assert_eq!(crowded().paced(work, || spent.get()).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_poll_pauses_a_second_at_most() {
        let took = seconds(&crowded(), 1, Duration::from_secs(60), Duration::ZERO).await;
        assert!((0.99..1.01).contains(&took), "the pause was {took} s");
    }
}
