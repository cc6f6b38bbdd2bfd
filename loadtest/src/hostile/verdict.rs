//! Verdict on a row: the measurements of the innocent callers beside those alone, by ratio with a floor for noise.

use std::time::Duration;

use repartee_report::ReportRow;

const MIB: f64 = (1 << 20) as f64;

/// Bounds of the verdict.
#[derive(Debug, Clone, Copy)]
pub struct HostileBounds {
    /// Largest ratio of a delay to that alone.
    pub ratio: f64,
    /// Delay beyond that alone that counts as noise.
    pub floor: Duration,
    /// Health check's p99 that is always allowed.
    pub health: Duration,
    /// Largest peak of memory beyond that before, in bytes.
    pub peak: u64,
    /// Largest memory afterwards beyond that before, in bytes; `None` if nobody waits so long.
    pub later: Option<u64>,
}

impl HostileBounds {
    /// Bounds of the whole run.
    pub const WHOLE: Self = Self {
        ratio: 1.5,
        floor: Duration::from_millis(60),
        health: Duration::from_millis(50),
        peak: 512 << 20,
        later: Some(64 << 20),
    };
    /// Bounds of the quick run, which has few turns and perhaps a busy machine.
    pub const QUICK: Self = Self {
        ratio: 3.0,
        floor: Duration::from_millis(300),
        health: Duration::from_millis(300),
        peak: 512 << 20,
        later: None,
    };

    fn delay(&self, alone: Duration) -> Duration {
        alone.mul_f64(self.ratio).max(alone + self.floor)
    }
}

/// Measurements of one kind of innocent caller.
#[derive(Debug, Clone, PartialEq)]
pub struct CallerResult {
    /// Name of the transport.
    pub transport: &'static str,
    /// End of speech to first sound, p95; `None` without an answer.
    pub first_sound: Option<Duration>,
    /// Number of answered turns, and of right ones.
    pub turns: usize,
    /// Number of right answers.
    pub right: usize,
    /// Errors of the calls.
    pub errors: Vec<String>,
}

/// Measurements of one row.
#[derive(Debug, Clone, PartialEq)]
pub struct HostileResult {
    /// The innocent callers.
    pub callers: Vec<CallerResult>,
    /// Health checks, p99.
    pub health: Duration,
    /// First error of a health check.
    pub health_error: Option<String>,
    /// Resident memory before, at most, and afterwards, in bytes.
    pub memory: [u64; 3],
    /// True if the server was alive at the end.
    pub alive: bool,
    /// Attackers that could not attack.
    pub idle: Vec<String>,
}

/// Returns what does not hold, as clauses.
pub fn failures(result: &HostileResult, alone: &HostileResult, bounds: &HostileBounds) -> Vec<String> {
    let mut found = Vec::new();
    if !result.alive {
        found.push("the server has ended, or was ended above 2 GiB".to_owned());
    }
    // A row without its attack would hold for nothing.
    found.extend(result.idle.iter().map(|name| format!("the attacker {name} could not attack")));
    for (caller, alone) in result.callers.iter().zip(&alone.callers) {
        let transport = caller.transport;
        if caller.turns == 0 || caller.right < caller.turns {
            found.push(format!("{transport}: {} of {} answers are right", caller.right, caller.turns));
        }
        if let Some(error) = caller.errors.first() {
            found.push(format!("{transport}: {} errors such as {error}", caller.errors.len()));
        }
        if let Some((late, alone)) = caller.first_sound.zip(alone.first_sound)
            && late > bounds.delay(alone)
        {
            found.push(format!(
                "{transport}: first sound after {} ms, alone {} ms",
                late.as_millis(),
                alone.as_millis()
            ));
        }
    }
    if result.health > bounds.health.max(bounds.delay(alone.health)) {
        let error = result.health_error.iter().map(|error| format!(", an answer is: {error}")).collect::<String>();
        found.push(format!("a health check takes {} ms{error}", result.health.as_millis()));
    }
    let [before, peak, later] = result.memory;
    let more = |memory: u64| memory.saturating_sub(before);
    if more(peak) > bounds.peak {
        found.push(format!("memory grows by {:.0} MiB", more(peak) as f64 / MIB));
    }
    if bounds.later.is_some_and(|most| more(later) > most) {
        found.push(format!("{:.0} MiB more memory are held afterwards", more(later) as f64 / MIB));
    }
    found
}

