//! Resolution of paths: the modules in which the items of a path are defined.
//!
//! A path through a re-export leads to the module that defines the item, so a parent that declares and re-exports its children
//! refers to them, but who takes an item from it refers to the child. A path to a module itself leads nowhere: what is used
//! are the items in it.

use std::collections::BTreeSet;

use syn::ext::IdentExt as _;
use syn::{Ident, Item};

use super::modules::ModuleTree;
use super::references::{PathForm, PathReference, references};

/// Longest chain of imports that a name is followed through.
const MAX_IMPORTS: usize = 8;

/// Resolves the paths of a crate.
pub struct Resolver<'a> {
    tree: &'a ModuleTree<'a>,
    /// Paths of each module.
    paths: Vec<Vec<PathReference>>,
    /// Names of the items that each module defines.
    items: Vec<BTreeSet<String>>,
}

/// Modules that a path leads to, and modules that define its item.
#[derive(Default)]
struct Resolved {
    /// The path names these modules.
    modules: BTreeSet<usize>,
    /// The path names an item of these modules.
    owners: BTreeSet<usize>,
}

impl Resolved {
    fn extend(&mut self, other: Self) {
        self.modules.extend(other.modules);
        self.owners.extend(other.owners);
    }
}

impl<'a> Resolver<'a> {
    /// Reads the paths and items of every module.
    pub fn new(tree: &'a ModuleTree<'a>) -> Self {
        let paths = tree.modules.iter().map(|module| references(&module.items)).collect();
        let names = |items: &[&Item]| {
            items.iter().filter_map(|item| name_of(item)).map(|name| name.unraw().to_string()).collect()
        };
        let items = tree.modules.iter().map(|module| names(&module.items)).collect();
        Self { tree, paths, items }
    }

    /// Returns the paths of a module.
    pub fn paths(&self, module: usize) -> &[PathReference] {
        &self.paths[module]
    }

    /// Returns the modules that define the items of a path of `module`; none if it leaves the crate or names a module.
    pub fn targets(&self, module: usize, path: &PathReference) -> BTreeSet<usize> {
        let resolved = self.resolve(module, &path.segments, 0);
        let mut targets = resolved.owners;
        if path.form == PathForm::Glob {
            for module in resolved.modules {
                targets.insert(module);
                let exports = self.paths[module].iter().filter(|path| path.form != PathForm::Code);
                targets.extend(exports.flat_map(|export| self.resolve(module, &export.segments, 1).owners));
            }
        }
        targets
    }

    /// Follows the names of a path from the first one, which is in scope in `module`.
    fn resolve(&self, module: usize, segments: &[String], depth: usize) -> Resolved {
        let Some((first, rest)) = segments.split_first() else { return Resolved::default() };
        rest.iter().fold(self.name(module, first, depth), |resolved, segment| {
            if resolved.modules.is_empty() {
                // The names that follow an item are its own: variants, associated functions.
                return resolved;
            }
            // A function may share the module's name, but a path goes on through the module alone.
            let mut next = Resolved::default();
            for module in resolved.modules {
                let found = self.name(module, segment, depth);
                if found.modules.is_empty() && found.owners.is_empty() {
                    next.owners.insert(module);
                }
                next.extend(found);
            }
            next
        })
    }

    /// Finds a name of a module: its children, its items, and those that it imports.
    fn name(&self, module: usize, name: &str, depth: usize) -> Resolved {
        let mut found =
            Resolved { modules: self.tree.step(module, name).into_iter().collect(), owners: BTreeSet::new() };
        if self.items[module].contains(name) {
            found.owners.insert(module);
        }
        let named = |path: &&PathReference| matches!(&path.form, PathForm::Import(import) if import == name);
        for import in self.paths[module].iter().filter(|path| depth < MAX_IMPORTS && named(path)) {
            found.extend(self.resolve(module, &import.segments, depth + 1));
        }
        if found.modules.is_empty() && found.owners.is_empty() && depth < MAX_IMPORTS {
            for glob in self.paths[module].iter().filter(|path| path.form == PathForm::Glob) {
                let inside = self.resolve(module, &glob.segments, depth + 1).modules;
                inside.into_iter().for_each(|inside| found.extend(self.name(inside, name, depth + 1)));
            }
        }
        found
    }
}

