//! Functions that are alike: same tokens once names and literals are replaced. Code that several model families need
//! is a shared part, not a copy.
//!
//! - [`functions`]: the functions of a file, as tokens
//! - [`listed`]: the groups of today, in `copies.toml`

pub mod functions;
pub mod listed;

use std::collections::BTreeMap;
use std::fmt;

use proc_macro2::TokenStream;

use functions::{SourceFunction, functions_of};

/// Folder whose functions are compared.
const FOLDER: &str = "engine/src/models/";
/// Least number of lines of a compared function, from its signature to its closing brace.
const MIN_LINES: usize = 10;

/// Functions that are alike: at least two, by file and line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyGroup(pub Vec<FunctionPlace>);

/// Place of a function.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FunctionPlace {
    /// Path of its file.
    pub path: String,
    /// Line of its signature, counted from 1.
    pub line: usize,
    /// Its name, after that of the type or trait that it belongs to.
    pub name: String,
}

impl FunctionPlace {
    /// Name by which the list refers to it.
    pub fn key(&self) -> String {
        format!("{}: {}", self.path, self.name)
    }
}

impl fmt::Display for FunctionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.name)
    }
}

/// Long functions of the compared folder, by their tokens.
#[derive(Debug, Default)]
pub struct FunctionIndex(BTreeMap<Vec<String>, Vec<FunctionPlace>>);

impl FunctionIndex {
    /// Adds the functions of a file, without test code, if it lies in the compared folder.
    pub fn add(&mut self, path: &str, file: &syn::File, tokens: &TokenStream) {
        if !path.starts_with(FOLDER) {
            return;
        }
        for SourceFunction { name, line, lines, tokens } in functions_of(file, tokens) {
            if lines >= MIN_LINES {
                self.0.entry(tokens).or_default().push(FunctionPlace { path: path.to_owned(), line, name });
            }
        }
    }

    /// Returns the groups of functions that are alike.
    pub fn groups(self) -> Vec<CopyGroup> {
        let mut groups: Vec<_> = self.0.into_values().filter(|group| group.len() > 1).collect();
        groups.iter_mut().for_each(|group| group.sort());
        groups.sort();
        groups.into_iter().map(CopyGroup).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::parse;

    /// A function of `lines` lines.
    fn function(name: &str, variable: &str, literal: &str, lines: usize) -> String {
        let body = format!("    {variable}.push({literal} + other.len());\n").repeat(lines - 2);
        format!("fn {name}({variable}: &mut Vec<usize>, other: &[f32]) {{\n{body}}}\n")
    }

    fn groups(files: &[(&str, String)]) -> Vec<Vec<String>> {
        let mut index = FunctionIndex::default();
        for (path, text) in files {
            let (file, tokens) = parse(path, text).unwrap();
            index.add(path, &file, &tokens);
        }
        let told = |group: CopyGroup| group.0.iter().map(ToString::to_string).collect();
        index.groups().into_iter().map(told).collect()
    }

    #[test]
    fn a_renamed_copy_is_found() {
        let a = ("engine/src/models/a.rs", function("first", "list", "1", 10));
        let b = ("engine/src/models/b.rs", format!("\nimpl S {{ {} }}", function("second", "rows", "0.5", 10)));
        let found = groups(&[a, b]);
        assert_eq!(found, [["engine/src/models/a.rs:1: first", "engine/src/models/b.rs:2: S::second"]]);
    }

    #[test]
    fn another_operator_is_another_function() {
        let a = function("first", "list", "1", 10);
        let b = a.replacen('+', "-", 1);
        assert!(groups(&[("engine/src/models/a.rs", a), ("engine/src/models/b.rs", b)]).is_empty());
    }

    #[test]
    fn short_functions_may_be_alike() {
        let file = |path, lines| (path, function("f", "list", "1", lines));
        assert!(groups(&[file("engine/src/models/a.rs", 9), file("engine/src/models/b.rs", 9)]).is_empty());
        assert_eq!(groups(&[file("engine/src/models/a.rs", 10), file("engine/src/models/b.rs", 10)]).len(), 1);
    }

    #[test]
    fn other_folders_and_tests_are_not_compared() {
        let text = function("f", "list", "1", 10);
        let test = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n#[test]\n{text}");
        let files = [("engine/src/models/a.rs", text.clone()), ("engine/src/text.rs", text)];
        assert!(groups(&files).is_empty());
        let [model, _] = files;
        assert!(groups(&[model, ("engine/src/models/b.rs", test)]).is_empty());
    }

    #[test]
    fn three_copies_are_one_group() {
        let text = function("f", "list", "1", 12);
        let files = ["a", "b", "c"].map(|name| format!("engine/src/models/{name}.rs"));
        let found = groups(&files.each_ref().map(|path| (path.as_str(), text.clone())));
        assert_eq!(found.iter().map(Vec::len).collect::<Vec<_>>(), [3]);
    }
}
