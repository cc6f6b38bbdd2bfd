//! Bus: carries the messages of nodes to all nodes of their cell, the sender included.

use async_trait::async_trait;
use bytes::Bytes;
use repartee_cluster::MessageKind;
use tokio::sync::broadcast;

/// Messages that a member of a [`MemoryBus`] may be behind; it loses older ones.
const MAX_BEHIND: usize = 1_024;

/// Connection of one node to the bus.
#[async_trait]
pub trait Bus: Send {
    /// Publishes a message to all nodes. Loses it while there is no connection: the next one tells the same.
    async fn publish(&mut self, kind: MessageKind, message: Vec<u8>);

    /// Waits for the next message; `None` if there will be none. Cancel safe: a message that was not returned stays.
    async fn next(&mut self) -> Option<Bytes>;
}

/// Bus within one process: for several servers of one process, and for tests.
#[derive(Debug, Clone)]
pub struct MemoryBus(broadcast::Sender<Bytes>);

/// Member of a [`MemoryBus`].
#[derive(Debug)]
pub struct MemoryMember {
    bus: broadcast::Sender<Bytes>,
    messages: broadcast::Receiver<Bytes>,
}

impl Default for MemoryBus {
    fn default() -> Self {
        Self(broadcast::Sender::new(MAX_BEHIND))
    }
}

impl MemoryBus {
    /// Adds a member, which gets all messages from now on.
    pub fn join(&self) -> MemoryMember {
        MemoryMember { bus: self.0.clone(), messages: self.0.subscribe() }
    }
}

#[async_trait]
impl Bus for MemoryMember {
    async fn publish(&mut self, _: MessageKind, message: Vec<u8>) {
        // It has a receiver: this member.
        let _ = self.bus.send(message.into());
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.messages.recv().await {
                Ok(message) => return Some(message),
                Err(broadcast::error::RecvError::Lagged(lost)) => tracing::warn!(lost, "messages of nodes were lost"),
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}
