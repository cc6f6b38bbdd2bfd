//! Voices made out of recordings, each under somebody's recorded consent.
//!
//! - this file: what there is, and its limits
//! - `folder`: where it is kept

mod folder;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use repartee_engine_api::{EnrolError, Recording, SpeechEngine};
use repartee_media::wav::{self, WavError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::VoiceConfig;
use crate::ids::IdGenerator;
use folder::{VoiceFolder, EntryKind};

/// The longest recording.
pub const MAX_RECORDING: Duration = Duration::from_secs(60);
/// The longest name, in characters.
pub const MAX_NAME_CHARS: usize = 128;
/// The longest text of a recording, in characters.
const MAX_TEXT_CHARS: usize = 2_048;
/// The longest language tag, in characters.
const MAX_LANGUAGE_CHARS: usize = 35;

/// Somebody's recorded consent to a voice made of theirs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// `cons_...`.
    pub id: String,
    /// A label.
    pub name: String,
    /// Of what is said, as a BCP 47 tag.
    pub language: String,
    /// In seconds since 1970.
    pub created_at: u64,
}

/// A voice out of a recording. Its id is the name by which requests ask the engine for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Voice {
    /// `voice_...`.
    pub id: String,
    /// A label.
    pub name: String,
    /// The consent that it was made under.
    pub consent: String,
    /// What is said in the recording; may be empty.
    pub text: String,
    /// In seconds since 1970.
    pub created_at: u64,
}

