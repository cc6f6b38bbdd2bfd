//! Account of one API key: its work in the engine, its sound, and its limits in a minute.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use repartee_engine_api::{EngineUsage, Tenant};

use super::key_limit::{KeyLimit, OverBudget};
use super::minute_bucket::MinuteBucket;
use crate::auth::KeyId;
use crate::config::LimitConfig;
use crate::usage::ledger::UsageLedger;
use crate::usage::{UsageCounters, UsageTotals, whole_us};

/// Time after which a key may try again to send sound while too much of it waits.
const WAITING_RETRY: Duration = Duration::from_secs(1);

/// Account of one API key.
#[derive(Debug)]
pub struct KeyAccount {
    name: Arc<str>,
    tenant: Tenant,
    sessions: AtomicI64,
    usage: UsageCounters,
    ledger: Arc<UsageLedger>,
    /// Input sound that waits, in ms.
    waiting_ms: AtomicU64,
    waiting: Arc<WaitingSound>,
    buckets: Mutex<Buckets>,
    /// Refusals by each of [`KeyLimit::ALL`].
    refused: [AtomicU64; KeyLimit::ALL.len()],
}

#[derive(Debug)]
struct Buckets {
    prefill: MinuteBucket,
    decode: MinuteBucket,
    sound: MinuteBucket,
    /// Rows of the engine that were charged.
    charged: (u64, u64),
}

/// Input sound of all keys that waits to be heard.
#[derive(Debug)]
pub(super) struct WaitingSound {
    /// Most, in ms; `u64::MAX` for no limit.
    most_ms: u64,
    held_ms: AtomicU64,
    /// Number of API keys.
    owners: AtomicUsize,
}

impl WaitingSound {
    /// Creates a limit in seconds; 0 for none.
    pub fn new(most_s: u32) -> Self {
        let most_ms = if most_s == 0 { u64::MAX } else { u64::from(most_s) * 1_000 };
        Self { most_ms, held_ms: AtomicU64::new(0), owners: AtomicUsize::new(0) }
    }

    pub fn set_owners(&self, owners: usize) {
        self.owners.store(owners, Ordering::Relaxed);
    }

    /// Most that one key may hold: all, or half if there are several.
    fn share(&self) -> u64 {
        if self.owners.load(Ordering::Relaxed) > 1 { self.most_ms / 2 } else { self.most_ms }
    }
}

/// Counted session of a key, until dropped.
#[derive(Debug)]
pub struct CountedSession(Arc<KeyAccount>);

impl CountedSession {
    /// Account of the key.
    pub fn account(&self) -> &KeyAccount {
        &self.0
    }
}

