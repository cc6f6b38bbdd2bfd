//! The throttle under a time of its own, and on a simulated machine.

use super::*;

const EVERY: Duration = Duration::from_millis(100);
/// Load of a call on the simulated machine, which carries 90.
const ONE: Load = Load { ticks: 0.6 / 90.0, processors: 1.0 / 90.0 };
/// Calls that the simulated machine carries.
const CARRIED: usize = 90;

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
        (0..calls).for_each(|_| scene.throttle.begin(None, scene.now));
        scene.now += YOUNG;
        scene
    }

    /// Lets time pass under a load of the engine's time and a lateness.
    fn pass(&mut self, time: Duration, ticks: f64, lateness: f64) {
        let end = self.now + time;
        while self.now < end {
            self.now += EVERY;
            self.throttle.observe(Load { ticks, processors: ticks / 2.0 }, lateness, 1.0, self.now);
        }
    }

    fn admits(&mut self) -> bool {
        self.throttle.admit(None, self.now).is_ok()
    }

    fn begin(&mut self) {
        self.throttle.begin(None, self.now);
    }
}

#[test]
fn late_machines_refuse_all_but_the_first_call() {
    let mut scene = Scene::with_calls(8, 0.1);
    scene.pass(Duration::from_secs(1), 0.8, 0.9);
    assert!(scene.admits() && scene.throttle.left() > 0.0);
    scene.pass(EVERY, 0.8, 1.0);
    assert!(!scene.admits());
    assert_eq!(scene.throttle.left(), 0.0);
    (0..8).for_each(|_| scene.throttle.end(None, scene.now));
    assert!(scene.admits());
}

#[test]
fn a_closed_throttle_opens_after_a_calm_while() {
    let mut scene = Scene::with_calls(8, 0.1);
    scene.pass(EVERY, 0.8, 1.2);
    (0..2).for_each(|_| scene.throttle.end(None, scene.now - YOUNG));
    scene.pass(Duration::from_secs(60), 0.7, 0.85);
    assert!(!scene.admits(), "between the levels it stays as it is");
    scene.pass(CALM - EVERY, 0.7, 0.5);
    scene.pass(EVERY, 0.7, 0.85);
    scene.pass(CALM, 0.7, 0.5);
    assert!(!scene.admits(), "each rise begins the wait anew");
    scene.pass(2 * EVERY, 0.7, 0.5);
    assert!(scene.admits());
    scene.pass(Duration::from_secs(60), 0.7, 0.85);
    assert!(scene.admits(), "between the levels it stays as it is");
}

#[test]
fn an_engine_that_runs_ahead_refuses_nobody() {
    // Two callers of five keep the engine busy at times, but every frame is in time.
    let mut scene = Scene::with_calls(2, 0.2);
    for _ in 0..10 {
        scene.pass(Duration::from_secs(2), 1.05, 0.3);
        assert!(scene.admits() && scene.throttle.left() > 0.3, "{}", scene.throttle.left());
        scene.pass(Duration::from_secs(4), 0.05, 0.0);
    }
    // The mean of it is the load of a call.
    scene.begin();
    assert!(scene.admits());
}

#[test]
fn calls_that_begin_count_before_they_load() {
    // Each of 20 calls takes 2.5 % of the machine, more than the calibration said, so 19 more fit.
    let mut scene = Scene::with_calls(20, 0.02);
    scene.pass(Duration::from_secs(60), 0.5, 0.0);
    for _ in 0..40 {
        scene.pass(EVERY, 0.5, 0.0);
        while scene.throttle.calls() < 100 && scene.admits() {
            scene.begin();
        }
    }
    let calls = scene.throttle.calls();
    assert!((38..=42).contains(&calls), "{calls}");
    assert!(!scene.admits());
    // They are quiet: that is learned within seconds.
    scene.pass(Duration::from_secs(3), 0.5, 0.0);
    assert!(scene.admits());
}

