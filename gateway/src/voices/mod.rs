//! Voices enrolled from recordings, each under somebody's recorded consent.
//!
//! - this file: the voices in memory, and their limits
//! - `copies`: voices of other nodes of a cluster
//! - `entries`: consents, voices, and lists of them
//! - `error`: errors of the store
//! - `folder`: the files on disk
//! - `passing`: voices of one request
//! - `sound`: a recording's sound, judged

mod copies;
mod entries;
mod error;
mod folder;
mod passing;
mod sound;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use repartee_engine_api::{Recording, SpeechEngine};
use repartee_media::sound_file;
use thiserror::Error;

use crate::config::VoiceConfig;
use crate::ids::IdGenerator;
use entries::OtherVoices;
pub use entries::{Consent, Voice, VoiceListing};
pub use error::VoiceError;
use error::readable;
use folder::{EntryKind, VoiceFolder};
pub use passing::PassingVoice;
use passing::VoiceRoom;
use sound::{MAX_RECORDING, VoiceSound, samples};

/// Longest name, in characters.
pub const MAX_NAME_CHARS: usize = 128;
/// Field of a voice's recording.
const RECORDING: &str = "audio_sample";
/// Longest text of a recording, in characters.
const MAX_TEXT_CHARS: usize = 2_048;
/// Longest language tag, in characters.
const MAX_LANGUAGE_CHARS: usize = 35;

/// Enrolled voice, and the difference between its recording and a good one.
#[derive(Debug)]
pub struct EnrolledVoice {
    /// Entry of the list.
    pub voice: Voice,
    /// Defect of the recording, for the client.
    pub warning: Option<String>,
}

/// Error that makes `voices.folder` unusable.
#[derive(Debug, Error)]
#[error("voices.folder: {path}: {error}")]
pub struct FolderError {
    path: PathBuf,
    error: io::Error,
}

/// Store of all consents and voices.
pub struct VoiceStore {
    engine: Arc<dyn SpeechEngine>,
    ids: IdGenerator,
    /// Home of this node in the ids; none on a server without a cluster.
    home: OnceLock<String>,
    folder: Option<VoiceFolder>,
    most: usize,
    stored: Mutex<StoredVoices>,
    /// Rooms of voices whose enrolment is running, and of those of running requests.
    rooms: Arc<()>,
}

/// Consents and voices by id.
#[derive(Default)]
struct StoredVoices {
    consents: BTreeMap<String, Consent>,
    voices: BTreeMap<String, Voice>,
    /// Those of other nodes of the cluster, by the node's name.
    others: BTreeMap<String, OtherVoices>,
    /// Number of changes since the start, that of loading some included.
    changes: u32,
}

