//! Sound of a file in pieces, decoded as they are needed on a thread that may block.

use std::time::Duration;

use bytes::Bytes;
use repartee_media::pauses::{PauseCutter, SoundPiece};
use repartee_media::sound_file::{self, SoundFileError};
use repartee_protocol::{ErrorBody, ErrorKind};
use tokio::sync::mpsc;

use super::super::api_error::ApiError;
use crate::byte_budget::ByteCharge;
use crate::long_work::{CallerWork, WorkPermit};

/// Sound that is decoded, and what has to be known of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SoundLimits {
    /// Sample rate of the pieces, in Hz.
    pub rate: u32,
    /// Longest sound of a file.
    pub longest: Duration,
    /// Longest piece, in seconds.
    pub piece_s: u32,
}

/// Message of the thread.
#[derive(Debug)]
enum SoundMessage {
    Piece(SoundPiece),
    Failed(SoundFileError),
    /// Number of samples of the whole file.
    End(u64),
}

/// Sound of a file: one piece is decoded ahead. If it is dropped the decoding ends.
#[derive(Debug)]
pub(super) struct DecodedSound {
    messages: mpsc::Receiver<SoundMessage>,
    rate: u32,
    /// Duration of the whole file, once it is known.
    duration: Option<Duration>,
}

impl DecodedSound {
    /// Begins to decode `file`, whose bytes `charge` counts.
    pub fn begin(work: CallerWork, file: Bytes, charge: ByteCharge, limits: SoundLimits) -> Self {
        let (sender, messages) = mpsc::channel(1);
        tokio::spawn(async move {
            // A panic closes the channel without an end.
            let done = work.run(move |permit| {
                decode(&file, limits, &sender, permit);
                drop((file, charge));
            });
            if let Err(error) = done.await {
                tracing::error!(%error, "a sound file was not decoded");
            }
        });
        Self { messages, rate: limits.rate, duration: None }
    }

    /// Duration of the whole file, once all pieces were returned.
    pub fn duration(&self) -> Duration {
        self.duration.unwrap_or_default()
    }

    /// Returns the next piece; `None` after the last. Cancel safe.
    pub async fn next(&mut self) -> Result<Option<SoundPiece>, ApiError> {
        if self.duration.is_some() {
            return Ok(None);
        }
        match self.messages.recv().await {
            Some(SoundMessage::Piece(piece)) => Ok(Some(piece)),
            Some(SoundMessage::End(samples)) => {
                self.duration = Some(Duration::from_secs_f64(samples as f64 / f64::from(self.rate)));
                Ok(None)
            }
            Some(SoundMessage::Failed(error)) => Err(refused(&error)),
            None => Err(ApiError::internal("the decoder of a sound file has ended")),
        }
    }
}

/// Error of a file that cannot be read.
fn refused(error: &SoundFileError) -> ApiError {
    let message = match error {
        SoundFileError::TooLong { .. } => format!("{error}, as limits.file_s allows: send it in parts"),
        _ => error.to_string(),
    };
    ApiError::bad_request(ErrorBody::invalid(ErrorKind::InvalidAudio, message).with_param("file"))
}

fn decode(file: &[u8], limits: SoundLimits, sender: &mpsc::Sender<SoundMessage>, permit: &mut WorkPermit) {
    let (mut cutter, mut samples) = (PauseCutter::new(limits.rate, limits.piece_s), 0);
    // While the reader is busy, other work runs.
    let give = |message, permit: &mut WorkPermit| {
        permit.wait(|| sender.blocking_send(message)).is_ok_and(|given| given.is_ok())
    };
    let read = sound_file::read_stream(file, limits.rate, limits.longest, |piece| {
        samples += piece.len() as u64;
        let pieces = cutter.push(piece);
        pieces.into_iter().all(|piece| give(SoundMessage::Piece(piece), permit))
            && !sender.is_closed()
            && permit.pause().is_ok()
    });
    let left = match read {
        Ok(()) => cutter.finish().map(SoundMessage::Piece).into_iter().chain([SoundMessage::End(samples)]),
        // Nobody reads further.
        Err(SoundFileError::Abandoned) => return,
        Err(error) => None.into_iter().chain([SoundMessage::Failed(error)]),
    };
    for message in left {
        if !give(message, permit) {
            return;
        }
    }
}
