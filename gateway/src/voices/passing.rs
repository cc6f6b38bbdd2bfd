//! Voice of one request, out of the recording that the request brings.

use std::sync::Arc;

use repartee_engine_api::SpeechEngine;
use tokio::runtime::Handle;

/// Reservation for a voice, until dropped.
pub(super) struct VoiceRoom(#[expect(dead_code, reason = "its clones are counted")] Arc<()>);

impl VoiceRoom {
    /// Takes one of the counted clones.
    pub fn new(counted: &Arc<()>) -> Self {
        Self(Arc::clone(counted))
    }
}

/// Voice that is removed from the engine when it is dropped. Nothing of it is stored.
pub struct PassingVoice {
    /// Its name in requests to the engine.
    id: String,
    /// Difference between the recording and a good one, for the client.
    warning: Option<String>,
    /// The engine, and the room of the voice among others.
    held: Option<(Arc<dyn SpeechEngine>, VoiceRoom)>,
}

impl PassingVoice {
    /// Wraps a voice of the engine.
    pub(super) fn new(id: String, warning: Option<String>, held: (Arc<dyn SpeechEngine>, VoiceRoom)) -> Self {
        Self { id, warning, held: Some(held) }
    }

    /// Name of the voice in requests to the engine.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Difference between the recording and a good one, for the client.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

impl Drop for PassingVoice {
    fn drop(&mut self) {
        let Some((engine, room)) = self.held.take() else { return };
        let id = std::mem::take(&mut self.id);
        let remove = move || {
            engine.remove_voice(&id);
            drop(room);
        };
        // The engine may be enrolling another voice, for seconds.
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(remove)),
            Err(_) => remove(),
        }
    }
}
