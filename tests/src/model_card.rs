//! The demo model's card: the table of measures that `make eval-model` writes into `models/demo/README.md`.

use anyhow::{Context, Result, ensure};

use crate::tools;

const BEGIN: &str = "<!-- eval-model: begin -->";
const END: &str = "<!-- eval-model: end -->";

/// Returns the share, 0 to 1, in the row `measure`. Fails if there is not exactly one such row with a percentage.
pub fn share(measure: &str) -> Result<f64> {
    let path = tools::root().join("models/demo/README.md");
    let card = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    row(&card, measure).with_context(|| format!("{measure:?} in {}", path.display()))
}

fn row(card: &str, measure: &str) -> Result<f64> {
    let (_, rest) = card.split_once(BEGIN).context("there is no table")?;
    let (table, _) = rest.split_once(END).context("the table has no end")?;
    let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let rows: Vec<_> =
        table.lines().map(cells).filter(|cells| cells.get(1).is_some_and(|name| name == measure)).collect();
    let [row] = &rows[..] else { anyhow::bail!("there are {} such rows", rows.len()) };
    let value = row.get(2).and_then(|cell| cell.strip_suffix(" %")).context("the value is no percentage")?;
    let share = value.parse::<f64>()? / 100.0;
    ensure!((0.0..=1.0).contains(&share), "{value} % is no share");
    Ok(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_by_the_row() {
        let card = format!(
            "| b | 1 % |\n{BEGIN}\n| measure | value |\n|---|---|\n| a | 36.7 % | 95 % |\n| b | none |\n{END}\n"
        );
        assert!((row(&card, "a").unwrap() - 0.367).abs() < 1e-9);
        row(&card, "b").unwrap_err();
        row(&card, "c").unwrap_err();
    }
}
