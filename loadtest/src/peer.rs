//! CPU cost of a WebRTC call, compared with a server made with the stock `aiortc`. Both get the same load and play a
//! canned voice.

use anyhow::{Context as _, Result, ensure};
use repartee_report::ReportRow;

use crate::measure::log::ScenarioLog;
use crate::run::LoadRunner;
use crate::scenario::Scenario;
use crate::scenario::arrivals::Arrivals;

/// CPU cost of a call.
#[derive(Debug, Clone, Copy)]
pub struct CallCost {
    /// Server cores per call.
    cores: f64,
    /// Cores of the Opus codec per call, if the server reports it.
    codec: Option<f64>,
}

/// Measures the cost of a call with `callers` that talk for `seconds`.
///
/// # Errors
/// The run failed, a call failed, or the server's process is unknown.
pub async fn cost(bench: &LoadRunner, callers: usize, seconds: f64) -> Result<CallCost> {
    let mut scenario = Scenario::for_command("knee")?;
    scenario.name = "cost of a call".to_owned();
    scenario.duration_s = seconds;
    scenario.arrivals = Arrivals::Soak { callers, within_s: 2.0, call_again: false };
    let before = codec_seconds(bench).await;
    let log = bench.run(&scenario).await?;
    let after = codec_seconds(bench).await;
    ensure!(log.errors.is_empty() && log.turns.len() >= callers, "calls failed: {:?}", log.errors);
    let cores = cores_per_call(&log, callers).context("the server's process is not known")?;
    let lasted: f64 = log.calls.iter().map(|call| (call.ended - call.began).as_secs_f64()).sum();
    let codec = before.zip(after).map(|(before, after)| (after - before) / lasted.max(1.0));
    Ok(CallCost { cores, codec })
}

/// Mean over the samples in which all callers are connected.
fn cores_per_call(log: &ScenarioLog, callers: usize) -> Option<f64> {
    let full = log.samples.iter().filter(|sample| sample.calls == callers);
    let cores: Vec<f64> = full.filter_map(|sample| sample.server_cores).collect();
    (!cores.is_empty()).then(|| cores.iter().sum::<f64>() / cores.len() as f64 / callers as f64)
}

async fn codec_seconds(bench: &LoadRunner) -> Option<f64> {
    let (status, text) = bench.target.get("/codec").await.ok()?;
    let value: serde_json::Value = serde_json::from_str(&text).ok().filter(|_| status.is_success())?;
    value["seconds"].as_f64()
}

/// Returns the rows. Both servers use libopus at the same bit rate and effort, so the second row subtracts the peer's
/// codec time from both.
pub fn rows(ours: CallCost, peer: CallCost, callers: usize) -> Vec<ReportRow> {
    let note = format!("{callers} calls over WebRTC, canned voice; peer: aiortc");
    let mut rows = vec![ReportRow::lower_is_better("cpu_per_call_vs_aiortc", ours.cores, peer.cores, "cores", &note)];
    if let Some(codec) = peer.codec {
        let rest = |cost: CallCost| (cost.cores - codec).max(1e-6);
        let note = format!("{note}; {codec:.4} cores of Opus, measured by the peer, subtracted from both");
        rows.push(ReportRow::lower_is_better(
            "cpu_per_call_vs_aiortc_without_codec",
            rest(ours),
            rest(peer),
            "cores",
            note,
        ));
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_that_of_full_seconds() {
        let (_, mut log) = crate::report::rows::tests::log();
        log.samples[0].calls = 2;
        // 0.5 cores with two calls; the other sample has one.
        assert_eq!(cores_per_call(&log, 2), Some(0.25));
        assert_eq!(cores_per_call(&log, 3), None);
    }

    #[test]
    fn codec_is_taken_off_both() {
        let cost = |cores, codec| CallCost { cores, codec };
        let rows = rows(cost(0.02, None), cost(0.06, Some(0.01)), 4);
        assert!((rows[0].ratio.unwrap() - 3.0).abs() < 1e-9);
        assert!((rows[1].ratio.unwrap() - 5.0).abs() < 1e-9);
        assert_eq!(super::rows(cost(0.02, None), cost(0.06, None), 4).len(), 1);
    }
}
