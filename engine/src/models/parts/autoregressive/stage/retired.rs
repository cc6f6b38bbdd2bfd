//! Cached prefixes of freed slots, kept for later sessions: instructions that many callers share.

use std::collections::{BTreeMap, VecDeque};

use crate::elements::Element;
use crate::sequence::{BlockPool, Sequence};

/// Most prefixes.
const MOST: usize = 8;
/// Positions of all prefixes together that are kept however long nobody uses them.
const KEPT_POSITIONS: usize = 512;
/// Ends of periods for which a prefix beyond these is kept without use.
const KEPT_PERIODS: u32 = 2;

/// A cached prefix without a slot.
struct RetiredPrefix {
    elements: Vec<Element>,
    sequence: Sequence,
    /// Number of periods that ended since it was used.
    periods: u32,
}

/// Prefixes of freed slots, the newest last.
#[derive(Default)]
pub(super) struct RetiredPrefixes {
    prefixes: VecDeque<RetiredPrefix>,
}

impl RetiredPrefixes {
    /// Keeps the first `len` positions of a sequence, which are those of `elements`.
    pub fn keep(&mut self, elements: &[Element], sequence: &Sequence, pool: &mut BlockPool) {
        let known = self.prefixes.iter_mut().find(|retired| retired.elements == elements);
        if let Some(known) = known {
            known.periods = 0;
            return;
        }
        let sequence = sequence.fork(pool, elements.len());
        self.prefixes.push_back(RetiredPrefix { elements: elements.to_vec(), sequence, periods: 0 });
        if self.prefixes.len() > MOST {
            self.drop_oldest(pool);
        }
    }

    /// Drops the oldest prefix; false if there is none.
    pub fn drop_oldest(&mut self, pool: &mut BlockPool) -> bool {
        let Some(mut oldest) = self.prefixes.pop_front() else { return false };
        oldest.sequence.release(pool);
        true
    }

    /// Returns the number of the prefix for which `cached` tells the most positions, and these positions.
    pub fn longest(&self, cached: impl Fn(&[Element], &Sequence) -> usize) -> Option<(usize, usize)> {
        let lengths = self.prefixes.iter().map(|retired| cached(&retired.elements, &retired.sequence));
        lengths.enumerate().max_by_key(|(_, len)| *len)
    }

    /// Returns the sequence of a prefix that is used now.
    pub fn used(&mut self, number: usize) -> &Sequence {
        let retired = &mut self.prefixes[number];
        retired.periods = 0;
        &retired.sequence
    }

    /// Number of blocks that prefixes alone hold.
    pub fn blocks(&self, pool: &BlockPool) -> usize {
        let mut holders: BTreeMap<u32, u32> = BTreeMap::new();
        for block in self.prefixes.iter().flat_map(|retired| retired.sequence.table()) {
            *holders.entry(*block).or_default() += 1;
        }
        holders.into_iter().filter(|&(block, holders)| pool.holders(block) == holders).count()
    }

    /// Ends a period: drops prefixes that were not used for long, the oldest first, while they hold many positions. True
    /// if more may be dropped later.
    pub fn end_period(&mut self, pool: &mut BlockPool) -> bool {
        let mut positions: usize = self.prefixes.iter().map(|retired| retired.sequence.len()).sum();
        self.prefixes.retain_mut(|retired| {
            retired.periods += 1;
            let keeps = positions <= KEPT_POSITIONS || retired.periods <= KEPT_PERIODS;
            if !keeps {
                positions -= retired.sequence.len();
                retired.sequence.release(pool);
            }
            keeps
        });
        positions > KEPT_POSITIONS
    }
}
