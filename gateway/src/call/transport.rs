//! A connection to one caller, as its call sees it: what it takes and what it brings.

use std::future::Future;
use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_engine_api::ResponseId;
use repartee_protocol::ErrorBody;
use repartee_protocol::session::AudioFormat;
use repartee_realtime::{Delivery, PlayoutReport};
use tokio::sync::mpsc;

/// A connection to one caller, as its call sees it. The line moves bytes and plays sound; it knows nothing of turns.
pub trait Line: Send {
    /// Who knows what the caller has heard.
    const DELIVERY: Delivery;

    /// What comes next. With `listen` false only the line's own clock goes on. Cancel safe.
    fn next(&mut self, listen: bool) -> impl Future<Output = Heard> + Send;

    /// Where events go. Closed once the caller is out of reach.
    fn outlet(&self) -> mpsc::Sender<Outgoing>;

    /// An answer begins to sound; how it is to be written where sound is part of the events.
    fn begin(&mut self, response: ResponseId, format: AudioFormat) -> Result<(), LineError>;

    /// Takes sound of an answer at the model's output rate. A line without a clock returns what to send as a delta.
    fn speak(&mut self, response: ResponseId, samples: &[f32]) -> Result<Vec<u8>, LineError>;

    /// An answer has no more sound; returns the last delta, if the line sends deltas.
    fn speech_end(&mut self, response: ResponseId) -> Result<Vec<u8>, LineError>;

    /// What the sound taken last became, where sound goes out beside the events: one binary message each.
    fn packets(&mut self) -> Vec<Bytes> {
        Vec::new()
    }

    /// Drops sound that was not played yet.
    fn clear(&mut self);

    /// Whether it takes more sound now.
    fn has_room(&self) -> bool;

    /// What the caller has heard of the answer being played.
    fn heard(&self) -> Option<(ResponseId, Duration)>;
}

/// A defect of ours in the handling of sound.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The resampler refused.
    #[error(transparent)]
    Resample(#[from] repartee_media::resample::ResampleError),
    /// The codec refused.
    #[error(transparent)]
    Opus(#[from] repartee_media::opus::OpusError),
    /// The playout clock refused.
    #[error(transparent)]
    Playout(#[from] repartee_media::playout::PushError),
}

/// What a line brings.
#[derive(Debug)]
pub enum Heard {
    /// An event as text.
    Event(String),
    /// A message that cannot be an event.
    Refused(ErrorBody),
    /// A message so large that nothing can be read behind it.
    Overflow(ErrorBody),
    /// Sound of the caller as one Opus packet.
    Packet(Bytes),
    /// Sound of the caller.
    Sound {
        /// Mono samples in -1..1.
        samples: Vec<f32>,
        /// How many a second.
        rate: u32,
    },
    /// News from the playout clock.
    Playout(PlayoutReport),
    /// The first sound of an answer above the threshold of hearing left.
    Audible {
        /// Whose.
        response: ResponseId,
        /// When.
        at: Instant,
    },
    /// The playout clock found nothing to play.
    Underrun,
    /// The caller is gone.
    Closed,
}

/// What goes to the caller beside sound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outgoing {
    /// An event as text.
    Event(String),
    /// Sound as one Opus packet.
    Packet(Bytes),
    /// Asks whether the caller is still there.
    Ping,
    /// The end, with a websocket close code and a reason for a person.
    Close(u16, &'static str),
}
