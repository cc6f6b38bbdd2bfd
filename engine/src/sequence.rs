//! Sequences: tables of fixed-size KV blocks from one pool for each stage.
//!
//! Blocks are reference-counted; a shared block is never written. [`Sequence::append`] writes into unshared blocks
//! only, because [`Sequence::fork`] and [`Sequence::truncate`] keep a shared block only if it is full.
//!
//! The pool knows which free blocks hold memory of the system, and which of these nobody took for a whole period:
//! [`BlockPool::take_idle`].

use std::ops::Range;

use thiserror::Error;

/// Error of a pool without free blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("all {blocks} blocks of the pool are taken")]
pub struct OutOfBlocks {
    /// Number of blocks in the pool.
    pub blocks: usize,
}

/// Allocator of blocks; counts the holders of each.
#[derive(Debug)]
pub struct BlockPool {
    block_len: usize,
    /// Free blocks; the last one is taken next. The first `clean` hold no memory, and the first `idle` nobody took in the
    /// last period.
    free: Vec<u32>,
    holders: Vec<u32>,
    clean: usize,
    idle: usize,
    /// Smallest number of free blocks in this period.
    least_free: usize,
}

impl BlockPool {
    /// Creates a pool of `blocks` blocks of `block_len` positions.
    pub fn new(blocks: usize, block_len: usize) -> Self {
        // Allocated from the end, so the lowest come first.
        Self {
            block_len,
            free: (0..blocks as u32).rev().collect(),
            holders: vec![0; blocks],
            clean: blocks,
            idle: blocks,
            least_free: blocks,
        }
    }

    /// Number of free blocks.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// Number of all blocks.
    pub fn blocks(&self) -> usize {
        self.holders.len()
    }

    /// Number of blocks with memory of the system: those that are held, and free ones that were used.
    pub fn resident(&self) -> usize {
        self.holders.len() - self.clean
    }

    /// Ends a period: free blocks that nobody took in it are idle. True if free blocks hold memory.
    pub fn end_period(&mut self) -> bool {
        self.idle = self.least_free;
        self.least_free = self.free.len();
        // Neighbours are given back together.
        if let Some(idle) = self.free.get_mut(self.clean..self.idle) {
            idle.sort_unstable_by_key(|block| std::cmp::Reverse(*block));
        }
        self.free.len() > self.clean
    }

    /// Takes the memory of at most `most` idle blocks that follow each other; the caller gives it back to the system before
    /// the next block is taken. `None` if no idle block holds memory.
    pub fn take_idle(&mut self, most: usize) -> Option<Range<usize>> {
        let idle = self.free.get(self.clean..self.idle)?;
        let first = *idle.first()?;
        let count =
            idle.iter().take(most).zip(0..).take_while(|(block, at)| first.checked_sub(*at) == Some(**block)).count();
        self.clean += count;
        Some(first as usize + 1 - count..first as usize + 1)
    }

    fn take(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        let free = self.free.len();
        self.clean = self.clean.min(free);
        self.idle = self.idle.min(free);
        self.least_free = self.least_free.min(free);
        self.holders[block as usize] = 1;
        Some(block)
    }

    fn share(&mut self, block: u32) {
        self.holders[block as usize] += 1;
    }

    fn give_back(&mut self, block: u32) {
        let holders = &mut self.holders[block as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(block);
        }
    }

    /// Number of sequences that hold a block.
    pub fn holders(&self, block: u32) -> u32 {
        self.holders[block as usize]
    }

    fn is_shared(&self, block: u32) -> bool {
        self.holders[block as usize] > 1
    }
}

/// Table of blocks that holds `len` positions. Return its blocks with [`Sequence::release`].
#[derive(Debug, Default)]
pub struct Sequence {
    blocks: Vec<u32>,
    len: usize,
}

impl Sequence {
    /// Number of positions held.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Block numbers, in order of positions.
    pub fn table(&self) -> &[u32] {
        &self.blocks
    }

    /// Allocates `n` more positions, or changes nothing.
    pub fn append(&mut self, pool: &mut BlockPool, n: usize) -> Result<(), OutOfBlocks> {
        let missing = (self.len + n).div_ceil(pool.block_len) - self.blocks.len();
        if missing > pool.free() {
            return Err(OutOfBlocks { blocks: pool.blocks() });
        }
        self.blocks.extend((0..missing).filter_map(|_| pool.take()));
        self.len += n;
        Ok(())
    }

