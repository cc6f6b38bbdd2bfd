//! Search for the largest number of callers: doubling, then bisection.

/// Bisection: doubles until a run fails, then halves the interval until it is at most a twelfth.
#[derive(Debug)]
pub(super) struct KneeSearch {
    first: usize,
    most: usize,
    good: usize,
    bad: Option<usize>,
}

impl KneeSearch {
    /// Creates a search from `first` to `most` callers.
    pub fn new(first: usize, most: usize) -> Self {
        Self { first: first.clamp(1, most.max(1)), most: most.max(1), good: 0, bad: None }
    }

    /// Returns the next number of callers to try; `None` at the end of the search.
    pub fn next(&self) -> Option<usize> {
        match self.bad {
            None if self.good == 0 => Some(self.first),
            None => (self.good < self.most).then(|| (self.good * 2).min(self.most)),
            Some(bad) => (bad - self.good > (self.good / 12).max(1)).then(|| self.good.midpoint(bad)),
        }
    }

    /// Records whether a run with `callers` stayed within limits.
    pub fn record(&mut self, callers: usize, within: bool) {
        if within {
            self.good = callers;
        } else {
            self.bad = Some(callers);
        }
    }

    /// Returns the most callers that stayed within limits; 0 for none.
    pub fn found(&self) -> usize {
        self.good
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn searched(first: usize, most: usize, knee: usize) -> (usize, usize) {
        let (mut search, mut runs) = (KneeSearch::new(first, most), 0);
        while let Some(callers) = search.next() {
            search.record(callers, callers <= knee);
            runs += 1;
        }
        (search.found(), runs)
    }

    #[test]
    fn knee_is_found_to_a_twelfth() {
        for knee in [1, 5, 8, 9, 47, 60, 150, 255, 511] {
            let (found, runs) = searched(8, 512, knee);
            assert!(found <= knee && knee - found <= (knee / 12).max(1), "{found} in place of {knee}");
            assert!(runs <= 14, "{runs}");
        }
        assert_eq!(searched(8, 512, 10_000).0, 512);
        assert_eq!(searched(8, 512, 0).0, 0);
    }
}
