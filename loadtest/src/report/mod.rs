//! Reports: rows of figures for `repartee_report`, and a page with plots.
//!
//! | file | what it does |
//! |---|---|
//! | `rows` | the rows of a scenario |
//! | `plot` | plots as SVG |
//! | `page` | one HTML page with all figures |

pub mod page;
pub mod plot;
pub mod rows;

use std::time::Duration;

/// Returns the percentile by nearest rank, a value that occurred; `None` if `sorted` is empty.
pub fn percentile(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn percentiles_are_values_that_occurred() {
        let values: Vec<Duration> = (1..=200).map(|i| i * MS).collect();
        assert_eq!(
            [50, 95, 99, 100].map(|percent| percentile(&values, percent)),
            [100, 190, 198, 200].map(|i| Some(i * MS))
        );
        assert_eq!(percentile(&values[..1], 50), Some(MS));
        assert_eq!(percentile(&[], 50), None);
    }
}
