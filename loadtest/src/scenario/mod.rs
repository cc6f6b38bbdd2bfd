//! Scenarios in TOML: arrivals, turns, transport and network. `standard.toml` has examples.

pub mod arrivals;

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::transport::network::Impairment;
use arrivals::Arrivals;

/// The scenarios that `make loadtest` runs.
const STANDARD: &str = include_str!("standard.toml");
/// The base scenarios of `knee`, `soak` and other commands.
const COMMANDS: &str = include_str!("commands.toml");
/// The longest scenario, in seconds.
const LONGEST_S: f64 = 24.0 * 3_600.0;

/// Transport between callers and server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransportKind {
    /// Sound over UDP, events over the data channel.
    #[default]
    Webrtc,
    /// Sound and events over one socket.
    Websocket,
    /// Sound of a telephone over UDP, events over a sideband connection.
    Sip,
}

/// The side that ends a caller's turn.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EndOfTurn {
    /// The server, after silence: endpointing is part of the delay.
    #[default]
    Server,
    /// The caller, with an event right after the speech.
    Client,
}

/// One load scenario, as read from TOML.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name of the scenario in reports.
    pub name: String,
    /// Purpose of the scenario, shown in the report.
    #[serde(default)]
    pub about: String,
    /// Time in which calls begin, in seconds. Turns in progress at its end may finish.
    pub duration_s: f64,
    /// Transport between callers and server.
    #[serde(default)]
    pub transport: TransportKind,
    /// Address of the server's calls over SIP (SIP only).
    #[serde(default)]
    pub sip: Option<SocketAddr>,
    /// Arrival process of the calls.
    pub arrivals: Arrivals,
    /// Turns per call; callers who stay continue to the end.
    #[serde(default = "one")]
    pub turns: usize,
    /// The side that ends a turn.
    #[serde(default)]
    pub end_of_turn: EndOfTurn,
    /// Mean time between an answer and the next question, in seconds; exponentially distributed, at most four times as
    /// long.
    #[serde(default)]
    pub think_s: f64,
    /// Only questions about these topics; empty for all.
    #[serde(default)]
    pub topics: Vec<String>,
    /// Questions per turn, asked in one utterance.
    #[serde(default = "one")]
    pub questions_per_turn: usize,
    /// Barge in with the next question this many seconds after the first sound of each answer.
    #[serde(default)]
    pub interrupt_after_s: Option<f64>,
    /// Hang up at any time, after this many seconds on average.
    #[serde(default)]
    pub hang_up_after_s: Option<f64>,
    /// Delay before each read of a message, in ms (websocket only).
    #[serde(default)]
    pub read_delay_ms: f64,
    /// Longest set-up of a call, and longest time without activity in a turn, in seconds.
    #[serde(default = "thirty")]
    pub patience_s: f64,
    /// Simulated network between callers and server (WebRTC only).
    #[serde(default)]
    pub network: Impairment,
    /// Session fields that callers send in `session.update`.
    #[serde(default)]
    pub session: Map<String, Value>,
}

fn one() -> usize {
    1
}

fn thirty() -> f64 {
    30.0
}

/// A file of scenarios.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scenario: Vec<Scenario>,
}

impl Scenario {
    /// Loads the scenarios of `path`, or the standard ones.
    ///
    /// # Errors
    /// The file cannot be read, or a field is out of bounds.
    pub fn load(path: Option<&Path>) -> Result<Vec<Self>> {
        match path {
            None => Self::read(STANDARD).context("standard.toml"),
            Some(path) => {
                let named = || path.display().to_string();
                Self::read(&std::fs::read_to_string(path).with_context(named)?).with_context(named)
            }
        }
    }

    /// Returns the base scenario of a command.
    ///
    /// # Errors
    /// `name` is unknown.
    pub fn for_command(name: &str) -> Result<Self> {
        let all = Self::read(COMMANDS).context("commands.toml")?;
        all.into_iter().find(|scenario| scenario.name == name).with_context(|| format!("no scenario {name}"))
    }

    fn read(text: &str) -> Result<Vec<Self>> {
        let File { scenario } = toml::from_str(text)?;
        for one in &scenario {
            one.check().with_context(|| format!("scenario {}", one.name))?;
        }
        Ok(scenario)
    }