impl VoiceStore {
    /// Loads the stored consents and voices, and enrols each voice in the engine again. A voice that the engine
    /// refuses, or whose files are damaged, stays on disk and is not offered. Takes as long as the model needs for each
    /// voice, and reports the finished share to `progress`, which is never called without voices.
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
                    Err(error) => tracing::warn!(voice = voice.id, %error, "a stored voice cannot be loaded"),
                }
            }
            if !kept.voices.is_empty() {
                tracing::info!(voices = kept.voices.len(), "recorded voices are ready");
            }
            kept.changes = u32::from(!kept.consents.is_empty() || !kept.voices.is_empty());
        }
        let (stored, rooms, home) = (Mutex::new(kept), Arc::new(()), OnceLock::new());
        Ok(Self { engine, ids, home, folder, most: settings.most, stored, rooms })
    }

    /// Stores a consent, recorded in the sound file `recording`. Takes as long as its decoding.
    pub fn add_consent(&self, name: &str, language: &str, recording: &[u8]) -> Result<Consent, VoiceError> {
        let (name, language) = (checked_name(name)?, checked_language(language)?);
        let full = |kept: &StoredVoices| match kept.consents.len() >= self.most {
            true => Err(VoiceError::Full { what: "consents", most: self.most }),
            false => Ok(()),
        };
        full(&self.kept())?;
        readable("recording", sound_file::decode(recording, MAX_RECORDING))?;
        let consent = Consent { id: self.ids.consent(self.home())?, name, language, created_at: now() };
        let mut kept = self.kept();
        // Others may have come meanwhile.
        full(&kept)?;
        if let Some(folder) = &self.folder {
            folder.write(EntryKind::Consent, &consent.id, &consent, Some(recording))?;
        }
        kept.consents.insert(consent.id.clone(), consent.clone());
        kept.changes += 1;
        Ok(consent)
    }

    /// All consents, those of other nodes included, the oldest first.
    pub fn consents(&self) -> Vec<Consent> {
        let kept = self.kept();
        let others = kept.others.values().flat_map(|others| &others.consents);
        let mut consents: Vec<_> = kept.consents.values().chain(others).cloned().collect();
        consents.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        consents
    }

    /// Returns the consent with this id.
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
        kept.changes += 1;
        Ok(renamed)
    }

    /// Deletes a consent, and with it all voices enrolled under it.
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
        kept.changes += 1;
        Ok(())
    }

    /// Enrols a voice from the sound file `recording`, whose transcript is `text`. Takes as long as the model needs.
    pub fn add_voice(
        &self,
        name: &str,
        consent: &str,
        recording: &[u8],
        text: &str,
    ) -> Result<EnrolledVoice, VoiceError> {
        let (name, text) = (checked_name(name)?, checked_text("text", text)?);
        let _room = self.reserve(consent, false)?;
        let VoiceSound { samples, warning } = VoiceSound::read(self.engine.as_ref(), RECORDING, recording)?;
        let voice =
            Voice { id: self.ids.voice(self.home())?, name, consent: consent.to_owned(), text, created_at: now() };
        // Without the lock: other requests list and delete voices meanwhile.
        self.engine.enrol(&voice.id, &Recording { samples, text: voice.text.clone() })?;
        let mut kept = self.kept();
        let written =
            self.folder.as_ref().map(|folder| folder.write(EntryKind::Voice, &voice.id, &voice, Some(recording)));
        // The consent may have been deleted meanwhile.
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
        kept.changes += 1;
        Ok(EnrolledVoice { voice, warning })
    }

    /// Enrols a voice for one request from the sound file `recording`, whose transcript is `text`; `fields` names both in errors.
    /// Takes as long as the model needs.
    pub fn pass_voice(
        &self,
        consent: &str,
        (recording, text): (&[u8], &str),
        fields: [&'static str; 2],
    ) -> Result<PassingVoice, VoiceError> {
        let text = checked_text(fields[1], text)?;
        let room = self.reserve(consent, true)?;
        let VoiceSound { samples, warning } = VoiceSound::read(self.engine.as_ref(), fields[0], recording)?;
        let id = self.ids.voice(None)?;
        self.engine.enrol(&id, &Recording { samples, text })?;
        Ok(PassingVoice::new(id, warning, (Arc::clone(&self.engine), room)))
    }

    /// All voices, copies of those of other nodes included, the oldest first.
    pub fn voices(&self) -> Vec<Voice> {
        let kept = self.kept();
        let copies = kept.others.values().flat_map(|others| others.copies.values());
        let mut voices: Vec<_> = kept.voices.values().chain(copies).cloned().collect();
        voices.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
        voices
    }

    /// Deletes a voice, in the engine and on disk.
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
        kept.changes += 1;
        if let Some(folder) = &self.folder {
            folder.delete(EntryKind::Voice, id)?;
        }
        Ok(())
    }

    /// Reserves room for a voice whose enrolment begins; `anywhere` if a consent that another node keeps will do.
    fn reserve(&self, consent: &str, anywhere: bool) -> Result<VoiceRoom, VoiceError> {
        let kept = self.kept();
        let mut elsewhere = kept.others.values().flat_map(|others| &others.consents);
        let is_known = kept.consents.contains_key(consent) || anywhere && elsewhere.any(|other| other.id == consent);
        if !is_known {
            return Err(VoiceError::UnknownConsent(consent.to_owned()));
        }
        if kept.voices.len() + Arc::strong_count(&self.rooms) > self.most {
            return Err(VoiceError::Full { what: "voices", most: self.most });
        }
        Ok(VoiceRoom::new(&self.rooms))
    }

    fn home(&self) -> Option<&str> {
        self.home.get().map(String::as_str)
    }

    fn kept(&self) -> MutexGuard<'_, StoredVoices> {
        // Entries are inserted and removed whole: a panic cannot leave one half-changed.
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn enrol_again(folder: &VoiceFolder, engine: &dyn SpeechEngine, voice: &Voice) -> Result<(), VoiceError> {
    let samples = samples(engine, RECORDING, &folder.recording(EntryKind::Voice, &voice.id)?)?;
    Ok(engine.enrol(&voice.id, &Recording { samples, text: voice.text.clone() })?)
}

fn checked_name(name: &str) -> Result<String, VoiceError> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        let problem = format!("a name has 1 to {MAX_NAME_CHARS} characters and no control characters");
        return Err(VoiceError::Field { field: "name", problem });
    }
    Ok(name.to_owned())
}

fn checked_text(field: &'static str, text: &str) -> Result<String, VoiceError> {
    let text = text.trim();
    if text.chars().count() > MAX_TEXT_CHARS {
        let problem = format!("the text of a recording has at most {MAX_TEXT_CHARS} characters");
        return Err(VoiceError::Field { field, problem });
    }
    Ok(text.to_owned())
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