#[test]
fn bursts_that_are_carried_refuse_nobody() {
    // 80 callers come within ten seconds. They connect and ask at once: for seconds the machine has twice the load that
    // they are known for, and nothing is late.
    for calibrated in [0.6, 0.8, 1.0] {
        let mut scene = Scene::new();
        scene.throttle.calibrate(ONE.times(calibrated));
        for calls in 0..80_u32 {
            assert!(scene.admits(), "{calls} at {calibrated}");
            scene.begin();
            scene.now += Duration::from_millis(125);
            let measured = ONE.times(2.0 * f64::from(calls + 1)).zip(Load::default(), |load, _| load.min(1.05));
            scene.throttle.observe(measured, 0.6, 0.9, scene.now);
        }
    }
}

#[test]
fn callers_at_one_moment_begin_one_by_one() {
    // A machine for 90 takes them in ten seconds, not at once.
    let mut scene = Scene::new();
    scene.throttle.calibrate(ONE);
    let admit = |scene: &mut Scene| (0..90).take_while(|_| scene.admits().then(|| scene.begin()).is_some()).count();
    assert_eq!(admit(&mut scene), 22);
    for _ in 0..32 {
        scene.now += Duration::from_millis(250);
        let admitted = admit(&mut scene);
        assert!((2..=3).contains(&admitted) || scene.throttle.calls() >= 88, "{admitted}");
    }
    assert!(scene.throttle.calls() >= 88, "{}", scene.throttle.calls());
    // A small machine takes a few at once.
    let mut scene = Scene::new();
    scene.throttle.calibrate(ONE.times(5.0));
    assert_eq!(admit(&mut scene), 8);
}

/// Keys of a server with several.
const FLOODS: Option<u64> = Some(1);
const OTHER: Option<u64> = Some(2);

#[test]
fn floods_of_one_key_leave_beginnings_to_others() {
    let mut scene = Scene::new();
    scene.throttle.calibrate(ONE);
    scene.begin();
    let mut begun = 0;
    for ms in 0..20_000 {
        scene.now += Duration::from_millis(1);
        if scene.throttle.admit(FLOODS, scene.now).is_ok() {
            // Its client does not even connect.
            scene.throttle.begin(FLOODS, scene.now);
            scene.throttle.end(FLOODS, scene.now);
            begun += 1;
        }
        if ms % 250 == 0 {
            assert_eq!(scene.throttle.admit(OTHER, scene.now), Ok(()), "after {ms} ms");
            scene.throttle.begin(OTHER, scene.now);
            scene.throttle.end(OTHER, scene.now);
        }
    }
    // Half of 90 in ten seconds, and of those at one moment.
    assert!((95..=105).contains(&begun), "{begun}");
}

#[test]
fn keys_beyond_half_leave_a_part_to_others() {
    let mut scene = Scene::new();
    scene.throttle.calibrate(ONE);
    let fill = |scene: &mut Scene, key| {
        let before = scene.throttle.calls();
        for _ in 0..200 {
            scene.now += EVERY;
            if scene.throttle.admit(key, scene.now).is_ok() {
                scene.throttle.begin(key, scene.now);
            }
        }
        (scene.throttle.calls() - before, scene.throttle.admit(key, scene.now))
    };
    // An eighth of 90 stays.
    assert_eq!(fill(&mut scene, FLOODS), (78, Err(NoHeadroom::Key)));
    assert_eq!(fill(&mut scene, OTHER), (11, Err(NoHeadroom::Machine)));
    // A key within its half gets what the other one gives up.
    (0..40).for_each(|_| scene.throttle.end(FLOODS, scene.now - YOUNG));
    let (more, refused) = fill(&mut scene, OTHER);
    assert_eq!((more, refused), (34, Err(NoHeadroom::Key)));
    assert_eq!(scene.throttle.admit(FLOODS, scene.now), Ok(()));
}

