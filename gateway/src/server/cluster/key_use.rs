//! Limits of API keys over all nodes: what this node tells of their use, and what it counts of the others'.

use std::time::{Duration, Instant};

use repartee_cluster::{KeySpent, KeyUse};

use super::super::app::AppState;
use crate::auth::KeyId;
use crate::cluster::membership::key_number;

/// Present use by all keys.
pub(super) fn present(app: &AppState) -> Vec<KeyUse> {
    // Totals are sent modulo 2^32.
    let low = |total: u64| (total & u64::from(u32::MAX)) as u32;
    let of_key = |(key, account): (Option<KeyId>, std::sync::Arc<crate::budget::account::KeyAccount>)| KeyUse {
        key: key_number(key),
        calls: u32::try_from(account.sessions()).unwrap_or_default(),
        prefill: low(account.tenant().work.prefill()),
        decode: low(account.tenant().work.decode()),
        sound_ms: low(account.usage().input_sound_us / 1_000),
    };
    app.budgets.all().into_iter().map(of_key).collect()
}

/// Calls that one key may have on all nodes; 0 for no limit.
pub(super) fn limit(app: &AppState) -> u32 {
    // Every key has the same limit.
    app.calls_of(Some(KeyId::from(0))).most
}

/// Charges keys for what they have used on another node. A key that this node does not have is skipped.
pub(super) fn charge(app: &AppState, spent: &[KeySpent]) {
    let now = Instant::now();
    for spent in spent {
        let key = Some(spent.key).filter(|key| *key > 0).map(KeyId::from);
        let sound = Duration::from_millis(spent.sound_ms.into());
        app.budgets.account(key).charge_elsewhere((spent.prefill, spent.decode), sound, now);
    }
}
