//! The throttle under a time of its own, and on a simulated machine.

use super::*;

const EVERY: Duration = Duration::from_millis(100);
/// Load of a call on the simulated machine, which carries 90.
const ONE: Load = Load { ticks: 0.6 / 90.0, processors: 1.0 / 90.0 };

/// Throttle under a time of its own.
struct Scene {
    throttle: Throttle,
    now: Instant,
}

impl Scene {
    fn new() -> Self {
        Self { throttle: Throttle::default(), now: Instant::now() }
    }

    /// A scene with calls that have begun long ago, each with this load of the engine's time.
    fn with_calls(calls: usize, ticks: f64) -> Self {
        let mut scene = Self::new();
        scene.throttle.calibrate(Load { ticks, processors: ticks / 2.0 });
        (0..calls).for_each(|_| scene.throttle.begin(scene.now));
        scene.now += YOUNG;
        scene
    }

    fn pass(&mut self, time: Duration, pressure: f64) {
        let end = self.now + time;
        while self.now < end {
            self.now += EVERY;
            self.throttle.observe(Load { ticks: pressure, processors: pressure / 2.0 }, 0.0, 1.0, self.now);
        }
    }

    fn admits(&mut self) -> bool {
        self.throttle.admits(self.now)
    }
}

#[test]
fn full_machines_refuse_all_but_the_first_call() {
    let mut scene = Scene::with_calls(9, 0.1);
    scene.pass(Duration::from_secs(1), 0.8);
    assert!(scene.admits());
    scene.pass(EVERY, 1.0);
    assert!(!scene.admits());
    (0..9).for_each(|_| scene.throttle.end(scene.now));
    assert!(scene.admits());
}

#[test]
fn a_closed_throttle_opens_after_a_calm_while() {
    let mut scene = Scene::with_calls(9, 0.1);
    scene.pass(EVERY, 1.2);
    scene.pass(Duration::from_secs(60), 0.85);
    assert!(!scene.admits(), "between the levels it stays as it is");
    scene.pass(CALM - EVERY, 0.5);
    scene.pass(EVERY, 0.85);
    scene.pass(CALM, 0.5);
    assert!(!scene.admits(), "each rise begins the wait anew");
    scene.pass(2 * EVERY, 0.5);
    assert!(scene.admits());
    scene.pass(Duration::from_secs(60), 0.85);
    assert!(scene.admits(), "between the levels it stays as it is");
}

#[test]
fn calls_that_begin_count_before_they_load() {
    // Each of 20 calls takes 2.5 % of the machine, more than the calibration said, so 19 more fit.
    let mut scene = Scene::with_calls(20, 0.02);
    scene.pass(Duration::from_secs(60), 0.5);
    while scene.throttle.calls() < 100 && scene.admits() {
        scene.throttle.begin(scene.now);
    }
    let calls = scene.throttle.calls();
    assert!((38..=41).contains(&calls), "{calls}");
    scene.pass(YOUNG - EVERY, 0.5);
    assert!(!scene.admits());
    // They were quiet: the measurement stands.
    scene.pass(2 * EVERY, 0.5);
    assert!(scene.admits());
}

#[test]
fn young_calls_that_load_already_count_once() {
    // Each of 70 callers asks at once, and so is measured while it is young.
    let mut scene = Scene::with_calls(0, 0.01);
    for calls in 0..70 {
        assert!(scene.admits(), "{calls}");
        scene.throttle.begin(scene.now);
        scene.pass(EVERY, 0.01 * f64::from(calls + 1));
    }
}

#[test]
fn calls_that_ended_add_no_load() {
    let mut scene = Scene::with_calls(20, 0.02);
    scene.pass(Duration::from_secs(60), 0.5);
    for _ in 0..1_000 {
        scene.throttle.begin(scene.now);
        scene.throttle.end(scene.now);
    }
    assert!(scene.admits() && scene.throttle.young.is_empty());
    // An old call ends: those that are young stay.
    scene.throttle.begin(scene.now);
    scene.throttle.end(scene.now - YOUNG);
    assert_eq!((scene.throttle.young.len(), scene.throttle.calls()), (1, 20));
}