/// Returns the rows of the report.
pub fn rows(name: &str, note: &str, result: &HostileResult, alone: &HostileResult) -> Vec<ReportRow> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut rows = Vec::new();
    for (caller, alone) in result.callers.iter().zip(&alone.callers) {
        let of = |time: Option<Duration>| time.map_or(f64::NAN, ms);
        rows.push(ReportRow::lower_is_better(
            format!("{name}_first_sound_p95_{}", caller.transport),
            of(caller.first_sound),
            of(alone.first_sound),
            "ms",
            format!("{} of {} answers right; peer: alone; {note}", caller.right, caller.turns),
        ));
    }
    let health = format!("{name}_health_p99");
    rows.push(ReportRow::lower_is_better(health, ms(result.health), ms(alone.health), "ms", "peer: alone"));
    let [before, peak, later] = result.memory.map(|memory| memory as f64 / MIB);
    rows.push(ReportRow::without_peer(format!("{name}_memory_peak"), peak - before, "MiB", "beyond that before"));
    rows.push(ReportRow::without_peer(format!("{name}_memory_later"), later - before, "MiB", "beyond that before"));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(first_sound: u64, health: u64, memory: [u64; 3]) -> HostileResult {
        let caller = CallerResult {
            transport: "websocket",
            first_sound: Some(Duration::from_millis(first_sound)),
            turns: 3,
            right: 3,
            errors: Vec::new(),
        };
        let memory = memory.map(|mib| mib << 20);
        HostileResult {
            callers: vec![caller],
            health: Duration::from_millis(health),
            health_error: None,
            memory,
            alive: true,
            idle: Vec::new(),
        }
    }

    #[test]
    fn bounds_are_ratios_with_floors() {
        let alone = result(100, 2, [300, 310, 300]);
        let found = |other: &HostileResult| failures(other, &alone, &HostileBounds::WHOLE);
        assert!(found(&result(160, 50, [300, 812, 364])).is_empty(), "each is at its bound");
        assert_eq!(found(&result(161, 2, [300, 300, 300])), ["websocket: first sound after 161 ms, alone 100 ms"]);
        let mut unhealthy = result(100, 63, [300, 300, 300]);
        assert_eq!(found(&unhealthy), ["a health check takes 63 ms"]);
        unhealthy.health_error = Some("status 503".to_owned());
        assert_eq!(found(&unhealthy), ["a health check takes 63 ms, an answer is: status 503"]);
        let memory = found(&result(100, 2, [300, 813, 365]));
        assert_eq!(memory, ["memory grows by 513 MiB", "65 MiB more memory are held afterwards"]);
        // With a slow start the ratio counts.
        let slow = result(1_000, 2, [300, 300, 300]);
        assert!(failures(&result(1_500, 2, [300, 300, 300]), &slow, &HostileBounds::WHOLE).is_empty());
    }

    #[test]
    fn wrong_or_missing_answers_fail() {
        let alone = result(100, 2, [300, 300, 300]);
        let mut other = alone.clone();
        other.callers[0].right = 2;
        other.callers[0].errors = vec!["error event: x".to_owned()];
        let found = failures(&other, &alone, &HostileBounds::QUICK);
        assert_eq!(found, ["websocket: 2 of 3 answers are right", "websocket: 1 errors such as error event: x"]);
        (other.callers[0].turns, other.callers[0].right, other.callers[0].first_sound) = (0, 0, None);
        other.callers[0].errors.clear();
        other.alive = false;
        other.idle = vec!["x".to_owned()];
        let found = failures(&other, &alone, &HostileBounds::QUICK);
        assert!(found.len() == 3 && found[1] == "the attacker x could not attack", "{found:?}");
    }

    #[test]
    fn rows_compare_with_alone() {
        let rows = rows("x", "why", &result(200, 4, [300, 400, 310]), &result(100, 2, [300, 300, 300]));
        let values: Vec<(&str, f64, Option<f64>)> =
            rows.iter().map(|row| (&*row.measure, row.ours, row.ratio)).collect();
        let expected = [
            ("x_first_sound_p95_websocket", 200.0, Some(0.5)),
            ("x_health_p99", 4.0, Some(0.5)),
            ("x_memory_peak", 100.0, None),
            ("x_memory_later", 10.0, None),
        ];
        assert_eq!(values, expected);
    }
}
