//! Processor time of this process, and the share of the processors that others leave to it.

use std::fs;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

/// Share of the processors that belongs to this process even if others take more: the system divides them evenly.
const OWN: f64 = 0.5;
/// Weight of the newest measurement of others. With one each 100 ms, half of a change is visible after 3.4 s: callers on the
/// same machine who connect at once are others too, for some seconds.
const WEIGHT: f64 = 0.02;
/// Processors that stay idle so that work which comes at once is not late, as a multiple of the square root of their number: of
/// many processors a smaller share, because more of the bursts even out (square-root staffing). Measured on two, where 75 callers
/// who take 1.4 of them are answered in time, and 80 are not.
const SPARE: f64 = 0.42;
/// Hundredths of a second in `/proc/stat`, on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Measures the share since the last measurement.
#[derive(Debug)]
pub struct ProcessorMeter {
    /// Processors that this process may use.
    allowed: f64,
    /// True if these are all processors of the machine, so that others use them too.
    all: bool,
    before: Option<(Instant, Times)>,
    /// Processors that others use, as a mean.
    others: f64,
}

/// Processor time up to a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Times {
    own: Duration,
    /// Time of all processes together, those of low priority excepted; zero if it is not known.
    machine: Duration,
}

impl Default for ProcessorMeter {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessorMeter {
    /// Creates a meter for the processors of this process.
    pub fn new() -> Self {
        let allowed = available_parallelism().map_or(1, usize::from);
        let all = fs::read_to_string("/proc/stat").is_ok_and(|stat| processors(&stat) == allowed);
        Self { allowed: allowed as f64, all, before: None, others: 0.0 }
    }

    /// Processors that calls may fill: more, and packets and frames wait for one.
    pub fn fillable(&self) -> f64 {
        self.allowed - SPARE * self.allowed.sqrt()
    }

    /// Measures the processors that this process used since the last call, as a share of those that it may fill; 0 at the first one.
    pub fn share(&mut self, now: Instant) -> f64 {
        let stat = if self.all { fs::read_to_string("/proc/stat").unwrap_or_default() } else { String::new() };
        self.add(now, Times { own: own_time(), machine: busy_time(&stat).unwrap_or_default() })
    }

    fn add(&mut self, now: Instant, times: Times) -> f64 {
        let Some((began, before)) = self.before.replace((now, times)) else { return 0.0 };
        let covers = now.saturating_duration_since(began).as_secs_f64();
        if covers <= 0.0 {
            return 0.0;
        }
        let since = |time: Duration, before: Duration| time.as_secs_f64() - before.as_secs_f64();
        let own = since(times.own, before.own) / covers;
        let others = if self.all { since(times.machine, before.machine) / covers - own } else { 0.0 };
        self.others += WEIGHT * (others - self.others);
        (own / self.fillable()).max(0.0)
    }

    /// Share of the processors that others leave to this process.
    pub fn left_by_others(&self) -> f64 {
        (1.0 - self.others.max(0.0) / self.allowed).max(OWN)
    }
}

/// Processor time of this process; zero if the system does not tell it.
pub fn own_time() -> Duration {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Duration::ZERO };
    let time = |time: nix::sys::time::TimeVal| {
        // Systems differ in the width of microseconds.
        let micros = u64::try_from(time.tv_usec()).unwrap_or(0);
        Duration::from_secs(time.tv_sec().unsigned_abs()) + Duration::from_micros(micros)
    };
    time(usage.user_time()) + time(usage.system_time())
}

/// Number of processors in `/proc/stat`.
fn processors(stat: &str) -> usize {
    stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count()
}

/// Time in which processors worked, other than for processes of low priority; `None` if the first line is another one.
fn busy_time(stat: &str) -> Option<Duration> {
    let mut counts = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let mut next = || counts.next()?.parse::<u32>().ok();
    let (user, _nice, system, _idle, _waiting) = (next()?, next()?, next()?, next()?, next()?);
    let (interrupts, soft_interrupts, stolen) = (next()?, next()?, next().unwrap_or_default());
    let ticks = [user, system, interrupts, soft_interrupts, stolen].map(u64::from).iter().sum::<u64>();
    Some(Duration::from_millis(ticks.saturating_mul(TICK.as_millis() as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str =
        "cpu  100 50 30 800 5 2 3 10 7 0\ncpu0 50 25 15 400 2 1 2 5 3 0\ncpu1 50 25 15 400 3 1 1 5 4 0\nintr 1\n";

    #[test]
    fn low_priority_and_idle_time_are_not_busy() {
        assert_eq!(busy_time(STAT), Some(Duration::from_millis(1_450)));
        assert_eq!(processors(STAT), 2);
        assert_eq!((busy_time(""), busy_time("cpu  1 2\n")), (None, None));
    }

    /// Share of what others leave, after seconds in which this process and others use so many of two processors.
    fn share(own: f64, others: f64) -> f64 {
        let mut meter = ProcessorMeter { allowed: 2.0, all: true, before: None, others: 0.0 };
        let begin = Instant::now();
        let at = |seconds: u32, used: f64| Duration::from_secs_f64(f64::from(seconds) * used);
        let times = |seconds| Times { own: at(seconds, own), machine: at(seconds, own + others) };
        let shares = (0..600).map(|second| meter.add(begin + Duration::from_secs(u64::from(second)), times(second)));
        shares.last().unwrap() / meter.left_by_others()
    }

    #[test]
    fn others_shrink_what_is_left_to_half() {
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.01, "{found}, not {expected}");
        near(share(0.7, 0.0), 0.5);
        near(share(0.7, 0.5), 0.667);
        near(share(0.14, 1.86), 0.2);
        near(share(0.63, 1.37), 0.9);
        near(share(0.0, 2.0), 0.0);
    }

    #[test]
    fn many_processors_are_filled_further_than_few() {
        let share =
            |allowed: f64| ProcessorMeter { allowed, all: true, before: None, others: 0.0 }.fillable() / allowed;
        let found = [1.0, 2.0, 8.0, 64.0].map(|allowed| (100.0 * share(allowed)).round());
        assert_eq!(found, [58.0, 70.0, 85.0, 95.0]);
    }

    #[test]
    fn work_of_this_process_is_measured() {
        let mut meter = ProcessorMeter::new();
        let begin = Instant::now();
        assert_eq!(meter.share(begin), 0.0);
        let before = own_time();
        while own_time() < before + Duration::from_millis(20) {}
        assert!(meter.share(Instant::now()) > 0.0);
    }
}
