//! State of one call, shared by the callbacks, the tasks and the owner of its connection.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};
use webrtc::data_channel::DataChannel;

use super::event::PeerEvent;
use super::event_queue::{EventSender, PeerEvents, event_queue};

/// Queue places that audio may not take, so that a flood of audio never delays a message.
const RESERVED: usize = 64;

/// Values of [`CallState::channel_claim`]; a higher one displaces a lower one.
const UNCLAIMED: u8 = 0;
const ANY_LABEL: u8 = 1;
const OUR_LABEL: u8 = 2;

/// Phase of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallPhase {
    Connecting,
    /// The handshake is complete; the peer's certificate is not checked yet.
    Encrypted,
    Connected,
    Ended,
}

/// Phase, data channel and event queue of one call. Does not hold the connection, which holds it.
pub(super) struct CallState {
    events: EventSender,
    phase: watch::Sender<CallPhase>,
    gathered: Notify,
    /// Notified once the data channel is closed on both sides.
    channel_closed: Notify,
    /// Claim on the events: none, by a channel of any label, or by the one with our label.
    channel_claim: AtomicU8,
    /// The open data channel. It holds the connection: taken out at the end to free both.
    channel: Mutex<Option<Arc<dyn DataChannel>>>,
    dropped_audio: AtomicU64,
    /// True if our side ended the call.
    hung_up: AtomicBool,
}

impl std::fmt::Debug for CallState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallState").field("phase", &*self.phase.borrow()).finish_non_exhaustive()
    }
}

impl CallState {
    /// Creates the state of a new call, and the queue of its events.
    pub fn new() -> (Self, PeerEvents) {
        let (events, receiver) = event_queue();
        let state = Self {
            events,
            phase: watch::Sender::new(CallPhase::Connecting),
            gathered: Notify::new(),
            channel_closed: Notify::new(),
            channel_claim: AtomicU8::new(UNCLAIMED),
            channel: Mutex::new(None),
            dropped_audio: AtomicU64::new(0),
            hung_up: AtomicBool::new(false),
        };
        (state, receiver)
    }

    /// Returns a receiver of the phase and its changes.
    pub fn phase(&self) -> watch::Receiver<CallPhase> {
        self.phase.subscribe()
    }

    /// Ends the call; the supervisor does the rest.
    pub fn end(&self) {
        self.phase.send_replace(CallPhase::Ended);
    }

    /// Ends the call from our side; the peer still has to be told.
    pub fn hang_up(&self) {
        self.hung_up.store(true, Ordering::Relaxed);
        self.end();
    }

    /// True if our side ended the call, rather than the peer.
    pub fn is_hung_up(&self) -> bool {
        self.hung_up.load(Ordering::Relaxed)
    }

    /// True while the peer is connected and has the certificate of its description.
    pub fn is_connected(&self) -> bool {
        *self.phase.borrow() == CallPhase::Connected
    }

    /// Waits for the connection; false if the call ends without one.
    pub async fn until_connected(&self) -> bool {
        let mut phase = self.phase();
        let phase = phase.wait_for(|phase| matches!(phase, CallPhase::Connected | CallPhase::Ended)).await;
        phase.is_ok_and(|phase| *phase == CallPhase::Connected)
    }

    /// True if the call has ended.
    pub fn has_ended(&self) -> bool {
        *self.phase.borrow() == CallPhase::Ended
    }

    /// Returns the open data channel.
    pub fn channel(&self) -> Option<Arc<dyn DataChannel>> {
        self.lock_channel().clone()
    }

    /// Takes the open data channel out.
    pub fn take_channel(&self) -> Option<Arc<dyn DataChannel>> {
        self.lock_channel().take()
    }

    /// Claims the events for a channel that the peer opened; true for the first one, and for the first with our label.
    pub fn claim_channel(&self, is_ours: bool) -> bool {
        let claim = if is_ours { OUR_LABEL } else { ANY_LABEL };
        self.channel_claim.fetch_max(claim, Ordering::Relaxed) < claim
    }

    /// True if the events belong to a channel with our label.
    pub fn has_our_channel(&self) -> bool {
        self.channel_claim.load(Ordering::Relaxed) == OUR_LABEL
    }

    /// Gives the events free after a channel of another label was closed; the call goes on.
    pub fn other_channel_closed(&self) {
        let claim = &self.channel_claim;
        if claim.compare_exchange(ANY_LABEL, UNCLAIMED, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.take_channel();
        }
    }

    /// Stores the open data channel.
    pub fn channel_opened(&self, channel: Arc<dyn DataChannel>) {
        *self.lock_channel() = Some(channel);
    }

    /// Ends the call: the data channel is closed on both sides. The connection's own state lags by seconds.
    pub fn channel_closed(&self) {
        self.channel_closed.notify_one();
        self.end();
    }

    /// Returns once the data channel is closed on both sides.
    pub async fn until_channel_closed(&self) {
        self.channel_closed.notified().await;
    }

    /// Marks the local candidates as complete.
    pub fn set_gathered(&self) {
        self.gathered.notify_one();
    }

    /// Returns once all local candidates are known.
    pub async fn until_gathered(&self) {
        self.gathered.notified().await;
    }

    /// Enters [`CallPhase::Encrypted`]: the handshake is complete.
    pub fn set_encrypted(&self) {
        self.advance(CallPhase::Connecting, CallPhase::Encrypted);
    }

    /// Enters [`CallPhase::Connected`]: the peer's certificate is the right one.
    pub fn set_connected(&self) {
        // This is the first event, so there is room. It comes before those that wait for the phase.
        if *self.phase.borrow() == CallPhase::Encrypted {
            let _ = self.events.try_send(PeerEvent::Connected, 0);
        }
        self.advance(CallPhase::Encrypted, CallPhase::Connected);
    }

    fn advance(&self, from: CallPhase, to: CallPhase) {
        self.phase.send_if_modified(|phase| {
            let is_next = *phase == from;
            if is_next {
                *phase = to;
            }
            is_next
        });
    }

    /// Queues an audio packet. If the queue is full, drops and counts it: the owner has not read for seconds.
    pub fn queue_audio(&self, event: PeerEvent) {
        if !self.events.try_send(event, RESERVED) {
            self.dropped_audio.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Number of dropped audio packets.
    pub fn dropped_audio(&self) -> u64 {
        self.dropped_audio.load(Ordering::Relaxed)
    }

    /// Queues an event, waiting for room; false if the owner dropped the queue.
    pub async fn queue_event(&self, event: PeerEvent) -> bool {
        self.events.send(event).await
    }

    /// Queues an event if there is room; false otherwise.
    pub fn try_queue_event(&self, event: PeerEvent) -> bool {
        self.events.try_send(event, 0)
    }

    fn lock_channel(&self) -> MutexGuard<'_, Option<Arc<dyn DataChannel>>> {
        // Only moves happen under the lock: a panic cannot leave it half-changed.
        self.channel.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
