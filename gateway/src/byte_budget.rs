//! Bytes that requests and large messages hold in memory: bounded for the server, for each key and for each address. Requests
//! are charged only for bytes that have come, so slow clients keep nobody out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ipnet::IpNet;
use repartee_protocol::{ErrorBody, ErrorKind};
use thiserror::Error;

use crate::address_rate::remote_networks;
use crate::admission::ClientIdentity;
use crate::auth::KeyId;

/// `Retry-After` of a refusal: a request takes seconds.
const RETRY: Duration = Duration::from_secs(2);

/// Holder of a share of the budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Holder {
    /// An API key, with its ephemeral keys.
    Key(KeyId),
    Ephemeral(KeyId),
    /// A network of the [address](remote_networks).
    Network(IpNet),
}

/// Counts the bytes that requests hold.
#[derive(Debug)]
pub struct ByteBudget {
    limit: usize,
    held: Mutex<HeldBytes>,
}

#[derive(Debug, Default)]
struct HeldBytes {
    total: usize,
    shares: HashMap<Holder, usize>,
}

/// Limit of bytes that refused a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ByteBudgetError {
    /// The server's budget is used up.
    #[error("the server holds {0} bytes of requests, as limits.bytes_in_flight allows: try again in a moment")]
    Full(usize),
    /// The share of the key or the address is used up.
    #[error(
        "this {0} has {1} bytes of requests in flight, its share of limits.bytes_in_flight: wait for the answer to \
         one of them"
    )]
    Share(&'static str, usize),
}

impl ByteBudgetError {
    /// Error of a request or an event that had no room.
    pub fn body(self) -> ErrorBody {
        let message = self.to_string();
        match self {
            Self::Full(_) => ErrorBody::server(ErrorKind::BytesLimit, message),
            Self::Share(..) => ErrorBody::invalid(ErrorKind::BytesLimit, message),
        }
    }

    /// Time to wait before the next try.
    pub fn retry_after(self) -> Duration {
        RETRY
    }
}

/// Bytes of one request; released when dropped.
#[derive(Debug)]
pub struct ByteCharge {
    budget: Arc<ByteBudget>,
    /// Holders of the bytes, with their shares.
    holders: Vec<(Holder, usize)>,
    bytes: usize,
}

impl ByteBudget {
    /// Creates a budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self { limit: usize::try_from(limit).unwrap_or(usize::MAX), held: Mutex::default() })
    }

    /// Begins a request of this caller with no bytes; the server has `keys` API keys. An address has a quarter of the
    /// budget, and of IPv6 its /64 a quarter, its /56 half and its /48 all; an ephemeral key has a sixteenth, and of
    /// several API keys each has half.
    pub fn begin(self: &Arc<Self>, client: ClientIdentity, ephemeral: Option<KeyId>, keys: usize) -> ByteCharge {
        let key = client.key.filter(|_| keys > 1).map(|key| (Holder::Key(key), self.limit / 2));
        let ephemeral = ephemeral.map(|key| (Holder::Ephemeral(key), self.limit / 16));
        // Clients on this machine are told apart by their keys alone.
        let networks = remote_networks(client.address).map(|(network, multiple)| {
            let share = (self.limit / 4).saturating_mul(multiple as usize);
            (Holder::Network(network), share)
        });
        let holders = key.into_iter().chain(ephemeral).chain(networks).collect();
        ByteCharge { budget: self.clone(), holders, bytes: 0 }
    }

    /// Bytes of all requests.
    pub fn total(&self) -> usize {
        self.held().total
    }

    fn held(&self) -> MutexGuard<'_, HeldBytes> {
        // A panic cannot leave the counts half changed.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ByteCharge {
    /// Sets the number of bytes that the request holds; a refusal changes nothing.
    pub fn set(&mut self, bytes: usize) -> Result<(), ByteBudgetError> {
        let mut held = self.budget.held();
        if let Some(more) = bytes.checked_sub(self.bytes) {
            if held.total.saturating_add(more) > self.budget.limit {
                return Err(ByteBudgetError::Full(held.total));
            }
            for (holder, share) in &self.holders {
                let own = held.shares.get(holder).copied().unwrap_or_default();
                // A request above the share is admitted alone.
                if own.saturating_add(more) > *share && own > self.bytes {
                    return Err(ByteBudgetError::Share(holder.name(), own));
                }
            }
        }
        held.total = held.total - self.bytes + bytes;
        for (holder, _) in &self.holders {
            let own = held.shares.entry(*holder).or_default();
            *own = *own - self.bytes + bytes;
            if *own == 0 {
                held.shares.remove(holder);
            }
        }
        drop(held);
        self.bytes = bytes;
        Ok(())
    }
}

