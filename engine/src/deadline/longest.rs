//! Longest times of a stage's rows in a tick that several share.

use std::time::Duration;

use super::cost::{StageCost, StepRows};
use crate::stage::RowKind;

/// Longest time of a stage's prompts in a tick while several slots have work: the larger of this, a multiple of what
/// one decoded row costs, so that large models do not read all their weights for a few rows, and the least chunk.
const PROMPTS: Duration = Duration::from_millis(8);
const PROMPT_STEPS: f64 = 6.0;
/// Longest time of one tenant's rows of a stage in a tick while others have sessions: the larger of this, a multiple of what
/// one row costs, so that large models still compute batches, and the least chunk. So nobody waits for a tick that another's
/// flood has filled.
const TENANT: Duration = Duration::from_millis(8);
/// The same for rows that are due: those with the later deadlines wait for the next tick, which is short too.
const TENANT_DUE: Duration = Duration::from_millis(16);
const TENANT_STEPS: f64 = 4.0;
/// Part of these times while a caller of another tenant is near its first packet: a first packet takes several ticks, and each
/// would be longer by them in every stage. Shorter ticks come more often.
const BESIDE_NEAR: f64 = 0.25;

/// Longest time of a stage's prompts in a tick that several slots share, in seconds.
pub fn longest_prompts(cost: &StageCost) -> f64 {
    let step = cost.known_seconds(StepRows::of(RowKind::Decode, 1));
    let least = cost.known_seconds(StepRows::of(RowKind::Prefill, RowKind::Prefill.least_chunk()));
    // A little more, so that rounding does not cut the least chunk.
    PROMPTS.as_secs_f64().max(step * PROMPT_STEPS).max(least * 1.01)
}

/// Longest time of a tenant's rows of this kind and priority in a tick while others have sessions, in seconds. `beside_near`
/// is true while a caller of another tenant is near its first packet.
pub fn longest_of_tenant(cost: &StageCost, kind: RowKind, class: u8, beside_near: bool) -> f64 {
    let step = cost.known_seconds(StepRows::of(kind, 1));
    let least = cost.known_seconds(StepRows::of(kind, kind.least_chunk()));
    // A little more, so that rounding does not cut the least chunk.
    let longest = if class == 0 { TENANT_DUE } else { TENANT };
    let part = if beside_near { BESIDE_NEAR } else { 1.0 };
    (longest.as_secs_f64() * part).max(step * TENANT_STEPS).max(least * 1.01)
}