    /// Drops all positions from `len` on. Returns the number that remains: fewer than `len` if the block around `len`
    /// is shared, because later positions would be written into it.
    pub fn truncate(&mut self, pool: &mut BlockPool, len: usize) -> usize {
        if len >= self.len {
            return self.len;
        }
        let mut keep = len.div_ceil(pool.block_len);
        self.len = len;
        if !len.is_multiple_of(pool.block_len) && pool.is_shared(self.blocks[keep - 1]) {
            keep -= 1;
            self.len = keep * pool.block_len;
        }
        for block in self.blocks.drain(keep..) {
            pool.give_back(block);
        }
        self.len
    }

    /// Returns a sequence that shares this one's full blocks below `len`.
    pub fn fork(&self, pool: &mut BlockPool, len: usize) -> Sequence {
        let full = len.min(self.len) / pool.block_len;
        let blocks = self.blocks[..full].to_vec();
        for &block in &blocks {
            pool.share(block);
        }
        Sequence { blocks, len: full * pool.block_len }
    }

    /// Returns a sequence of this one's first `len` positions. It shares full blocks. The caller must copy a block that
    /// is not full: (from, to). On failure nothing changes.
    pub fn fork_exact(&self, pool: &mut BlockPool, len: usize) -> Result<(Sequence, Option<(u32, u32)>), OutOfBlocks> {
        let len = len.min(self.len);
        if len.is_multiple_of(pool.block_len) {
            return Ok((self.fork(pool, len), None));
        }
        let to = pool.take().ok_or(OutOfBlocks { blocks: pool.blocks() })?;
        let mut fork = self.fork(pool, len);
        let from = self.blocks[fork.blocks.len()];
        fork.blocks.push(to);
        fork.len = len;
        Ok((fork, Some((from, to))))
    }

    /// Drops all positions from `len` on and keeps the others. If the block around `len` is shared, a new block
    /// replaces it, and the caller must copy it: (from, to). On failure the kept positions do not change.
    pub fn truncate_exact(&mut self, pool: &mut BlockPool, len: usize) -> Result<Option<(u32, u32)>, OutOfBlocks> {
        let (full, rest) = (len / pool.block_len, len % pool.block_len);
        if len >= self.len || rest == 0 || !pool.is_shared(self.blocks[full]) {
            self.truncate(pool, len);
            return Ok(None);
        }
        // The copy may need a block from behind it.
        self.truncate(pool, (full + 1) * pool.block_len);
        let (exact, copied) = self.fork_exact(pool, len)?;
        std::mem::replace(self, exact).release(pool);
        Ok(copied)
    }

