//! Budgets of API keys: what one key may use of the server, so that it leaves the others theirs.
//!
//! - this file: the accounts of all keys, and the sound that waits in all of them
//! - [`account`]: account of one key, with its limits in a minute
//! - [`key_limit`]: limits by name, and their refusals
//! - `minute_bucket`: a quantity in a minute, paid afterwards
//! - [`call_budget`]: the account of a call's key, as the call uses it
//!
//! Sessions and ephemeral keys are held: with several API keys, one has at most half of them. The engine shares its time
//! between keys by itself (`repartee_engine::deadline`). No clock: the time is a parameter.

pub mod account;
pub mod call_budget;
pub mod key_limit;
mod minute_bucket;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::auth::{KeyId, KeySet};
use crate::config::LimitConfig;
use crate::usage::ledger::UsageLedger;
use account::{KeyAccount, WaitingSound};

/// Name of the account of requests without a key.
pub const NO_KEY: &str = "none";

/// Number of all calls without a key, beside those of keys, which are random.
const WITHOUT_KEY: u64 = 0;

/// Accounts of all API keys.
#[derive(Debug)]
pub struct KeyBudgets {
    limits: LimitConfig,
    waiting: Arc<WaitingSound>,
    ledger: Arc<UsageLedger>,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    /// Number of API keys.
    keys: usize,
    by_key: HashMap<Option<KeyId>, Arc<KeyAccount>>,
}

impl KeyBudgets {
    /// Creates the accounts of these keys, whose usage goes to `ledger`; without keys one account for all requests.
    pub fn new(limits: LimitConfig, keys: &KeySet, ledger: Arc<UsageLedger>) -> Self {
        let waiting = Arc::new(WaitingSound::new(limits.waiting_sound_s));
        let budgets = Self { limits, waiting, ledger, accounts: Mutex::default() };
        budgets.set_keys(keys);
        budgets
    }

    /// Replaces the API keys. Keys that stay keep their accounts; calls of removed ones keep theirs to their end.
    pub fn set_keys(&self, keys: &KeySet) {
        let mut accounts = self.accounts();
        let mut before = std::mem::take(&mut accounts.by_key);
        let mut owners: Vec<_> = keys.names().map(|(id, name)| (Some(id), name.clone())).collect();
        // Beside keys it begins with the first call that needs none.
        if keys.is_empty() || before.contains_key(&None) {
            owners.push((None, NO_KEY.into()));
        }
        let account = |(id, name): (Option<KeyId>, Arc<str>)| {
            let known = before.remove(&id).filter(|account| **account.name() == *name);
            let new = || Arc::new(KeyAccount::new(id, name.clone(), &self.limits, self.shared()));
            (id, known.unwrap_or_else(new))
        };
        accounts.by_key = owners.into_iter().map(account).collect();
        accounts.keys = keys.len();
        self.waiting.set_owners(keys.len());
    }

    /// Account of a request's key. Requests without a key, such as telephone calls, have one together. A key that was just
    /// removed gets a new one, which ends with the request.
    pub fn account(&self, key: Option<KeyId>) -> Arc<KeyAccount> {
        let mut accounts = self.accounts();
        if let Some(known) = accounts.by_key.get(&key) {
            return known.clone();
        }
        let account = Arc::new(KeyAccount::new(key, NO_KEY.into(), &self.limits, self.shared()));
        if key.is_none() {
            accounts.by_key.insert(None, account.clone());
        }
        account
    }

    /// Adds the usage of all keys since the last call to the ledger, and returns it.
    pub fn settle(&self) -> &UsageLedger {
        self.all().iter().for_each(|(_, account)| account.settle());
        &self.ledger
    }

    fn shared(&self) -> (Arc<WaitingSound>, Arc<UsageLedger>) {
        (self.waiting.clone(), self.ledger.clone())
    }

    /// Accounts of all keys.
    pub fn all(&self) -> Vec<(Option<KeyId>, Arc<KeyAccount>)> {
        self.accounts().by_key.iter().map(|(key, account)| (*key, account.clone())).collect()
    }

