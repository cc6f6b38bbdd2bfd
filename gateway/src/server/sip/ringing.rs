//! Calls that wait for a decision, and calls that run, by their ids.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use repartee_sip::CallKey;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::server::api_error::ApiError;

/// Decision on a call that rings.
#[derive(Debug)]
pub(super) enum CallDecision {
    /// Accepts it with this session; the answer says if that could be done.
    Accept(Value, oneshot::Sender<Result<(), ApiError>>),
    /// Refuses it with this status.
    Reject(u16),
}

/// State of a call, for requests that name it.
#[derive(Debug)]
enum NamedCall {
    Ringing(oneshot::Sender<CallDecision>),
    Running(CallKey),
}

/// Calls by id.
#[derive(Debug, Default)]
pub(super) struct NamedCalls(Mutex<HashMap<String, NamedCall>>);

impl NamedCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, NamedCall>> {
        // A panic cannot leave the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call that rings; the decision comes at most once.
    pub fn ring(&self, id: &str) -> oneshot::Receiver<CallDecision> {
        let (decide, decided) = oneshot::channel();
        self.lock().insert(id.to_owned(), NamedCall::Ringing(decide));
        decided
    }

    /// Adds a call that runs.
    pub fn run(&self, id: &str, key: CallKey) {
        self.lock().insert(id.to_owned(), NamedCall::Running(key));
    }

    /// Removes a call that is over.
    pub fn remove(&self, id: &str) {
        self.lock().remove(id);
    }

    /// Decides on a call that rings; returns the decision if there is none by this id.
    pub fn decide(&self, id: &str, decision: CallDecision) -> Result<(), CallDecision> {
        let mut calls = self.lock();
        match calls.remove(id) {
            Some(NamedCall::Ringing(decide)) => decide.send(decision),
            Some(running @ NamedCall::Running(_)) => {
                calls.insert(id.to_owned(), running);
                Err(decision)
            }
            None => Err(decision),
        }
    }

    /// Returns the key of a call that runs.
    pub fn running(&self, id: &str) -> Option<CallKey> {
        match self.lock().get(id) {
            Some(NamedCall::Running(key)) => Some(*key),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_decided_once() {
        let calls = NamedCalls::default();
        let mut decided = calls.ring("rtc_1");
        assert!(calls.decide("rtc_1", CallDecision::Reject(486)).is_ok());
        assert!(matches!(decided.try_recv(), Ok(CallDecision::Reject(486))));
        assert!(calls.decide("rtc_1", CallDecision::Reject(486)).is_err(), "again");
        assert!(calls.decide("rtc_2", CallDecision::Reject(486)).is_err(), "another");
        drop(calls.ring("rtc_3"));
        assert!(calls.decide("rtc_3", CallDecision::Reject(486)).is_err(), "the caller is gone");
    }
}
