//! Tenants: whom sessions belong to. The engine shares its time fairly between them, and counts the rows that it computes
//! for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Owner of sessions: an API key, for instance. Sessions of equal `id` share one part of the engine's time.
#[derive(Debug, Clone, Default)]
pub struct Tenant {
    /// Identity; 0 for sessions without an owner.
    pub id: u64,
    /// Work done for the tenant, of all its sessions.
    pub work: Arc<TenantWork>,
}

/// Computed rows of a tenant's sessions, in the first stage.
#[derive(Debug, Default)]
pub struct TenantWork {
    prefill: AtomicU64,
    decode: AtomicU64,
}

impl TenantWork {
    /// Adds rows of a step.
    pub fn add(&self, prefill: u64, decode: u64) {
        self.prefill.fetch_add(prefill, Ordering::Relaxed);
        self.decode.fetch_add(decode, Ordering::Relaxed);
    }

    /// Number of prompt rows so far; rows found in the cache are not computed and not counted.
    pub fn prefill(&self) -> u64 {
        self.prefill.load(Ordering::Relaxed)
    }

    /// Number of decoded rows so far.
    pub fn decode(&self) -> u64 {
        self.decode.load(Ordering::Relaxed)
    }
}
