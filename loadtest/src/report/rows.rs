//! Report rows of a scenario.

use std::time::Duration;

use repartee_report::ReportRow;

use super::percentile;
use crate::measure::log::{ScenarioLog, TurnLog};
use crate::measure::playback::GapCause;
use crate::scenario::Scenario;
use crate::transport::rtp_receiver::PacketCounts;

const HEADLINE: &str = "end of speech to sound";
const MIB: f64 = 1_048_576.0;

/// Returns the measured series of a scenario: name and sorted durations.
pub fn series(log: &ScenarioLog) -> Vec<(&'static str, Vec<Duration>)> {
    let mut setup: Vec<Duration> = log.calls.iter().filter_map(|call| call.setup).collect();
    setup.sort();
    let mut gaps: Vec<Duration> =
        log.turns.iter().flat_map(|turn| turn.answer.gaps.iter().map(|gap| gap.duration)).collect();
    gaps.sort();
    vec![
        (HEADLINE, log.sorted(|turn| Some(turn.to_sound))),
        ("endpointing, end of speech to commit", log.sorted(|turn| turn.endpointing)),
        ("TTFP, commit to first audible packet", log.sorted(|turn| turn.ttfp)),
        ("barge-in to silence", log.sorted(|turn| turn.barge_in)),
        ("gap that is heard", gaps),
        ("call set-up", setup),
    ]
}

/// Returns all rows of a scenario. Each row's note is the scenario's name.
pub fn of(scenario: &Scenario, log: &ScenarioLog) -> Vec<ReportRow> {
    let note = scenario.name.as_str();
    let mut rows = Vec::new();
    for (name, sorted) in series(log) {
        for percent in [50, 95, 99] {
            if let Some(value) = percentile(&sorted, percent) {
                rows.push(ReportRow::without_peer(
                    format!("{name}, p{percent}"),
                    value.as_secs_f64() * 1e3,
                    "ms",
                    note,
                ));
            }
        }
    }
    let mut add =
        |measure: &str, value: f64, unit: &'static str| rows.push(ReportRow::without_peer(measure, value, unit, note));
    let sum = |of: fn(&TurnLog) -> f64| log.turns.iter().map(of).sum::<f64>();
    let gaps = |cause: GapCause| {
        log.turns.iter().flat_map(|turn| &turn.answer.gaps).filter(|gap| gap.cause == cause).count() as f64
    };
    add("calls", log.calls.len() as f64, "calls");
    add("turns answered", log.turns.len() as f64, "turns");
    add("answers with a gap that is heard", log.gap_share() * 100.0, "%");
    add("underruns that are heard", gaps(GapCause::Underrun), "times");
    add("holes within sound", gaps(GapCause::Hole), "times");
    add("pauses stretched", sum(|turn| f64::from(turn.answer.stretched_pauses)), "times");
    let sound = sum(|turn| turn.answer.duration.as_secs_f64());
    if sound > 0.0 {
        add("sound made up for lost packets", sum(|turn| turn.answer.concealed.as_secs_f64()) / sound * 100.0, "%");
    }
    if let Some(underruns) = log.server_underruns {
        add("underruns by the server's count", underruns, "times");
    }
    let judged: Vec<bool> = log.turns.iter().filter_map(|turn| turn.correct).collect();
    if !judged.is_empty() {
        let right = judged.iter().filter(|right| **right).count() as f64 / judged.len() as f64;
        add("right answers by transcript", right * 100.0, "%");
    }
    rtp(log, &mut add);
    resources(log, &mut add);
    add("errors", log.error_count() as f64, "times");
    rows.extend(server_stages(log, note));
    for (error, count) in &log.errors {
        rows.push(ReportRow::without_peer("error", *count as f64, "times", format!("{note}: {error}")));
    }
    rows
}

