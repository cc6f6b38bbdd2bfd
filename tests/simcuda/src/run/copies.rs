//! Asynchronous copies into shared memory: each completes when its thread waits for it, and not before.

use std::collections::VecDeque;

use super::Block;
use super::access::aligned;
use super::warp::{LaneResult, Warp, lanes_of};
use crate::decode::Inst;
use crate::decode::lanes::WARP;
use crate::fault::{Fault, FaultKind};

/// Pending copies, by lane.
#[derive(Default)]
pub struct Copies {
    lanes: Vec<Lane>,
}

#[derive(Clone, Default)]
struct Lane {
    open: Vec<Copy>,
    groups: VecDeque<Vec<Copy>>,
}

#[derive(Clone)]
struct Copy {
    to: u64,
    bytes: Vec<u8>,
}

impl Copies {
    fn lane(&mut self, lane: usize) -> &mut Lane {
        self.lanes.resize(WARP, Lane::default());
        &mut self.lanes[lane]
    }

    /// Closes the lane's group.
    pub fn commit(&mut self, lane: usize) {
        let lane = self.lane(lane);
        let group = std::mem::take(&mut lane.open);
        lane.groups.push_back(group);
    }
}

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
