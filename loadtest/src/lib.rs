//! Synthetic callers: they call, send a wav, receive the response, and time it.
//!
//! The load is open loop: call `n` begins at `n` times the arrival interval, however the calls before it fare, so a
//! slow server is not spared. Within a call turns follow each other as they do between people.
//!
//! | file | what it does |
//! |---|---|
//! | `speech` | wav files as 20 ms frames |
//! | `playback_meter` | first audible packet and underruns of a response |
//! | `turn` | one turn's times, and how they become errors |
//! | `barge_in` | a turn in which the caller speaks into the response |
//! | `webrtc`, `websocket` | a caller over one transport |
//! | `wire` | the protocol as an independent client sees it |
//! | `report` | percentiles, the table, the JSON file |

mod barge_in;
mod playback_meter;
pub mod report;
mod speech;
pub mod turn;
mod webrtc;
mod websocket;
mod wire;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use tokio::task::JoinSet;

use speech::Utterance;
use turn::CallLog;

/// A load.
#[derive(Debug, Args)]
pub struct Load {
    /// The server.
    #[arg(long, default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// How to call it.
    #[arg(long, value_enum, default_value = "webrtc")]
    pub transport: Transport,
    /// Calls in all.
    #[arg(long, default_value_t = 1)]
    pub callers: usize,
    /// Turns of each call.
    #[arg(long, default_value_t = 1)]
    pub turns: usize,
    /// What is said: wav files of any format. Callers begin at different files and take turns through all.
    #[arg(long, num_args = 1.., required = true)]
    pub wav: Vec<PathBuf>,
    /// Time between the beginnings of two calls, in ms.
    #[arg(long, default_value_t = 200)]
    pub arrival_ms: u64,
    /// Silence between an answer's end and the next turn, in ms.
    #[arg(long, default_value_t = 500)]
    pub pause_ms: u64,
    /// Speak the next wav into each answer, so many ms after its first sound (WebRTC only).
    #[arg(long)]
    pub interrupt_ms: Option<u64>,
    /// How long an answer may take, in s.
    #[arg(long, default_value_t = 30)]
    pub timeout_s: u64,
    /// A key, if the server wants one.
    #[arg(long, env = "REPARTEE_KEY", hide_env_values = true)]
    pub key: Option<String>,
}

/// How callers reach the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// Media over UDP, events over the data channel; the server ends the turns.
    Webrtc,
    /// Sound and events over one socket; the caller ends its turns.
    Websocket,
}

/// What every caller does.
#[derive(Debug)]
pub(crate) struct Plan {
    server: wire::Server,
    utterances: Vec<Utterance>,
    pub turns: usize,
    pause: Duration,
    interrupt_after: Option<Duration>,
    timeout: Duration,
}

impl Plan {
    /// What caller `caller` says in its turn `turn`.
    fn utterance(&self, caller: usize, turn: usize) -> &Utterance {
        &self.utterances[(caller + turn) % self.utterances.len()]
    }
}

/// Makes all calls and returns what happened in them.
pub async fn run(arguments: &Load) -> anyhow::Result<CallLog> {
    anyhow::ensure!(
        arguments.interrupt_ms.is_none() || matches!(arguments.transport, Transport::Webrtc),
        "--interrupt-ms needs --transport webrtc: over a websocket the client plays, and stops by itself"
    );
    let utterances = arguments.wav.iter().map(|path| Utterance::load(path)).collect::<Result<Vec<_>, _>>()?;
    let plan = Arc::new(Plan {
        server: wire::Server::new(&arguments.url, arguments.key.clone())?,
        utterances,
        turns: arguments.turns,
        pause: Duration::from_millis(arguments.pause_ms),
        interrupt_after: arguments.interrupt_ms.map(Duration::from_millis),
        timeout: Duration::from_secs(arguments.timeout_s),
    });
    let mut calls = JoinSet::new();
    let mut arrivals = tokio::time::interval(Duration::from_millis(arguments.arrival_ms.max(1)));
    for caller in 0..arguments.callers {
        arrivals.tick().await;
        let (plan, transport) = (Arc::clone(&plan), arguments.transport);
        calls.spawn(async move {
            let mut log = CallLog::default();
            let ended = match transport {
                Transport::Webrtc => webrtc::call(&plan, caller, &mut log).await,
                Transport::Websocket => websocket::call(&plan, caller, &mut log).await,
            };
            if let Err(error) = ended {
                log.error(format!("{error:#}"));
            }
            log
        });
    }
    let mut total = CallLog::default();
    while let Some(log) = calls.join_next().await {
        total.merge(log.context("a caller failed")?);
    }
    Ok(total)
}

impl Load {
    /// The load in words.
    pub fn title(&self) -> String {
        let transport = match self.transport {
            Transport::Webrtc => "WebRTC",
            Transport::Websocket => "websocket",
        };
        let Self { callers, turns, arrival_ms, .. } = self;
        format!("{callers} callers over {transport}, {turns} turns each, one call every {arrival_ms} ms")
    }

    /// Whether every turn of every call was answered.
    pub fn is_answered_by(&self, log: &CallLog) -> bool {
        log.turns.len() == self.callers * self.turns && log.errors.is_empty()
    }
}

#[cfg(test)]
mod tests;
