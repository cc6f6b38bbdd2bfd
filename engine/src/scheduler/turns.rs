//! Turns of sessions in work that a tick bounds: tenants first, then the sessions of each.

use std::collections::BTreeMap;

/// A session that waits for its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WaitingTurn {
    /// Slot of the session.
    pub owner: usize,
    /// Tenant of the session.
    pub tenant: u64,
    /// True if the work waits already, or a caller waits for it; such sessions come first.
    pub urgent: bool,
}

/// Orders sessions: urgent ones first; of these the first of each tenant, then the second of each, and so on. Counting
/// begins after the session `last`, which had the last turn.
pub(super) fn in_turn(mut waiting: Vec<WaitingTurn>, last: usize) -> Vec<usize> {
    let distance = |turn: &WaitingTurn| (turn.owner <= last, turn.owner);
    waiting.sort_by_key(|turn| (!turn.urgent, distance(turn)));
    let mut counts: BTreeMap<(bool, u64), usize> = BTreeMap::new();
    let mut ranked: Vec<(bool, usize, WaitingTurn)> = Vec::with_capacity(waiting.len());
    for turn in waiting {
        let count = counts.entry((turn.urgent, turn.tenant)).or_default();
        ranked.push((!turn.urgent, *count, turn));
        *count += 1;
    }
    ranked.sort_by_key(|(silent, rank, turn)| (*silent, *rank, distance(turn)));
    ranked.into_iter().map(|(_, _, turn)| turn.owner).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(owner: usize, tenant: u64) -> WaitingTurn {
        WaitingTurn { owner, tenant, urgent: false }
    }

    #[test]
    fn tenants_alternate_then_sessions() {
        let waiting = vec![turn(0, 1), turn(1, 1), turn(2, 1), turn(3, 2)];
        assert_eq!(in_turn(waiting.clone(), usize::MAX), [0, 3, 1, 2]);
        assert_eq!(in_turn(waiting.clone(), 0), [1, 3, 2, 0]);
        assert_eq!(in_turn(waiting, 3), [0, 3, 1, 2], "the last one of two tenants is second");
    }

    #[test]
    fn urgent_turns_come_first() {
        let urgent = WaitingTurn { urgent: true, ..turn(2, 1) };
        assert_eq!(in_turn(vec![turn(0, 1), turn(1, 2), urgent], 0), [2, 1, 0]);
    }
}