    /// Checks all fields.
    ///
    /// # Errors
    /// A field is out of bounds, or two fields exclude each other.
    pub fn check(&self) -> Result<()> {
        let bounded = |name: &str, value: f64, most: f64| {
            ensure!((0.0..=most).contains(&value), "{name}: 0 to {most}");
            Ok(())
        };
        bounded("duration_s", self.duration_s, LONGEST_S)?;
        bounded("think_s", self.think_s, 600.0)?;
        bounded("interrupt_after_s", self.interrupt_after_s.unwrap_or(0.0), 60.0)?;
        bounded("hang_up_after_s", self.hang_up_after_s.unwrap_or(0.0), LONGEST_S)?;
        bounded("read_delay_ms", self.read_delay_ms, 60_000.0)?;
        bounded("patience_s", self.patience_s, 600.0)?;
        ensure!((1..=1_000).contains(&self.turns), "turns: 1 to 1000");
        ensure!((1..=100).contains(&self.questions_per_turn), "questions_per_turn: 1 to 100");
        let websocket = self.transport == TransportKind::Websocket;
        ensure!(websocket || self.read_delay_ms == 0.0, "read_delay_ms: needs transport = \"websocket\"");
        let webrtc = self.transport == TransportKind::Webrtc;
        ensure!(webrtc || self.network == Impairment::default(), "network: webrtc only; TCP hides losses");
        ensure!(
            self.sip.is_some() == (self.transport == TransportKind::Sip),
            "sip: for transport = \"sip\" alone, and needed"
        );
        let client_ends = self.end_of_turn == EndOfTurn::Client;
        ensure!(!client_ends || self.interrupt_after_s.is_none(), "interrupt_after_s: needs end_of_turn = \"server\"");
        ensure!(
            !self.answers_in_slices() || !(client_ends || self.interrupt_after_s.is_some()),
            "session.repartee.slice_ms: excludes interrupt_after_s and end_of_turn = \"client\""
        );
        self.network.check()?;
        self.arrivals.check()
    }

    /// True if turns are answered slice by slice (`session.repartee.slice_ms`).
    pub fn answers_in_slices(&self) -> bool {
        self.session.get("repartee").is_some_and(|ours| ours.get("slice_ms").is_some())
    }

    /// Time in which calls begin.
    pub fn duration(&self) -> Duration {
        Duration::from_secs_f64(self.duration_s)
    }

    /// Longest set-up of a call, and longest time without activity in a turn.
    pub fn patience(&self) -> Duration {
        Duration::from_secs_f64(self.patience_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_scenarios_take_under_five_minutes() {
        let scenarios = Scenario::load(None).unwrap();
        let total: f64 = scenarios.iter().map(|scenario| scenario.duration_s).sum();
        assert!(total < 220.0, "{total} s, and turns that run out");
        for wanted in ["chat", "long", "barge-in", "churn", "slow", "loss", "stall", "websocket", "each-slice"] {
            assert!(scenarios.iter().any(|scenario| scenario.name.contains(wanted)), "{wanted}");
        }
    }

    #[test]
    fn commands_have_their_scenarios() {
        assert!(Scenario::for_command("knee").unwrap().arrivals.stay());
        let soak = Scenario::for_command("soak").unwrap();
        assert!(soak.arrivals.call_again() && soak.turns > 1);
    }

    #[test]
    fn errors_name_scenario_and_field() {
        let read = |more: &str| {
            let text = format!(
                "[[scenario]]\nname = \"x\"\nduration_s = 5\narrivals = {{ kind = \"poisson\", per_s = 1 }}\n{more}"
            );
            Scenario::read(&text).map_err(|error| format!("{error:#}"))
        };
        assert!(read("").is_ok());
        for (more, part) in [
            ("turns = 0", "scenario x: turns"),
            ("read_delay_ms = 5", "read_delay_ms"),
            ("transport = \"websocket\"\nnetwork = { loss = 0.1 }", "TCP"),
            ("network = { loss = 2 }", "network.loss"),
            ("end_of_turn = \"client\"\nsession = { repartee = { slice_ms = 500 } }", "slice_ms"),
            ("think = 1", "think"),
        ] {
            let error = read(more).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