/// Compares the server's own stages with the callers' measurements, in means, because medians of stages do not add up.
fn server_stages(log: &ScenarioLog, note: &str) -> Vec<ReportRow> {
    let row = |measure: &str, server: f64, heard: Vec<Duration>| {
        let mean = heard.iter().sum::<Duration>().as_secs_f64() / heard.len() as f64;
        let known = !heard.is_empty() && server > 0.0;
        known.then(|| ReportRow {
            peer: Some(mean * 1e3),
            ratio: Some(server / mean),
            ..ReportRow::without_peer(measure, server * 1e3, "ms", note)
        })
    };
    let (before, after): (Vec<_>, Vec<_>) = log.server_stages.iter().partition(|(name, _)| name == "endpointing");
    let sum = |stages: Vec<&(String, f64)>| stages.into_iter().map(|(_, mean)| mean).sum::<f64>();
    let endpointing = log.sorted(|turn| turn.endpointing);
    let ttfp = log.sorted(|turn| turn.ttfp);
    [
        row("endpointing by the server, mean; peer: as heard", sum(before), endpointing),
        row("TTFP by the server's stages, mean; peer: as heard", sum(after), ttfp),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn rtp(log: &ScenarioLog, add: &mut impl FnMut(&str, f64, &'static str)) {
    let reports: Vec<_> = log.calls.iter().filter_map(|call| call.rtp).collect();
    if reports.is_empty() {
        return;
    }
    let sum = |of: fn(&PacketCounts) -> u64| reports.iter().map(|report| of(&report.counts)).sum::<u64>() as f64;
    add("RTP packets received", sum(|counts| counts.received), "packets");
    add("RTP packets lost", sum(|counts| counts.lost), "packets");
    add("RTP packets too late or twice", sum(|counts| counts.late_or_duplicate), "packets");
    add("RTP packets out of order", sum(|counts| counts.reordered), "packets");
    let means: [(&str, Vec<f64>, f64, &'static str); 3] = [
        ("RTP jitter, mean", reports.iter().filter_map(|report| report.jitter).collect(), 1e3, "ms"),
        ("RTCP round trip, mean", reports.iter().filter_map(|report| report.round_trip).collect(), 1e3, "ms"),
        ("RTCP loss of our packets", reports.iter().filter_map(|report| report.loss_reported).collect(), 100.0, "%"),
    ];
    for (name, values, scale, unit) in means {
        if !values.is_empty() {
            add(name, values.iter().sum::<f64>() / values.len() as f64 * scale, unit);
        }
    }
}

fn resources(log: &ScenarioLog, add: &mut impl FnMut(&str, f64, &'static str)) {
    let mean = |values: Vec<f64>| (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64);
    if let Some(cores) = mean(log.samples.iter().filter_map(|sample| sample.server_cores).collect()) {
        add("server's processor, mean", cores, "cores");
    }
    let memory: Vec<f64> =
        log.samples.iter().filter_map(|sample| sample.server_memory).map(|bytes| bytes as f64 / MIB).collect();
    if let (Some(first), Some(last)) = (memory.first(), memory.last()) {
        add("server's memory, most", memory.iter().copied().fold(0.0, f64::max), "MiB");
        add("server's memory, end over beginning", last - first, "MiB");
    }
    if let Some(cores) = mean(log.samples.iter().map(|sample| sample.own_cores).collect()) {
        add("generator's processor, mean", cores, "cores");
    }
    if let Some(late) = log.lateness.percentile(99.0) {
        add("generator's own lateness, p99", late.as_secs_f64() * 1e3, "ms");
        add("generator's own lateness, most", log.lateness.most().as_secs_f64() * 1e3, "ms");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measure::log::{CallLog, ResourceSample};
    use crate::measure::playback::{AnswerPlayback, Gap};

    const MS: Duration = Duration::from_millis(1);

    /// Returns a log of four turns; the second has two gaps.
    pub fn log() -> (Scenario, ScenarioLog) {
        let mut log = ScenarioLog::default();
        for n in 1..=4_u32 {
            let gaps = vec![Gap { cause: GapCause::Underrun, duration: 120 * MS }; if n == 2 { 2 } else { 0 }];
            log.turns.push(TurnLog {
                call: 0,
                speech_end: n * 1_000 * MS,
                endpointing: Some(210 * MS),
                ttfp: Some(n * 10 * MS),
                to_sound: n * 100 * MS,
                barge_in: None,
                answer: AnswerPlayback { gaps, duration: 1_000 * MS, concealed: 20 * MS, ..AnswerPlayback::default() },
                correct: Some(n != 3),
            });
        }
        log.calls.push(CallLog { began: MS, setup: Some(30 * MS), ended: 5_000 * MS, rtp: None });
        log.samples.push(ResourceSample {
            at: 1_000 * MS,
            calls: 1,
            server_cores: Some(0.5),
            server_memory: Some(1 << 20),
            own_cores: 0.1,
            ..ResourceSample::default()
        });
        log.samples.push(ResourceSample {
            at: 2_000 * MS,
            calls: 1,
            server_cores: Some(0.7),
            server_memory: Some(3 << 20),
            own_cores: 0.1,
            ..ResourceSample::default()
        });
        log.server_stages = vec![("endpointing".to_owned(), 0.15), ("wire".to_owned(), 0.05)];
        log.error("refused <b>");
        (Scenario::for_command("knee").unwrap(), log)
    }

    #[test]
    fn figures_are_those_of_the_log() {
        let (scenario, log) = log();
        let rows = of(&scenario, &log);
        let value = |measure: &str| rows.iter().find(|row| row.measure == measure).map(|row| row.ours);
        assert_eq!(value("end of speech to sound, p50"), Some(200.0));
        assert_eq!(value("end of speech to sound, p95"), Some(400.0));
        assert_eq!(value("TTFP, commit to first audible packet, p99"), Some(40.0));
        assert_eq!(value("answers with a gap that is heard"), Some(25.0));
        assert_eq!((value("underruns that are heard"), value("holes within sound")), (Some(2.0), Some(0.0)));
        assert_eq!(value("right answers by transcript"), Some(75.0));
        assert_eq!(value("sound made up for lost packets"), Some(2.0));
        assert_eq!(value("server's memory, end over beginning"), Some(2.0));
        assert!((value("server's processor, mean").unwrap() - 0.6).abs() < 1e-9);
        assert_eq!((value("errors"), value("error")), (Some(1.0), Some(1.0)));
        let stages: Vec<_> = rows.iter().filter(|row| row.measure.contains("by the server")).collect();
        let of = |part: &str| stages.iter().find(|row| row.measure.starts_with(part)).map(|row| (row.ours, row.peer));
        assert_eq!(of("endpointing"), Some((150.0, Some(210.0))));
        assert_eq!(of("TTFP"), Some((50.0, Some(25.0))));
        assert_eq!(value("barge-in to silence, p50"), None);
        assert!(rows.iter().all(|row| row.note.starts_with("knee")));
    }
}
