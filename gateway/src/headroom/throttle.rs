//! Throttle of new calls: closes at full pressure, opens once it has been low for a while, and foresees the load of calls
//! that have just begun.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Pressure at which the throttle closes.
const CLOSES: f64 = 1.0;
/// Pressure below which a closed throttle opens.
const OPENS: f64 = 0.8;
/// Time for which the pressure has to be low before a closed throttle opens.
const CALM: Duration = Duration::from_secs(2);
/// Time after which a call's load is in the measurements: a caller has asked, and is answered.
const YOUNG: Duration = Duration::from_secs(5);
/// Calls below which nothing is learned about the load of one.
const ENOUGH: u64 = 4;
/// Weight of the newest measurement in the load of one call: a minute's mean.
const WEIGHT: f64 = 0.002;

/// Throttle of new calls.
#[derive(Debug)]
pub(super) struct Throttle {
    open: bool,
    pressure: f64,
    /// Since when the pressure has been low, while the throttle is closed.
    calm_since: Option<Instant>,
    /// Pressure of one call; `None` before it is known.
    per_call: Option<f64>,
    /// Beginnings of the calls that are younger than [`YOUNG`], at most one for each of the engine's sessions.
    young: VecDeque<Instant>,
}

impl Default for Throttle {
    fn default() -> Self {
        Self { open: true, pressure: 0.0, calm_since: None, per_call: None, young: VecDeque::new() }
    }
}

impl Throttle {
    /// Takes the pressure of `calls` calls at `now`.
    pub fn observe(&mut self, pressure: f64, calls: u64, now: Instant) {
        self.pressure = pressure;
        self.remove_settled(now);
        let settled = calls.saturating_sub(self.young.len() as u64);
        if settled >= ENOUGH {
            let share = pressure / settled as f64;
            self.per_call = Some(self.per_call.map_or(share, |before| before + WEIGHT * (share - before)));
        }
        if self.open {
            self.open = pressure < CLOSES;
            self.calm_since = None;
        } else if pressure < OPENS {
            self.open = now.saturating_duration_since(*self.calm_since.get_or_insert(now)) >= CALM;
        } else {
            self.calm_since = None;
        }
    }

    /// True if one call more may begin beside `calls`.
    pub fn admits(&mut self, calls: u64, now: Instant) -> bool {
        self.remove_settled(now);
        let expected = self.per_call.unwrap_or_default() * self.young.len() as f64;
        calls == 0 || (self.open && self.pressure + expected < CLOSES)
    }

    /// Counts a call that begins at `now`.
    pub fn begin(&mut self, now: Instant) {
        self.young.push_back(now);
    }

    /// Removes a call that began at `began`, if it is young still: it adds no load.
    pub fn end(&mut self, began: Instant) {
        if let Some(at) = self.young.iter().rposition(|young| *young == began) {
            self.young.remove(at);
        }
    }

    /// True while calls are admitted beside others.
    pub fn is_open(&self) -> bool {
        self.open
    }

    fn remove_settled(&mut self, now: Instant) {
        while self.young.front().is_some_and(|began| now.saturating_duration_since(*began) >= YOUNG) {
            self.young.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERY: Duration = Duration::from_millis(100);

    /// Throttle under a time of its own.
    struct Scene {
        throttle: Throttle,
        now: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self { throttle: Throttle::default(), now: Instant::now() }
        }

        fn pass(&mut self, time: Duration, pressure: f64, calls: u64) {
            let end = self.now + time;
            while self.now < end {
                self.now += EVERY;
                self.throttle.observe(pressure, calls, self.now);
            }
        }

        fn admits(&mut self, calls: u64) -> bool {
            self.throttle.admits(calls, self.now)
        }
    }

    #[test]
    fn full_machines_refuse_all_but_the_first_call() {
        let mut scene = Scene::new();
        scene.pass(Duration::from_secs(1), 0.9, 9);
        assert!(scene.admits(9));
        scene.pass(EVERY, 1.0, 9);
        assert!(!scene.admits(9) && !scene.admits(1) && scene.admits(0));
    }

    #[test]
    fn a_closed_throttle_opens_after_a_calm_while() {
        let mut scene = Scene::new();
        scene.pass(EVERY, 1.2, 9);
        scene.pass(Duration::from_secs(60), 0.9, 9);
        assert!(!scene.admits(9), "between the levels it stays as it is");
        scene.pass(CALM - EVERY, 0.5, 9);
        scene.pass(EVERY, 0.9, 9);
        scene.pass(CALM, 0.5, 9);
        assert!(!scene.admits(9), "each rise begins the wait anew");
        scene.pass(2 * EVERY, 0.5, 9);
        assert!(scene.admits(9));
        scene.pass(Duration::from_secs(60), 0.9, 9);
        assert!(scene.admits(9), "between the levels it stays as it is");
    }

    #[test]
    fn calls_that_begin_count_before_they_load() {
        let mut scene = Scene::new();
        // Each of 20 calls takes 2.5 % of the machine, so 19 more fit.
        scene.pass(Duration::from_secs(60), 0.5, 20);
        let mut calls = 20;
        while calls < 100 && scene.admits(calls) {
            scene.throttle.begin(scene.now);
            calls += 1;
        }
        assert!((39..=41).contains(&calls), "{calls}");
        scene.pass(YOUNG - EVERY, 0.5, calls);
        assert!(!scene.admits(calls));
        // They were quiet: the measurement stands.
        scene.pass(2 * EVERY, 0.5, calls);
        assert!(scene.admits(calls));
    }

    #[test]
    fn calls_that_ended_add_no_load() {
        let mut scene = Scene::new();
        scene.pass(Duration::from_secs(60), 0.5, 20);
        for _ in 0..1_000 {
            scene.throttle.begin(scene.now);
            scene.throttle.end(scene.now);
        }
        assert!(scene.admits(20) && scene.throttle.young.is_empty());
        // An old call ends: those that are young stay.
        scene.throttle.begin(scene.now);
        scene.throttle.end(scene.now - YOUNG);
        assert_eq!(scene.throttle.young.len(), 1);
    }

    #[test]
    fn a_fresh_server_foresees_nothing() {
        let mut scene = Scene::new();
        scene.pass(Duration::from_secs(1), 0.0, 0);
        for calls in 0..200 {
            assert!(scene.admits(calls));
            scene.throttle.begin(scene.now);
        }
    }
}
