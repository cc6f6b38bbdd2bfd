//! Syntax tree of a PTX module.

use std::collections::HashMap;

/// A PTX type, as in opcodes and declarations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// Untyped bits, `.b8` to `.b64`.
    B(u32),
    /// Unsigned integer of this many bits.
    U(u32),
    /// Signed integer of this many bits.
    S(u32),
    /// Floating-point number of this many bits.
    F(u32),
    /// The 16-bit type `.bf16`.
    Bf16,
    /// Two packed numbers, `.f16x2` or `.bf16x2`.
    Pair,
    /// A predicate, `.pred`.
    Pred,
}

impl Ty {
    /// Looks up a type by its name without the dot.
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

    /// Width in bits; a predicate has one.
    pub fn bits(self) -> u32 {
        match self {
            Self::B(bits) | Self::U(bits) | Self::S(bits) | Self::F(bits) => bits,
            Self::Bf16 => 16,
            Self::Pair => 32,
            Self::Pred => 1,
        }
    }

    /// Width in bytes.
    pub fn bytes(self) -> usize {
        self.bits().div_ceil(8) as usize
    }
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Any of the others, by address.
    Generic,
    /// Device memory; constants are there too.
    Global,
    /// Memory of the block.
    Shared,
    /// Memory of the thread.
    Local,
    /// Parameters of the kernel.
    Param,
}

/// A register of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reg {
    /// Index in the register file.
    pub index: u32,
    /// Declared width in bits; 1 is a predicate.
    pub bits: u32,
}

/// A special register, filled by the hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// Thread index `%tid`, by axis.
    Tid(usize),
    /// Block size `%ntid`, by axis.
    Ntid(usize),
    /// Block index `%ctaid`, by axis.
    Ctaid(usize),
    /// Grid size `%nctaid`, by axis.
    Nctaid(usize),
    /// Lane index `%laneid`.
    Lane,
    /// Warp index `%warpid`.
    Warp,
    /// `%lanemask_lt` and its kin: 0 eq, 1 lt, 2 le, 3 gt, 4 ge.
    LaneMask(u32),
    /// Dynamic shared memory `%dynamic_smem_size`, in bytes.
    DynamicShared,
}

/// Base of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Base {
    /// Value of a register.
    Reg(Reg),
    /// Address of a variable or parameter.
    Symbol(String),
    /// Zero: the offset is the address.
    Zero,
}

/// An address operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Base of the address.
    pub base: Base,
    /// Bytes after the base.
    pub offset: i64,
}

/// An operand in the syntax of PTX.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Value of a register.
    Reg(Reg),
    /// A negated predicate.
    Not(Reg),
    /// Two destinations, `a|b`.
    Both(Box<Operand>, Box<Operand>),
    /// Bits of a constant; a negative one is extended to 64 bits.
    Imm(u64),
    /// A special register, filled by the hardware.
    Special(Special),
    /// Address of a variable, or a label.
    Symbol(String),
    /// An address, `[base+offset]`.
    Address(Address),
    /// A vector, `{a, b}`.
    Vector(Vec<Operand>),
    /// The ignored destination `_`.
    Sink,
}

/// Predicate that selects the lanes of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guard {
    /// Register of the predicate.
    pub reg: Reg,
    /// True if the lanes with a false predicate are selected.
    pub negated: bool,
}

/// One instruction of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Line of the text, from 1.
    pub line: u32,
    /// Guard `@%p` of the instruction.
    pub guard: Option<Guard>,
    /// Opcode with all modifiers: `ld.global.nc.v4.u32`.
    pub opcode: String,
    /// Operands, destinations first.
    pub operands: Vec<Operand>,
}

/// A parameter of a kernel, at its offset in the `.param` space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// Name of the parameter.
    pub name: String,
    /// Offset in the parameter space, in bytes.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A variable of the module, of a block, or of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name of the variable.
    pub name: String,
    /// State space of the variable.
    pub space: Space,
    /// Alignment in bytes.
    pub align: usize,
    /// Size in bytes; 0 marks the dynamic shared memory of a launch.
    pub size: usize,
    /// First bytes; the others are 0. Empty if the text gives no value.
    pub init: Vec<u8>,
}

/// A kernel (`.entry`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KernelEntry {
    /// Name of the kernel.
    pub name: String,
    /// Parameters in order.
    pub params: Vec<Param>,
    /// Number of registers, of all widths together.
    pub registers: u32,
    /// Variables of the kernel.
    pub variables: Vec<Variable>,
    /// Instructions in order.
    pub body: Vec<Instruction>,
    /// Index of the instruction after each label.
    pub labels: HashMap<String, usize>,
}

impl KernelEntry {
    /// Bytes of the parameter space.
    pub fn param_bytes(&self) -> usize {
        self.params.last().map_or(0, |last| last.offset + last.size)
    }
}

/// A parsed module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Name after `.target`, such as `sm_80`.
    pub target: String,
    /// Variables outside of kernels.
    pub variables: Vec<Variable>,
    /// Kernels in order.
    pub entries: Vec<KernelEntry>,
}
