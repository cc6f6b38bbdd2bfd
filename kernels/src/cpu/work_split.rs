//! Splits a product into parts for the threads of the pool.

use std::ops::Range;

use super::simd::LANES;

/// Least multiply-adds of a part: over a microsecond, the cost of a pool region.
pub const LEAST_PART: usize = 1 << 16;
/// Parts for each thread: if one thread is late or preempted, the others take the rest.
pub(super) const PARTS_PER_THREAD: usize = 4;

/// Rows that share one pass over the panels: few enough to stay in the nearest cache beside a group of panels.
pub(super) const ROW_BLOCK: usize = 64;

/// A range of rows by a range of panels of a product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProductPart {
    /// Rows of the output.
    pub rows: Range<usize>,
    /// Panels of the weight.
    pub panels: Range<usize>,
}

/// Split of a product along one axis, into ranges of equal length but for the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkSplit {
    rows: usize,
    panels: usize,
    by_rows: bool,
    /// Rows or panels of a part.
    length: usize,
    /// Number of parts.
    pub parts: usize,
}

impl WorkSplit {
    /// Splits a product of `rows` rows by `panels` panels of `k` inputs, computed in tiles of (rows, panels).
    pub fn new(threads: usize, rows: usize, panels: usize, k: usize, tile: (usize, usize)) -> Self {
        let multiplies = rows.saturating_mul(panels).saturating_mul(k).saturating_mul(LANES);
        let most = (multiplies / LEAST_PART).min(threads * PARTS_PER_THREAD);
        if threads < 2 || most < 2 {
            return Self { rows, panels, by_rows: true, length: rows, parts: 1 };
        }
        // Part borders fall between tiles.
        let (row_tiles, panel_tiles) = (rows.div_ceil(tile.0), panels.div_ceil(tile.1));
        let by_rows = row_tiles > panel_tiles;
        let (all, tiles, tile) = if by_rows { (rows, row_tiles, tile.0) } else { (panels, panel_tiles, tile.1) };
        let length = tiles.div_ceil(most) * tile;
        Self { rows, panels, by_rows, length, parts: all.div_ceil(length) }
    }

    fn whole(&self) -> ProductPart {
        ProductPart { rows: 0..self.rows, panels: 0..self.panels }
    }

    /// Returns part `number`; parts have disjoint outputs.
    pub fn part(&self, number: usize) -> ProductPart {
        let all = if self.by_rows { self.rows } else { self.panels };
        let range = number * self.length..all.min((number + 1) * self.length);
        if self.by_rows {
            ProductPart { rows: range, ..self.whole() }
        } else {
            ProductPart { panels: range, ..self.whole() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tile sizes of the levels.
    const TILES: [(usize, usize); 6] = [(1, 8), (1, 4), (4, 4), (4, 2), (8, 2), (12, 2)];

    #[test]
    fn parts_cover_each_output_once() {
        for tile in TILES {
            for (threads, rows, panels, k) in [
                (2, 1920, 1, 84),
                (2, 16, 6, 1344),
                (3, 1, 2000, 900),
                (7, 2, 90, 800),
                (7, 63, 37, 500),
                (64, 5, 99, 999),
            ] {
                let cut = WorkSplit::new(threads, rows, panels, k, tile);
                assert!(cut.parts <= threads * PARTS_PER_THREAD, "{cut:?}");
                let several = rows > tile.0 || panels > tile.1;
                assert!(cut.parts > 1 || !several, "{cut:?}");
                let mut covered = vec![0; rows * panels];
                for part in (0..cut.parts).map(|number| cut.part(number)) {
                    assert!(!part.rows.is_empty() && !part.panels.is_empty(), "{part:?} of {cut:?}");
                    for row in part.rows {
                        part.panels.clone().for_each(|panel| covered[row * panels + panel] += 1);
                    }
                }
                assert!(covered.iter().all(|&times| times == 1), "{cut:?}");
            }
        }
    }

    #[test]
    fn small_products_stay_whole() {
        let parts = |threads, rows, panels, k| WorkSplit::new(threads, rows, panels, k, (1, 4)).parts;
        // A step of one row of the demo's talker; the same of a large model; one thread.
        assert_eq!([parts(2, 1, 16, 256), parts(1, 1000, 100, 1000)], [1, 1]);
        assert!(parts(2, 1, 128, 2048) > 1);
        assert_eq!(parts(2, usize::MAX, 1, 0), 1);
    }
}
