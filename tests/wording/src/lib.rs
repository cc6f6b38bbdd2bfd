//! Checks the words of this repository: names of declared items, doc comments, names of tests, sizes of tracked files;
//! that files do not refer to each other in circles; and that functions of the models are no copies of each other.
//! Prose, comments inside functions and local variables are not checked.
//!
//! - [`finding`]: one violation of a rule
//! - [`words`]: the lists that the rules read: `words.toml` and `allow.toml`
//! - [`rules`]: the rules, one file each
//! - [`circles`]: files of a crate that refer to each other, and their list, `circles.toml`
//! - [`copies`]: functions that are alike, and their list, `copies.toml`
//! - [`check`]: runs all rules over the tracked files and applies the allow-list

pub mod check;
pub mod circles;
pub mod copies;
pub mod finding;
pub mod rules;
pub mod words;
