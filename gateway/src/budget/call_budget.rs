//! Budget of a call: the account of its key, and the sound of the call that waits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, EngineUsage, MessageContent, ResponseInput};
use repartee_protocol::rate_limits::RateLimit;
use repartee_protocol::{ClientEvent, ErrorBody, ErrorKind};

use super::account::KeyAccount;
use super::key_limit::OverBudget;

/// Waiting sound that is not counted: a call in real time has less.
const UNCOUNTED_MS: u64 = 1_000;
/// Least time between two errors about refused sound.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Budget of a call. What it holds is released when it is dropped.
#[derive(Debug, Default)]
pub struct CallBudget {
    /// Account of the call's key; `None` for no limits.
    account: Option<Arc<KeyAccount>>,
    /// Waiting sound that is counted, in ms.
    waiting_ms: u64,
    /// Time of the last error about refused sound.
    told: Option<Instant>,
}

/// Error event of a refusal. It names the limit, and the time to wait.
impl From<OverBudget> for ErrorBody {
    fn from(over: OverBudget) -> Self {
        Self::invalid(ErrorKind::RateLimit, over.to_string()).with_param(over.limit.name())
    }
}

impl CallBudget {
    /// Creates the budget of a call that a key makes.
    pub fn new(account: Arc<KeyAccount>) -> Self {
        Self { account: Some(account), waiting_ms: 0, told: None }
    }

    /// Refuses an event that makes the engine compute while the key has no tokens left.
    pub fn check_event(&self, event: &ClientEvent, now: Instant) -> Result<(), ErrorBody> {
        let computes = matches!(
            event,
            ClientEvent::ItemCreate(_)
                | ClientEvent::ResponseCreate(_)
                | ClientEvent::SessionUpdate(_)
                | ClientEvent::TextAppend(_)
        );
        let Some(account) = self.account.as_ref().filter(|_| computes) else { return Ok(()) };
        account.check_tokens(now)?;
        // Items and responses may hold sound, which is counted once it is decoded.
        if matches!(event, ClientEvent::ItemCreate(_) | ClientEvent::ResponseCreate(_)) {
            account.check_sound(now)?;
        }
        Ok(())
    }

    /// Counts the sound of items and of responses' own inputs; `rate` is the model's input rate, in Hz.
    pub fn count_command(&self, command: &Command, rate: u32, now: Instant) {
        let samples = |content: &MessageContent| match content {
            MessageContent::Audio(samples) => samples.len(),
            _ => 0,
        };
        let input = |input: &ResponseInput| match input {
            ResponseInput::Content(content) => samples(content),
            ResponseInput::Item(_) => 0,
        };
        let count: usize = match command {
            Command::Insert { content, .. } => samples(content),
            Command::Respond(respond) => respond.input.iter().flatten().map(input).sum(),
            _ => 0,
        };
        if let Some(account) = self.account.as_ref().filter(|_| count > 0) {
            account.count_sound(Duration::from_secs_f64(count as f64 / f64::from(rate.max(1))), now);
        }
    }

    /// Counts the usage of a response or a transcript.
    pub fn count_usage(&self, usage: &EngineUsage) {
        if let Some(account) = &self.account {
            account.count_usage(usage);
        }
    }

    /// Counts generated sound.
    pub fn count_answer_sound(&self, sound: Duration) {
        if let Some(account) = &self.account {
            account.count_answer_sound(sound);
        }
    }

    /// Takes input sound of `sound`, after which `waiting` waits in the call. Refused sound is dropped; its error is given
    /// at most once a second.
    pub fn take_sound(&mut self, sound: Duration, waiting: Duration, now: Instant) -> Result<(), Option<ErrorBody>> {
        let Some(account) = self.account.clone() else { return Ok(()) };
        let before = Duration::from_millis(self.waiting_ms);
        // Speech leads to answers, so it needs tokens too.
        let taken = account.check_tokens(now).and_then(|()| self.hold(&account, waiting));
        let taken = taken.and_then(|()| account.take_sound(sound, now));
        taken.map_err(|over| {
            self.set_waiting(before);
            let due = self.told.is_none_or(|told| now.saturating_duration_since(told) >= TELL_EVERY);
            due.then(|| {
                self.told = Some(now);
                over.into()
            })
        })
    }

    /// Updates the sound that waits in the call, which has become less.
    pub fn set_waiting(&mut self, waiting: Duration) {
        if let Some(account) = self.account.clone() {
            // Less is always allowed.
            let _ = self.hold(&account, waiting);
        }
    }

    /// Rate limits of `rate_limits.updated`; none without a limit of tokens.
    pub fn rate_limits(&self, now: Instant) -> Vec<RateLimit> {
        let tokens = self.account.as_ref().and_then(|account| account.tokens_left(now));
        let entry = |(limit, remaining, reset): (u64, u64, Duration)| RateLimit {
            name: "tokens".to_owned(),
            limit,
            remaining,
            reset_seconds: reset.as_secs_f64(),
        };
        tokens.map(entry).into_iter().collect()
    }

    fn hold(&mut self, account: &KeyAccount, waiting: Duration) -> Result<(), OverBudget> {
        let waiting = u64::try_from(waiting.as_millis()).unwrap_or(u64::MAX);
        let counted = if waiting <= UNCOUNTED_MS { 0 } else { waiting };
        if counted != self.waiting_ms {
            account.hold_sound(self.waiting_ms, counted)?;
            self.waiting_ms = counted;
        }
        Ok(())
    }
}

impl Drop for CallBudget {
    fn drop(&mut self) {
        self.set_waiting(Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::KeySet;
    use crate::budget::tests::with_limits;
    use crate::config::LimitConfig;

    #[test]
    fn a_call_gives_back_the_sound_that_waits() {
        let limits = LimitConfig { waiting_sound_s: 10, ..LimitConfig::default() };
        let budgets = with_limits(limits, &KeySet::default());
        let call = || CallBudget::new(budgets.account(None));
        let (now, seconds) = (Instant::now(), Duration::from_secs);
        let (mut one, mut other) = (call(), call());
        one.take_sound(seconds(8), seconds(8), now).unwrap();
        let refused = other.take_sound(seconds(3), seconds(3), now).unwrap_err().unwrap();
        assert_eq!(refused.param.as_deref(), Some("waiting_sound_s"));
        assert_eq!(other.take_sound(seconds(3), seconds(3), now), Err(None), "the error comes once a second");
        other.take_sound(seconds(1), seconds(1), now).unwrap();
        one.set_waiting(seconds(7));
        other.take_sound(seconds(3), seconds(3), now).unwrap();
        drop(one);
        other.take_sound(seconds(7), seconds(10), now).unwrap();
    }

    #[test]
    fn sound_in_a_minute_is_limited() {
        let limits = LimitConfig { sound_s_per_minute: 30, ..LimitConfig::default() };
        let budgets = with_limits(limits, &KeySet::default());
        let mut call = CallBudget::new(budgets.account(None));
        let (now, seconds) = (Instant::now(), Duration::from_secs);
        call.take_sound(seconds(40), seconds(0), now).unwrap();
        let refused = call.take_sound(seconds(1), seconds(0), now).unwrap_err().unwrap();
        assert!(refused.message.contains("limits.sound_s_per_minute"), "{refused}");
        call.take_sound(seconds(1), seconds(0), now + seconds(21)).unwrap();
        assert_eq!(budgets.account(None).usage().input_sound_us, 41_000_000);
    }
}
