//! Bounds of a target's memory and time, linear in the input's size.

use std::time::{Duration, Instant};

use repartee_testkit::memory::peak_of;

/// Runs of an input over a bound before it counts: the first one may fill caches, and another process may have the
/// processor.
const TRIES: usize = 4;

/// Bounds of one input.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Peak of allocated bytes for an empty input.
    pub bytes: u64,
    /// Further bytes for each byte of input.
    pub bytes_per_byte: u64,
    /// Duration for an empty input, in milliseconds.
    pub ms: u64,
    /// Further duration for each byte of input, in microseconds.
    pub us_per_byte: u64,
}

impl Bounds {
    fn memory(&self, input: &[u8]) -> u64 {
        self.bytes + self.bytes_per_byte * input.len() as u64
    }

    fn time(&self, input: &[u8]) -> Duration {
        Duration::from_millis(self.ms) + Duration::from_micros(self.us_per_byte * input.len() as u64)
    }
}

/// A reader of bytes with its bounds.
#[derive(Debug)]
pub struct Target {
    /// Name of the target in `cargo fuzz`, and of its folder of seeds.
    pub name: &'static str,
    /// Reads an input.
    pub run: fn(&[u8]),
    /// Bounds of [`Self::run`].
    pub bounds: Bounds,
}

impl Target {
    /// Reads `input`; measures memory, not time.
    ///
    /// # Panics
    /// The target panics, takes more memory than its bound, or
    /// [`repartee_testkit::memory::CountingAllocator`] is not the global allocator.
    pub fn check(&self, input: &[u8]) {
        let allowed = self.bounds.memory(input);
        let peak = least(allowed, || self.peak(input));
        assert!(
            peak <= allowed,
            "{}: {peak} bytes of memory for {} of input; {allowed} are allowed",
            self.name,
            input.len()
        );
    }

    /// Reads `input`; returns the peak of allocated bytes.
    pub fn peak(&self, input: &[u8]) -> u64 {
        u64::try_from(peak_of(|| (self.run)(input))).unwrap_or(0)
    }

    /// Reads `input`; measures memory and time.
    ///
    /// # Panics
    /// As [`Self::check`], or the target takes more time than its bound.
    pub fn check_timed(&self, input: &[u8]) {
        let allowed = self.bounds.time(input);
        let taken = least(allowed, || {
            let begun = Instant::now();
            self.check(input);
            begun.elapsed()
        });
        assert!(
            taken <= allowed,
            "{}: {taken:?} for {} bytes of input; {allowed:?} are allowed",
            self.name,
            input.len()
        );
    }
}

/// Returns the first measurement within `allowed`, or the least of [`TRIES`].
fn least<T: Ord + Copy>(allowed: T, mut measure: impl FnMut() -> T) -> T {
    let mut least = measure();
    for _ in 1..TRIES {
        if least <= allowed {
            break;
        }
        least = least.min(measure());
    }
    least
}
