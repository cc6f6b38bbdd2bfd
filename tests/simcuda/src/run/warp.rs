//! A warp: its registers, the position of its lanes, and the instructions within a lane.
//!
//! Lanes at one instruction run together. Of several groups the one furthest behind runs first, so that diverged lanes meet again at the
//! join.

use super::addresses::window;
use super::block::{Block, Launch};
use super::pending::Copies;
use crate::decode::kind::{Operation, Reduce};
use crate::decode::lanes::{Lanes, WARP};
use crate::decode::{Dst, Inst, Src};
use crate::fault::{Fault, FaultKind};
use crate::memory::Bytes;
use crate::ptx::{Reg, Special};
use crate::shared::ThreadMoment;

/// Instruction budget of a warp in one block; beyond it the kernel counts as endless.
const BUDGET: u64 = 1 << 26;

/// Lists the lanes of a mask.
pub fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..WARP).filter(move |lane| mask >> lane & 1 != 0)
}

/// Result with the faulting lane.
pub type LaneResult<T> = Result<T, (usize, Fault)>;

/// Lanes at one instruction.
#[derive(Clone, Copy, Debug)]
struct Group {
    pc: usize,
    mask: u32,
}

/// State of a warp at a barrier.
#[derive(Clone, Copy, Debug)]
pub struct BarrierWait {
    /// Instruction index of the barrier.
    pub pc: usize,
    /// Mask of the waiting lanes.
    pub lanes: u32,
    /// Number of lanes with a true predicate, for `bar.red`.
    pub count: u32,
}

/// A warp of 32 lanes.
pub struct Warp {
    pub(super) index: u32,
    registers: Vec<Lanes>,
    /// Groups by position, the one furthest behind first.
    groups: Vec<Group>,
    /// Mask of lanes that have not ended.
    pub(super) live: u32,
    /// Barrier at which it waits.
    pub waiting: Option<BarrierWait>,
    pub(super) tid: [Lanes; 3],
    /// Local memory of each lane.
    pub(super) local: Vec<Bytes>,
    pub(super) copies: Copies,
    pub(super) warp_epoch: u32,
    carried_out: u64,
}

impl Warp {
    /// Creates warp `index`, before its first instruction.
    pub fn new(index: u32, launch: &Launch) -> Self {
        let [x, y, z] = launch.block;
        let thread = |lane: usize| index * 32 + lane as u32;
        let count = (x * y * z - index * 32).min(32);
        let axis = |of: fn(u32, [u32; 3]) -> u32| std::array::from_fn(|lane| u64::from(of(thread(lane), [x, y, z])));
        let live = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        let local = if launch.kernel.local > 0 { vec![Bytes::new(launch.kernel.local); WARP] } else { Vec::new() };
        Self {
            index,
            registers: vec![[0xdead_beef; WARP]; launch.kernel.registers],
            groups: vec![Group { pc: 0, mask: live }],
            live,
            waiting: None,
            tid: [axis(|t, [x, ..]| t % x), axis(|t, [x, y, _]| t / x % y), axis(|t, [x, y, _]| t / (x * y))],
            local,
            copies: Copies::default(),
            warp_epoch: 0,
            carried_out: 0,
        }
    }

    /// Runs until all of its lanes have ended or wait.
    pub(super) fn run(&mut self, block: &mut Block) -> Result<(), Fault> {
        let kernel = block.launch.kernel.clone();
        while self.waiting.is_none() {
            let Some(&Group { pc, mask }) = self.groups.first() else { return Ok(()) };
            let behind = self.groups.get(1).map_or(usize::MAX, |next| next.pc);
            let (pc, mask) = self.run_group(block, &kernel.code, pc, mask, behind)?;
            if mask == 0 {
                continue;
            }
            // Only now is the group's place among the others known.
            self.groups.remove(0);
            self.join(pc, mask);
        }
        Ok(())
    }