    /// Maximum number of a key's calls on a server with `slots` sessions; 0 for no limit. Unless it is set, half of the
    /// sessions if there are several keys. Beside several, all calls without a key count as those of one more.
    pub fn calls_of(&self, key: Option<KeyId>, slots: usize) -> u32 {
        let has_several = self.accounts().keys > 1;
        match self.limits.calls_per_key {
            _ if key.is_none() && !has_several => 0,
            0 if has_several => u32::try_from(slots.div_ceil(2).max(1)).unwrap_or(u32::MAX),
            set => set,
        }
    }

    /// Number of a key among several, for shares of the machine; `None` if there is one alone, or none. Telephone calls, which
    /// have no key, have one number together.
    pub fn key_of_several(&self, key: Option<KeyId>) -> Option<u64> {
        let has_several = self.accounts().keys > 1;
        has_several.then(|| key.map_or(WITHOUT_KEY, u64::from))
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        // Accounts are inserted and removed whole.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::{Duration, Instant};

    use repartee_engine_api::EngineUsage;

    use super::key_limit::KeyLimit;
    use super::*;

    fn two() -> (KeySet, Option<KeyId>, Option<KeyId>) {
        let keys = KeySet::parse("one the-first-of-two-keys\ntwo the-second-of-two-keys").unwrap();
        let [first, second] = ["the-first-of-two-keys", "the-second-of-two-keys"].map(|key| keys.find(key));
        (keys, first, second)
    }

    /// Accounts with a ledger of the first day.
    pub fn with_limits(limits: LimitConfig, keys: &KeySet) -> KeyBudgets {
        KeyBudgets::new(limits, keys, Arc::new(UsageLedger::new("model", 1, Vec::new(), 0)))
    }

    #[test]
    fn several_keys_have_half_of_the_sessions_each() {
        let (keys, first, _) = two();
        let budgets = with_limits(LimitConfig::default(), &keys);
        assert_eq!([64, 5, 1].map(|slots| budgets.calls_of(first, slots)), [32, 3, 1]);
        assert_eq!(budgets.calls_of(None, 64), 32, "telephones together are one more");
        assert_ne!(budgets.key_of_several(None), budgets.key_of_several(first));
        budgets.set_keys(&KeySet::parse("the-first-of-two-keys").unwrap());
        assert_eq!((budgets.calls_of(first, 64), budgets.calls_of(None, 64)), (0, 0), "a single key may use all");
        assert_eq!(budgets.key_of_several(None), None);
        let set = with_limits(LimitConfig { calls_per_key: 50, ..LimitConfig::default() }, &keys);
        assert_eq!(set.calls_of(first, 64), 50);
    }

    #[test]
    fn tokens_in_a_minute_are_paid_afterwards() {
        let (keys, first, second) = two();
        let limits =
            LimitConfig { prefill_tokens_per_minute: 600, decode_tokens_per_minute: 60, ..LimitConfig::default() };
        let budgets = with_limits(limits, &keys);
        let (account, start) = (budgets.account(first), Instant::now());
        account.check_tokens(start).unwrap();
        account.tenant().work.add(700, 10);
        let denied = account.check_tokens(start).unwrap_err();
        assert_eq!((denied.limit, denied.most), (KeyLimit::PrefillTokens, 600));
        // 100 tokens too many, at ten a second.
        assert!(denied.retry_after >= Duration::from_secs(10) && denied.retry_after < Duration::from_secs(11));
        budgets.account(second).check_tokens(start).unwrap();
        let later = start + denied.retry_after;
        account.check_tokens(later).unwrap();
        account.tenant().work.add(0, 100);
        assert_eq!(account.check_tokens(later).unwrap_err().limit, KeyLimit::DecodeTokens);
        assert_eq!(account.refused(KeyLimit::PrefillTokens), 1);
        // A key that stays keeps its account.
        budgets.set_keys(&keys);
        assert!(budgets.account(first).check_tokens(later).is_err());
    }

    #[test]
    fn use_elsewhere_is_charged_here() {
        let (keys, first, second) = two();
        let limits = LimitConfig { decode_tokens_per_minute: 60, sound_s_per_minute: 30, ..LimitConfig::default() };
        let budgets = with_limits(limits, &keys);
        let (account, start) = (budgets.account(first), Instant::now());
        account.tenant().work.add(0, 30);
        account.check_tokens(start).unwrap();
        account.charge_elsewhere((900, 30), Duration::from_secs(29), start);
        assert_eq!(account.check_tokens(start).unwrap_err().limit, KeyLimit::DecodeTokens);
        account.check_sound(start).unwrap();
        account.charge_elsewhere((0, 0), Duration::from_secs(2), start);
        assert_eq!(account.check_sound(start).unwrap_err().limit, KeyLimit::Sound);
        budgets.account(second).check_tokens(start).unwrap();
        // What a server tells after an hour without a connection costs one minute.
        account.charge_elsewhere((0, 3_600), Duration::ZERO, start);
        let waits = account.check_tokens(start).unwrap_err().retry_after;
        assert!(waits >= Duration::from_secs(60) && waits < Duration::from_secs(61), "{waits:?}");
    }

    #[test]
    fn waiting_sound_is_shared_by_keys() {
        let (keys, first, second) = two();
        let budgets = with_limits(LimitConfig { waiting_sound_s: 100, ..LimitConfig::default() }, &keys);
        let [first, second] = [first, second].map(|key| budgets.account(key));
        assert!(first.hold_sound(0, 50_000).is_ok());
        let denied = first.hold_sound(50_000, 51_000).unwrap_err();
        assert_eq!(denied.limit, KeyLimit::WaitingSound);
        assert!(second.hold_sound(0, 50_000).is_ok());
        assert!(second.hold_sound(50_000, 40_000).is_ok());
        assert!(first.hold_sound(50_000, 60_000).is_err(), "half is the most, whatever is free");
        budgets.set_keys(&KeySet::parse("one the-first-of-two-keys").unwrap());
        assert!(first.hold_sound(50_000, 60_000).is_ok(), "a single key may use what is free");
        assert!(first.hold_sound(60_000, 60_001).is_err());
    }

    #[test]
    fn calls_without_key_share_an_account() {
        let (keys, ..) = two();
        let limits = LimitConfig { decode_tokens_per_minute: 60, ..LimitConfig::default() };
        let budgets = with_limits(limits, &keys);
        assert_eq!(budgets.all().len(), 2, "without such a call there is none");
        let usage = EngineUsage { output_text_tokens: 3, ..EngineUsage::default() };
        let (start, call) = (Instant::now(), budgets.account(None));
        call.count_usage(&usage);
        // While the call runs, and on a server whose keys are loaded again.
        budgets.set_keys(&keys);
        let rows = budgets.settle().rows(0, 1, Some(NO_KEY));
        assert_eq!(rows.iter().map(|row| row.totals.output_text_tokens).collect::<Vec<_>>(), [3]);
        call.tenant().work.add(0, 200);
        assert!(call.check_tokens(start).is_err());
        assert!(budgets.account(None).check_tokens(start).is_err(), "the next call does not begin anew");
    }

    #[test]
    fn usage_outlives_calls_and_removed_keys() {
        let (keys, first, second) = two();
        let budgets = with_limits(LimitConfig::default(), &keys);
        let used = |ledger: &UsageLedger| -> Vec<(String, u64)> {
            let rows = ledger.rows(0, 1, None).into_iter();
            rows.map(|row| (row.key, row.totals.output_text_tokens)).collect()
        };
        let usage = EngineUsage { output_text_tokens: 3, ..EngineUsage::default() };
        budgets.account(first).count_usage(&usage);
        let running = budgets.account(second);
        running.count_usage(&usage);
        assert_eq!(used(budgets.settle()), [("one".to_owned(), 3), ("two".to_owned(), 3)]);
        assert_eq!(used(budgets.settle()), [("one".to_owned(), 3), ("two".to_owned(), 3)], "usage is added once");
        budgets.set_keys(&KeySet::parse("one the-first-of-two-keys").unwrap());
        running.count_usage(&usage);
        assert_eq!(used(budgets.settle())[1].1, 3, "the call of a removed key goes on");
        drop(running);
        assert_eq!(used(budgets.settle())[1].1, 6);
    }
}