#[test]
fn keys_of_small_machines_have_a_call_each() {
    let mut scene = Scene::new();
    scene.throttle.calibrate(Load { ticks: 0.4, processors: 0.3 });
    let mut begin = |key| {
        let admitted = scene.throttle.admit(key, scene.now);
        admitted.map(|()| scene.throttle.begin(key, scene.now))
    };
    assert_eq!(begin(FLOODS), Ok(()));
    assert_eq!(begin(FLOODS), Err(NoHeadroom::Key));
    assert_eq!(begin(OTHER), Ok(()));
    assert_eq!(begin(OTHER), Err(NoHeadroom::Machine));
}

#[test]
fn calls_that_ended_add_no_load() {
    let mut scene = Scene::with_calls(20, 0.02);
    scene.pass(Duration::from_secs(60), 0.5, 0.0);
    for _ in 0..1_000 {
        scene.begin();
        scene.throttle.end(None, scene.now);
    }
    scene.now += Duration::from_secs(1);
    assert!(scene.admits() && scene.throttle.young.is_empty());
    // An old call ends: those that are young stay.
    scene.begin();
    scene.throttle.end(None, scene.now - YOUNG);
    assert_eq!((scene.throttle.young.len(), scene.throttle.calls()), (1, 20));
}

#[test]
fn a_throttle_without_calibration_refuses_nobody() {
    let mut scene = Scene::new();
    scene.pass(Duration::from_secs(1), 1.5, 1.5);
    for _ in 0..200 {
        assert!(scene.admits());
        scene.begin();
    }
}

/// Simulated machine: a call loads it three seconds after its begin, and others may load it too.
struct Machine {
    scene: Scene,
    begun: Vec<Instant>,
    /// Load of requests that are no calls.
    other: Load,
    /// Share of the processors that others leave, and of it that the meter has noticed.
    left: f64,
    noticed: f64,
    /// Lateness that has shown.
    late: f64,
    fullest: f64,
    /// Number of times that the throttle closed.
    closings: usize,
}

impl Machine {
    /// A machine whose calibration was wrong by a factor.
    fn new(calibrated: f64) -> Self {
        let mut scene = Scene::new();
        scene.throttle.calibrate(ONE.times(calibrated));
        let (other, begun) = (Load::default(), Vec::new());
        Self { scene, begun, other, left: 1.0, noticed: 1.0, late: 0.0, fullest: 0.0, closings: 0 }
    }

    /// Lets 100 ms pass in which `offered` callers try to begin; returns how many are admitted.
    fn pass(&mut self, offered: usize) -> usize {
        self.scene.now += EVERY;
        let now = self.scene.now;
        let loading = self.begun.iter().filter(|begun| now - **begun >= Duration::from_secs(3)).count();
        let calls = ONE.times(loading as f64);
        // Of calls, as a share of what is left to them.
        let full = Load { processors: calls.processors / self.left, ..calls }.zip(self.other, |own, other| own + other);
        self.fullest = self.fullest.max(full.value());
        // Frames are late once the machine is full. That shows after a second.
        let late = if full.value() > 1.0 { 3.0 } else { 0.5 * full.value() };
        self.late += 0.1 * (late - self.late);
        self.noticed += 0.02 * (self.left - self.noticed);
        let most = Load { ticks: 1.05, processors: 1.05 * self.left };
        let measured = calls.zip(self.other, |own, other| own + other).zip(most, f64::min);
        let was_open = self.scene.throttle.open;
        self.scene.throttle.observe(measured, self.late, self.noticed, now);
        self.closings += usize::from(was_open && !self.scene.throttle.open);
        let before = self.begun.len();
        for _ in 0..offered {
            if self.scene.admits() {
                self.scene.begin();
                self.begun.push(now);
            }
        }
        self.begun.len() - before
    }

    /// Lets callers come for some steps; returns how many are admitted.
    fn passes(&mut self, steps: usize, offered: usize) -> usize {
        (0..steps).map(|_| self.pass(offered)).sum()
    }

    fn hang_up(&mut self, calls: usize) {
        for begun in self.begun.drain(..calls) {
            self.scene.throttle.end(None, begun);
        }
    }
}

