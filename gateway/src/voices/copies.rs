//! Voices of other nodes of a cluster: each node enrols those that the others list. They are in memory alone, so a node that
//! was away compares them with the lists before it offers any.

use repartee_engine_api::Recording;

use super::entries::{Voice, VoiceListing};
use super::error::VoiceError;
use super::folder::EntryKind;
use super::sound::samples;
use super::{RECORDING, StoredVoices, VoiceStore};

impl VoiceStore {
    /// Puts the home of this node into the ids of voices and consents from now on.
    pub fn set_home(&self, home: String) {
        // It is set once, because a server joins one cluster.
        let _ = self.home.set(home);
    }

    /// True if this node keeps the voice or the consent.
    pub fn keeps(&self, id: &str) -> bool {
        let kept = self.kept();
        kept.voices.contains_key(id) || kept.consents.contains_key(id)
    }

    /// Number of changes of the voices and consents since the start; 0 while there are none.
    pub fn changes(&self) -> u32 {
        self.kept().changes
    }

    /// Voices and consents for the other nodes. Without a folder there are no recordings, so no voice is listed.
    pub fn listing(&self) -> VoiceListing {
        let kept = self.kept();
        let voices = if self.folder.is_some() { kept.voices.values().cloned().collect() } else { Vec::new() };
        VoiceListing { voices, consents: kept.consents.values().cloned().collect() }
    }

    /// Recording of a voice that this node keeps, as it was sent. Reads a file.
    pub fn recording(&self, id: &str) -> Result<Vec<u8>, VoiceError> {
        let folder = self.folder.as_ref().filter(|_| self.kept().voices.contains_key(id));
        let folder = folder.ok_or_else(|| VoiceError::UnknownVoice(id.to_owned()))?;
        Ok(folder.recording(EntryKind::Voice, id)?)
    }

    /// Takes the list of another node: removes copies of what it does not list any more. Returns the voices that are to be
    /// fetched; none if the model has a fixed set.
    pub fn set_listing(&self, node: &str, listing: VoiceListing) -> Vec<Voice> {
        let mut kept = self.kept();
        let VoiceListing { mut voices, consents } = listing;
        voices.truncate(self.most);
        let StoredVoices { voices: own, others, .. } = &mut *kept;
        let of_node = others.entry(node.to_owned()).or_default();
        of_node.consents = consents;
        of_node.consents.truncate(self.most);
        of_node.listed = voices.iter().map(|voice| voice.id.clone()).collect();
        let gone: Vec<String> = of_node.copies.keys().filter(|id| !of_node.listed.contains(*id)).cloned().collect();
        for id in gone {
            of_node.copies.remove(&id);
            self.engine.remove_voice(&id);
        }
        voices.retain(|voice| !of_node.copies.contains_key(&voice.id) && !own.contains_key(&voice.id));
        if self.engine.info().recording_rate.is_none() {
            voices.clear();
        }
        voices
    }

    /// Enrols a voice of another node from its recording. Takes as long as the model needs. A voice that was removed meanwhile
    /// is removed here, too.
    pub fn add_copy(&self, node: &str, voice: Voice, recording: &[u8]) -> Result<(), VoiceError> {
        let count = |kept: &StoredVoices| kept.others.values().map(|others| others.copies.len()).sum::<usize>();
        if count(&self.kept()) >= self.most {
            return Err(VoiceError::Full { what: "voices of other nodes", most: self.most });
        }
        let samples = samples(self.engine.as_ref(), RECORDING, recording)?;
        self.engine.enrol(&voice.id, &Recording { samples, text: voice.text.clone() })?;
        let mut kept = self.kept();
        match kept.others.get_mut(node).filter(|others| others.listed.contains(&voice.id)) {
            Some(others) => drop(others.copies.insert(voice.id.clone(), voice)),
            None => drop(self.engine.remove_voice(&voice.id)),
        }
        Ok(())
    }

    /// Removes the copies of all nodes that are not `known`.
    pub fn keep_nodes(&self, known: impl Fn(&str) -> bool) {
        let mut kept = self.kept();
        let left: Vec<String> = kept.others.keys().filter(|node| !known(node)).cloned().collect();
        for others in left.into_iter().filter_map(|node| kept.others.remove(&node)) {
            for id in others.copies.keys() {
                self.engine.remove_voice(id);
            }
        }
    }
}
