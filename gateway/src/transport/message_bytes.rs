//! Memory of the large messages that come over a websocket, within the budget of bytes (`limits.bytes_in_flight`).
//!
//! A websocket gives whole messages, so many connections that each send a large one would hold gigabytes before any call
//! sees a byte. A message is counted below the websocket, while it is read, and until the call has taken all that it
//! holds. Its length is not known there, so memory for the longest is reserved, once it is no small one: messages of which
//! each has a half would wait for each other.

use std::sync::{Mutex, MutexGuard, PoisonError};

use repartee_protocol::{ErrorBody, ErrorKind, MAX_PLAIN_EVENT};
use tokio::time::Instant;

use crate::byte_budget::{ByteBudgetError, ByteCharge};

/// Largest accepted message, in bytes. A larger one is an error, and the connection stays open.
pub const MAX_MESSAGE: usize = 15 << 20;
/// Largest message that is read at all, in bytes. A larger one is an error and ends the connection, because skipping it
/// would be unbounded work.
pub const MAX_READ: usize = MAX_MESSAGE + (2 << 20);
/// Bytes of a message that are not counted: it is an event, or sound of twenty seconds.
pub(crate) const FREE: usize = MAX_PLAIN_EVENT;
/// Memory of a larger message, in bytes: the buffer that it is read into, and the text that is taken out of it.
pub(crate) const RESERVED: usize = 2 * MAX_READ;
/// Bytes of a client's control frame before its payload: two, and the mask.
const CONTROL_HEADER: usize = 6;

/// Reason for which a message is not read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageRefusal {
    /// The budget had no room for it in time.
    NoRoom(ByteBudgetError),
    /// It took too long to come.
    Slow,
}

impl MessageRefusal {
    /// Error that tells the client.
    pub fn body(self) -> ErrorBody {
        match self {
            Self::NoRoom(error) => error.body(),
            Self::Slow => {
                let message = format!(
                    "a message above {FREE} bytes has to come in time, as limits.request_s says: send sound in smaller \
                     pieces"
                );
                ErrorBody::invalid(ErrorKind::BytesLimit, message)
            }
        }
    }
}

/// Bytes of the message that a connection reads, or that its call works on.
#[derive(Debug, Default)]
pub struct MessageBytes {
    counted: Mutex<Counted>,
}

#[derive(Debug, Default)]
struct Counted {
    /// `None` before the connection is a websocket.
    charge: Option<ByteCharge>,
    /// Bytes read since the message before was taken.
    read: usize,
    /// True if memory is reserved for the message.
    reserved: bool,
    /// Time since which it comes; `None` once it has come.
    since: Option<Instant>,
    refusal: Option<MessageRefusal>,
}

impl MessageBytes {
    /// Begins to count: the connection is a websocket from now on.
    pub(crate) fn begin(&self, charge: ByteCharge) {
        *self.lock() = Counted { charge: Some(charge), ..Counted::default() };
    }

    /// Counts bytes that were read. Without room they stay counted, and zero bytes ask again.
    ///
    /// # Errors
    ///
    /// The budget of the server, the key or the address has no room for the message.
    pub(crate) fn add(&self, bytes: usize) -> Result<(), ByteBudgetError> {
        let mut counted = self.lock();
        counted.read = counted.read.saturating_add(bytes);
        if counted.read <= FREE || counted.reserved {
            return Ok(());
        }
        let Some(charge) = &mut counted.charge else { return Ok(()) };
        charge.set(RESERVED)?;
        (counted.reserved, counted.since) = (true, Some(Instant::now()));
        Ok(())
    }

    /// Takes a ping or pong with a payload of this many bytes off the count: it may come in the middle of a message.
    pub(crate) fn forget_control_frame(&self, payload: usize) {
        let mut counted = self.lock();
        counted.read = counted.read.saturating_sub(payload + CONTROL_HEADER);
    }

    /// Returns the time since which a large message comes, and its bytes so far; `None` if none does.
    pub(crate) fn coming(&self) -> Option<(Instant, usize)> {
        let counted = self.lock();
        counted.since.map(|since| (since, counted.read))
    }

    /// Says that the message has come: the call may take its time.
    pub(crate) fn complete(&self) {
        self.lock().since = None;
    }

    /// Says that the message is not read on for this reason.
    pub(crate) fn refuse(&self, reason: MessageRefusal) {
        self.lock().refusal = Some(reason);
    }

    /// Returns the reason for which the message is not read on, if so.
    pub(crate) fn refusal(&self) -> Option<MessageRefusal> {
        self.lock().refusal
    }

    /// Releases the message that was read: the call has taken all that it holds.
    pub(crate) fn release(&self) {
        let mut counted = self.lock();
        (counted.read, counted.reserved, counted.since) = (0, false, None);
        if let Some(charge) = &mut counted.charge {
            // Fewer bytes are never refused.
            let _ = charge.set(0);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Counted> {
        // A panic cannot leave the counts half changed.
        self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::ClientIdentity;
    use crate::byte_budget::ByteBudget;

    #[test]
    fn large_messages_are_counted_until_they_are_taken() {
        let budget = ByteBudget::new(RESERVED as u64);
        let client = ClientIdentity { address: [127, 0, 0, 1].into(), key: None };
        let [first, second] = [0; 2].map(|_| MessageBytes::default());
        first.add(FREE + 1).unwrap();
        assert_eq!(budget.total(), 0, "a request's head and body are counted elsewhere");
        for bytes in [&first, &second] {
            bytes.begin(budget.begin(client, None, 0));
            bytes.add(FREE).unwrap();
        }
        // A client may send pings for hours, and in the middle of a message.
        first.forget_control_frame(125);
        first.add(131).unwrap();
        assert_eq!(budget.total(), 0, "small messages are free");
        first.add(1).unwrap();
        first.add(FREE).unwrap();
        assert_eq!(budget.total(), RESERVED);
        let full = ByteBudgetError::Full(RESERVED);
        assert_eq!((second.add(1), second.add(0)), (Err(full), Err(full)));
        first.release();
        assert_eq!(budget.total(), 0);
        assert_eq!(second.add(0), Ok(()), "room that was made is found");
        drop((first, second));
        assert_eq!(budget.total(), 0);
    }
}
