//! Warp-wide instructions: lanes exchange values.

use super::block::Block;
use super::warp::{LaneResult, Warp, lanes_of};
use crate::decode::Inst;
use crate::decode::kind::{Operation, Shuffle, Vote};
use crate::decode::lanes::{Lanes, Map2, WARP};
use crate::fault::{Fault, FaultKind};

impl Warp {
    pub(super) fn collective(&mut self, block: &Block, inst: &Inst, active: u32) -> LaneResult<()> {
        let read = |at: usize| self.value(inst.src[at].0, block);
        let masks = read(inst.src.len() - 1);
        self.check_lanes(&masks, active)?;
        let value = read(0);
        match inst.kind {
            Operation::Shuffle(mode) => {
                let (bs, cs) = (read(1), read(2));
                let mut from = [0; WARP];
                let mut valid = [0; WARP];
                for lane in lanes_of(active) {
                    let (source, inside) = source_of(mode, lane as u32, bs[lane] as u32, cs[lane] as u32);
                    if active >> source & 1 == 0 {
                        let text = format!("a shuffle reads lane {source}, which is not there");
                        return Err((lane, Fault::new(FaultKind::AbsentLanes, text)));
                    }
                    from[lane] = value[source as usize];
                    valid[lane] = u64::from(inside);
                }
                self.set(inst.dst[0], &from, active);
                if let Some(&dst) = inst.dst.get(1) {
                    self.set(dst, &valid, active);
                }
            }
            Operation::Vote(vote) => {
                let votes = lanes_of(active).fold(0u32, |votes, lane| votes | ((value[lane] & 1) as u32) << lane);
                let result = match vote {
                    Vote::All => u32::from(votes == active),
                    Vote::Any => u32::from(votes != 0),
                    Vote::Uniform => u32::from(votes == active || votes == 0),
                    Vote::Ballot => votes,
                };
                self.set(inst.dst[0], &[u64::from(result); WARP], active);
            }
            Operation::Redux(join, _) => {
                let result = joined(join, &value, active);
                self.set(inst.dst[0], &result, active);
            }
            _ => {}
        }
        Ok(())
    }
}

fn joined(join: Map2, value: &Lanes, active: u32) -> Lanes {
    let mut lanes = lanes_of(active);
    let first = lanes.next().map_or(0, |lane| value[lane]);
    lanes.fold([first; WARP], |sum, lane| join(&sum, &[value[lane]; WARP]))
}

/// Source lane of a shuffle, and true if it lies in the segment, by the manual's table for `shfl.sync`.
fn source_of(mode: Shuffle, lane: u32, b: u32, c: u32) -> (u32, bool) {
    let (distance, clamp, segment) = (b & 31, c & 31, c >> 8 & 31);
    let most = lane & segment | clamp & !segment;
    let least = lane & segment;
    let (source, inside) = match mode {
        Shuffle::Up => {
            let source = lane as i32 - distance as i32;
            (source as u32, source >= most as i32)
        }
        Shuffle::Down => (lane + distance, lane + distance <= most),
        Shuffle::Butterfly => (lane ^ distance, lane ^ distance <= most),
        Shuffle::Index => {
            let source = least | distance & !segment;
            (source, source <= most)
        }
    };
    (if inside { source } else { lane }, inside)
}
