//! Circles of files: files of one crate that refer to each other, each directly or through others.
//!
//! - [`modules`]: the tree of modules of a crate, with their files
//! - [`references`]: the paths that a module's items contain
//! - [`resolve`]: the files in which the items of a path are defined
//! - [`graph`]: references between files, and the circles among them
//! - [`listed`]: the circles of today, in `circles.toml`

pub mod graph;
pub mod listed;
pub mod modules;
pub mod references;
pub mod resolve;

use std::collections::BTreeMap;

use anyhow::Result;

use graph::{FileCircle, FileGraph};
use modules::ModuleTree;

/// Returns the circles in the `src` of each crate, without test code. `sources` has every Rust file by its path.
///
/// # Errors
/// A module has no file among `sources`.
pub fn find_circles(sources: &BTreeMap<String, syn::File>) -> Result<Vec<FileCircle>> {
    let mut circles = Vec::new();
    for root in sources.keys().filter(|path| is_crate_root(path)) {
        circles.extend(FileGraph::of(&ModuleTree::build(root, sources)?).circles());
    }
    circles.sort();
    Ok(circles)
}

fn is_crate_root(path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or_default();
    let is_src = |folder: &str| folder == "src" || folder.ends_with("/src");
    is_src(folder) && matches!(name, "lib.rs" | "main.rs") || folder.strip_suffix("/bin").is_some_and(is_src)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Parses files, each with its path.
    pub fn sources(files: &[(&str, &str)]) -> BTreeMap<String, syn::File> {
        files.iter().map(|(path, text)| ((*path).to_owned(), syn::parse_str(text).unwrap())).collect()
    }

    /// Files of each circle, by name within `src`.
    fn circles(files: &[(&str, &str)]) -> Vec<Vec<String>> {
        let short = |file: &String| file.trim_start_matches("c/src/").to_owned();
        let found = find_circles(&sources(files)).unwrap();
        found.iter().map(|circle| circle.files.iter().map(short).collect()).collect()
    }

    #[test]
    fn two_files_that_use_each_other() {
        let root = ("c/src/lib.rs", "mod a; mod b;");
        let a = ("c/src/a.rs", "use crate::b::B; pub struct A;");
        assert_eq!(circles(&[root, a, ("c/src/b.rs", "pub struct B(super::a::A);")]), [["a.rs", "b.rs"]]);
        assert!(circles(&[root, a, ("c/src/b.rs", "pub struct B;")]).is_empty());
    }

    #[test]
    fn declaring_a_child_is_no_reference() {
        let child = ("c/src/a.rs", "pub struct A(crate::Root);");
        assert!(circles(&[("c/src/lib.rs", "pub mod a; pub struct Root;"), child]).is_empty());
        let exported = "mod a; pub use a::A; pub struct Root;";
        assert_eq!(circles(&[("c/src/lib.rs", exported), child]), [["a.rs", "lib.rs"]]);
    }

    #[test]
    fn an_exported_item_counts_for_its_file() {
        let exporter = ("c/src/a/mod.rs", "mod inner; mod user; pub use inner::Inner; pub use user::User;");
        let root = ("c/src/lib.rs", "mod a; mod b;");
        let user = ("c/src/a/user.rs", "pub struct User(super::Inner);");
        let files = |inner: &'static str, b: &'static str| {
            circles(&[root, exporter, user, ("c/src/a/inner.rs", inner), ("c/src/b.rs", b)])
        };
        assert_eq!(files("pub struct Inner(crate::b::B);", "pub struct B(crate::a::Inner);"), [["a/inner.rs", "b.rs"]]);
        assert_eq!(files("pub struct Inner(super::User);", ""), [["a/inner.rs", "a/user.rs"]]);
        assert!(files("pub struct Inner(crate::b::B);", "pub struct B;").is_empty());
    }

    #[test]
    fn test_code_does_not_count() {
        let a = "use crate::b::B; pub struct A;";
        let root = ("c/src/lib.rs", "mod a; mod b; #[cfg(test)] mod helpers;");
        let b = "pub struct B; #[cfg(test)] mod tests { use crate::a::A; } #[cfg(test)] use crate::a::A;
            #[cfg(test)] mod other; #[path = \"b_tests.rs\"] mod more; #[test] fn f() { crate::a::f(); }";
        assert!(circles(&[root, ("c/src/a.rs", a), ("c/src/b.rs", b)]).is_empty());
    }

    #[test]
    fn each_binary_is_a_crate() {
        let files = [
            ("c/src/lib.rs", "pub mod a;"),
            ("c/src/main.rs", "mod b; use b::B; pub struct M;"),
            ("c/src/bin/tool.rs", "fn main() {}"),
            ("c/src/a.rs", "use crate::main;"),
            ("c/src/b.rs", "pub struct B(crate::M);"),
            ("c/tests/lib.rs", "mod missing;"),
        ];
        assert_eq!(circles(&files), [["b.rs", "main.rs"]]);
    }
}
