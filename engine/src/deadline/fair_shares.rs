//! Fair shares of a stage's prompts between tenants: the tenant that was served fewest rows comes first. A tenant that
//! comes back begins where the others are, so nobody saves up turns.

use std::collections::{BTreeMap, BTreeSet};

/// Rows served to each tenant with prompts, relative to a common beginning.
#[derive(Debug, Clone, Default)]
pub(super) struct FairShares {
    served: BTreeMap<u64, u64>,
    /// Least service of a tenant that waited last.
    floor: u64,
}

impl FairShares {
    /// Rows that each waiting tenant was served more than the one that was served least.
    pub fn leads(&mut self, waiting: BTreeSet<u64>) -> BTreeMap<u64, u64> {
        let floor = self.floor;
        for &tenant in &waiting {
            let served = self.served.entry(tenant).or_default();
            *served = floor.max(*served);
        }
        let least = waiting.iter().filter_map(|tenant| self.served.get(tenant)).min();
        let least = least.copied().unwrap_or(floor);
        self.floor = least;
        // Whoever is not ahead of the others is known by the floor.
        self.served.retain(|tenant, served| waiting.contains(tenant) || *served > least);
        waiting
            .into_iter()
            .map(|tenant| (tenant, self.served.get(&tenant).map_or(0, |served| served - least)))
            .collect()
    }

    /// Counts rows of a tenant in a tick.
    pub fn serve(&mut self, tenant: u64, rows: usize) {
        if let Some(served) = self.served.get_mut(&tenant) {
            *served = served.saturating_add(rows as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_tenant_saves_up_no_turns() {
        let mut shares = FairShares::default();
        let waiting = |tenants: &[u64]| tenants.iter().copied().collect::<BTreeSet<_>>();
        shares.leads(waiting(&[1, 2]));
        shares.serve(1, 100);
        assert_eq!(shares.leads(waiting(&[1, 2])), [(1, 100), (2, 0)].into());
        // The other is away.
        for _ in 0..10 {
            shares.leads(waiting(&[1]));
            shares.serve(1, 100);
        }
        assert_eq!(shares.leads(waiting(&[1, 2])), [(1, 100), (2, 0)].into());
        // Whoever is ahead stays ahead over an absence.
        shares.serve(1, 500);
        shares.leads(waiting(&[2]));
        assert_eq!(shares.leads(waiting(&[1, 2])), [(1, 600), (2, 0)].into());
        shares.leads(waiting(&[]));
        assert!(shares.served.len() <= 2);
    }
}
