//! Registry of WebRTC and telephone calls: who owns a call, how to end it, how to attach to it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::caller::Caller;
use crate::auth::KeyId;
use crate::transport::sideband::Sidebands;

/// Maximum number of remembered ended calls, so that hanging up twice is no error.
const MAX_ENDED: usize = 4_096;

/// Registry of running WebRTC and telephone calls, and of the ids of ended ones.
#[derive(Debug, Default)]
pub(super) struct CallRegistry(Mutex<CallTable>);

/// Running and ended calls by id.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    pub running: HashMap<String, ActiveCall>,
    pub ended: HashMap<String, CallOwner>,
    /// Ids of ended calls, oldest first.
    order: VecDeque<String>,
}

/// Key that made a call. Only that key, and the API key that issued it, may attach to the call and hang it up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CallOwner {
    /// API key; `None` on a server without keys.
    key: Option<KeyId>,
    /// Ephemeral key; `None` if the call was made with an API key.
    ephemeral: Option<KeyId>,
    /// True for a call of the provider's signature, which every API key may control.
    signed: bool,
}

impl CallOwner {
    /// Owner of a call that `caller` makes.
    pub fn of(caller: &Caller) -> Self {
        Self { key: caller.client.key, ephemeral: caller.ephemeral, signed: false }
    }

    /// Owner of a telephone call. Where the provider's signature stands for a key, every API key owns it.
    pub fn of_stream(caller: &Caller) -> Self {
        Self { signed: caller.client.key.is_none(), ..Self::of(caller) }
    }

    /// True if `caller` may control the call.
    pub fn admits(self, caller: &Caller) -> bool {
        if self.signed {
            return caller.ephemeral.is_none();
        }
        caller.client.key == self.key && caller.ephemeral.is_none_or(|ephemeral| Some(ephemeral) == self.ephemeral)
    }
}

/// A running call.
#[derive(Debug)]
pub(super) struct ActiveCall {
    pub owner: CallOwner,
    pub hang_up: Arc<Notify>,
    pub sidebands: Sidebands,
}

impl CallRegistry {
    /// Locks the table.
    pub fn registry(&self) -> MutexGuard<'_, CallTable> {
        // A panic cannot leave the lists inconsistent in a way that matters.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves a call to the ended ones.
    pub fn ended(&self, id: String) {
        let mut registry = self.registry();
        let Some(ActiveCall { owner, .. }) = registry.running.remove(&id) else { return };
        if registry.order.len() == MAX_ENDED
            && let Some(oldest) = registry.order.pop_front()
        {
            registry.ended.remove(&oldest);
        }
        if registry.ended.insert(id.clone(), owner).is_none() {
            registry.order.push_back(id);
        }
    }
}
