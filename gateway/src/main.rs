//! The `repartee` command.
fn main() {}
