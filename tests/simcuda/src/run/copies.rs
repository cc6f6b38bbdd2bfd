//! Asynchronous copies into shared memory: each completes when its thread waits for it, and not before.

use super::addresses::aligned;
use super::block::Block;
use super::pending::Copy;
use super::warp::{LaneResult, Warp, lanes_of};
use crate::decode::Inst;
use crate::fault::{Fault, FaultKind};

impl Warp {
    pub(super) fn copy_async(&mut self, block: &mut Block, inst: &Inst, active: u32) -> LaneResult<()> {
        let (to, from) = (self.addresses(inst.address[0]), self.addresses(inst.address[1]));
        let size = self.value(inst.src[0].0, block)[0] as usize;
        let wanted = inst.src.get(1).map(|(src, _)| self.value(*src, block));
        for lane in lanes_of(active) {
            let read = wanted.map_or(size, |wanted| wanted[lane] as usize);
            let who = self.who(block, lane);
            let mut bytes = vec![0; size];
            let mut begin = || {
                if read > size {
                    let text = format!("{read} bytes to read for a copy of {size}");
                    return Err(Fault::new(FaultKind::OutOfBounds, text));
                }
                aligned(to[lane], size)?;
                aligned(from[lane], size)?;
                if read > 0 {
                    block.memory.read(from[lane], &mut bytes[..read])?;
                }
                block.shared.begin_copy(to[lane], size, who)
            };
            begin().map_err(|fault| (lane, fault))?;
            self.copies.lane(lane).open.push(Copy { to: to[lane], bytes });
        }
        Ok(())
    }

    /// Waits until at most `kept` groups of each lane are pending, or for all groups.
    pub(super) fn copy_wait(&mut self, block: &mut Block, kept: usize, all: bool, active: u32) -> LaneResult<()> {
        for lane in lanes_of(active) {
            let who = self.who(block, lane);
            let copies = self.copies.lane(lane);
            let landing = copies.groups.len().saturating_sub(kept);
            let mut landed: Vec<Copy> = copies.groups.drain(..landing).flatten().collect();
            if all {
                landed.append(&mut copies.open);
            }
            for copy in landed {
                block.shared.end_copy(copy.to, &copy.bytes, who).map_err(|fault| (lane, fault))?;
            }
        }
        Ok(())
    }
}
