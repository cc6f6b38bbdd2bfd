//! A member of the bus whose link a test cuts.

use async_trait::async_trait;
use bytes::Bytes;
use repartee::cluster::bus::{Bus, MemoryBus, MemoryMember};
use repartee_cluster::MessageKind;
use tokio::sync::watch;

/// Member that loses its messages both ways while its link is cut.
pub struct CutMember {
    member: MemoryMember,
    is_cut: watch::Receiver<bool>,
}

impl CutMember {
    /// Joins a bus; a `true` cuts the link.
    pub fn join(bus: &MemoryBus) -> (Self, watch::Sender<bool>) {
        let (link, is_cut) = watch::channel(false);
        (Self { member: bus.join(), is_cut }, link)
    }
}

#[async_trait]
impl Bus for CutMember {
    async fn publish(&mut self, kind: MessageKind, message: Vec<u8>) {
        if !*self.is_cut.borrow() {
            self.member.publish(kind, message).await;
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let message = self.member.next().await?;
            if !*self.is_cut.borrow() {
                return Some(message);
            }
        }
    }
}
