//! A caller's connection to the server, over each transport.
//!
//! | file | what it does |
//! |---|---|
//! | `webrtc` | a call over WebRTC, on str0m |
//! | `websocket` | a call over a websocket |
//! | `sip` | a telephone's call over SIP |
//! | `rtp_receiver` | jitter buffer, loss concealment and decoding |
//! | `socket` | UDP with the kernel's arrival times |
//! | `network`, `delay_queue` | a simulated bad network |

pub mod delay_queue;
pub mod network;
pub mod rtp_receiver;
pub mod sip;
pub mod socket;
pub mod webrtc;
pub mod websocket;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::measure::playback::Playback;
use crate::scenario::{Scenario, TransportKind};
use crate::server_events::TimedEvent;
use crate::speech::Frame;
use crate::target::Target;
use sip::SipTransport;
use webrtc::{RtpReport, WebRtcTransport};
use websocket::WebSocketTransport;

/// Timeout of a send, if the server reads nothing.
const SENDING: Duration = Duration::from_secs(10);

/// A call in progress.
#[derive(Debug)]
pub enum Transport {
    /// A call over WebRTC.
    WebRtc(Box<WebRtcTransport>),
    /// A call over a websocket.
    WebSocket(Box<WebSocketTransport>),
    /// A call over SIP.
    Sip(Box<SipTransport>),
}

impl Transport {
    /// Connects caller `caller` of `scenario`. `patience` is the deadline.
    ///
    /// # Errors
    /// The server refuses the call, or the deadline passes.
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
            TransportKind::Sip => {
                let server = scenario.sip.context("sip: the server's address is missing")?;
                Ok(Self::Sip(Box::new(SipTransport::call(target, caller, server, patience).await?)))
            }
        }
    }

    /// Returns the next event, or `None` at `until`.
    ///
    /// # Errors
    /// The server hung up, or sent something malformed.
    pub async fn next(&mut self, until: Instant) -> Result<Option<TimedEvent>> {
        match self {
            Self::WebRtc(line) => line.next(until).await,
            Self::WebSocket(line) => line.next(until).await,
            Self::Sip(line) => line.next(until).await,
        }
    }

    /// Sends one 20 ms frame of the microphone.
    ///
    /// # Errors
    /// The connection is closed, or the server reads nothing for ten seconds.
    pub async fn send_frame(&mut self, frame: &Frame) -> Result<()> {
        match self {
            Self::WebRtc(line) => line.send_frame(frame),
            Self::WebSocket(line) => line.send_frame(frame, Instant::now() + SENDING).await,
            Self::Sip(line) => {
                line.send_frame(frame);
                Ok(())
            }
        }
    }

    /// Sends a client event.
    ///
    /// # Errors
    /// The connection is closed, or the server reads nothing.
    pub async fn send_event(&mut self, event: &Value) -> Result<()> {
        match self {
            Self::WebRtc(line) => line.send_event(event),
            Self::WebSocket(line) => line.send_event(event, Instant::now() + SENDING).await,
            Self::Sip(line) => line.send_event(event, Instant::now() + SENDING).await,
        }
    }

    /// Returns the playback of received sound.
    pub fn playback(&mut self) -> &mut Playback {
        match self {
            Self::WebRtc(line) => line.playback(),
            Self::WebSocket(line) => line.playback(),
            Self::Sip(line) => line.playback(),
        }
    }

    /// Returns RTP and RTCP statistics; `None` but over WebRTC.
    pub fn report(&self) -> Option<RtpReport> {
        match self {
            Self::WebRtc(line) => Some(line.report()),
            Self::WebSocket(_) | Self::Sip(_) => None,
        }
    }

    /// Closes the connection.
    pub async fn close(&mut self) {
        match self {
            Self::WebRtc(line) => line.close(),
            Self::WebSocket(line) => line.close().await,
            Self::Sip(line) => line.close().await,
        }
    }
}