    /// Adds lanes to the group at an instruction.
    fn join(&mut self, pc: usize, mask: u32) {
        match self.groups.binary_search_by_key(&pc, |group| group.pc) {
            Ok(index) => self.groups[index].mask |= mask,
            Err(index) => self.groups.insert(index, Group { pc, mask }),
        }
    }

    /// Runs a group until it meets or passes the next group, diverges, waits or ends. Returns the position and mask of its lanes; an empty
    /// mask if the groups are up to date.
    fn run_group(
        &mut self,
        block: &mut Block,
        code: &[Inst],
        mut pc: usize,
        mut mask: u32,
        behind: usize,
    ) -> Result<(usize, u32), Fault> {
        while pc < behind {
            let Some(inst) = code.get(pc) else {
                self.live &= !mask;
                self.groups.remove(0);
                return Ok((pc, 0));
            };
            self.carried_out += 1;
            if self.carried_out > BUDGET {
                let fault = Fault::new(FaultKind::Timeout, format!("{BUDGET} instructions, and no end"));
                return Err(block.place(fault, &self.tid, pc, 0));
            }
            let active = match inst.guard {
                None => mask,
                Some(guard) => mask & (self.bits(guard.reg.index) ^ if guard.negated { u32::MAX } else { 0 }),
            };
            match inst.kind {
                Operation::Branch if active == mask => {
                    pc = inst.target;
                    continue;
                }
                Operation::Branch if active != 0 => {
                    self.groups.remove(0);
                    self.join(pc + 1, mask & !active);
                    self.join(inst.target, active);
                    return Ok((pc, 0));
                }
                Operation::Exit if active != 0 => {
                    self.live &= !active;
                    mask &= !active;
                    if mask == 0 {
                        self.groups.remove(0);
                        return Ok((pc, 0));
                    }
                }
                Operation::Barrier | Operation::BarrierReduce(_) if active != 0 => {
                    if active != self.live {
                        let text = "a barrier that only some lanes of the warp have come to";
                        let absent = (self.live & !active).trailing_zeros() as usize;
                        let fault = Fault::new(FaultKind::DivergentBarrier, text);
                        return Err(block.place(fault, &self.tid, pc, absent));
                    }
                    let count = match inst.kind {
                        Operation::BarrierReduce(_) => {
                            let predicate = self.value(inst.src[0].0, block);
                            lanes_of(active).filter(|lane| predicate[*lane] & 1 != 0).count() as u32
                        }
                        _ => 0,
                    };
                    self.waiting = Some(BarrierWait { pc, lanes: active.count_ones(), count });
                    return Ok((pc, 0));
                }
                _ if active == 0 => {}
                _ => self.step(block, inst, active).map_err(|(lane, fault)| block.place(fault, &self.tid, pc, lane))?,
            }
            pc += 1;
        }
        Ok((pc, mask))
    }

    /// Leaves a barrier at which `count` of `of` lanes had a true predicate.
    pub(super) fn release(&mut self, block: &Block, count: u32, of: u32) {
        let Some(BarrierWait { pc, .. }) = self.waiting.take() else { return };
        let inst = &block.launch.kernel.code[pc];
        if let Operation::BarrierReduce(reduce) = inst.kind {
            let result = match reduce {
                Reduce::And => u32::from(count == of),
                Reduce::Or => u32::from(count > 0),
                Reduce::Count => count,
            };
            self.set(inst.dst[0], &[u64::from(result); WARP], self.live);
        }
        self.warp_epoch += 1;
        // All of its lanes wait here, so there is one group.
        if let Some(group) = self.groups.first_mut() {
            group.pc = pc + 1;
        }
    }

