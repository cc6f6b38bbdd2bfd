//! Tree of modules of one crate, without test code.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};
use syn::ext::IdentExt as _;
use syn::{Attribute, Expr, ExprLit, File, Item, ItemMod, Lit, Meta};

use super::references::is_left_out;

/// Modules of a crate; the first is its root.
pub struct ModuleTree<'a> {
    /// Every module, each after its parent.
    pub modules: Vec<SourceModule<'a>>,
}

/// A module: a whole file, or a block in one.
pub struct SourceModule<'a> {
    /// Path of its file.
    pub file: String,
    /// Index of its parent; none for the root.
    pub parent: Option<usize>,
    /// Indices of its children. A name has several if conditions choose among them.
    pub children: BTreeMap<String, Vec<usize>>,
    /// Its items other than modules.
    pub items: Vec<&'a Item>,
}

/// Folders of a module, from which its children's files are found.
#[derive(Clone)]
struct ModuleFolders {
    /// Folder of `child.rs` and `child/mod.rs`.
    children: String,
    /// Folder to which `#[path]` is relative.
    attribute: String,
}

impl<'a> ModuleTree<'a> {
    /// Builds the tree below the crate's root file.
    ///
    /// # Errors
    /// A module has no file among `sources`.
    pub fn build(root: &str, sources: &'a BTreeMap<String, File>) -> Result<Self> {
        let mut tree = Self { modules: Vec::new() };
        let file = sources.get(root).with_context(|| root.to_owned())?;
        let folders = ModuleFolders { children: folder_of(root), attribute: folder_of(root) };
        tree.add(root, &file.items, None, &folders, sources)?;
        Ok(tree)
    }

    /// Returns the modules to which one name of a path leads from `module`; none for the name of an item or another crate.
    pub fn step(&self, module: usize, segment: &str) -> Vec<usize> {
        match segment {
            "crate" => vec![0],
            "self" => vec![module],
            "super" => self.modules[module].parent.into_iter().collect(),
            _ => self.modules[module].children.get(segment).cloned().unwrap_or_default(),
        }
    }

    fn add(
        &mut self,
        path: &str,
        items: &'a [Item],
        parent: Option<usize>,
        folders: &ModuleFolders,
        sources: &'a BTreeMap<String, File>,
    ) -> Result<usize> {
        let index = self.modules.len();
        self.modules.push(SourceModule { file: path.to_owned(), parent, children: BTreeMap::new(), items: Vec::new() });
        for item in items {
            let Item::Mod(child) = item else {
                self.modules[index].items.push(item);
                continue;
            };
            if is_left_out(&child.attrs) {
                continue;
            }
            let name = child.ident.unraw().to_string();
            let added = match &child.content {
                Some((_, items)) => {
                    let folder = format!("{}/{name}", folders.children);
                    let folders = ModuleFolders { children: folder.clone(), attribute: folder };
                    self.add(path, items, Some(index), &folders, sources)?
                }
                None => {
                    let file =
                        file_of(child, &name, folders, sources).with_context(|| format!("{path}: mod {name}"))?;
                    if is_test_file(&file) {
                        continue;
                    }
                    let parsed = sources.get(&file).with_context(|| format!("{path}: mod {name}: no {file}"))?;
                    let folders = folders_of(&file, path_attribute(&child.attrs).is_some());
                    self.add(&file, &parsed.items, Some(index), &folders, sources)?
                }
            };
            self.modules[index].children.entry(name).or_default().push(added);
        }
        Ok(index)
    }
}

/// Finds the file of a module without a block.
fn file_of(child: &ItemMod, name: &str, folders: &ModuleFolders, sources: &BTreeMap<String, File>) -> Option<String> {
    if let Some(path) = path_attribute(&child.attrs) {
        return Some(format!("{}/{path}", folders.attribute));
    }
    let files = [format!("{}/{name}.rs", folders.children), format!("{}/{name}/mod.rs", folders.children)];
    files.into_iter().find(|file| sources.contains_key(file))
}

fn folders_of(file: &str, has_path_attribute: bool) -> ModuleFolders {
    let attribute = folder_of(file);
    let owns_folder = has_path_attribute || file.ends_with("/mod.rs");
    let children = if owns_folder { attribute.clone() } else { file.trim_end_matches(".rs").to_owned() };
    ModuleFolders { children, attribute }
}

fn folder_of(file: &str) -> String {
    Path::new(file).parent().map(|folder| folder.display().to_string()).unwrap_or_default()
}

fn is_test_file(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    matches!(name, "tests.rs" | "testdata.rs") || name.ends_with("_tests.rs")
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circles::tests::sources;

    fn files(given: &[(&str, &str)]) -> Result<Vec<String>> {
        let sources = sources(given);
        let tree = ModuleTree::build("src/lib.rs", &sources)?;
        Ok(tree.modules.into_iter().map(|module| module.file).collect())
    }

    #[test]
    fn children_lie_beside_or_below_their_parent() {
        let given = [
            ("src/lib.rs", "mod a; mod b; mod block { mod inner; }"),
            ("src/a.rs", "mod child;"),
            ("src/a/child.rs", ""),
            ("src/b/mod.rs", "mod child; #[path = \"other/name.rs\"] mod renamed;"),
            ("src/b/child.rs", ""),
            ("src/b/other/name.rs", "mod below;"),
            ("src/b/other/below.rs", ""),
            ("src/block/inner.rs", ""),
        ];
        let expected = [
            "src/lib.rs",
            "src/a.rs",
            "src/a/child.rs",
            "src/b/mod.rs",
            "src/b/child.rs",
            "src/b/other/name.rs",
            "src/b/other/below.rs",
            "src/lib.rs",
            "src/block/inner.rs",
        ];
        assert_eq!(files(&given).unwrap(), expected);
    }

    #[test]
    fn a_missing_file_is_an_error() {
        let error = files(&[("src/lib.rs", "mod a;")]).unwrap_err();
        assert_eq!(error.to_string(), "src/lib.rs: mod a");
    }

    #[test]
    fn conditions_choose_among_children() {
        let root = "#[cfg(unix)] mod a; #[cfg(not(unix))] #[path = \"b.rs\"] mod a;";
        let sources = sources(&[("src/lib.rs", root), ("src/a.rs", ""), ("src/b.rs", "")]);
        let tree = ModuleTree::build("src/lib.rs", &sources).unwrap();
        assert_eq!(tree.step(0, "a"), [1, 2]);
        assert_eq!(tree.step(1, "super"), [0]);
        assert!(tree.step(0, "b").is_empty());
    }
}
