//! A caller's line to the server, over either transport.
//!
//! | file | what it does |
//! |---|---|
//! | `webrtc` | a call over WebRTC, on str0m |
//! | `websocket` | a call over a websocket |
//! | `rtp_receiver` | order, loss and decoding of received packets |
//! | `socket` | UDP with the kernel's arrival times |
//! | `network`, `delay_queue` | a bad network in between |

pub mod delay_queue;
pub mod network;
pub mod rtp_receiver;
pub mod socket;
pub mod webrtc;
pub mod websocket;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::measure::playback::Playback;
use crate::scenario::{Scenario, TransportKind};
use crate::speech::Frame;
use crate::target::Target;
use crate::server_events::TimedEvent;
use webrtc::{RtpReport, WebRtcTransport};
use websocket::WebSocketTransport;

/// A server that takes nothing for so long is given up.
const SENDING: Duration = Duration::from_secs(10);

/// A call in progress.
#[derive(Debug)]
pub enum Transport {
    /// Over WebRTC.
    WebRtc(Box<WebRtcTransport>),
    /// Over a websocket.
    WebSocket(Box<WebSocketTransport>),
}

impl Transport {
    /// Calls as caller `caller` of `scenario`, by `patience`.
    pub async fn call(
        target: &Target,
        caller: usize,
        scenario: &Scenario,
        seed: u64,
        patience: Instant,
    ) -> Result<Self> {
        match scenario.transport {
            TransportKind::Webrtc => {
                let line = WebRtcTransport::call(target, caller, &scenario.network, seed, patience).await?;
                Ok(Self::WebRtc(Box::new(line)))
            }
            TransportKind::Websocket => {
                let delay = Duration::from_secs_f64(scenario.read_delay_ms / 1e3);
                let line = WebSocketTransport::call(target, caller, delay, patience).await?;
                Ok(Self::WebSocket(Box::new(line)))
            }
        }
    }

    /// The next event, or `None` at `until`.
    pub async fn next(&mut self, until: Instant) -> Result<Option<TimedEvent>> {
        match self {
            Self::WebRtc(line) => line.next(until).await,
            Self::WebSocket(line) => line.next(until).await,
        }
    }

    /// Sends 20 ms of the microphone.
    pub async fn send_frame(&mut self, frame: &Frame) -> Result<()> {
        match self {
            Self::WebRtc(line) => line.send_frame(frame),
            Self::WebSocket(line) => line.send_frame(frame, Instant::now() + SENDING).await,
        }
    }

    /// Sends an event.
    pub async fn send_event(&mut self, event: &Value) -> Result<()> {
        match self {
            Self::WebRtc(line) => line.send_event(event),
            Self::WebSocket(line) => line.send_event(event, Instant::now() + SENDING).await,
        }
    }

    /// Playback of what has arrived.
    pub fn playback(&mut self) -> &mut Playback {
        match self {
            Self::WebRtc(line) => line.playback(),
            Self::WebSocket(line) => line.playback(),
        }
    }

    /// What RTP and RTCP say, over WebRTC.
    pub fn report(&self) -> Option<RtpReport> {
        match self {
            Self::WebRtc(line) => Some(line.report()),
            Self::WebSocket(_) => None,
        }
    }

    /// Hangs up.
    pub async fn close(&mut self) {
        match self {
            Self::WebRtc(line) => line.close(),
            Self::WebSocket(line) => line.close().await,
        }
    }
}
