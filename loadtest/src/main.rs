//! Synthetic callers.
fn main() {}
