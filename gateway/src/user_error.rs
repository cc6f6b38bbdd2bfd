//! Errors that a user can mend.

/// User error: a bad checkpoint, address, setting or argument. It ends the command with exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0:#}")]
pub struct UserError(pub anyhow::Error);