    fn step(&mut self, block: &mut Block, inst: &Inst, active: u32) -> LaneResult<()> {
        let read = |warp: &Self, at: usize| warp.value(inst.src[at].0, block);
        let (mut a, mut b, mut c, mut d) = (None, None, None, None);
        match inst.kind {
            Operation::Map1(map, ..) => {
                let out = map(self.operand(inst, 0, block, &mut a));
                self.set(inst.dst[0], &out, active);
            }
            Operation::Map2(map, ..) => {
                let out = map(self.operand(inst, 0, block, &mut a), self.operand(inst, 1, block, &mut b));
                self.set(inst.dst[0], &out, active);
            }
            Operation::Map3(map, ..) => {
                let out = map(
                    self.operand(inst, 0, block, &mut a),
                    self.operand(inst, 1, block, &mut b),
                    self.operand(inst, 2, block, &mut c),
                );
                self.set(inst.dst[0], &out, active);
            }
            Operation::Map4(map, ..) => {
                let out = map(
                    self.operand(inst, 0, block, &mut a),
                    self.operand(inst, 1, block, &mut b),
                    self.operand(inst, 2, block, &mut c),
                    self.operand(inst, 3, block, &mut d),
                );
                self.set(inst.dst[0], &out, active);
            }
            Operation::Compare(map, _, join) => {
                let found = map(self.operand(inst, 0, block, &mut a), self.operand(inst, 1, block, &mut b));
                let with = |found: &Lanes| match join {
                    Some(join) => join(found, &read(self, 2)),
                    None => *found,
                };
                let (first, second) = (with(&found), with(&found.map(|bit| bit ^ 1)));
                self.set(inst.dst[0], &first, active);
                if let Some(&dst) = inst.dst.get(1) {
                    self.set(dst, &second, active);
                }
            }
            Operation::Convert(convert) => {
                let from = read(self, 0);
                self.set(inst.dst[0], &from.map(|bits| convert.apply(bits)), active);
            }
            Operation::Move(_) => self.moved(block, inst, active),
            Operation::Window(space, to) => {
                let value = window(space, to, &read(self, 0));
                self.set(inst.dst[0], &value, active);
            }
            Operation::Load(space, ty, _) => self.load(block, inst, space, ty, active)?,
            Operation::Store(space, ty, _) => self.store(block, inst, space, ty, active)?,
            Operation::Atomic { .. } => self.atomic(block, inst, active)?,
            Operation::Trap => {
                let lane = active.trailing_zeros() as usize;
                return Err((lane, Fault::new(FaultKind::Trap, "the kernel gives up")));
            }
            Operation::WarpBarrier => {
                self.check_lanes(&read(self, 0), active)?;
                self.warp_epoch += 1;
            }
            Operation::Shuffle(_) | Operation::Vote(_) | Operation::Redux(..) => {
                self.collective(block, inst, active)?
            }
            Operation::ActiveMask => self.set(inst.dst[0], &[u64::from(active); WARP], active),
            Operation::LoadMatrix(count, transposed) => self.load_matrix(block, inst, count, transposed, active)?,
            Operation::Mma => self.multiply(block, inst, active)?,
            Operation::CopyAsync(_) => self.copy_async(block, inst, active)?,
            Operation::CopyCommit => lanes_of(active).for_each(|lane| self.copies.commit(lane)),
            Operation::CopyWait(all) => {
                let kept = if all { 0 } else { read(self, 0)[0] as usize };
                self.copy_wait(block, kept, all, active)?;
            }
            Operation::Fence
            | Operation::Branch
            | Operation::Exit
            | Operation::Barrier
            | Operation::BarrierReduce(_) => {}
        }
        Ok(())
    }

    fn moved(&mut self, block: &Block, inst: &Inst, active: u32) {
        let mut whole = [0; WARP];
        let mut shift = 0;
        for &(src, bits) in &inst.src {
            let part = self.value(src, block);
            whole.iter_mut().zip(part).for_each(|(whole, part)| *whole |= part << shift);
            shift += bits;
        }
        let mut shift = 0;
        for &dst in &inst.dst {
            let bits = part_bits(dst, inst);
            let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
            self.set(dst, &whole.map(|whole| whole >> shift & mask), active);
            shift += bits;
        }
    }

