//! What a session needs of the model while it executes commands.

use std::time::{Duration, Instant};

use repartee_engine_api::SessionError;

use super::MAX_AUDIO_S;
use super::messages::text_error;
use crate::model::{FrontEnd, PromptTemplate};
use crate::stage::Stage;
use crate::text::Tokenizer;

/// The parts of the model that a session uses while it executes commands.
pub struct ModelContext<'a> {
    /// Text to ids.
    pub tokenizer: &'a Tokenizer,
    /// Sound to windows; `None` for a model without ears.
    pub front_end: Option<&'a dyn FrontEnd>,
    /// Voices, the default one first.
    pub voices: &'a [String],
    /// How the model's prompts are written.
    pub template: &'a dyn PromptTemplate,
    /// The model's stages.
    pub stages: &'a [Box<dyn Stage>],
    /// Free slots for out-of-band responses.
    pub free_slots: &'a mut Vec<usize>,
    /// Ids of the long texts of the command that is executed.
    pub texts: &'a [(String, Vec<u32>)],
    /// The time of this tick.
    pub now: Instant,
}

impl ModelContext<'_> {
    pub(super) fn encode(&self, text: &str) -> Result<Vec<u32>, SessionError> {
        if let Some((_, ids)) = self.texts.iter().find(|(known, _)| known == text) {
            return Ok(ids.clone());
        }
        self.tokenizer.encode(text).map_err(|error| text_error(&error))
    }

    pub(super) fn front_end(&self) -> Result<&dyn FrontEnd, SessionError> {
        self.front_end.ok_or(SessionError::NoAudioInput)
    }

    /// How long so many samples of input last.
    pub(super) fn duration(&self, samples: usize) -> Duration {
        let rate = self.front_end.map_or(0, |front_end| front_end.rate()).max(1);
        Duration::from_secs_f64(samples as f64 / f64::from(rate))
    }

    /// Samples of the longest audio item.
    pub(super) fn audio_limit(&self) -> Result<usize, SessionError> {
        Ok(MAX_AUDIO_S as usize * self.front_end()?.rate() as usize)
    }
}
