//! Errors of answering an offer.

use repartee_sdp::OfferError;
use thiserror::Error;

/// Reason for an unanswered offer.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AnswerError {
    /// The offer cannot be answered; an error of the caller.
    #[error(transparent)]
    Offer(#[from] OfferError),
    /// An internal error.
    #[error("the call could not be set up: {0}")]
    Internal(String),
}
