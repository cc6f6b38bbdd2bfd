//! PTX text and what it says: tokens, then a typed tree in which every register has a number and a width.

mod ast;
mod lexer;
mod parser;
mod scope;

pub use ast::{Address, Base, Entry, Guard, Instruction, Module, Operand, Param, Reg, Space, Special, Ty, Variable};
pub use parser::parse;

/// What is wrong with a PTX text, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {problem}")]
pub struct PtxError {
    /// Line of the text, from 1.
    pub line: u32,
    /// What is wrong, or not covered.
    pub problem: String,
}

impl PtxError {
    /// An error at a line.
    pub fn new(line: u32, problem: impl Into<String>) -> Self {
        Self { line, problem: problem.into() }
    }
}
