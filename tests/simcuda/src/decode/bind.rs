//! Binds an instruction's operation to its operands and checks their widths.

use std::collections::HashMap;

use super::kind::Operation;
use super::opcode::decode;
use crate::ptx::{Address, Base, Guard, Instruction, KernelEntry, Operand, PtxError, Reg, Space, Special, Ty};

/// Start of a block's shared memory in the generic address space.
pub const SHARED_WINDOW: u64 = 1 << 32;
/// Start of a thread's local memory in the generic address space.
pub const LOCAL_WINDOW: u64 = 2 << 32;

/// Source operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Src {
    /// Index of a register.
    Reg(u32),
    /// Index of a predicate to be negated.
    Not(u32),
    /// A constant, truncated to the instruction's width.
    Imm(u64),
    /// A special register.
    Special(Special),
}

/// Destination register; `None` is `_`.
pub type Dst = Option<Reg>;

/// A source and its width in bits; several make a packed register.
pub type SourcePart = (Src, u32);

/// Address operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addr {
    /// Base register; `None` for an absolute address.
    pub reg: Option<Reg>,
    /// Offset from the base, in bytes.
    pub offset: i64,
}

/// An executable instruction.
#[derive(Clone, Debug)]
pub struct Inst {
    /// Line in the PTX text, from 1.
    pub line: u32,
    /// Predicate that selects its lanes.
    pub guard: Option<Guard>,
    /// Operation of the instruction.
    pub kind: Operation,
    /// Destinations in order.
    pub dst: Vec<Dst>,
    /// Sources, with widths in bits.
    pub src: Vec<SourcePart>,
    /// Addresses that it accesses.
    pub address: Vec<Addr>,
    /// Index of the branch target.
    pub target: usize,
}

/// Address of each variable within its state space.
pub type Symbols = HashMap<String, (Space, u64)>;

/// Binds an instruction to its operands.
///
/// # Errors
/// The opcode is not covered, or its operands do not fit.
pub fn bind(instruction: &Instruction, entry: &KernelEntry, symbols: &Symbols) -> Result<Inst, PtxError> {
    let line = instruction.line;
    let Some(kind) = decode(&instruction.opcode) else {
        return Err(PtxError::new(line, format!("the opcode `{}` is not covered", instruction.opcode)));
    };
    let inst = Inst {
        line,
        guard: instruction.guard,
        kind,
        dst: vec![],
        src: vec![],
        address: vec![],
        target: entry.body.len(),
    };
    let mut binder =
        Binder { rest: instruction.operands.iter(), line, opcode: &instruction.opcode, entry, symbols, inst };
    binder.all()?;
    if binder.rest.next().is_some() {
        return Err(binder.wrong("too many operands"));
    }
    Ok(binder.inst)
}

struct Binder<'a> {
    rest: std::slice::Iter<'a, Operand>,
    line: u32,
    opcode: &'a str,
    entry: &'a KernelEntry,
    symbols: &'a Symbols,
    inst: Inst,
}

impl<'a> Binder<'a> {
    fn wrong(&self, problem: &str) -> PtxError {
        PtxError::new(self.line, format!("`{}`: {problem}", self.opcode))
    }

