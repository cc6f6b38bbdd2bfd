//! The tree of a PTX module.

use std::collections::HashMap;

/// A type of PTX, as it stands after an opcode or in a declaration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// Untyped bits, `.b8` to `.b64`.
    B(u32),
    /// An unsigned integer of so many bits.
    U(u32),
    /// A signed integer of so many bits.
    S(u32),
    /// A floating-point number of so many bits.
    F(u32),
    /// `.bf16`.
    Bf16,
    /// `.f16x2` or `.bf16x2`.
    Pair,
    /// `.pred`.
    Pred,
}

impl Ty {
    /// The type with this name, which has no dot.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "pred" => Self::Pred,
            "bf16" => Self::Bf16,
            "f16x2" | "bf16x2" => Self::Pair,
            _ => {
                let bits = name.get(1..)?.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
                match name.as_bytes().first()? {
                    b'b' => Self::B(bits),
                    b'u' => Self::U(bits),
                    b's' => Self::S(bits),
                    b'f' if bits > 8 => Self::F(bits),
                    _ => return None,
                }
            }
        })
    }

    /// Its width in bits; a predicate has one.
    pub fn bits(self) -> u32 {
        match self {
            Self::B(bits) | Self::U(bits) | Self::S(bits) | Self::F(bits) => bits,
            Self::Bf16 => 16,
            Self::Pair => 32,
            Self::Pred => 1,
        }
    }

    /// Its width in bytes.
    pub fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Any of the others, told by the address.
    Generic,
    /// Device memory; constants are there too.
    Global,
    /// Memory of the block.
    Shared,
    /// Memory of the thread.
    Local,
    /// The kernel's parameters.
    Param,
}

/// A register of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg {
    /// Its place in the register file.
    pub index: u32,
    /// Its declared width; 1 is a predicate.
    pub bits: u32,
}

/// A read-only register that the hardware fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// `%tid`, by axis.
    Tid(usize),
    /// `%ntid`, by axis.
    Ntid(usize),
    /// `%ctaid`, by axis.
    Ctaid(usize),
    /// `%nctaid`, by axis.
    Nctaid(usize),
    /// `%laneid`.
    Lane,
    /// `%warpid`.
    Warp,
    /// `%lanemask_lt` and its kin: 0 eq, 1 lt, 2 le, 3 gt, 4 ge.
    LaneMask(u32),
    /// `%dynamic_smem_size`, in bytes.
    DynamicShared,
}

/// What an address starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// A register.
    Reg(Reg),
    /// A variable or parameter.
    Symbol(String),
    /// Nothing: the offset is the address.
    Zero,
}

/// An address operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// What it starts from.
    pub base: Base,
    /// Bytes behind the base.
    pub offset: i64,
}

/// An operand as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A register.
    Reg(Reg),
    /// A predicate to be negated.
    Not(Reg),
    /// Two destinations, `a|b`.
    Both(Box<Operand>, Box<Operand>),
    /// Bits of a number; a negative one is extended to 64 bits.
    Imm(u64),
    /// A register that the hardware fills.
    Special(Special),
    /// A variable's address, or a label.
    Symbol(String),
    /// `[base+offset]`.
    Address(Address),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `_`, a destination that nobody wants.
    Sink,
}

/// The predicate that decides which lanes carry an instruction out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate.
    pub reg: Reg,
    /// Whether those lanes carry it out where the predicate is false.
    pub negated: bool,
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Line of the text, from 1.
    pub line: u32,
    /// `@%p` before it.
    pub guard: Option<Guard>,
    /// The opcode with all of its modifiers: `ld.global.nc.v4.u32`.
    pub opcode: String,
    /// Destinations first.
    pub operands: Vec<Operand>,
}

/// A parameter of a kernel, at its place in the `.param` space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// First byte in the parameter space.
    pub offset: usize,
    /// Bytes.
    pub size: usize,
}

/// A variable of the module, of a block, or of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Where it lies.
    pub space: Space,
    /// Alignment in bytes.
    pub align: usize,
    /// Bytes; 0 stands for the dynamic shared memory of a launch.
    pub size: usize,
    /// First bytes; the others are 0. Empty where the text gives no value.
    pub init: Vec<u8>,
}

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its parameters in order.
    pub params: Vec<Param>,
    /// How many registers it has, of all widths together.
    pub registers: u32,
    /// Its own variables.
    pub variables: Vec<Variable>,
    /// Its instructions in order.
    pub body: Vec<Instruction>,
    /// The instruction that each label stands before.
    pub labels: HashMap<String, usize>,
}

impl Entry {
    /// Bytes of the parameter space.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// `.target`: `sm_80`.
    pub target: String,
    /// Variables outside of kernels.
    pub variables: Vec<Variable>,
    /// Kernels.
    pub entries: Vec<Entry>,
}
