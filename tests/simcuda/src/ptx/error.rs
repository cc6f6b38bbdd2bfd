//! Errors in a PTX text.

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