impl Holder {
    fn name(self) -> &'static str {
        match self {
            Self::Key(_) => "API key",
            Self::Ephemeral(_) => "ephemeral key",
            Self::Network(_) => "address",
        }
    }
}

impl Drop for ByteCharge {
    fn drop(&mut self) {
        // Fewer bytes are never refused.
        let _ = self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::KeySet;

    fn client(address: &str, key: Option<KeyId>) -> ClientIdentity {
        ClientIdentity { address: address.parse().unwrap(), key }
    }

    fn keys() -> [Option<KeyId>; 2] {
        let set = KeySet::parse("the-first-of-two-keys\nthe-second-of-two-keys").unwrap();
        ["the-first-of-two-keys", "the-second-of-two-keys"].map(|key| set.find(key))
    }

    #[test]
    fn an_address_has_a_quarter() {
        let budget = ByteBudget::new(160);
        let begin = |address| budget.begin(client(address, None), None, 0);
        let (mut phone, mut again) = (begin("203.0.113.7"), begin("::ffff:203.0.113.7"));
        phone.set(30).unwrap();
        again.set(10).unwrap();
        assert_eq!(again.set(11), Err(ByteBudgetError::Share("address", 40)));
        let mut own = begin("127.0.0.1");
        own.set(120).unwrap();
        assert_eq!(begin("203.0.113.8").set(1), Err(ByteBudgetError::Full(160)));
        drop(phone);
        begin("203.0.113.8").set(30).unwrap();
        drop((again, own));
        assert!(budget.held().shares.is_empty() && budget.total() == 0);
    }

    #[test]
    fn networks_of_an_address_share_the_budget() {
        let budget = ByteBudget::new(160);
        let begin = |address: &str| budget.begin(client(address, None), None, 0);
        let mut requests: Vec<ByteCharge> = Vec::new();
        let mut holds = |address: &str, bytes: usize| {
            let mut request = begin(address);
            let held = request.set(bytes);
            requests.push(request);
            held
        };
        let full = |own| Err(ByteBudgetError::Share("address", own));
        // A /64 has a quarter, a /56 half.
        holds("2001:db8:1:2300::1", 40).unwrap();
        assert_eq!(holds("2001:db8:1:2300::2", 1), full(40));
        holds("2001:db8:1:2301::1", 40).unwrap();
        assert_eq!(holds("2001:db8:1:2302::1", 1), full(80));
        // A /48 has all.
        holds("2001:db8:1:2400::1", 40).unwrap();
        holds("2001:db8:1:2401::1", 40).unwrap();
        assert_eq!(holds("2001:db8:1:2500::1", 1), Err(ByteBudgetError::Full(160)));
        drop(requests);
        assert!(budget.held().shares.is_empty());
    }

    #[test]
    fn a_request_above_its_share_is_admitted_alone() {
        let budget = ByteBudget::new(160);
        let begin = || budget.begin(client("203.0.113.7", None), None, 0);
        let (mut large, mut small) = (begin(), begin());
        large.set(150).unwrap();
        assert_eq!(small.set(1), Err(ByteBudgetError::Share("address", 150)));
        assert_eq!(large.set(161), Err(ByteBudgetError::Full(150)));
        large.set(39).unwrap();
        small.set(1).unwrap();
        assert_eq!(large.set(40), Err(ByteBudgetError::Share("address", 40)));
    }

    #[test]
    fn an_api_key_leaves_others_half() {
        let (budget, [first, second]) = (ByteBudget::new(160), keys());
        let mut one = budget.begin(client("127.0.0.1", first), None, 2);
        one.set(80).unwrap();
        let denied = budget.begin(client("203.0.113.7", first), None, 2).set(1);
        assert_eq!(denied, Err(ByteBudgetError::Share("API key", 80)));
        budget.begin(client("127.0.0.1", second), None, 2).set(80).unwrap();
        // A single key has all.
        one.set(0).unwrap();
        budget.begin(client("127.0.0.1", first), None, 1).set(160).unwrap();
    }

    #[test]
    fn an_ephemeral_key_has_a_sixteenth() {
        let (budget, [owner, page]) = (ByteBudget::new(160), keys());
        let begin = || budget.begin(client("127.0.0.1", owner), page, 1);
        let (mut offer, mut again) = (begin(), begin());
        offer.set(9).unwrap();
        again.set(1).unwrap();
        assert_eq!(again.set(2), Err(ByteBudgetError::Share("ephemeral key", 10)));
        budget.begin(client("127.0.0.1", owner), None, 1).set(150).unwrap();
    }
}
