//! Two of our items are told apart by their names, not by `use X as Y`.

use std::collections::HashSet;

use syn::visit::{self, Visit};
use syn::{File, ItemMod, ItemUse, UseTree};

use crate::finding::{Finding, Rule};

/// Returns a finding for each `use` that gives an item of this workspace another name. `as _` is no name.
pub fn check(path: &str, file: &File) -> Vec<Finding> {
    let mut modules = Modules::default();
    modules.visit_file(file);
    let mut imports = Imports { path, modules: modules.0, findings: Vec::new() };
    imports.visit_file(file);
    imports.findings
}

/// Modules that a file declares: paths may begin with them.
#[derive(Default)]
struct Modules(HashSet<String>);

impl<'ast> Visit<'ast> for Modules {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.0.insert(item.ident.to_string());
        visit::visit_item_mod(self, item);
    }
}

struct Imports<'a> {
    path: &'a str,
    modules: HashSet<String>,
    findings: Vec<Finding>,
}

impl Imports<'_> {
    fn is_ours(&self, root: &str) -> bool {
        matches!(root, "crate" | "self" | "super")
            || root == "repartee"
            || root.starts_with("repartee_")
            || self.modules.contains(root)
    }

    /// Walks a tree below the root `ours`; `None` at the root itself.
    fn walk(&mut self, tree: &UseTree, ours: Option<bool>) {
        match tree {
            UseTree::Path(path) => {
                let ours = ours.unwrap_or_else(|| self.is_ours(&path.ident.to_string()));
                self.walk(&path.tree, Some(ours));
            }
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.walk(tree, ours)),
            UseTree::Rename(rename) if rename.rename != "_" => {
                let old = rename.ident.to_string();
                if ours.unwrap_or_else(|| self.is_ours(&old)) {
                    self.findings.push(Finding {
                        path: self.path.to_owned(),
                        line: rename.ident.span().start().line,
                        rule: Rule::RenamedImport,
                        item: format!("{old} as {}", rename.rename),
                        advice: "rename the item itself: its name takes its owner's word".to_owned(),
                    });
                }
            }
            _ => {}
        }
    }
}

impl<'ast> Visit<'ast> for Imports<'_> {
    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        self.walk(&item.tree, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(source: &str) -> Vec<String> {
        check("a.rs", &syn::parse_str(source).unwrap()).into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn ours_keep_their_names() {
        assert_eq!(items("use crate::stage::Room as Budget;"), ["Room as Budget"]);
        assert_eq!(items("use repartee_engine_api::{Command, Usage as EngineUsage};"), ["Usage as EngineUsage"]);
        assert_eq!(items("mod tests { pub use super::{a::{self as b}}; }"), ["self as b"]);
        assert_eq!(items("mod own; use own::X as Y;"), ["X as Y"]);
    }

    #[test]
    fn others_may_be_renamed() {
        assert!(items("use std::process::Command as Process; use str0m::{Event as RtcEvent};").is_empty());
        assert!(items("use crate::Ops as _; use repartee_kernels::Ops as _;").is_empty());
    }
}
