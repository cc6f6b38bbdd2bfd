//! A long run: compares memory and delay early and late in it.

use std::time::Duration;

use repartee_report::ReportRow;

use crate::measure::log::ScenarioLog;
use crate::report::percentile;

/// Equal parts of the run; the second and the last are compared.
const PARTS: u32 = 4;

/// Compares the last quarter with the second; the first is warm-up.
pub fn rows(name: &str, length: Duration, log: &ScenarioLog) -> Vec<ReportRow> {
    let part = length / PARTS;
    let median = |from: Duration, until: Duration| {
        let turns = log.turns.iter().filter(|turn| (from..until).contains(&turn.speech_end));
        let mut sounds: Vec<Duration> = turns.map(|turn| turn.to_sound).collect();
        sounds.sort();
        percentile(&sounds, 50).map(|time| time.as_secs_f64() * 1e3)
    };
    let memory = |from: Duration, until: Duration| {
        let samples = log.samples.iter().filter(|sample| (from..until).contains(&sample.at));
        let values: Vec<f64> =
            samples.filter_map(|sample| sample.server_memory).map(|bytes| bytes as f64 / 1_048_576.0).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let (early, late) = ((part, part * 2), (part * (PARTS - 1), length));
    let note = format!("{name}, {:.0} min: last quarter; peer: second quarter", length.as_secs_f64() / 60.0);
    let mut rows = Vec::new();
    if let (Some(before), Some(after)) = (median(early.0, early.1), median(late.0, late.1)) {
        rows.push(ReportRow::lower_is_better("soak, end of speech to sound, p50", after, before, "ms", &note));
    }
    if let (Some(before), Some(after)) = (memory(early.0, early.1), memory(late.0, late.1)) {
        rows.push(ReportRow::lower_is_better("soak, server's memory", after, before, "MiB", &note));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_quarter_meets_the_second() {
        let (_, mut log) = crate::report::rows::tests::log();
        // Turns at 1, 2, 3, 4 s took 100, 200, 300, 400 ms; samples are at 1 and 2 s.
        log.samples[1].at = Duration::from_secs(4);
        let rows = rows("soak", Duration::from_millis(4_100), &log);
        assert_eq!(rows.iter().map(|row| (row.ours, row.peer)).collect::<Vec<_>>(), [(400.0, Some(200.0))]);
        assert_eq!(rows[0].ratio, Some(0.5));
    }
}
