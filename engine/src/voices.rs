//! Voices of a running engine: the model's own and the enrolled ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use repartee_engine_api::{EnrolError, Recording};

use crate::model::Voices;

/// Voice registry. The engine thread reads the names; callers enrol voices, one at a time. Enrolment blocks only other
/// enrolments.
pub struct VoiceRegistry {
    voices: Mutex<Box<dyn Voices>>,
    names: RwLock<Arc<[String]>>,
}

impl VoiceRegistry {
    /// Creates a registry of a model's voices.
    pub fn new(voices: Box<dyn Voices>) -> Self {
        Self { names: RwLock::new(voices.names().into()), voices: Mutex::new(voices) }
    }

    /// Names that requests may use now.
    pub fn names(&self) -> Arc<[String]> {
        self.names.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Enrols a voice from a recording.
    pub fn enrol(&self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        let mut voices = self.lock();
        if voices.names().iter().any(|known| known == name) {
            return Err(EnrolError::Taken { name: name.to_owned() });
        }
        voices.enrol(name, recording)?;
        self.publish(voices.as_ref());
        Ok(())
    }

    /// Removes an enrolled voice; false if there is none of that name.
    pub fn remove_voice(&self, name: &str) -> bool {
        let mut voices = self.lock();
        let known = voices.remove_voice(name);
        self.publish(voices.as_ref());
        known
    }

    /// Ignores poisoning: a model that panicked over a recording has enrolled nothing and can be asked again.
    fn lock(&self) -> MutexGuard<'_, Box<dyn Voices>> {
        self.voices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn publish(&self, voices: &dyn Voices) {
        *self.names.write().unwrap_or_else(PoisonError::into_inner) = voices.names().into();
    }
}

impl std::fmt::Debug for VoiceRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("VoiceBook").field("names", &self.names()).finish_non_exhaustive()
    }
}