/// Why something was not done.
#[derive(Debug, Error)]
pub enum VoiceError {
    /// A field is not usable.
    #[error("{problem}")]
    Field {
        /// Which.
        field: &'static str,
        /// What to do about it.
        problem: String,
    },
    /// There is no such consent.
    #[error("there is no consent `{0}`: make one with POST /v1/audio/voice_consents")]
    UnknownConsent(String),
    /// There is no such voice.
    #[error("there is no voice `{0}` that was made of a recording")]
    UnknownVoice(String),
    /// There are as many as there may be.
    #[error("there are {most} {what} already: delete one, or raise voices.most")]
    Full {
        /// `voices` or `consents`.
        what: &'static str,
        /// How many.
        most: usize,
    },
    /// The model refused.
    #[error(transparent)]
    Enrol(#[from] EnrolError),
    /// No random numbers.
    #[error("no id could be drawn: {0}")]
    Random(#[from] getrandom::Error),
    /// The folder cannot be written.
    #[error("the voice cannot be kept: {0}")]
    Io(#[from] io::Error),
}

/// A folder that cannot be used.
#[derive(Debug, Error)]
#[error("voices.folder: {path}: {error}")]
pub struct FolderError {
    path: PathBuf,
    error: io::Error,
}

/// All consents and voices.
pub struct VoiceStore {
    engine: Arc<dyn SpeechEngine>,
    ids: IdGenerator,
    folder: Option<VoiceFolder>,
    most: usize,
    stored: Mutex<StoredVoices>,
}

/// By id.
#[derive(Default)]
struct StoredVoices {
    consents: BTreeMap<String, Consent>,
    voices: BTreeMap<String, Voice>,
    /// Voices that are being made.
    pending: usize,
}

impl VoiceStore {
    /// Reads what is kept, and teaches the engine its voices again. A voice that the engine refuses, or whose files are damaged, is
    /// left where it is and not offered. Takes as long as the model needs for each, and tells `progress` the share of voices that are
    /// done; nothing where there are none.
    pub fn open(
        settings: &VoiceConfig,
        engine: Arc<dyn SpeechEngine>,
        ids: IdGenerator,
        progress: impl Fn(f32),
    ) -> Result<Self, FolderError> {
        let refuse = |error| FolderError { path: settings.folder.clone().unwrap_or_default(), error };
        let folder = settings.folder.as_deref().map(VoiceFolder::open).transpose().map_err(refuse)?;
        let mut kept = StoredVoices::default();
        if let Some(folder) = &folder {
            let consents = folder.all(EntryKind::Consent, |consent: &Consent| &consent.id).map_err(refuse)?;
            kept.consents = consents.into_iter().map(|consent| (consent.id.clone(), consent)).collect();
            let voices = folder.all(EntryKind::Voice, |voice: &Voice| &voice.id).map_err(refuse)?;
            let count = voices.len();
            for (done, voice) in voices.into_iter().enumerate() {
                progress(done as f32 / count as f32);
                match enrol_again(folder, engine.as_ref(), &voice) {
                    Ok(()) => drop(kept.voices.insert(voice.id.clone(), voice)),
                    Err(error) => tracing::warn!(voice = voice.id, %error, "a voice cannot be offered"),
                }
            }
            if !kept.voices.is_empty() {
                tracing::info!(voices = kept.voices.len(), "voices out of recordings are ready");
            }
        }
        Ok(Self { engine, ids, folder, most: settings.most, stored: Mutex::new(kept) })
    }

    /// Keeps a consent, recorded in the wav file `recording`.
    pub fn add_consent(&self, name: &str, language: &str, recording: &[u8]) -> Result<Consent, VoiceError> {
        let (name, language) = (checked_name(name)?, checked_language(language)?);
        readable("recording", wav::decode(recording, MAX_RECORDING))?;
        let consent = Consent { id: self.ids.consent()?, name, language, created_at: now() };
        let mut kept = self.kept();
        if kept.consents.len() >= self.most {
            return Err(VoiceError::Full { what: "consents", most: self.most });
        }
        if let Some(folder) = &self.folder {
            folder.write(EntryKind::Consent, &consent.id, &consent, Some(recording))?;
        }
        kept.consents.insert(consent.id.clone(), consent.clone());
        Ok(consent)
    }

    /// All consents, the oldest first.
    pub fn consents(&self) -> Vec<Consent> {
        let mut consents: Vec<_> = self.kept().consents.values().cloned().collect();
        consents.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        consents
    }

    /// A consent.
    pub fn consent(&self, id: &str) -> Result<Consent, VoiceError> {
        self.kept().consents.get(id).cloned().ok_or_else(|| VoiceError::UnknownConsent(id.to_owned()))
    }

    /// Changes a consent's label.
    pub fn rename_consent(&self, id: &str, name: &str) -> Result<Consent, VoiceError> {
        let name = checked_name(name)?;
        let mut kept = self.kept();
        let consent = kept.consents.get_mut(id).ok_or_else(|| VoiceError::UnknownConsent(id.to_owned()))?;
        let renamed = Consent { name, ..consent.clone() };
        if let Some(folder) = &self.folder {
            folder.write(EntryKind::Consent, id, &renamed, None)?;
        }
        consent.clone_from(&renamed);
        Ok(renamed)
    }

    /// Takes a consent back: the voices that were made under it go with it.
    pub fn delete_consent(&self, id: &str) -> Result<(), VoiceError> {
        let mut kept = self.kept();
        if !kept.consents.contains_key(id) {
            return Err(VoiceError::UnknownConsent(id.to_owned()));
        }
        let of_it = kept.voices.values().filter(|voice| voice.consent == id).map(|voice| voice.id.clone());
        for voice in of_it.collect::<Vec<_>>() {
            self.remove_voice(&mut kept, &voice)?;
        }
        if let Some(folder) = &self.folder {
            folder.delete(EntryKind::Consent, id)?;
        }
        kept.consents.remove(id);
        Ok(())
    }

    /// Makes a voice out of the wav file `recording`, in which `text` is said. Takes as long as the model needs.
    pub fn add_voice(&self, name: &str, consent: &str, recording: &[u8], text: &str) -> Result<Voice, VoiceError> {
        let name = checked_name(name)?;
        let text = text.trim().to_owned();
        if text.chars().count() > MAX_TEXT_CHARS {
            let problem = format!("the text of a recording has at most {MAX_TEXT_CHARS} characters");
            return Err(VoiceError::Field { field: "text", problem });
        }
        let samples = samples(self.engine.as_ref(), recording)?;
        let voice = Voice { id: self.ids.voice()?, name, consent: consent.to_owned(), text, created_at: now() };
        let _pending = self.begin_voice(consent)?;
        // Unlocked: others list and delete meanwhile.
        self.engine.enrol(&voice.id, &Recording { samples, text: voice.text.clone() })?;
        let mut kept = self.kept();
        let written = self.folder.as_ref().map(|folder| folder.write(EntryKind::Voice, &voice.id, &voice, Some(recording)));
        // The consent may be gone by now.
        let done = match (written.transpose(), kept.consents.contains_key(consent)) {
            (Ok(_), true) => Ok(()),
            (Ok(_), false) => Err(VoiceError::UnknownConsent(consent.to_owned())),
            (Err(error), _) => Err(error.into()),
        };
        if let Err(error) = done {
            self.remove_voice(&mut kept, &voice.id)?;
            return Err(error);
        }
        kept.voices.insert(voice.id.clone(), voice.clone());
        Ok(voice)
    }

    /// All voices, the oldest first.
    pub fn voices(&self) -> Vec<Voice> {
        let mut voices: Vec<_> = self.kept().voices.values().cloned().collect();
        voices.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        voices
    }

    /// Forgets a voice.
    pub fn delete_voice(&self, id: &str) -> Result<(), VoiceError> {
        let mut kept = self.kept();
        if !kept.voices.contains_key(id) {
            return Err(VoiceError::UnknownVoice(id.to_owned()));
        }
        self.remove_voice(&mut kept, id)
    }

    fn remove_voice(&self, kept: &mut StoredVoices, id: &str) -> Result<(), VoiceError> {
        self.engine.remove_voice(id);
        kept.voices.remove(id);
        if let Some(folder) = &self.folder {
            folder.delete(EntryKind::Voice, id)?;
        }
        Ok(())
    }

    /// Takes the room for a voice that is being made.
    fn begin_voice(&self, consent: &str) -> Result<PendingVoice<'_>, VoiceError> {
        let mut kept = self.kept();
        if !kept.consents.contains_key(consent) {
            return Err(VoiceError::UnknownConsent(consent.to_owned()));
        }
        if kept.voices.len() + kept.pending >= self.most {
            return Err(VoiceError::Full { what: "voices", most: self.most });
        }
        kept.pending += 1;
        Ok(PendingVoice(self))
    }

    fn kept(&self) -> MutexGuard<'_, StoredVoices> {
        // Whole entries alone come and go.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A voice that is being made, counted until this is dropped.
struct PendingVoice<'a>(&'a VoiceStore);

impl Drop for PendingVoice<'_> {
    fn drop(&mut self) {
        self.0.kept().pending -= 1;
    }
}

fn enrol_again(folder: &VoiceFolder, engine: &dyn SpeechEngine, voice: &Voice) -> Result<(), VoiceError> {
    let samples = samples(engine, &folder.recording(EntryKind::Voice, &voice.id)?)?;
    Ok(engine.enrol(&voice.id, &Recording { samples, text: voice.text.clone() })?)
}

/// A wav file at the rate that the engine takes.
fn samples(engine: &dyn SpeechEngine, recording: &[u8]) -> Result<Vec<f32>, VoiceError> {
    let Some(rate) = engine.info().recording_rate else {
        return Err(EnrolError::Fixed { known: engine.voices().join(", ") }.into());
    };
    readable("audio_sample", wav::read(recording, rate, MAX_RECORDING))
}

fn readable<T>(field: &'static str, read: Result<T, WavError>) -> Result<T, VoiceError> {
    read.map_err(|error| {
        let problem = match error {
            WavError::Format(_) => "send the recording as a wav file; other formats are not read here".to_owned(),
            error => error.to_string(),
        };
        VoiceError::Field { field, problem }
    })
}

fn checked_name(name: &str) -> Result<String, VoiceError> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        let problem = format!("a name has 1 to {MAX_NAME_CHARS} characters and no control characters");
        return Err(VoiceError::Field { field: "name", problem });
    }
    Ok(name.to_owned())
}

fn checked_language(language: &str) -> Result<String, VoiceError> {
    let language = language.trim();
    let plain = language.chars().all(|char| char.is_ascii_alphanumeric() || char == '-');
    if !(2..=MAX_LANGUAGE_CHARS).contains(&language.len()) || !plain {
        let problem = "a language is a BCP 47 tag, such as `en-US`".to_owned();
        return Err(VoiceError::Field { field: "language", problem });
    }
    Ok(language.to_owned())
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
