//! Events of a call on their way to its sidebands.

use tokio::sync::mpsc;

use crate::call::OutboundMessage;
use crate::transport::sideband::Publisher;

/// Publishes the call's events to its sidebands until it ends.
pub(super) async fn publish(mut events: mpsc::Receiver<OutboundMessage>, publisher: Publisher) {
    while let Some(message) = events.recv().await {
        match message {
            OutboundMessage::Event(kind, text) => publisher.publish(kind, &text),
            OutboundMessage::Close(..) => return,
            OutboundMessage::OpusFrame(_) | OutboundMessage::Ping => {}
        }
    }
}
