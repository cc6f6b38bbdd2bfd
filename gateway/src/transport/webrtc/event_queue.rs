//! Queue of a call's events: bounded in number, and the peer's messages in bytes.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};

use super::event::PeerEvent;

/// Events that may wait for the owner of a call.
const CAPACITY: usize = 256;
/// Bytes of messages that may wait: four of the largest.
const MAX_UNREAD: usize = 1 << 20;

/// Sender of a call's events.
#[derive(Debug)]
pub(super) struct EventSender {
    events: mpsc::Sender<PeerEvent>,
    /// Permits for bytes of messages that wait.
    bytes: Arc<Semaphore>,
}

/// Events of a call, in order, for its owner.
#[derive(Debug)]
pub struct PeerEvents {
    events: mpsc::Receiver<PeerEvent>,
    bytes: Arc<Semaphore>,
}

/// Creates the queue of a call's events.
pub(super) fn event_queue() -> (EventSender, PeerEvents) {
    let (sender, receiver) = mpsc::channel(CAPACITY);
    let events = PeerEvents::from(receiver);
    (EventSender { events: sender, bytes: events.bytes.clone() }, events)
}

impl From<mpsc::Receiver<PeerEvent>> for PeerEvents {
    /// Takes a queue that is bounded in number alone.
    fn from(events: mpsc::Receiver<PeerEvent>) -> Self {
        Self { events, bytes: Arc::new(Semaphore::new(MAX_UNREAD)) }
    }
}

impl PeerEvents {
    /// Returns the next event; `None` after [`PeerEvent::Closed`]. Cancel safe.
    pub async fn recv(&mut self) -> Option<PeerEvent> {
        let event = self.events.recv().await;
        self.bytes.add_permits(event.as_ref().map_or(0, permits) as usize);
        event
    }

    /// Returns the next event, if there is one now.
    pub fn try_recv(&mut self) -> Option<PeerEvent> {
        let event = self.events.try_recv().ok();
        self.bytes.add_permits(event.as_ref().map_or(0, permits) as usize);
        event
    }
}

impl EventSender {
    /// Queues an event, waiting for room; false if the owner dropped the queue.
    pub async fn send(&self, event: PeerEvent) -> bool {
        let permit = tokio::select! {
            permit = self.bytes.acquire_many(permits(&event)) => permit,
            () = self.events.closed() => return false,
        };
        if self.events.send(event).await.is_err() {
            return false;
        }
        // The reader of the event gives them back. The semaphore is never closed.
        permit.is_ok_and(|permit| {
            permit.forget();
            true
        })
    }

    /// Queues an event that is no message, if `reserved` further places are free; false otherwise.
    pub fn try_send(&self, event: PeerEvent, reserved: usize) -> bool {
        self.events.capacity() > reserved && self.events.try_send(event).is_ok()
    }
}

/// Permits of an event: the bytes of a message. A larger message than may wait waits alone.
fn permits(event: &PeerEvent) -> u32 {
    let bytes = if let PeerEvent::Message(text) = event { text.len().min(MAX_UNREAD) } else { 0 };
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn unread_messages_are_bounded_in_bytes() {
        let (sender, mut events) = event_queue();
        let large = || PeerEvent::Message("x".repeat(MAX_UNREAD / 4));
        let sent = (0..10).take_while(|_| sender.send(large()).now_or_never() == Some(true)).count();
        assert_eq!(sent, 4);
        // Other events pass, and each message that is read makes room for another.
        assert!(sender.try_send(PeerEvent::Connected, 0));
        assert_eq!(sender.send(PeerEvent::Message("x".into())).now_or_never(), None);
        assert_eq!(events.recv().now_or_never(), Some(Some(large())));
        assert_eq!(sender.send(large()).now_or_never(), Some(true));
        assert_eq!(sender.send(large()).now_or_never(), None);
        for _ in 0..5 {
            events.recv().now_or_never().unwrap().unwrap();
        }
        // A message above the limit waits alone.
        let huge = PeerEvent::Message("x".repeat(2 * MAX_UNREAD));
        assert_eq!(sender.send(huge.clone()).now_or_never(), Some(true));
        assert_eq!(sender.send(PeerEvent::Message("x".into())).now_or_never(), None);
        assert_eq!(events.recv().now_or_never(), Some(Some(huge)));
        assert_eq!(sender.bytes.available_permits(), MAX_UNREAD);
    }

    #[test]
    fn places_are_reserved_and_bounded() {
        let (sender, events) = event_queue();
        assert_eq!((0..CAPACITY).filter(|_| sender.try_send(PeerEvent::ChannelOpen, 64)).count(), CAPACITY - 64);
        assert_eq!((0..CAPACITY).filter(|_| sender.try_send(PeerEvent::ChannelOpen, 0)).count(), 64);
        drop(events);
        assert_eq!(sender.send(PeerEvent::Message("x".into())).now_or_never(), Some(false));
    }
}