#[test]
fn a_throttle_without_calibration_refuses_nobody() {
    let mut scene = Scene::new();
    scene.pass(Duration::from_secs(1), 1.5);
    for _ in 0..200 {
        assert!(scene.admits());
        scene.throttle.begin(scene.now);
    }
}

/// Simulated machine: a call loads it three seconds after its begin, and others may load it too.
struct Machine {
    scene: Scene,
    begun: Vec<Instant>,
    other: Load,
    /// Share of the processors that others leave.
    left: f64,
    fullest: f64,
}

impl Machine {
    /// A machine whose calibration was wrong by a factor.
    fn new(calibrated: f64) -> Self {
        let mut scene = Scene::new();
        scene.throttle.calibrate(ONE.times(calibrated));
        Self { scene, begun: Vec::new(), other: Load::default(), left: 1.0, fullest: 0.0 }
    }

    /// Lets 100 ms pass in which `offered` callers try to begin; returns how many are admitted.
    fn pass(&mut self, offered: usize) -> usize {
        self.scene.now += EVERY;
        let now = self.scene.now;
        let loading = self.begun.iter().filter(|begun| now - **begun >= Duration::from_secs(3)).count();
        let load = Load { processors: ONE.processors / self.left, ..ONE }.times(loading as f64);
        self.fullest = self.fullest.max(load.value());
        // Frames are late once the machine is full.
        let lateness = if load.value() + self.other.value() > 1.0 { 3.0 } else { 0.0 };
        self.scene.throttle.observe(
            load.zip(self.other, |load, other| (load + other).min(1.05)),
            lateness,
            self.left,
            now,
        );
        let before = self.begun.len();
        for _ in 0..offered {
            if self.scene.admits() {
                self.scene.throttle.begin(now);
                self.begun.push(now);
            }
        }
        self.begun.len() - before
    }

    fn hang_up(&mut self, calls: usize) {
        for begun in self.begun.drain(..calls) {
            self.scene.throttle.end(begun);
        }
    }
}

#[test]
fn a_burst_of_callers_fills_the_machine_only() {
    // 160 callers within five seconds, to a server that has had none.
    let mut machine = Machine::new(1.0);
    let admitted: usize = (0..50).map(|step| machine.pass(3 + step % 2)).sum();
    assert!((80..=90).contains(&admitted), "{admitted}");
    // Further ones come all the time.
    (0..600).for_each(|_| {
        machine.pass(4);
    });
    assert!(machine.fullest <= 1.02 && machine.begun.len() >= 85, "{} {}", machine.fullest, machine.begun.len());
}

#[test]
fn processors_that_others_use_carry_no_calls() {
    let mut machine = Machine::new(1.0);
    machine.left = 0.5;
    let admitted: usize = (0..50).map(|_| machine.pass(4)).sum();
    assert!((40..=45).contains(&admitted), "{admitted}");
}

#[test]
fn a_wrong_calibration_is_corrected_within_seconds() {
    let mut machine = Machine::new(2.0);
    let admitted: usize = (0..50).map(|_| machine.pass(4)).sum();
    assert!((40..=50).contains(&admitted), "{admitted}");
    (0..300).for_each(|_| {
        machine.pass(4);
    });
    assert!(machine.begun.len() >= 80 && machine.fullest <= 1.1, "{} {}", machine.begun.len(), machine.fullest);
}

#[test]
fn callers_are_admitted_soon_after_the_load_falls() {
    let mut machine = Machine::new(1.0);
    (0..300).for_each(|_| {
        machine.pass(4);
    });
    assert_eq!(machine.pass(4), 0);
    machine.hang_up(30);
    let waited = (0..100).take_while(|_| machine.pass(1) == 0).count();
    assert!(waited <= 30, "{waited} steps");
}

#[test]
fn other_work_refuses_no_caller_of_few() {
    // Texts are read aloud as fast as the engine can, and another program takes the processors.
    let mut machine = Machine::new(1.0);
    machine.other = Load { ticks: 1.0, processors: 1.0 };
    for _ in 0..20 {
        assert_eq!(machine.pass(1), 1);
        (0..50).for_each(|_| {
            machine.pass(0);
        });
    }
    // Callers who come to a machine that is full of other work and of calls are refused.
    let admitted: usize = (0..600).map(|_| machine.pass(1)).sum();
    assert!(admitted <= 50, "{admitted}");
}
