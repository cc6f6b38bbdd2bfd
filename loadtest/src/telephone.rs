//! Time to the first sound over the telephone beside WebRTC: one caller asks the same questions over both, in turns, of one
//! server in one run. The event of the commit, from which the time to first packet counts, comes by another path over each,
//! so the aim is judged by the time from the end of speech.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use repartee_report::ReportRow;

use crate::measure::log::{ScenarioLog, TurnLog};
use crate::report::percentile;
use crate::run::LoadRunner;
use crate::scenario::{Scenario, TransportKind};

/// Largest difference of the medians, besides the codecs' own delays.
const AIM_MS: f64 = 10.0;
/// Sound that the encoder of Opus holds back, in ms; mu-law holds back none.
const OPUS_MS: f64 = 6.5;

/// Length of the measurement.
#[derive(Debug, Clone, Args)]
pub struct TelephoneArguments {
    /// Calls over each transport, in turns
    #[arg(long, default_value_t = 4)]
    pub rounds: usize,
    /// Duration of each call, in seconds
    #[arg(long, default_value_t = 20.0)]
    pub call_s: f64,
}

/// Logs of all rounds over one transport.
struct Measured {
    scenario: Scenario,
    log: ScenarioLog,
}

impl Measured {
    fn new(transport: TransportKind, name: &str, sip: Option<SocketAddr>, call_s: f64) -> Result<Self> {
        let mut scenario = Scenario::for_command("telephone")?;
        (scenario.name, scenario.transport, scenario.sip) = (format!("telephone_{name}"), transport, sip);
        scenario.duration_s = call_s;
        scenario.check()?;
        Ok(Self { scenario, log: ScenarioLog::default() })
    }

    /// Calls once.
    async fn call(&mut self, bench: &LoadRunner) -> Result<()> {
        let ScenarioLog { turns, calls, errors, samples, .. } = bench.run(&self.scenario).await?;
        self.log.turns.extend(turns);
        self.log.calls.extend(calls);
        self.log.samples.extend(samples);
        errors.into_iter().for_each(|(error, count)| *self.log.errors.entry(error).or_default() += count);
        Ok(())
    }

    fn median_ms(&self, of: impl Fn(&TurnLog) -> Option<Duration>) -> f64 {
        percentile(&self.log.sorted(of), 50).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
    }
}

/// Measures both; returns the rows, the runs, and whether every call was answered. `sip` is the server's address of calls
/// over SIP.
///
/// # Errors
/// A scenario cannot run.
pub async fn measure(
    bench: &LoadRunner,
    sip: SocketAddr,
    arguments: &TelephoneArguments,
) -> Result<(Vec<ReportRow>, Vec<(Scenario, ScenarioLog)>, bool)> {
    let mut phone = Measured::new(TransportKind::Sip, "sip", Some(sip), arguments.call_s)?;
    let mut web = Measured::new(TransportKind::Webrtc, "webrtc", None, arguments.call_s)?;
    for _ in 0..arguments.rounds.max(1) {
        phone.call(bench).await?;
        web.call(bench).await?;
    }
    let rows = rows(&phone, &web);
    let good = [&phone, &web].iter().all(|measured| measured.log.errors.is_empty() && !measured.log.turns.is_empty());
    let runs = [phone, web].map(|measured| (measured.scenario, measured.log)).into();
    Ok((rows, runs, good))
}

fn rows(phone: &Measured, web: &Measured) -> Vec<ReportRow> {
    let note = format!("SIP with mu-law, {} answers; peer: WebRTC, {}", phone.log.turns.len(), web.log.turns.len());
    let row = |measure: &str, of: &dyn Fn(&TurnLog) -> Option<Duration>| {
        ReportRow::lower_is_better(measure, phone.median_ms(of), web.median_ms(of), "ms", note.clone())
    };
    let (packet, sound) =
        (row("telephone_ttfp_p50", &|turn| turn.ttfp), row("telephone_first_sound_p50", &|turn| Some(turn.to_sound)));
    let difference = |row: &ReportRow| row.ours - row.peer.unwrap_or(f64::NAN);
    let verdict = if difference(&sound) <= AIM_MS { "holds" } else { "is missed" };
    let aim = format!(
        "SIP less WebRTC; the aim {verdict}: at most {AIM_MS} ms besides the codecs' own delays, {OPUS_MS} ms of Opus and none of mu-law"
    );
    let differences = [
        ReportRow::without_peer("telephone_ttfp_difference", difference(&packet), "ms", "SIP less WebRTC"),
        ReportRow::without_peer("telephone_first_sound_difference", difference(&sound), "ms", aim),
    ];
    [packet, sound].into_iter().chain(differences).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_stand_beside_the_aim() {
        let measured = |later_ms: u64| {
            let (scenario, mut log) = crate::report::rows::tests::log();
            for turn in &mut log.turns {
                turn.to_sound = Duration::from_millis(100 + later_ms);
            }
            Measured { scenario, log }
        };
        let found = |later_ms: u64| rows(&measured(later_ms), &measured(0)).remove(3);
        let (near, far) = (found(10), found(11));
        assert!((near.ours - 10.0).abs() < 1e-6 && near.note.contains("the aim holds"), "{near:?}");
        assert!((far.ours - 11.0).abs() < 1e-6 && far.note.contains("the aim is missed"), "{far:?}");
    }
}