impl Drop for CountedSession {
    fn drop(&mut self) {
        self.0.sessions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl KeyAccount {
    /// Creates the account of a key.
    pub(super) fn new(
        key: Option<KeyId>,
        name: Arc<str>,
        limits: &LimitConfig,
        (waiting, ledger): (Arc<WaitingSound>, Arc<UsageLedger>),
    ) -> Self {
        let buckets = Buckets {
            prefill: MinuteBucket::new(limits.prefill_tokens_per_minute),
            decode: MinuteBucket::new(limits.decode_tokens_per_minute),
            sound: MinuteBucket::new(limits.sound_s_per_minute),
            charged: (0, 0),
        };
        Self {
            name,
            tenant: Tenant { id: key.map_or(0, u64::from), ..Tenant::default() },
            sessions: AtomicI64::new(0),
            usage: UsageCounters::default(),
            ledger,
            waiting_ms: AtomicU64::new(0),
            waiting,
            buckets: Mutex::new(buckets),
            refused: Default::default(),
        }
    }

    /// Name of the key.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The key as a tenant of the engine.
    pub fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Counts a session until the result is dropped.
    pub fn count_session(self: &Arc<Self>) -> CountedSession {
        self.sessions.fetch_add(1, Ordering::Relaxed);
        CountedSession(self.clone())
    }

    /// Number of sessions.
    pub fn sessions(&self) -> i64 {
        self.sessions.load(Ordering::Relaxed)
    }

    /// Usage since the start.
    pub fn usage(&self) -> UsageTotals {
        self.usage.totals()
    }

    /// Counts the usage of a response or a transcript.
    pub fn count_usage(&self, usage: &EngineUsage) {
        self.usage.add(UsageTotals::of_response(usage));
    }

    /// Counts generated sound.
    pub fn count_answer_sound(&self, sound: Duration) {
        self.usage.add(UsageTotals { output_sound_us: whole_us(sound), ..UsageTotals::default() });
    }

    /// Adds the usage since the last call to the ledger.
    pub fn settle(&self) {
        self.ledger.add(&self.name, self.usage.take());
    }

    /// Number of refusals by a limit.
    pub fn refused(&self, limit: KeyLimit) -> u64 {
        self.refused[limit as usize].load(Ordering::Relaxed)
    }

    /// Counts a refusal.
    pub fn count_refusal(&self, limit: KeyLimit) {
        self.refused[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Fails while the key has used more tokens than its limits in a minute allow.
    pub fn check_tokens(&self, now: Instant) -> Result<(), OverBudget> {
        let mut buckets = self.buckets();
        buckets.charge_tokens(&self.tenant, now);
        let Buckets { prefill, decode, .. } = &mut *buckets;
        for (limit, bucket) in [(KeyLimit::PrefillTokens, prefill), (KeyLimit::DecodeTokens, decode)] {
            if let Some(retry_after) = bucket.wait(now) {
                return Err(self.refuse(limit, u64::from(bucket.limit()), retry_after));
            }
        }
        Ok(())
    }

    /// Counts input sound, or fails while the key has sent more than its limit in a minute allows.
    pub fn take_sound(&self, sound: Duration, now: Instant) -> Result<(), OverBudget> {
        self.check_sound(now)?;
        self.count_sound(sound, now);
        Ok(())
    }

    /// Fails while the key has sent more sound than its limit in a minute allows.
    pub fn check_sound(&self, now: Instant) -> Result<(), OverBudget> {
        let mut buckets = self.buckets();
        match buckets.sound.wait(now) {
            Some(retry_after) => Err(self.refuse(KeyLimit::Sound, u64::from(buckets.sound.limit()), retry_after)),
            None => Ok(()),
        }
    }

    /// Counts input sound that was let pass.
    pub fn count_sound(&self, sound: Duration, now: Instant) {
        let mut buckets = self.buckets();
        if buckets.sound.limit() > 0 {
            buckets.sound.charge(sound.as_secs_f64(), now);
        }
        self.usage.add(UsageTotals { input_sound_us: whole_us(sound), ..UsageTotals::default() });
    }

    /// Charges tokens of prompts and answers, and sound, that the key has used on another server: each at most as much as its
    /// limit in a minute, so that a server which was cut off for long ends nobody's minute for longer.
    pub fn charge_elsewhere(&self, (prefill, decode): (u32, u32), sound: Duration, now: Instant) {
        let mut buckets = self.buckets();
        let Buckets { prefill: prompts, decode: answers, sound: heard, .. } = &mut *buckets;
        for (bucket, used) in
            [(prompts, f64::from(prefill)), (answers, f64::from(decode)), (heard, sound.as_secs_f64())]
        {
            if bucket.limit() > 0 {
                bucket.charge(used.min(f64::from(bucket.limit())), now);
            }
        }
    }

    /// Changes the sound that waits for one of the key's calls from `before_ms` to `after_ms`. Less is always allowed.
    pub fn hold_sound(&self, before_ms: u64, after_ms: u64) -> Result<(), OverBudget> {
        let all = &self.waiting;
        if let Some(less) = before_ms.checked_sub(after_ms) {
            self.waiting_ms.fetch_sub(less, Ordering::Relaxed);
            all.held_ms.fetch_sub(less, Ordering::Relaxed);
            return Ok(());
        }
        let more = after_ms - before_ms;
        let (own, held) = (
            self.waiting_ms.fetch_add(more, Ordering::Relaxed) + more,
            all.held_ms.fetch_add(more, Ordering::Relaxed) + more,
        );
        let share = all.share();
        if own <= share && held <= all.most_ms {
            return Ok(());
        }
        self.waiting_ms.fetch_sub(more, Ordering::Relaxed);
        all.held_ms.fetch_sub(more, Ordering::Relaxed);
        Err(self.refuse(KeyLimit::WaitingSound, share / 1_000, WAITING_RETRY))
    }

    /// The limit of tokens of which the smaller part is left: most in a minute, number left, and time until all are;
    /// `None` without limits.
    pub fn tokens_left(&self, now: Instant) -> Option<(u64, u64, Duration)> {
        let mut buckets = self.buckets();
        buckets.charge_tokens(&self.tenant, now);
        let Buckets { prefill, decode, .. } = &mut *buckets;
        let limited = [prefill, decode].into_iter().filter(|bucket| bucket.limit() > 0);
        let states = limited.map(|bucket| (bucket.limit(), bucket.state(now)));
        let part = |(limit, (left, _)): &(u32, (f64, Duration))| left / f64::from(*limit);
        let least = states.min_by(|one, other| part(one).total_cmp(&part(other)));
        // Left is between 0 and the limit.
        least.map(|(limit, (left, reset))| (u64::from(limit), left as u64, reset))
    }

    fn refuse(&self, limit: KeyLimit, most: u64, retry_after: Duration) -> OverBudget {
        self.count_refusal(limit);
        OverBudget { limit, most, retry_after }
    }

    fn buckets(&self) -> MutexGuard<'_, Buckets> {
        // A panic cannot leave a bucket half changed in a way that matters.
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The usage of a removed key stays in the ledger.
impl Drop for KeyAccount {
    fn drop(&mut self) {
        self.settle();
    }
}

impl Buckets {
    /// Charges the rows that the engine has computed since the last time.
    fn charge_tokens(&mut self, tenant: &Tenant, now: Instant) {
        let (prefill, decode) = (tenant.work.prefill(), tenant.work.decode());
        let since = (prefill.saturating_sub(self.charged.0), decode.saturating_sub(self.charged.1));
        self.charged = (prefill, decode);
        for (bucket, used) in [(&mut self.prefill, since.0), (&mut self.decode, since.1)] {
            if bucket.limit() > 0 {
                bucket.charge(used as f64, now);
            }
        }
    }
}
