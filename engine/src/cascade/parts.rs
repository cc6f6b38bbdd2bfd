//! Parts of a cascade, and their order.

use super::error::CascadeError;
use super::hearing::join_hearing;
use super::voice::join_voice;
use crate::device::Device;
use crate::models::parts::pipeline::Assembly;
use crate::spoken_text::SpokenTextConfig;

/// One thing for each part of a cascade; `None` for a part that it lacks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CascadeParts<T> {
    /// Of the recogniser.
    pub hear: Option<T>,
    /// Of the language model.
    pub think: Option<T>,
    /// Of the model that speaks.
    pub speak: Option<T>,
}

impl<T> CascadeParts<T> {
    /// Every part that there is, in the order of their work.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.hear.iter().chain(&self.think).chain(&self.speak)
    }

    /// References to the parts.
    pub fn as_ref(&self) -> CascadeParts<&T> {
        let Self { hear, think, speak } = self;
        CascadeParts { hear: hear.as_ref(), think: think.as_ref(), speak: speak.as_ref() }
    }

    /// Part that gives the cascade its name and sessions: the language model, or the one in its place.
    pub fn main(&self) -> Option<&T> {
        self.think.as_ref().or(self.speak.as_ref()).or(self.hear.as_ref())
    }

    /// Makes something of each part, in the order of their work.
    pub fn map<U>(self, mut make: impl FnMut(T) -> U) -> CascadeParts<U> {
        let Self { hear, think, speak } = self;
        CascadeParts { hear: hear.map(&mut make), think: think.map(&mut make), speak: speak.map(make) }
    }

    /// Makes something of each part that can fail, in the order of their work.
    ///
    /// # Errors
    ///
    /// The first error of `make`.
    pub fn try_map<U, E>(self, mut make: impl FnMut(T) -> Result<U, E>) -> Result<CascadeParts<U>, E> {
        let Self { hear, think, speak } = self;
        let mut each = |part: Option<T>| part.map(&mut make).transpose();
        Ok(CascadeParts { hear: each(hear)?, think: each(think)?, speak: each(speak)? })
    }

    /// Makes something of each part that can fail, each part on a thread of its own.
    ///
    /// # Errors
    ///
    /// The error of the first part, in the order of their work, that has one.
    pub fn try_map_at_once<U: Send, E: Send>(
        self,
        make: impl Fn(T) -> Result<U, E> + Sync,
    ) -> Result<CascadeParts<U>, E>
    where
        T: Send,
    {
        let make = &make;
        std::thread::scope(|scope| {
            let threads = self.map(|part| scope.spawn(move || make(part)));
            threads.try_map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }
}

/// Joins the parts of a cascade to one model; `spoken` is the form in which text is spoken.
///
/// # Errors
///
/// If there is no part, nothing writes what is spoken, or two parts do not join.
pub fn join_parts<O: Device>(
    parts: CascadeParts<Assembly<O>>,
    spoken: &SpokenTextConfig,
) -> Result<Assembly<O>, CascadeError> {
    match parts {
        CascadeParts { hear: Some(_), think: None, speak: Some(_) } => Err(CascadeError::NothingThinks),
        CascadeParts { hear, think: Some(think), speak } => {
            let answers = match speak {
                Some(speak) => join_voice(think, speak, spoken)?,
                None => think,
            };
            match hear {
                Some(hear) => join_hearing(hear, answers),
                None if answers.pipeline.only_hears() => Err(CascadeError::ThinkOnlyHears),
                None => Ok(answers),
            }
        }
        CascadeParts { hear: Some(hear), think: None, speak: None } if !hear.pipeline.only_hears() => {
            Err(CascadeError::HearAnswers)
        }
        CascadeParts { hear: None, think: None, speak: Some(speak) } if speak.frame.codec.is_none() => {
            Err(CascadeError::SpeakSilent)
        }
        CascadeParts { hear, think: None, speak } => hear.or(speak).ok_or(CascadeError::Empty),
    }
}
