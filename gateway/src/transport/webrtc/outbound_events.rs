//! Events to the caller and to the sidebands of its call.
//!
//! Sidebands get each event at once. The caller gets it over its data channel, which may open late, or never: until then
//! the newest events are held, within [`MAX_HELD`] and [`MAX_HELD_BYTES`], and nothing waits. A channel that opens gets
//! the session first, as a late sideband does, then the held events.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::oversized::fit;
use super::{SendError, WebRtcCall};
use crate::call::OutboundMessage;
use crate::transport::sideband::Publisher;

/// Events that are held for a channel.
const MAX_HELD: usize = 128;
/// Bytes of events that are held for a channel; a larger event is held alone.
const MAX_HELD_BYTES: usize = 256 << 10;

/// The newest events, for a channel that is not open yet.
#[derive(Debug, Default)]
struct HeldEvents {
    events: VecDeque<(&'static str, String)>,
    bytes: usize,
    dropped: u64,
}

impl HeldEvents {
    /// Holds an event, and drops the oldest ones beyond the limits.
    fn push(&mut self, kind: &'static str, text: String) {
        self.bytes += text.len();
        self.events.push_back((kind, text));
        while self.events.len() > MAX_HELD || (self.bytes > MAX_HELD_BYTES && self.events.len() > 1) {
            let Some((_, oldest)) = self.events.pop_front() else { return };
            self.bytes -= oldest.len();
            self.dropped += 1;
        }
    }

    /// Takes all events, and their number of dropped predecessors.
    fn take(&mut self) -> (VecDeque<(&'static str, String)>, u64) {
        let Self { events, dropped, .. } = std::mem::take(self);
        (events, dropped)
    }
}

/// End of the sending of events.
enum SendEnd {
    /// The call is over, or its channel takes nothing.
    Unreachable,
    /// The channel was closed, and the call goes on.
    ChannelClosed,
}

/// Publishes events to sidebands and sends them over the caller's data channel, until the queue ends or the caller is out
/// of reach. `opened` counts the channels that the caller has opened.
pub(super) async fn send_events(
    call: Arc<WebRtcCall>,
    mut queue: mpsc::Receiver<OutboundMessage>,
    mut opened: watch::Receiver<u64>,
    publisher: Publisher,
    stalled_after: Duration,
) {
    let (mut held, mut is_open, mut may_open) = (HeldEvents::default(), false, true);
    loop {
        let batch: VecDeque<_> = tokio::select! {
            biased;
            changed = opened.changed(), if may_open => {
                if changed.is_err() {
                    // The call has ended; its last events are still in the queue.
                    may_open = false;
                    continue;
                }
                is_open = true;
                let (events, dropped) = held.take();
                if dropped > 0 {
                    tracing::info!(dropped, "a data channel opened late: its oldest events are left out");
                }
                let session = publisher.session_events().into_iter().map(|(kind, text)| (kind, text.to_string()));
                session.chain(events).collect()
            }
            message = queue.recv() => {
                let Some(OutboundMessage::Event(kind, text)) = message else { return };
                publisher.publish(kind, &text);
                let is_session = matches!(kind, "session.created" | "session.updated");
                if is_open {
                    [(kind, text)].into()
                } else {
                    // The publisher has the session's newest events.
                    if call.has_channel() && !is_session {
                        held.push(kind, text);
                    }
                    continue;
                }
            }
        };
        for (kind, text) in batch {
            match send(&call, kind, text, stalled_after).await {
                Ok(()) => {}
                Err(SendEnd::ChannelClosed) => is_open = false,
                Err(SendEnd::Unreachable) => return,
            }
        }
    }
}

/// Sends an event, in the form that the caller's largest message allows.
async fn send(call: &WebRtcCall, kind: &str, text: String, stalled_after: Duration) -> Result<(), SendEnd> {
    for message in fit(kind, text, call.max_message_size()) {
        match timeout(stalled_after, call.send_message(&message)).await {
            Ok(Ok(())) => {}
            // Cannot be: it fits.
            Ok(Err(error @ SendError::TooLarge { .. })) => tracing::warn!(%error, "an event was not sent"),
            Ok(Err(SendError::NotOpen)) => return Err(SendEnd::ChannelClosed),
            Ok(Err(SendError::Closed)) => return Err(SendEnd::Unreachable),
            Err(_) => {
                tracing::info!(?stalled_after, "closed a stalled data channel");
                return Err(SendEnd::Unreachable);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_events_are_held_within_bounds() {
        let mut held = HeldEvents::default();
        for number in 0..MAX_HELD + 5 {
            held.push("error", number.to_string());
        }
        let (events, dropped) = held.take();
        assert_eq!((events.len(), dropped, &*events[0].1), (MAX_HELD, 5, "5"));
        for letter in ["a", "b", "c"] {
            held.push("error", letter.repeat(MAX_HELD_BYTES / 2));
        }
        let (events, dropped) = held.take();
        assert_eq!((events.len(), dropped), (2, 1));
        assert!(events[0].1.starts_with('b') && held.bytes == 0);
        held.push("error", "x".repeat(MAX_HELD_BYTES * 2));
        assert_eq!(held.take().0.len(), 1);
    }
}