    /// Evaluates a source in all lanes, without a copy if it is a register; `room` holds any other.
    fn operand<'a>(&'a self, inst: &Inst, at: usize, block: &Block, room: &'a mut Option<Lanes>) -> &'a Lanes {
        match inst.src[at].0 {
            Src::Reg(index) => &self.registers[index as usize],
            other => room.insert(self.value(other, block)),
        }
    }

    /// Evaluates a source in all lanes.
    pub(super) fn value(&self, src: Src, block: &Block) -> Lanes {
        match src {
            Src::Reg(index) => self.registers[index as usize],
            Src::Not(index) => self.registers[index as usize].map(|bit| bit & 1 ^ 1),
            Src::Imm(value) => [value; WARP],
            Src::Special(special) => self.special(special, block),
        }
    }

    /// Returns a register in all lanes.
    pub(super) fn register(&self, reg: Reg) -> &Lanes {
        &self.registers[reg.index as usize]
    }

    fn special(&self, special: Special, block: &Block) -> Lanes {
        let all = |value: u32| [u64::from(value); WARP];
        match special {
            Special::Tid(axis) => self.tid[axis],
            Special::Ntid(axis) => all(block.launch.block[axis]),
            Special::Ctaid(axis) => all(block.index[axis]),
            Special::Nctaid(axis) => all(block.launch.grid[axis]),
            Special::Lane => std::array::from_fn(|lane| lane as u64),
            Special::Warp => all(self.index),
            Special::DynamicShared => all(block.launch.shared as u32),
            Special::LaneMask(which) => std::array::from_fn(|lane| {
                let own = 1u64 << lane;
                let below = own - 1;
                [own, below, below | own, !(below | own) & 0xffff_ffff, !below & 0xffff_ffff][which as usize]
            }),
        }
    }

    /// Returns the lanes with a true predicate.
    fn bits(&self, predicate: u32) -> u32 {
        let lanes = &self.registers[predicate as usize];
        lanes.iter().enumerate().fold(0, |mask, (lane, bit)| mask | ((bit & 1) as u32) << lane)
    }

    /// Writes a register in some lanes, truncated to its width.
    pub(super) fn set(&mut self, dst: Dst, value: &Lanes, active: u32) {
        let Some(reg) = dst else { return };
        let mask = if reg.bits >= 64 { u64::MAX } else { (1 << reg.bits) - 1 };
        let register = &mut self.registers[reg.index as usize];
        if active == u32::MAX {
            register.iter_mut().zip(value).for_each(|(to, from)| *to = from & mask);
        } else {
            lanes_of(active).for_each(|lane| register[lane] = value[lane] & mask);
        }
    }

    /// Returns a lane's thread and epochs.
    pub(super) fn who(&self, block: &Block, lane: usize) -> ThreadMoment {
        ThreadMoment { thread: (self.index * 32) as u16 + lane as u16, epoch: block.epoch, warp_epoch: self.warp_epoch }
    }

    /// Checks that the lanes of a mask are those that execute the instruction.
    pub(super) fn check_lanes(&self, masks: &Lanes, active: u32) -> LaneResult<()> {
        for lane in lanes_of(active) {
            let mask = masks[lane] as u32;
            if mask != active {
                let text = format!("the mask {mask:#010x} where the lanes {active:#010x} are there");
                return Err((lane, Fault::new(FaultKind::AbsentLanes, text)));
            }
        }
        Ok(())
    }
}

/// Bits of a destination of a `mov`; `_` takes as many as the others.
fn part_bits(dst: Dst, inst: &Inst) -> u32 {
    let known = dst.or_else(|| inst.dst.iter().flatten().next().copied());
    known.map_or(64, |reg| reg.bits)
}
