//! Attacks, each one process at low priority, so that the generator is not what is measured.
//!
//! | file | what it does |
//! |---|---|
//! | `victim` | the attacked server: connections, requests, websocket frames |
//! | `http`, `websocket`, `engine`, `webrtc`, `connected`, `forms`, `telephone`, `sip`, `sip_streams` | attacks of each kind |

mod connected;
mod engine;
mod forms;
mod http;
mod sip;
mod sip_streams;
mod telephone;
mod victim;
mod webrtc;
mod websocket;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::Args;

use victim::Victim;

/// An attack, which runs to the victim's end.
type Attack = fn(&Victim) -> Result<()>;

/// Attacks by name.
static ATTACKS: [(&str, Attack); 27] = [
    ("empty-parts", websocket::empty_parts),
    ("json-bombs", http::json_bombs),
    ("quadratic-parts", http::quadratic_parts),
    ("large-updates", websocket::large_updates),
    ("large-appends", websocket::large_appends),
    ("tiny-frames", websocket::tiny_frames),
    ("tiny-events", websocket::tiny_events),
    ("unread-pongs", websocket::unread_pongs),
    ("unread-output", websocket::unread_output),
    ("slow-heads", http::slow_heads),
    ("slow-bodies", http::slow_bodies),
    ("chunk-bombs", http::chunk_bombs),
    ("client-secrets", http::client_secrets),
    ("descriptors", http::descriptors),
    ("long-prompts", engine::long_prompts),
    ("short-prompts", engine::short_prompts),
    ("speech", engine::speech),
    ("text-answers", engine::text_answers),
    ("schemas", forms::schemas),
    ("media-streams", telephone::media_streams),
    ("sip-flood", sip::sip_flood),
    ("sip-streams", sip_streams::sip_streams),
    ("sdp-bombs", webrtc::sdp_bombs),
    ("offer-flood", webrtc::offer_flood),
    ("channel-events", connected::channel_events),
    ("rtp-rush", connected::rtp_rush),
    ("wrong-keys", http::wrong_keys),
];

/// The only attack by datagrams; apart from the others, because a flood of it uses up any processor.
static FLOOD: (&str, Attack) = ("rtp-flood", webrtc::rtp_flood);

/// Arguments of the hidden command `attack`, which is one attacker.
#[derive(Debug, Args)]
pub struct AttackArguments {
    /// Name of the attack
    name: String,
    /// Address of the server, on this machine
    #[arg(long)]
    address: SocketAddr,
    /// Address of its calls over SIP, on this machine
    #[arg(long)]
    sip: Option<SocketAddr>,
    /// Duration, in seconds
    #[arg(long)]
    seconds: f64,
    /// Number by which the attack's threads are multiplied
    #[arg(long, default_value_t = 1)]
    times: u8,
    /// API key
    #[arg(long, env = "REPARTEE_KEY", hide_env_values = true)]
    key: String,
}

impl AttackArguments {
    /// Attacks to the end.
    ///
    /// # Errors
    /// The attack is unknown, or cannot begin.
    pub fn run(&self) -> Result<()> {
        for address in self.sip.iter().chain([&self.address]) {
            anyhow::ensure!(address.ip().is_loopback(), "{address}: only this machine is attacked");
        }
        let mut all = ATTACKS.iter().chain([&FLOOD]);
        let (_, attack) =
            all.find(|(name, _)| *name == self.name).with_context(|| format!("no attack {}", self.name))?;
        let until = Instant::now() + Duration::from_secs_f64(self.seconds.clamp(0.0, 600.0));
        let times = usize::from(self.times);
        attack(&Victim { address: self.address, sip: self.sip, key: self.key.clone(), times, until })
    }
}

/// Returns the names of all attacks, in the order in which they begin.
pub fn names() -> impl Iterator<Item = &'static str> {
    [&FLOOD].into_iter().chain(&ATTACKS).map(|(name, _)| *name)
}

/// True if the attack needs a call before others of the same tenant have used up its places.
pub fn needs_call(name: &str) -> bool {
    name == FLOOD.0
}
