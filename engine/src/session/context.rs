//! Parts of the model that commands need.

use std::time::{Duration, Instant};

use repartee_engine_api::SessionError;

use super::limits::MAX_AUDIO_S;
use crate::answer_forms::AnswerForms;
use crate::model::{FrontEnd, PromptTemplate};
use crate::stage::Stage;
use crate::text::{TextError, Tokenizer};

/// Parts of the model that a session uses to execute commands.
pub struct ModelContext<'a> {
    /// Tokenizer of the checkpoint.
    pub tokenizer: &'a Tokenizer,
    /// Audio front end; `None` for a model without audio input. Before a recogniser it closes no window.
    pub front_end: Option<&'a dyn FrontEnd>,
    /// True if a recogniser hears audio as text.
    pub hears_text: bool,
    /// Names of the voices, the default one first.
    pub voices: &'a [String],
    /// Template of the model's prompts.
    pub template: &'a dyn PromptTemplate,
    /// Reader of the forms of answers.
    pub forms: &'a mut AnswerForms,
    /// True if the model speaks.
    pub audio_output: bool,
    /// True if the model transcribes audio.
    pub transcribes: bool,
    /// True if the model translates audio into English.
    pub translates: bool,
    /// Upper bound of a prompt's tokens and its response's together.
    pub context: usize,
    /// Stages of the model.
    pub stages: &'a [Box<dyn Stage>],
    /// Free slots for out-of-band responses.
    pub free_slots: &'a mut Vec<usize>,
    /// Ids of the long texts of the command being executed.
    pub texts: &'a [(String, Vec<u32>)],
    /// Start of this tick.
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

    /// Duration of `samples` samples of input.
    pub(super) fn duration(&self, samples: usize) -> Duration {
        let rate = self.front_end.map_or(0, |front_end| front_end.rate()).max(1);
        Duration::from_secs_f64(samples as f64 / f64::from(rate))
    }

    /// Upper bound of samples of an audio item.
    pub(super) fn audio_limit(&self) -> Result<usize, SessionError> {
        Ok(MAX_AUDIO_S as usize * self.front_end()?.rate() as usize)
    }
}

/// Error of a text that cannot be encoded.
pub(super) fn text_error(error: &TextError) -> SessionError {
    SessionError::bad("text", "not encodable", error.to_string())
}