    /// Returns every block to the pool.
    pub fn release(&mut self, pool: &mut BlockPool) {
        self.truncate(pool, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn append_takes_all_or_nothing() {
        let mut pool = BlockPool::new(2, 4);
        let mut a = Sequence::default();
        a.append(&mut pool, 5).unwrap();
        assert_eq!((a.len(), pool.free()), (5, 0));
        let mut b = Sequence::default();
        assert_eq!(b.append(&mut pool, 1), Err(OutOfBlocks { blocks: 2 }));
        assert_eq!(b.len(), 0);
        a.append(&mut pool, 3).unwrap();
        assert_eq!(a.append(&mut pool, 1), Err(OutOfBlocks { blocks: 2 }));
        assert_eq!(a.len(), 8);
    }

    #[test]
    fn exact_truncation_replaces_a_shared_block() {
        let mut pool = BlockPool::new(4, 4);
        let mut a = Sequence::default();
        a.append(&mut pool, 12).unwrap();
        let b = a.fork(&mut pool, 8);
        let mut c = Sequence::default();
        c.append(&mut pool, 1).unwrap();
        assert_eq!(pool.free(), 0);
        let shared = a.table()[1];
        // The block behind it is returned in time.
        let copied = a.truncate_exact(&mut pool, 6).unwrap();
        assert_eq!((a.len(), copied), (6, Some((shared, a.table()[1]))));
        assert!(a.table()[1] != b.table()[1] && a.table()[0] == b.table()[0]);
        assert_eq!(a.truncate_exact(&mut pool, 5).unwrap(), None, "a block of its own");
        assert_eq!(a.truncate_exact(&mut pool, 4).unwrap(), None, "whole blocks");
        assert_eq!((a.len(), pool.free()), (4, 1));
    }

    #[test]
    fn shared_blocks_are_never_written() {
        let mut pool = BlockPool::new(8, 4);
        let mut a = Sequence::default();
        a.append(&mut pool, 10).unwrap();
        let b = a.fork(&mut pool, 9);
        assert_eq!(b.len(), 8);
        assert_eq!(a.truncate(&mut pool, 6), 4, "position 4..6 lie in a block that the fork reads");
        a.append(&mut pool, 4).unwrap();
        assert_eq!(a.table()[0], b.table()[0]);
        assert_ne!(a.table()[1], b.table()[1]);
    }

    #[test]
    fn an_exact_fork_copies_the_open_block() {
        let mut pool = BlockPool::new(4, 4);
        let mut a = Sequence::default();
        a.append(&mut pool, 10).unwrap();
        let (mut b, copy) = a.fork_exact(&mut pool, 7).unwrap();
        assert_eq!((b.len(), b.table().len(), pool.free()), (7, 2, 0));
        assert_eq!(copy, Some((a.table()[1], b.table()[1])));
        assert_eq!(a.table()[0], b.table()[0]);
        assert!(a.fork_exact(&mut pool, 5).is_err(), "no block is left for the copy");
        assert_eq!(pool.holders(a.table()[0]), 2, "a fork that failed shares nothing");
        let (mut c, copy) = a.fork_exact(&mut pool, 8).unwrap();
        assert_eq!((c.len(), copy), (8, None));
        for sequence in [&mut a, &mut b, &mut c] {
            sequence.release(&mut pool);
        }
        assert_eq!(pool.free(), 4);
    }

    #[test]
    fn blocks_are_idle_after_a_period_without_use() {
        let mut pool = BlockPool::new(16, 4);
        let mut a = Sequence::default();
        a.append(&mut pool, 40).unwrap();
        assert!(!pool.end_period(), "free blocks hold no memory yet");
        a.release(&mut pool);
        assert!(pool.end_period());
        assert_eq!((pool.resident(), pool.take_idle(16)), (10, None), "they were held in that period");
        // Three blocks are used again meanwhile.
        a.append(&mut pool, 12).unwrap();
        a.release(&mut pool);
        assert!(pool.end_period());
        let given_back: Vec<_> = std::iter::from_fn(|| pool.take_idle(4)).collect();
        assert_eq!(given_back.iter().map(Range::len).collect::<Vec<_>>(), [4, 3]);
        assert_eq!(pool.resident(), 3);
        assert!(pool.end_period());
        assert_eq!(std::iter::from_fn(|| pool.take_idle(16)).map(|blocks| blocks.len()).sum::<usize>(), 3);
        assert!(!pool.end_period());
        assert_eq!((pool.resident(), pool.free()), (0, 16));
    }

    proptest! {
        #[test]
        fn idle_blocks_are_free_and_given_back_once(steps in prop::collection::vec((0usize..5, 0usize..3, 0usize..20), 1..80)) {
            let mut pool = BlockPool::new(16, 4);
            let mut sequences: Vec<Sequence> = (0..3).map(|_| Sequence::default()).collect();
            // True for a block with memory.
            let mut resident = [false; 16];
            for (action, which, n) in steps {
                match action {
                    0 | 1 => { let _ = sequences[which].append(&mut pool, n); }
                    2 => sequences[which].release(&mut pool),
                    3 => { pool.end_period(); }
                    _ => {
                        for block in pool.take_idle(n.max(1)).into_iter().flatten() {
                            prop_assert!(resident[block] && pool.holders(block as u32) == 0);
                            resident[block] = false;
                        }
                    }
                }
                for &block in sequences.iter().flat_map(Sequence::table) {
                    resident[block as usize] = true;
                }
                prop_assert_eq!(pool.resident(), resident.iter().filter(|resident| **resident).count());
            }
        }

        #[test]
        fn random_operations_conserve_blocks(steps in prop::collection::vec((0usize..4, 0usize..3, 0usize..20), 1..60)) {
            let mut pool = BlockPool::new(16, 4);
            let mut sequences: Vec<Sequence> = (0..3).map(|_| Sequence::default()).collect();
            for (action, which, n) in steps {
                match action {
                    0 => { let _ = sequences[which].append(&mut pool, n); }
                    1 => { sequences[which].truncate(&mut pool, n); }
                    2 => {
                        let fork = sequences[which].fork(&mut pool, n);
                        let mut old = std::mem::replace(&mut sequences[(which + 1) % 3], fork);
                        old.release(&mut pool);
                    }
                    _ => sequences[which].release(&mut pool),
                }
                let mut held: Vec<u32> = sequences.iter().flat_map(|s| s.table().iter().copied()).collect();
                for s in &sequences {
                    prop_assert_eq!(s.table().len(), s.len().div_ceil(4));
                }
                held.sort_unstable();
                held.dedup();
                prop_assert_eq!(held.len() + pool.free(), 16);
            }
            for s in &mut sequences {
                s.release(&mut pool);
            }
            prop_assert_eq!(pool.free(), 16);
        }
    }
}
