//! Connections to other nodes that wait for the next request: a forward takes one of them before it opens another.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::SendRequest;
use repartee_cluster::NodeTag;

/// Connections to one node that may wait; one more is closed after its request.
const MAX_WAITING: usize = 16;
/// Longest wait: less than `limits.head`, after which a node closes a connection without a request.
const MAX_WAIT: Duration = Duration::from_secs(4);

/// Sends requests over one connection.
pub type NodeConnection = SendRequest<Full<Bytes>>;

/// Connections that wait, by node.
#[derive(Debug, Default)]
pub struct ConnectionPool(Mutex<HashMap<NodeTag, Vec<Waiting>>>);

#[derive(Debug)]
struct Waiting {
    connection: NodeConnection,
    since: Instant,
}

impl Waiting {
    fn is_usable(&self, now: Instant) -> bool {
        !self.connection.is_closed() && now.saturating_duration_since(self.since) < MAX_WAIT
    }
}

impl ConnectionPool {
    /// Takes the connection to a node that was used last, of those whose response has been read.
    pub fn take(&self, node: NodeTag, now: Instant) -> Option<NodeConnection> {
        let mut all = self.all();
        let waiting = all.get_mut(&node)?;
        waiting.retain(|waiting| waiting.is_usable(now));
        let ready = waiting.iter().rposition(|waiting| waiting.connection.is_ready())?;
        Some(waiting.remove(ready).connection)
    }

    /// Keeps a connection whose response begins; its body may still come.
    pub fn put(&self, node: NodeTag, connection: NodeConnection, now: Instant) {
        let mut all = self.all();
        // The first one to a node may follow the last one to a node that is gone.
        if let Entry::Vacant(_) = all.entry(node) {
            all.retain(|_, waiting| waiting.iter().any(|waiting| waiting.is_usable(now)));
        }
        let waiting = all.entry(node).or_default();
        if waiting.len() < MAX_WAITING {
            waiting.push(Waiting { connection, since: now });
        }
    }

    /// Closes those to a node that does not answer.
    pub fn close(&self, node: NodeTag) {
        self.all().remove(&node);
    }

    fn all(&self) -> MutexGuard<'_, HashMap<NodeTag, Vec<Waiting>>> {
        // A panic cannot leave the lists half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
