//! Decoder: opcodes into executable instructions.
//!
//! `form` holds the covered opcodes, from the crate's own table. `kind` defines the operations, `opcode` decodes them with the
//! families `integer`, `float`, `compare` and `convert`, and `bind` adds the operands.

mod bind;
mod compare;
mod conversion;
mod convert;
mod float;
pub mod form;
pub mod half;
mod integer;
pub mod kind;
pub mod lanes;
mod opcode;

pub use bind::{Addr, Dst, Inst, LOCAL_WINDOW, SHARED_WINDOW, SourcePart, Src, Symbols, bind};
pub use opcode::decode;