    fn next(&mut self) -> Result<&'a Operand, PtxError> {
        self.rest.next().ok_or_else(|| self.wrong("an operand is missing"))
    }

    fn all(&mut self) -> Result<(), PtxError> {
        match self.inst.kind {
            Operation::Map1(_, to, from) => self.map(to, &from),
            Operation::Map2(_, to, from) => self.map(to, &from),
            Operation::Map3(_, to, from) => self.map(to, &from),
            Operation::Map4(_, to, from) => self.map(to, &from),
            Operation::Compare(_, ty, join) => {
                match self.next()? {
                    Operand::Both(first, second) => {
                        self.to(first, 1, true)?;
                        self.to(second, 1, true)?;
                    }
                    one => self.to(one, 1, true)?,
                }
                self.from(ty)?;
                self.from(ty)?;
                if join.is_some() { self.from(Ty::Pred) } else { Ok(()) }
            }
            Operation::Move(ty) => self.moved(ty),
            Operation::Convert(convert) => {
                let to = self.next()?;
                self.to(to, convert.to.bits(), false)?;
                let from = self.next()?;
                self.source(from, convert.from.bits(), false)
            }
            Operation::Window(..) => self.map(Ty::U(64), &[Ty::U(64)]),
            Operation::Load(space, ty, count) => {
                let to = self.next()?;
                for part in self.parts(to, count)? {
                    self.to(part, ty.bits(), false)?;
                }
                self.address(space)
            }
            Operation::Store(space, ty, count) => {
                self.address(space)?;
                let from = self.next()?;
                for part in self.parts(from, count)? {
                    self.source(part, ty.bits(), false)?;
                }
                Ok(())
            }
            Operation::Atomic { space, ty, compares, returns, .. } => {
                if returns {
                    let to = self.next()?;
                    self.to(to, ty.bits(), true)?;
                }
                self.address(space)?;
                self.from(ty)?;
                if compares { self.from(ty) } else { Ok(()) }
            }
            Operation::Branch => {
                let Operand::Symbol(label) = self.next()? else { return Err(self.wrong("a label is missing")) };
                let target = self.entry.labels.get(label).copied();
                self.inst.target = target.ok_or_else(|| self.wrong("there is no such label"))?;
                Ok(())
            }
            Operation::Exit
            | Operation::Trap
            | Operation::Fence
            | Operation::CopyCommit
            | Operation::CopyWait(true) => Ok(()),
            Operation::Barrier => match self.next()? {
                Operand::Imm(_) => Ok(()),
                _ => Err(self.wrong("only barriers of a constant number are covered")),
            },
            Operation::BarrierReduce(reduce) => {
                let to = self.next()?;
                self.to(to, if reduce == super::kind::Reduce::Count { 32 } else { 1 }, true)?;
                let Operand::Imm(_) = self.next()? else {
                    return Err(self.wrong("only barriers of a constant number are covered"));
                };
                self.from(Ty::Pred)
            }
            Operation::WarpBarrier => self.from(Ty::U(32)),
            Operation::Shuffle(_) => {
                match self.next()? {
                    Operand::Both(first, second) => {
                        self.to(first, 32, true)?;
                        self.to(second, 1, true)?;
                    }
                    one => self.to(one, 32, true)?,
                }
                (0..4).try_for_each(|_| self.from(Ty::U(32)))
            }
            Operation::Vote(vote) => {
                let to = self.next()?;
                self.to(to, if vote == super::kind::Vote::Ballot { 32 } else { 1 }, true)?;
                self.from(Ty::Pred)?;
                self.from(Ty::U(32))
            }
            Operation::Redux(_, ty) => self.map(ty, &[ty, Ty::U(32)]),
            Operation::ActiveMask => self.map(Ty::U(32), &[]),
            Operation::LoadMatrix(count, _) => {
                let to = self.next()?;
                for part in self.parts(to, count)? {
                    self.to(part, 32, true)?;
                }
                self.address(Space::Shared)
            }
            Operation::Mma => {
                for (count, is_result) in [(4, true), (4, false), (2, false), (4, false)] {
                    let operand = self.next()?;
                    for part in self.parts(operand, count)? {
                        if is_result { self.to(part, 32, true)? } else { self.source(part, 32, true)? }
                    }
                }
                Ok(())
            }
            Operation::CopyAsync(least) => {
                self.address(Space::Shared)?;
                self.address(Space::Global)?;
                let Operand::Imm(size) = self.next()? else { return Err(self.wrong("the size is no constant")) };
                if !(least..=16).contains(size) || !size.is_power_of_two() {
                    return Err(self.wrong("this size cannot be copied"));
                }
                self.inst.src.push((Src::Imm(*size), 32));
                if self.rest.len() > 0 { self.from(Ty::U(32)) } else { Ok(()) }
            }
            Operation::CopyWait(false) => self.from(Ty::U(32)),
        }
    }

    fn map(&mut self, to: Ty, from: &[Ty]) -> Result<(), PtxError> {
        let destination = self.next()?;
        self.to(destination, to.bits(), true)?;
        from.iter().try_for_each(|ty| self.from(*ty))
    }

    /// Binds a `mov`; the other side of a vector has the sum of its bits.
    fn moved(&mut self, ty: Ty) -> Result<(), PtxError> {
        match (self.next()?, self.next()?) {
            (Operand::Vector(parts), from) => {
                let bits = ty.bits() / parts.len().max(1) as u32;
                for part in parts {
                    self.to(part, bits, true)?;
                }
                self.source(from, ty.bits(), true)
            }
            (to, Operand::Vector(parts)) => {
                self.to(to, ty.bits(), true)?;
                let bits = ty.bits() / parts.len().max(1) as u32;
                parts.iter().try_for_each(|part| self.source(part, bits, true))
            }
            (to, from) => {
                self.to(to, ty.bits(), true)?;
                self.source(from, ty.bits(), true)
            }
        }
    }

    fn parts(&self, operand: &'a Operand, count: usize) -> Result<&'a [Operand], PtxError> {
        match operand {
            Operand::Vector(parts) if parts.len() == count => Ok(parts),
            one if count == 1 => Ok(std::slice::from_ref(one)),
            _ => Err(self.wrong(&format!("a vector of {count} is missing"))),
        }
    }

    /// Binds a destination of `bits` bits, or of at least as many unless `exact`.
    fn to(&mut self, operand: &Operand, bits: u32, exact: bool) -> Result<(), PtxError> {
        let dst = match operand {
            Operand::Reg(reg) => Some(self.fitting(*reg, bits, exact)?),
            Operand::Sink => None,
            _ => return Err(self.wrong("a destination is a register")),
        };
        self.inst.dst.push(dst);
        Ok(())
    }

    fn fitting(&self, reg: Reg, bits: u32, exact: bool) -> Result<Reg, PtxError> {
        // Registers narrower than 16 bits are rare; a byte fits all of them.
        let fits = reg.bits == bits || (!exact && reg.bits > bits && bits > 1);
        if fits { Ok(reg) } else { Err(self.wrong(&format!("a register of {} bits where {bits} are due", reg.bits))) }
    }

    fn from(&mut self, ty: Ty) -> Result<(), PtxError> {
        let operand = self.next()?;
        self.source(operand, ty.bits(), true)
    }

    fn source(&mut self, operand: &Operand, bits: u32, exact: bool) -> Result<(), PtxError> {
        let cut = |value: u64| if bits >= 64 { value } else { value & ((1 << bits) - 1) };
        let src = match operand {
            Operand::Reg(reg) => Src::Reg(self.fitting(*reg, bits, exact)?.index),
            Operand::Not(reg) => Src::Not(self.fitting(*reg, 1, true)?.index),
            Operand::Imm(value) => Src::Imm(cut(*value)),
            Operand::Special(special) => Src::Special(*special),
            Operand::Symbol(name) => match self.symbols.get(name) {
                Some((_, place)) => Src::Imm(cut(*place)),
                None => return Err(self.wrong(&format!("there is no variable `{name}`"))),
            },
            _ => return Err(self.wrong("this operand is not covered")),
        };
        self.inst.src.push((src, bits));
        Ok(())
    }

    fn address(&mut self, space: Space) -> Result<(), PtxError> {
        let Operand::Address(Address { base, offset }) = self.next()? else {
            return Err(self.wrong("an address is missing"));
        };
        let (reg, start) = match base {
            Base::Reg(reg) if reg.bits >= 32 => (Some(*reg), 0),
            Base::Reg(_) => return Err(self.wrong("an address has 32 or 64 bits")),
            Base::Zero => (None, 0),
            Base::Symbol(name) => {
                let param = || self.entry.params.iter().find(|param| param.name == *name);
                let (of, place) = match (space, self.symbols.get(name)) {
                    (Space::Param, _) => {
                        (Space::Param, param().ok_or_else(|| self.wrong("there is no such parameter"))?.offset as u64)
                    }
                    (_, Some(found)) => *found,
                    (_, None) => return Err(self.wrong(&format!("there is no variable `{name}`"))),
                };
                if of != space {
                    return Err(self.wrong(&format!("`{name}` lies in another space")));
                }
                (None, place as i64)
            }
        };
        self.inst.address.push(Addr { reg, offset: start + offset });
        Ok(())
    }
}
