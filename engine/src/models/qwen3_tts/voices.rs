//! Voices of a checkpoint: each speaker, alone and with each language, and cloned voices. The name `NAME/LANGUAGE`
//! requests a language.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::{Config, TalkerConfig, VoiceSource};
use crate::model::Voices;
use crate::models::parts::talker::voice::{Cloned, Speaker, Voice};

/// Name of the checkpoint's own voice if it has no speakers.
const OWN: &str = "default";
/// Language that a speaker's dialect replaces.
const REPLACED: &str = "chinese";
/// Part of the names of languages that cannot be requested.
const DIALECT: &str = "dialect";

/// All voices by name.
#[derive(Debug, Clone, Default)]
pub struct VoiceList {
    /// Names of the checkpoint's voices, in listing order.
    names: Vec<String>,
    voices: BTreeMap<String, Voice>,
    /// Languages that a request may choose for a cloned voice.
    languages: BTreeMap<String, u32>,
    /// Cloned voices, shared by all clones of the list.
    cloned: Arc<Mutex<BTreeMap<String, Arc<Cloned>>>>,
}

impl VoiceList {
    /// Lists the voices of a configuration.
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

    /// Returns the voice of a name; for an unknown name the default voice, without a speaker.
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

    /// Locks the cloned voices. A poisoned lock is fine: a panic changes none of them.
    fn clones(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Cloned>>> {
        self.cloned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or replaces a cloned voice.
    pub fn enrol(&self, name: &str, cloned: Cloned) {
        self.clones().insert(name.to_owned(), Arc::new(cloned));
    }

    /// Removes a cloned voice; false if there is none of this name.
    pub fn remove_voice(&self, name: &str) -> bool {
        self.clones().remove(name).is_some()
    }
}

/// Codec id of the language. A speaker's dialect replaces Chinese, and is its default.
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
