//! Places of the sound at which a growing turn is decoded, and the windows that are encoded there.

/// Windows of the encoder's longest one: served windows are multiples of this part of it, 5 s of 30 s.
const UNITS: usize = 6;
/// Part of a unit that is silent behind the sound, 0.5 s of 5 s.
const SILENCE: usize = 10;
/// Places in the first unit.
const PLACES: usize = 5;

/// Lengths in samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    unit: usize,
    limit: usize,
    /// Shortest window.
    least: usize,
}

impl Schedule {
    /// Creates the schedule of an encoder whose longest window has `frames` frames of `hop` samples.
    pub fn new(frames: usize, hop: usize) -> Self {
        // Two frames make a row, of the silence too.
        let unit = frames.div_ceil(UNITS).next_multiple_of(2 * SILENCE);
        Self { unit: unit * hop, limit: frames * hop, least: unit * hop }
    }

    /// Returns the schedule with the longest window everywhere.
    pub fn with_whole_windows(self) -> Self {
        Self { least: self.limit, ..self }
    }

    /// Samples of the longest window.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Samples of the window for sound of `samples` samples: rounded up to a unit, at most the limit. Silence of a part of
    /// a unit stands behind the sound, because texts of sound that fills its window often do not end.
    pub fn window(&self, samples: usize) -> usize {
        let rounded = samples.next_multiple_of(self.unit);
        let silent = (samples + self.unit / SILENCE).next_multiple_of(self.unit / SILENCE);
        rounded.max(silent).clamp(self.least, self.limit)
    }

    /// Next place after `heard` samples of a turn. From one to the next it is a second for each unit that is encoded
    /// there: so the encoder's work is in proportion to the length of the turn.
    pub fn next(&self, heard: usize) -> usize {
        let mut place = 0;
        while place <= heard && place < self.limit {
            place += (self.unit / PLACES).max(1) * place.div_ceil(self.unit).max(1);
        }
        place.min(self.limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_become_rarer_as_windows_grow() {
        let schedule = Schedule::new(3000, 160);
        let places: Vec<usize> = std::iter::successors(Some(0), |place| Some(schedule.next(*place)))
            .skip(1)
            .take_while(|place| *place < schedule.limit())
            .map(|place| place / 16_000)
            .collect();
        assert_eq!(places, [1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 22, 27]);
        assert_eq!(schedule.next(27 * 16_000), 480_000);
        assert_eq!(schedule.next(70_001), 80_000, "any length has a next place");
        let encoded: usize = places.iter().map(|place| schedule.window(place * 16_000)).sum();
        assert!(encoded <= 6 * 27 * 16_000, "{encoded} samples are encoded");
    }

    #[test]
    fn windows_are_units_up_to_the_limit() {
        let schedule = Schedule::new(3000, 160);
        let tenths = |samples: usize| schedule.window(samples) / 1_600;
        assert_eq!([0, 1, 72_000, 88_000, 480_000].map(tenths), [50, 50, 50, 100, 300]);
        assert_eq!([72_001, 80_000, 152_001].map(tenths), [55, 55, 105], "silence stands behind the sound");
        // A window of no whole units.
        let odd = Schedule::new(100, 10);
        assert_eq!([1, 180, 181, 999].map(|n| odd.window(n)), [200, 200, 220, 1000]);
        assert_eq!(schedule.with_whole_windows().window(1), 480_000);
    }
}
