//! Registry of calls: who owns a call, how to end it, how to attach to it, and its figures.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::caller::Caller;
use crate::auth::KeyId;
use crate::call::{CallCounts, CallEnd, CallSummary};
use crate::transport::sideband::Sidebands;

/// Maximum number of remembered ended calls, so that hanging up twice is no error.
const MAX_ENDED: usize = 4_096;
/// Number of ended calls in the list, the latest.
const MAX_LISTED: usize = 200;

/// Registry of running calls, and of ended ones.
#[derive(Debug, Default)]
pub(super) struct CallRegistry(Mutex<CallTable>);

/// Running and ended calls by id.
#[derive(Debug, Default)]
pub(super) struct CallTable {
    pub running: HashMap<String, ActiveCall>,
    pub ended: HashMap<String, CallOwner>,
    /// Ids of ended calls, oldest first.
    order: VecDeque<String>,
    /// The latest ended calls, the latest first.
    latest: VecDeque<EndedCall>,
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
    /// Clients that may attach; `None` for a websocket, which has none.
    pub sidebands: Option<Sidebands>,
    pub listed: ListedCall,
}

/// Entry of the list of calls.
#[derive(Debug, Clone)]
pub(super) struct ListedCall {
    pub transport: &'static str,
    /// Name of the API key; `none` without one.
    key: String,
    address: IpAddr,
    /// Begin of the call in seconds since 1970.
    created_at: u64,
    begun: Instant,
    pub summary: Arc<CallSummary>,
}

/// A call that has ended, for the list.
#[derive(Debug)]
struct EndedCall {
    owner: CallOwner,
    wire: Value,
}

impl ListedCall {
    /// Describes a call that begins now.
    pub fn new(transport: &'static str, key: String, address: IpAddr) -> Self {
        let created_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        Self { transport, key, address, created_at, begun: Instant::now(), summary: Arc::default() }
    }

    /// Returns the call as JSON; `ended` is the reason of its end, `None` while it runs.
    fn on_wire(&self, id: &str, ended: Option<CallEnd>) -> Value {
        let CallCounts { answers, cancelled, errors } = self.summary.counts();
        json!({
            "id": id,
            "object": "realtime.call",
            "transport": self.transport,
            "key": self.key,
            "address": self.address,
            "created_at": self.created_at,
            "seconds": self.begun.elapsed().as_secs(),
            "answers": answers,
            "cancelled": cancelled,
            "errors": errors,
            "first_sound_p95_ms": self.summary.wait_p95().map(|wait| wait.as_millis() as u64),
            "ended": ended.map(CallEnd::label),
        })
    }
}

impl CallRegistry {
    /// Locks the table.
    pub fn registry(&self) -> MutexGuard<'_, CallTable> {
        // A panic cannot leave the lists inconsistent in a way that matters.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves a call to the ended ones.
    pub fn ended(&self, id: String, end: CallEnd) {
        let mut registry = self.registry();
        let Some(ActiveCall { owner, listed, .. }) = registry.running.remove(&id) else { return };
        if registry.latest.len() == MAX_LISTED {
            registry.latest.pop_back();
        }
        registry.latest.push_front(EndedCall { owner, wire: listed.on_wire(&id, Some(end)) });
        if registry.order.len() == MAX_ENDED
            && let Some(oldest) = registry.order.pop_front()
        {
            registry.ended.remove(&oldest);
        }
        if registry.ended.insert(id.clone(), owner).is_none() {
            registry.order.push_back(id);
        }
    }

    /// Lists the calls of the owners that `admits` names: the running ones, the oldest first, then the latest that
    /// ended.
    pub fn list(&self, admits: impl Fn(CallOwner) -> bool) -> Vec<Value> {
        let registry = self.registry();
        let mut running: Vec<_> = registry.running.iter().filter(|(_, call)| admits(call.owner)).collect();
        running.sort_by_key(|(_, call)| call.listed.begun);
        let running = running.into_iter().map(|(id, call)| call.listed.on_wire(id, None));
        let ended = registry.latest.iter().filter(|call| admits(call.owner)).map(|call| call.wire.clone());
        running.chain(ended).collect()
    }
}
