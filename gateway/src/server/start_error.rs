//! Error of starting a server.

use std::io;
use std::net::SocketAddr;

use opentelemetry_otlp::ExporterBuildError;
use repartee_engine::TurnModelError;
use thiserror::Error;

#[cfg(feature = "phone")]
use super::sip::SipTlsError;
use super::tls::TlsError;
use crate::config::{ConfigError, SipAddress};
use crate::recording::RecordingError;
use crate::usage::file::UsageFileError;
use crate::voices::FolderError;

/// Error of starting a server.
#[derive(Debug, Error)]
pub enum ServerStartError {
    /// The settings are refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The HTTP address cannot be bound.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// Address of the socket.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The TLS settings cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The folder of voices cannot be used.
    #[error(transparent)]
    Voices(#[from] FolderError),
    /// The file of the usage ledger cannot be read.
    #[error(transparent)]
    Usage(#[from] UsageFileError),
    /// The stored voices cannot be enrolled.
    #[error("cannot enrol the stored voices: {0}")]
    Enrolment(io::Error),
    /// The turn-detection model cannot be loaded.
    #[error("turns.model: {0}")]
    Turns(#[from] TurnModelError),
    /// The threads of the turn-detection model cannot be started.
    #[error("cannot start the threads of the turn-detection model: {0}")]
    Threads(io::Error),
    /// The threads of long computations cannot be used.
    #[error("cannot use threads for long computations: {0}")]
    LongWork(io::Error),
    /// The control thread cannot be started.
    #[error("cannot start the thread that accepts connections: {0}")]
    Control(io::Error),
    /// The threads of requests cannot be started.
    #[error("cannot start the threads of requests: {0}")]
    Requests(io::Error),
    /// The UDP address of the calls cannot be bound.
    #[error("cannot use the UDP address {address} for calls: {error}")]
    Udp {
        /// Address of the socket.
        address: SocketAddr,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The folder of recordings cannot be used.
    #[error(transparent)]
    Recordings(#[from] RecordingError),
    /// The certificates of telephone calls cannot be used.
    #[cfg(feature = "phone")]
    #[error(transparent)]
    SipTls(#[from] SipTlsError),
    /// The sockets of telephone calls cannot be used.
    #[error("sip.listen: {0}")]
    SipSockets(io::Error),
    /// An address of telephone calls cannot be bound.
    #[error("sip.listen: cannot use the address {address}: {error}")]
    Sip {
        /// Address of the socket.
        address: SipAddress,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The exporter of traces cannot be built.
    #[error("telemetry.otlp_endpoint: {0}")]
    Traces(#[from] ExporterBuildError),
    /// The operating system provides no random numbers.
    #[error("the operating system provides no random numbers: {0}")]
    Random(#[from] getrandom::Error),
    /// The metrics cannot be set up; an internal error.
    #[error("cannot set up the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}
