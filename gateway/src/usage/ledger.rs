//! Ledger of usage: sums by day and key, of one model after another.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::UsageTotals;

/// Most rows of a ledger; the oldest days go first.
const MOST_ROWS: usize = 100_000;
/// Seconds of a day.
pub const DAY_S: u64 = 86_400;

/// Sum of a day, a key and a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageRow {
    /// Day, in days since 1970 (UTC).
    pub day: u64,
    /// Name of the key, or `none`.
    pub key: String,
    /// Name of the model.
    pub model: String,
    /// Sums of the responses, tokens and seconds.
    #[serde(flatten)]
    pub totals: UsageTotals,
}

/// Usage of all keys, by day.
#[derive(Debug)]
pub struct UsageLedger {
    /// Served model.
    model: Arc<str>,
    /// Days that are kept, with the present one.
    days: u64,
    state: Mutex<LedgerState>,
    /// Held during a write, so that an older state never replaces a newer one.
    writing: Mutex<()>,
}

/// Day, name of the key and name of the model of a row.
type RowKey = (u64, Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct LedgerState {
    rows: BTreeMap<RowKey, UsageTotals>,
    /// The present day.
    today: u64,
    is_changed: bool,
}

impl UsageLedger {
    /// Creates a ledger of `model` with the rows of earlier runs; it keeps `days` days, the present one included.
    pub fn new(model: &str, days: u32, rows: Vec<UsageRow>, today: u64) -> Self {
        let mut state = LedgerState { today, ..LedgerState::default() };
        for UsageRow { day, key, model, totals } in rows {
            state.rows.entry((day, key.into(), model.into())).or_default().add(totals);
        }
        let ledger = Self {
            model: model.into(),
            days: u64::from(days.max(1)),
            state: Mutex::new(state),
            writing: Mutex::default(),
        };
        ledger.begin_day(today);
        ledger
    }

    /// Adds usage of a key to the present day.
    pub fn add(&self, key: &Arc<str>, usage: UsageTotals) {
        if usage == UsageTotals::default() {
            return;
        }
        let mut state = self.state();
        let at = (state.today, key.clone(), self.model.clone());
        state.rows.entry(at).or_default().add(usage);
        state.is_changed = true;
    }

    /// Sets the present day, and drops days that are no longer kept.
    pub fn begin_day(&self, today: u64) {
        let mut state = self.state();
        state.today = today;
        let first = (today + 1).saturating_sub(self.days);
        // The oldest days come first, so that a ledger in which nothing is old is not walked.
        let is_over = |rows: &BTreeMap<RowKey, UsageTotals>| {
            rows.len() > MOST_ROWS || rows.first_key_value().is_some_and(|((day, ..), _)| *day < first)
        };
        while is_over(&state.rows) {
            state.rows.pop_first();
            state.is_changed = true;
        }
    }

    /// Rows of the days from `first` to before `end`, of one key or of all, the oldest first.
    pub fn rows(&self, first: u64, end: u64, key: Option<&str>) -> Vec<UsageRow> {
        let state = self.state();
        let row = |((day, key, model), totals): (&RowKey, &UsageTotals)| UsageRow {
            day: *day,
            key: key.to_string(),
            model: model.to_string(),
            totals: *totals,
        };
        // A request walks the days that it asks for, and copies the rows of its key alone.
        let since = |day: u64| (day, Arc::from(""), Arc::from(""));
        let of_days = state.rows.range(since(first)..since(end.max(first)));
        of_days.filter(|((_, of, _), _)| key.is_none_or(|name| &**of == name)).map(row).collect()
    }

    /// Calls `write` with all rows if they have changed since it last succeeded; one call at a time.
    pub fn write_changes<E>(&self, write: impl FnOnce(&[UsageRow]) -> Result<(), E>) -> Result<(), E> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::take(&mut self.state().is_changed) {
            return Ok(());
        }
        let written = write(&self.rows(0, u64::MAX, None));
        self.state().is_changed |= written.is_err();
        written
    }

    fn state(&self) -> MutexGuard<'_, LedgerState> {
        // Each change is one sum.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(requests: u64) -> UsageTotals {
        UsageTotals { requests, ..UsageTotals::default() }
    }

    fn counts(ledger: &UsageLedger, key: Option<&str>) -> Vec<(u64, String, String, u64)> {
        let rows = ledger.rows(0, u64::MAX, key).into_iter();
        rows.map(|row| (row.day, row.key, row.model, row.totals.requests)).collect()
    }

    #[test]
    fn days_keys_and_models_are_told_apart() {
        let (phone, tablet): (Arc<str>, Arc<str>) = ("phone".into(), "tablet".into());
        let before = UsageRow { day: 20, key: "phone".to_owned(), model: "old".into(), totals: requests(4) };
        let ledger = UsageLedger::new("new", 400, vec![before], 20);
        ledger.add(&phone, requests(1));
        ledger.add(&phone, requests(1));
        ledger.begin_day(21);
        ledger.add(&tablet, requests(7));
        let row = |day, key: &str, model: &str, count| (day, key.to_owned(), model.to_owned(), count);
        let of_phone = [row(20, "phone", "new", 2), row(20, "phone", "old", 4)];
        assert_eq!(counts(&ledger, Some("phone")), of_phone);
        assert_eq!(counts(&ledger, None), [&of_phone[..], &[row(21, "tablet", "new", 7)]].concat());
        assert_eq!(ledger.rows(21, 22, None).len(), 1);
    }

    #[test]
    fn old_days_are_dropped() {
        let ledger = UsageLedger::new("model", 2, Vec::new(), 10);
        let key: Arc<str> = "none".into();
        for day in 10..13 {
            ledger.begin_day(day);
            ledger.add(&key, requests(1));
        }
        assert_eq!(counts(&ledger, None).iter().map(|row| row.0).collect::<Vec<_>>(), [11, 12]);
    }

    #[test]
    fn changes_are_written_once() {
        let ledger = UsageLedger::new("model", 400, Vec::new(), 10);
        let written = |result: Result<(), ()>| {
            let mut rows = None;
            let told = ledger.write_changes(|changed| {
                rows = Some(changed.len());
                result
            });
            (rows, told)
        };
        assert_eq!(written(Ok(())), (None, Ok(())));
        ledger.add(&"none".into(), UsageTotals::default());
        assert_eq!(written(Ok(())), (None, Ok(())), "nothing was used");
        ledger.add(&"none".into(), requests(1));
        assert_eq!(written(Err(())), (Some(1), Err(())));
        assert_eq!(written(Ok(())), (Some(1), Ok(())), "what could not be written is tried again");
        assert_eq!(written(Ok(())), (None, Ok(())));
    }
}
