//! The voices of a checkpoint: each speaker, alone and with each language. `NAME/LANGUAGE` is how a language is asked for.

use std::collections::BTreeMap;

use super::config::{Config, Kind, TalkerConfig};
use crate::model::Voices;

/// What the checkpoint's own voice is called where it has no speakers.
const OWN: &str = "default";
/// The language that a speaker of a dialect replaces by it.
const REPLACED: &str = "chinese";
/// Marks the languages that are not asked for by name.
const DIALECT: &str = "dialect";

/// Who speaks, and in which language.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Voice {
    /// Codec id of the speaker; `None` for whoever the instructions describe.
    pub speaker: Option<u32>,
    /// Codec id of the language; `None` leaves it to the model.
    pub language: Option<u32>,
}

/// All voices by name.
#[derive(Debug, Clone, Default)]
pub struct VoiceList {
    /// In the order in which they are listed.
    names: Vec<String>,
    voices: BTreeMap<String, Voice>,
}

impl VoiceList {
    /// The voices of a configuration.
    pub fn new(config: &Config) -> Self {
        let talker = &config.talker;
        let mut speakers: Vec<(&str, Option<u32>, Option<&str>)> = match config.kind {
            Kind::CustomVoice => {
                let speakers = talker.speakers.iter();
                speakers.map(|(name, speaker)| (&name[..], Some(speaker.id), speaker.dialect.as_deref())).collect()
            }
            Kind::VoiceDesign | Kind::Base => vec![(OWN, None, None)],
        };
        speakers.sort_by_key(|(_, id, _)| *id);
        let mut list = Self::default();
        for &(name, speaker, dialect) in &speakers {
            list.add(name.to_owned(), Voice { speaker, language: language(talker, None, dialect) });
        }
        for (name, speaker, dialect) in speakers {
            for asked in talker.languages.keys().filter(|name| !name.contains(DIALECT)) {
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
        self.voices.get(name).copied().unwrap_or_default()
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
        self.names.clone()
    }
}
