//! PTX parser: text into tokens, then a typed tree with an index and a width for every register.

mod ast;
mod lexer;
mod parser;
mod scope;

pub use ast::{
    Address, Base, Guard, Instruction, KernelEntry, Module, Operand, Param, Reg, Space, Special, Ty, Variable,
};
pub use parser::parse;

/// Error in a PTX text, with its line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {problem}")]
pub struct PtxError {
    /// Line of the text, from 1.
    pub line: u32,
    /// Description of the error.
    pub problem: String,
}

impl PtxError {
    /// Creates an error at a line.
    pub fn new(line: u32, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}
