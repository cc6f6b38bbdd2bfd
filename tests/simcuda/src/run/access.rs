//! Loads, stores and atomics.

use super::addresses::{aligned, resolved};
use super::block::Block;
use super::warp::{LaneResult, Warp, lanes_of};
use crate::decode::kind::Operation;
use crate::decode::lanes::{Lanes, WARP};
use crate::decode::{Addr, Inst};
use crate::fault::{Fault, FaultKind};
use crate::ptx::{Space, Ty};

impl Warp {
    /// Evaluates an address operand in all lanes.
    pub(super) fn addresses(&self, address: Addr) -> Lanes {
        match address.reg {
            None => [address.offset as u64; WARP],
            Some(reg) if reg.bits == 32 => {
                self.register(reg).map(|base| u64::from((base as u32).wrapping_add(address.offset as u32)))
            }
            Some(reg) => self.register(reg).map(|base| base.wrapping_add(address.offset as u64)),
        }
    }

    fn read(&self, block: &mut Block, space: Space, lane: usize, address: u64, out: &mut [u8]) -> Result<(), Fault> {
        let (space, address) = resolved(space, address);
        aligned(address, out.len())?;
        match space {
            Space::Shared => block.shared.read(address, out, self.who(block, lane)),
            Space::Local => {
                let at = self.inside_local(lane, address, out.len())?;
                if let Some(fresh) = self.local[lane].first_uninitialised(at, out.len()) {
                    let text =
                        format!("byte {fresh} of the thread's own memory is read before anything is written there");
                    return Err(Fault::new(FaultKind::Uninitialised, text));
                }
                out.copy_from_slice(self.local[lane].slice(at, out.len()));
                Ok(())
            }
            Space::Param => {
                let at = address as usize;
                let params = &block.launch.params;
                let found = params.get(at..at.saturating_add(out.len())).ok_or_else(|| {
                    let text = format!("{} bytes at byte {at} of {} bytes of parameters", out.len(), params.len());
                    Fault::new(FaultKind::OutOfBounds, text)
                })?;
                out.copy_from_slice(found);
                Ok(())
            }
            Space::Global | Space::Generic => block.memory.read(address, out),
        }
    }

    fn write(&mut self, block: &mut Block, space: Space, lane: usize, address: u64, from: &[u8]) -> Result<(), Fault> {
        let (space, address) = resolved(space, address);
        aligned(address, from.len())?;
        match space {
            Space::Shared => block.shared.write(address, from, self.who(block, lane)),
            Space::Local => {
                let at = self.inside_local(lane, address, from.len())?;
                self.local[lane].write(at, from);
                Ok(())
            }
            Space::Param => Err(Fault::new(FaultKind::OutOfBounds, "parameters cannot be written")),
            Space::Global | Space::Generic => block.memory.write(address, from),
        }
    }

    fn inside_local(&self, lane: usize, address: u64, length: usize) -> Result<usize, Fault> {
        let size = if self.local.is_empty() { 0 } else { self.local[lane].len() };
        let at = usize::try_from(address).ok().filter(|at| at.checked_add(length).is_some_and(|end| end <= size));
        at.ok_or_else(|| {
            let text = format!("{length} bytes at byte {address} of {size} bytes of the thread's own memory");
            Fault::new(FaultKind::OutOfBounds, text)
        })
    }

    pub(super) fn load(&mut self, block: &mut Block, inst: &Inst, space: Space, ty: Ty, active: u32) -> LaneResult<()> {
        let addresses = self.addresses(inst.address[0]);
        let width = ty.bytes();
        let mut loaded = [[0; WARP]; 4];
        let mut bytes = [0; 32];
        for lane in lanes_of(active) {
            let bytes = &mut bytes[..width * inst.dst.len()];
            self.read(block, space, lane, addresses[lane], bytes).map_err(|fault| (lane, fault))?;
            for (element, part) in bytes.chunks_exact(width).enumerate() {
                loaded[element][lane] = extended(part, ty);
            }
        }
        for (&dst, value) in inst.dst.iter().zip(&loaded) {
            self.set(dst, value, active);
        }
        Ok(())
    }

    pub(super) fn store(
        &mut self,
        block: &mut Block,
        inst: &Inst,
        space: Space,
        ty: Ty,
        active: u32,
    ) -> LaneResult<()> {
        let addresses = self.addresses(inst.address[0]);
        let width = ty.bytes();
        let values: Vec<Lanes> = inst.src.iter().map(|(src, _)| self.value(*src, block)).collect();
        let mut bytes = [0; 32];
        for lane in lanes_of(active) {
            let bytes = &mut bytes[..width * values.len()];
            for (part, value) in bytes.chunks_exact_mut(width).zip(&values) {
                part.copy_from_slice(&value[lane].to_le_bytes()[..width]);
            }
            self.write(block, space, lane, addresses[lane], bytes).map_err(|fault| (lane, fault))?;
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, block: &mut Block, inst: &Inst, active: u32) -> LaneResult<()> {
        let Operation::Atomic { space, update, ty, returns, .. } = inst.kind else { return Ok(()) };
        let addresses = self.addresses(inst.address[0]);
        let operand = self.value(inst.src[0].0, block);
        let second = inst.src.get(1).map_or([0; WARP], |(src, _)| self.value(*src, block));
        let mut olds = [0; WARP];
        for lane in lanes_of(active) {
            let mut apply = |bytes: &mut [u8]| {
                let old = extended(bytes, ty);
                olds[lane] = old;
                let new = update(&[old; WARP], &[operand[lane]; WARP], &[second[lane]; WARP])[0];
                bytes.copy_from_slice(&new.to_le_bytes()[..bytes.len()]);
            };
            let bytes = &mut [0; 8][..ty.bytes()];
            let (space, address) = resolved(space, addresses[lane]);
            let who = self.who(block, lane);
            let done = aligned(address, bytes.len()).and_then(|()| match space {
                Space::Shared => block.shared.update(address, bytes, who, apply),
                _ => {
                    block.memory.read(address, bytes)?;
                    apply(bytes);
                    block.memory.write(address, bytes)
                }
            });
            done.map_err(|fault| (lane, fault))?;
        }
        if returns {
            self.set(inst.dst[0], &olds, active);
        }
        Ok(())
    }
}

/// Returns a number's bits; a signed one is extended to 64 bits, which the register then truncates to its own width.
fn extended(bytes: &[u8], ty: Ty) -> u64 {
    // By width, because a copy of unknown length into eight bytes is slow to read back.
    let value = match *bytes {
        [a] => u64::from(a),
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    };
    let unused = 64 - ty.bits();
    if matches!(ty, Ty::S(_)) { ((value << unused) as i64 >> unused) as u64 } else { value }
}
