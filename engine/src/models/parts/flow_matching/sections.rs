//! Sections of the row spec for an evaluation of the diffusion transformer, and its block attention.

use repartee_kernels::RowSpec;
use repartee_kernels::row_spec::{BatchSection, SegmentSection, SpecSection};

/// Neighbouring blocks that a layer attends to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourBlocks {
    /// The block before is attended to.
    pub before: bool,
    /// The block after is attended to.
    pub after: bool,
}

impl NeighbourBlocks {
    /// Most blocks that a block attends to, itself included.
    pub fn blocks(self) -> usize {
        1 + usize::from(self.before) + usize::from(self.after)
    }
}

/// Lists for layers that attend beyond their own block.
#[derive(Debug, Clone)]
pub struct CrossBlockLists {
    pub neighbours: NeighbourBlocks,
    /// For each block the rows that it attends to, its own among them.
    pub gather: SpecSection,
    /// Number of these rows for each block.
    pub segments: SegmentSection,
    /// Index of each row among them.
    pub back: SpecSection,
}

/// Sections of the row spec for an evaluation.
#[derive(Debug, Clone)]
pub struct DitSections {
    pub rows: usize,
    pub mel: SpecSection,
    pub codes: SpecSection,
    pub voices: SpecSection,
    pub modulations: SpecSection,
    pub last: SpecSection,
    pub positions: BatchSection,
    pub blocks: SegmentSection,
    pub cross_block: Vec<CrossBlockLists>,
}

impl DitSections {
    /// Fills the block lists for consecutive windows of `windows` frames each.
    pub fn fill_blocks(&self, spec: &mut RowSpec, block: usize, windows: &[usize]) {
        let mut blocks = Vec::new();
        for &frames in windows {
            blocks.extend((0..frames).step_by(block).map(|from| block.min(frames - from)));
        }
        spec.set_segments(self.blocks, &blocks);
        for cross_block in &self.cross_block {
            let (mut gather, mut lengths, mut back) = (Vec::new(), Vec::new(), Vec::new());
            let mut first = 0;
            for &frames in windows {
                for from in (0..frames).step_by(block) {
                    let to = frames.min(from + block);
                    let seen = from - if cross_block.neighbours.before { block.min(from) } else { 0 };
                    let until = if cross_block.neighbours.after { frames.min(to + block) } else { to };
                    let own = gather.len() + from - seen;
                    back.extend((own..own + to - from).map(|row| row as u32));
                    gather.extend((first + seen..first + until).map(|row| row as u32));
                    lengths.push(until - seen);
                }
                first += frames;
            }
            spec.set(cross_block.gather, &gather);
            spec.set_segments(cross_block.segments, &lengths);
            spec.set(cross_block.back, &back);
        }
    }
}
