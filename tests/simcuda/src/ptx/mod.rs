//! PTX parser: text into tokens, then a typed tree with an index and a width for every register.

mod ast;
mod error;
mod lexer;
mod parser;
mod scope;

pub use ast::{
    Address, Base, Guard, Instruction, KernelEntry, Module, Operand, Param, Reg, Space, Special, Ty, Variable,
};
pub use error::PtxError;
pub use parser::parse;
