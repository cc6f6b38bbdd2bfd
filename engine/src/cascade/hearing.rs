//! Puts a recogniser before a model that takes text.

use super::error::CascadeError;
use crate::device::Device;
use crate::models::parts::pipeline::Assembly;

/// Lets `hear` hear for `rest`, a language model or a cascade of one and a voice. All but the audio input is that of
/// `rest`.
pub fn join_hearing<O: Device>(hear: Assembly<O>, rest: Assembly<O>) -> Result<Assembly<O>, CascadeError> {
    if !hear.pipeline.only_hears() {
        return Err(CascadeError::HearAnswers);
    }
    if rest.pipeline.only_hears() {
        return Err(CascadeError::ThinkOnlyHears);
    }
    if rest.pipeline.takes_audio() {
        return Err(CascadeError::ThinkHears);
    }
    Ok(rest.pipeline.hearing_of(hear.pipeline).with(rest.frame))
}