/// Returns the name under which an item is found in its module.
fn name_of(item: &Item) -> Option<&Ident> {
    match item {
        Item::Const(item) => Some(&item.ident),
        Item::Enum(item) => Some(&item.ident),
        Item::Fn(item) => Some(&item.sig.ident),
        Item::Macro(item) => item.ident.as_ref(),
        Item::Static(item) => Some(&item.ident),
        Item::Struct(item) => Some(&item.ident),
        Item::Trait(item) => Some(&item.ident),
        Item::TraitAlias(item) => Some(&item.ident),
        Item::Type(item) => Some(&item.ident),
        Item::Union(item) => Some(&item.ident),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circles::tests::sources;

    /// Files to which the paths of `src/user.rs` lead, without folder and ending.
    fn targets(user: &str, others: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<(&str, &str)> = others.iter().copied().chain([("src/user.rs", user)]).collect();
        let sources = sources(&files);
        let tree = ModuleTree::build("src/lib.rs", &sources).unwrap();
        let resolver = Resolver::new(&tree);
        let module = tree.modules.iter().position(|module| module.file == "src/user.rs").unwrap();
        let ends = resolver.paths(module).iter().flat_map(|path| resolver.targets(module, path));
        let files: BTreeSet<&str> = ends.map(|end| tree.modules[end].file.as_str()).collect();
        files.into_iter().map(|file| file.trim_start_matches("src/").trim_end_matches(".rs").to_owned()).collect()
    }

    #[test]
    fn a_re_export_leads_to_the_definition() {
        let others = [
            ("src/lib.rs", "mod a; mod user; pub use a::{A, Renamed as R}; pub struct Root;"),
            ("src/a/mod.rs", "mod inner; pub use inner::*; pub use self::inner::{A, deep::Renamed}; pub struct Own;"),
            ("src/a/inner.rs", "pub mod deep; pub struct A; pub enum E { V }"),
            ("src/a/inner/deep.rs", "pub struct Renamed;"),
        ];
        assert_eq!(targets("use crate::A;", &others), ["a/inner"]);
        assert_eq!(targets("fn f() { crate::A::new() }", &others), ["a/inner"]);
        assert_eq!(targets("use super::a; fn f() { a::A::new() }", &others), ["a/inner"]);
        assert_eq!(targets("use super::R;", &others), ["a/inner/deep"]);
        assert_eq!(targets("use super::{Root, a::Own};", &others), ["a/mod", "lib"]);
    }

    #[test]
    fn a_glob_leads_to_all_that_it_brings() {
        let others = [
            ("src/lib.rs", "mod a; mod b; mod user; pub use a::A; pub use b::B;"),
            ("src/a.rs", "pub struct A;"),
            ("src/b.rs", "pub struct B;"),
        ];
        assert_eq!(targets("use crate::*;", &others), ["a", "b", "lib"]);
        assert_eq!(targets("use crate::a::*;", &others), ["a"]);
        let through = [("src/lib.rs", "mod a; mod user; pub use a::*;"), ("src/a.rs", "pub enum E { V }")];
        assert_eq!(targets("use crate::E;", &through), ["a"]);
        assert_eq!(targets("fn f() { crate::E::V }", &through), ["a"]);
    }

    #[test]
    fn a_module_and_an_item_share_a_name() {
        let others = [
            ("src/lib.rs", "mod a; mod user;"),
            ("src/a/mod.rs", "mod load; pub use load::load;"),
            ("src/a/load.rs", "pub fn load() {}"),
        ];
        assert_eq!(targets("use crate::a::load;", &others), ["a/load"]);
        assert_eq!(targets("use crate::a::load::load;", &others), ["a/load"]);
        let defined = [("src/lib.rs", "mod a; mod user; fn a() {}"), ("src/a.rs", "pub struct A;")];
        assert_eq!(targets("use crate::a::A;", &defined), ["a"]);
        assert_eq!(targets("use crate::a;", &defined), ["lib"]);
    }

    #[test]
    fn an_unknown_item_belongs_to_its_module() {
        let others = [("src/lib.rs", "mod a; mod user;"), ("src/a.rs", "generate!(Made);")];
        assert_eq!(targets("use crate::a::Made;", &others), ["a"]);
    }

    #[test]
    fn imports_in_a_circle_end() {
        let others = [("src/lib.rs", "mod a; mod user; pub use a::x;"), ("src/a.rs", "pub use crate::x;")];
        assert!(targets("use crate::x;", &others).len() <= 2);
    }
}
