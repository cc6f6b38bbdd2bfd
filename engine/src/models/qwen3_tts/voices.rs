//! The voices of a checkpoint: each speaker, alone and with each language, and those made out of recordings. `NAME/LANGUAGE` is how a
//! language is asked for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::{Config, VoiceSource, TalkerConfig};
use crate::model::Voices;

/// What the checkpoint's own voice is called where it has no speakers.
const OWN: &str = "default";
/// The language that a speaker of a dialect replaces by it.
const REPLACED: &str = "chinese";
/// Marks the languages that are not asked for by name.
const DIALECT: &str = "dialect";

/// Who speaks, and in which language.
#[derive(Debug, Clone, Default)]
pub struct Voice {
    /// Who speaks.
    pub speaker: Speaker,
    /// Codec id of the language; `None` leaves it to the model.
    pub language: Option<u32>,
}

impl Voice {
    /// The recording that stands before what is said: its codes, and what is said in it.
    pub fn recording(&self) -> Option<&Arc<Cloned>> {
        match &self.speaker {
            Speaker::Cloned(cloned) if !cloned.frames.is_empty() => Some(cloned),
            _ => None,
        }
    }
}

/// Who speaks.
#[derive(Debug, Clone, Default)]
pub enum Speaker {
    /// Whoever the instructions describe.
    #[default]
    Any,
    /// A speaker of the checkpoint, by its codec id.
    Listed(u32),
    /// A voice out of a recording.
    Cloned(Arc<Cloned>),
}

/// A voice out of a recording.
#[derive(Debug, Clone, PartialEq)]
pub struct Cloned {
    /// The speaker encoder's row.
    pub speaker: Vec<f32>,
    /// What is said in the recording; empty if that is not known.
    pub text: Vec<u32>,
    /// The recording's codes, frame by frame; empty without a text.
    pub frames: Vec<Vec<u32>>,
}

/// All voices by name.
#[derive(Debug, Clone, Default)]
pub struct VoiceList {
    /// In the order in which they are listed.
    names: Vec<String>,
    voices: BTreeMap<String, Voice>,
    /// Languages that a cloned voice may be asked for.
    languages: BTreeMap<String, u32>,
    /// Voices out of recordings, which all clones of the list have in common.
    cloned: Arc<Mutex<BTreeMap<String, Arc<Cloned>>>>,
}

impl VoiceList {
    /// The voices of a configuration.
    pub fn new(config: &Config) -> Self {
        let talker = &config.talker;
        let mut speakers: Vec<(&str, Option<u32>, Option<&str>)> = match config.kind {
            VoiceSource::CustomVoice => {
                let speakers = talker.speakers.iter();
                speakers.map(|(name, speaker)| (&name[..], Some(speaker.id), speaker.dialect.as_deref())).collect()
            }
            VoiceSource::VoiceDesign | VoiceSource::Base => vec![(OWN, None, None)],
        };
        speakers.sort_by_key(|(_, id, _)| *id);
        let languages = talker.languages.iter().filter(|(name, _)| !name.contains(DIALECT));
        let languages = languages.map(|(name, id)| (name.clone(), *id)).collect();
        let mut list = Self { languages, ..Self::default() };
        for &(name, speaker, dialect) in &speakers {
            let speaker = speaker.map_or(Speaker::Any, Speaker::Listed);
            list.add(name.to_owned(), Voice { speaker, language: language(talker, None, dialect) });
        }
        for (name, speaker, dialect) in speakers {
            for asked in talker.languages.keys().filter(|name| !name.contains(DIALECT)) {
                let speaker = speaker.map_or(Speaker::Any, Speaker::Listed);
                let language = language(talker, Some(asked), dialect);
                list.add(format!("{name}/{asked}"), Voice { speaker, language });
            }
        }
        list
    }

    fn add(&mut self, name: String, voice: Voice) {
        self.voices.insert(name.clone(), voice);
        self.names.push(name);
    }

    /// The voice of a name; for an unknown one, nobody's.
    pub fn get(&self, name: &str) -> Voice {
        self.voices.get(name).cloned().or_else(|| self.cloned_voice(name)).unwrap_or_default()
    }

    fn cloned_voice(&self, name: &str) -> Option<Voice> {
        let cloned = self.clones();
        let (cloned, language) = match cloned.get(name) {
            Some(cloned) => (cloned, None),
            None => {
                let (name, language) = name.rsplit_once('/')?;
                (cloned.get(name)?, self.languages.get(language).copied())
            }
        };
        Some(Voice { speaker: Speaker::Cloned(Arc::clone(cloned)), language })
    }

    /// A panic while they were held has changed none.
    fn clones(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Cloned>>> {
        self.cloned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a voice out of a recording.
    pub fn enrol(&self, name: &str, cloned: Cloned) {
        self.clones().insert(name.to_owned(), Arc::new(cloned));
    }

    /// Forgets one; whether there was one.
    pub fn remove_voice(&self, name: &str) -> bool {
        self.clones().remove(name).is_some()
    }
}

/// The language's codec id. A speaker of a dialect speaks it in place of Chinese, and where no language is asked for.
fn language(talker: &TalkerConfig, asked: Option<&str>, dialect: Option<&str>) -> Option<u32> {
    let name = match asked {
        None => dialect,
        Some(REPLACED) => dialect.or(asked),
        Some(_) => asked,
    };
    talker.languages.get(name?).copied()
}

impl Voices for VoiceList {
    fn names(&self) -> Vec<String> {
        let cloned: Vec<String> = self.clones().keys().cloned().collect();
        let in_languages = |name: String| {
            let others: Vec<String> = self.languages.keys().map(|language| format!("{name}/{language}")).collect();
            std::iter::once(name).chain(others)
        };
        self.names.iter().cloned().chain(cloned.into_iter().flat_map(in_languages)).collect()
    }
}
