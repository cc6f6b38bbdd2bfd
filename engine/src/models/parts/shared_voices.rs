//! Voices that stages look up by name: those of the checkpoint, and those enrolled while it is served.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Voices by name, shared by all clones of the list.
#[derive(Debug)]
pub struct SharedVoices<V> {
    /// Voices of the checkpoint, in listing order.
    own: Arc<[(String, Arc<V>)]>,
    enrolled: Arc<Mutex<BTreeMap<String, Arc<V>>>>,
}

impl<V> Clone for SharedVoices<V> {
    fn clone(&self) -> Self {
        Self { own: Arc::clone(&self.own), enrolled: Arc::clone(&self.enrolled) }
    }
}

impl<V> SharedVoices<V> {
    /// Creates a list of a checkpoint's voices.
    pub fn new(own: impl IntoIterator<Item = (String, V)>) -> Self {
        let own = own.into_iter().map(|(name, voice)| (name, Arc::new(voice))).collect();
        Self { own, enrolled: Arc::default() }
    }

    /// Voices of the checkpoint.
    pub fn own(&self) -> impl Iterator<Item = &Arc<V>> {
        self.own.iter().map(|(_, voice)| voice)
    }

    /// Names of all voices, those of the checkpoint first.
    pub fn names(&self) -> Vec<String> {
        let own = self.own.iter().map(|(name, _)| name.clone());
        own.chain(self.enrolled().keys().cloned()).collect()
    }

    /// Returns the voice of a name.
    pub fn get(&self, name: &str) -> Option<Arc<V>> {
        let own = self.own.iter().find(|(known, _)| known == name).map(|(_, voice)| Arc::clone(voice));
        own.or_else(|| self.enrolled().get(name).cloned())
    }

    /// Adds or replaces an enrolled voice.
    pub fn enrol(&self, name: &str, voice: V) {
        self.enrolled().insert(name.to_owned(), Arc::new(voice));
    }

    /// Removes an enrolled voice; false if there is none of this name.
    pub fn remove_voice(&self, name: &str) -> bool {
        self.enrolled().remove(name).is_some()
    }

    /// Locks the enrolled voices. A poisoned lock is fine: a panic changes none of them.
    fn enrolled(&self) -> MutexGuard<'_, BTreeMap<String, Arc<V>>> {
        self.enrolled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