#[test]
fn a_burst_of_callers_fills_the_machine_only() {
    // 160 callers within ten seconds, to a server that has had none.
    let mut machine = Machine::new(1.0);
    let admitted: usize = (0..100).map(|step| machine.pass(1 + usize::from(step % 5 < 3))).sum();
    assert!((85..=CARRIED).contains(&admitted), "{admitted}");
    // Further ones come all the time.
    machine.passes(600, 4);
    assert!(machine.fullest <= 1.02 && machine.begun.len() >= 85, "{} {}", machine.fullest, machine.begun.len());
    assert_eq!(machine.closings, 0, "nothing was late");
}

#[test]
fn slow_overload_is_refused_without_flapping() {
    // The calibration says 150. A caller comes each second, and each stays.
    let mut machine = Machine::new(0.6);
    (0..1_500).for_each(|step| {
        machine.pass(usize::from(step % 10 == 0));
    });
    let calls = machine.begun.len();
    assert!((85..=100).contains(&calls) && machine.closings <= 2, "{calls} {}", machine.closings);
    // A caller hangs up each 3 s, and another takes the place.
    (0..3_000).for_each(|step| {
        if step % 30 == 0 && !machine.begun.is_empty() {
            machine.hang_up(1);
        }
        machine.pass(1);
    });
    let calls = machine.begun.len();
    assert!((80..=95).contains(&calls) && machine.closings <= 12, "{calls} {}", machine.closings);
}

#[test]
fn processors_that_others_use_carry_no_calls() {
    let mut machine = Machine::new(1.0);
    (machine.left, machine.noticed) = (0.5, 0.5);
    let admitted = machine.passes(100, 4);
    assert!((40..=45).contains(&admitted), "{admitted}");
}

#[test]
fn a_neighbour_closes_within_seconds_until_it_ends() {
    let mut machine = Machine::new(1.0);
    machine.passes(60, 1);
    machine.passes(100, 0);
    assert_eq!(machine.begun.len(), 60);
    // Another program takes half of the processors.
    machine.left = 0.5;
    let admitted = machine.passes(20, 1);
    assert!(admitted <= 15, "{admitted}");
    assert_eq!(machine.passes(100, 1), 0);
    // It ends.
    machine.left = 1.0;
    let waited = (0..200).take_while(|_| machine.pass(1) == 0).count();
    assert!(waited <= 100, "{waited} steps");
    machine.passes(900, 1);
    assert!(machine.begun.len() >= 80, "{}", machine.begun.len());
}

#[test]
fn a_wrong_calibration_is_corrected_within_seconds() {
    let mut machine = Machine::new(2.0);
    let admitted = machine.passes(80, 4);
    assert!((40..=50).contains(&admitted), "{admitted}");
    machine.passes(300, 4);
    assert!(machine.begun.len() >= 75 && machine.fullest <= 1.1, "{} {}", machine.begun.len(), machine.fullest);
}

#[test]
fn callers_are_admitted_soon_after_the_load_falls() {
    for calibrated in [1.0, 0.5] {
        let mut machine = Machine::new(calibrated);
        machine.passes(300, 4);
        assert_eq!(machine.pass(4), 0);
        machine.hang_up(machine.begun.len() - 40);
        let waited = (0..200).take_while(|_| machine.pass(1) == 0).count();
        assert!(waited <= 60, "{waited} steps at {calibrated}");
    }
}

#[test]
fn other_work_refuses_no_caller_of_few() {
    // Texts are read aloud as fast as the engine can, and another program takes the processors.
    let mut machine = Machine::new(1.0);
    machine.other = Load { ticks: 1.0, processors: 1.0 };
    for _ in 0..20 {
        assert_eq!(machine.pass(1), 1);
        machine.passes(50, 0);
    }
    // Callers who come to a machine that is full of other work and of calls are refused.
    let admitted = machine.passes(600, 1);
    assert!(admitted <= 50, "{admitted}");
}
