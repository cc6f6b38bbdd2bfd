//! The rules. Each takes one parsed file, and returns its findings.
//!
//! - [`docs`]: the opening of doc comments, wherever they stand, macros included
//! - [`items`]: names and docs of declared items
//! - [`imports`]: `use ours as`
//! - [`test_names`]: length of the names of tests, macros included
//! - [`large_files`]: sizes of tracked files

pub mod docs;
pub mod imports;
pub mod items;
pub mod large_files;
pub mod test_names;

use anyhow::{Context, Result};
use proc_macro2::TokenStream;

use crate::finding::Finding;
use crate::words::Words;

/// Parses the text of the Rust file at `path`, and returns its tokens too.
///
/// # Errors
/// The text is no Rust.
pub fn parse(path: &str, text: &str) -> Result<(syn::File, TokenStream)> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{path}: {error}"))?;
    let file = syn::parse2(tokens.clone()).with_context(|| path.to_owned())?;
    Ok((file, tokens))
}

/// Checks the Rust file at `path`.
pub fn check_source(path: &str, file: &syn::File, tokens: &TokenStream, words: &Words) -> Vec<Finding> {
    let mut findings = docs::check(path, tokens);
    findings.extend(items::check(path, file, words));
    findings.extend(imports::check(path, file));
    findings.extend(test_names::check(path, tokens));
    findings
}
