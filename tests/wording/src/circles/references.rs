//! Paths in the items of one module.

use proc_macro2::{TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Field, ImplItem, Item, ItemUse, Macro, Meta, Path, TraitItem, UseTree, Visibility};

/// A path that begins in this crate or with a name in scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathReference {
    /// Names of the path, `crate`, `self` and `super` included.
    pub segments: Vec<String>,
    /// Line of its first name, counted from 1.
    pub line: usize,
    /// Form of the path.
    pub form: PathForm,
}

/// Form of a path: one in code, or a leaf of a `use`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathForm {
    /// A path outside a `use`.
    Code,
    /// A leaf of a `use`, with the name that it gives to the item.
    Import(String),
    /// A `use` of all items of a module.
    Glob,
}

/// Returns the paths in the items of a module, those in macros included, without code for tests and docs alone. A single name outside a
/// `use` is a local one and no path; visibilities and attributes refer to nothing.
pub fn references(items: &[&Item]) -> Vec<PathReference> {
    let mut found = References::default();
    for item in items {
        found.visit_item(item);
    }
    found.0
}

/// True for an item that is compiled for tests or docs alone: `#[test]`, or a `#[cfg]` that needs `test` or `doc`.
pub fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::Path(path) => path.segments.last().is_some_and(|segment| segment.ident == "test"),
        Meta::List(list) if list.path.is_ident("cfg") => is_absent(list.tokens.clone()),
        Meta::List(list) => list.path.segments.last().is_some_and(|segment| segment.ident == "test"),
        Meta::NameValue(_) => false,
    })
}

/// True for the conditions `test` and `doc`, and for an `all` with one of them.
fn is_absent(condition: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = condition.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name)] => name == "test" || name == "doc",
        [TokenTree::Ident(name), TokenTree::Group(group)] if name == "all" => {
            let parts: Vec<TokenTree> = group.stream().into_iter().collect();
            parts.split(is_comma).any(|part| is_absent(part.iter().cloned().collect()))
        }
        _ => false,
    }
}

fn is_comma(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(sign) if sign.as_char() == ',')
}

#[derive(Default)]
struct References(Vec<PathReference>);

impl References {
    fn import(&mut self, tree: &UseTree, mut segments: Vec<String>, line: usize) {
        let form = match tree {
            UseTree::Path(path) => {
                segments.push(path.ident.unraw().to_string());
                return self.import(&path.tree, segments, line);
            }
            UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.import(tree, segments.clone(), line_of(tree, line)));
            }
            UseTree::Name(name) if name.ident == "self" => {
                PathForm::Import(segments.last().cloned().unwrap_or_default())
            }
            UseTree::Name(name) => {
                segments.push(name.ident.unraw().to_string());
                PathForm::Import(name.ident.unraw().to_string())
            }
            UseTree::Rename(rename) => {
                if rename.ident != "self" {
                    segments.push(rename.ident.unraw().to_string());
                }
                PathForm::Import(rename.rename.unraw().to_string())
            }
            UseTree::Glob(_) => PathForm::Glob,
        };
        self.0.push(PathReference { segments, line, form });
    }

    /// Finds paths among the tokens of a macro: names with `::` between them.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut run = PathRun::default();
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if run.colons != 2 {
                        self.end(&mut run);
                    }
                    run.foreign |= run.after_dollar && name != "crate" || run.colons == 2 && run.segments.is_empty();
                    if run.segments.is_empty() {
                        run.line = name.span().start().line;
                    }
                    run.segments.push(name.unraw().to_string());
                    (run.colons, run.after_dollar) = (0, false);
                }
                TokenTree::Punct(sign) if sign.as_char() == ':' && run.colons < 2 => run.colons += 1,
                TokenTree::Punct(sign) => {
                    self.end(&mut run);
                    run.after_dollar = sign.as_char() == '$';
                }
                TokenTree::Group(group) => {
                    self.end(&mut run);
                    self.tokens(group.stream());
                }
                TokenTree::Literal(_) => self.end(&mut run),
            }
        }
        self.end(&mut run);
    }

    fn end(&mut self, run: &mut PathRun) {
        let ended = std::mem::take(run);
        // What follows a `$` or `::` is told from what began the run.
        if ended.segments.is_empty() {
            (run.colons, run.after_dollar) = (ended.colons, ended.after_dollar);
        } else if ended.segments.len() > 1 && !ended.foreign {
            self.0.push(PathReference { segments: ended.segments, line: ended.line, form: PathForm::Code });
        }
    }
}

/// A path that is being read from tokens.
#[derive(Default)]
struct PathRun {
    segments: Vec<String>,
    line: usize,
    /// Number of colons since the last name.
    colons: usize,
    after_dollar: bool,
    /// True if the path begins with `::` or a macro's parameter.
    foreign: bool,
}

impl<'ast> Visit<'ast> for References {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_left_out(attributes_of(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if !is_left_out(impl_attributes_of(item)) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if !matches!(item, TraitItem::Fn(item) if is_left_out(&item.attrs)) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if !is_left_out(&field.attrs) {
            visit::visit_field(self, field);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, Vec::new(), line_of(&item.tree, 0));
        }
    }

    fn visit_path(&mut self, path: &'ast Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| segment.ident.unraw().to_string()).collect();
            let line = path.segments[0].ident.span().start().line;
            self.0.push(PathReference { segments, line, form: PathForm::Code });
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, invocation: &'ast Macro) {
        visit::visit_macro(self, invocation);
        self.tokens(invocation.tokens.clone());
    }

    fn visit_visibility(&mut self, _: &'ast Visibility) {}

    fn visit_attribute(&mut self, _: &'ast Attribute) {}
}

fn line_of(tree: &UseTree, otherwise: usize) -> usize {
    let name = match tree {
        UseTree::Path(path) => &path.ident,
        UseTree::Name(name) => &name.ident,
        UseTree::Rename(rename) => &rename.ident,
        UseTree::Glob(_) | UseTree::Group(_) => return otherwise,
    };
    name.span().start().line
}

/// Returns the attributes of an item of an `impl`.
pub fn impl_attributes_of(item: &ImplItem) -> &[Attribute] {
    match item {
        ImplItem::Const(item) => &item.attrs,
        ImplItem::Fn(item) => &item.attrs,
        ImplItem::Type(item) => &item.attrs,
        ImplItem::Macro(item) => &item.attrs,
        _ => &[],
    }
}

/// Returns the attributes of an item.
pub fn attributes_of(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(source: &str) -> Vec<String> {
        let file: syn::File = syn::parse_str(source).unwrap();
        let found = references(&file.items.iter().collect::<Vec<_>>());
        found.into_iter().map(|reference| reference.segments.join("::")).collect()
    }

    #[test]
    fn every_leaf_of_a_use_counts() {
        let source = "use crate::{a::{self, A as B}, b::*}; use child;";
        assert_eq!(paths(source), ["crate::a", "crate::a::A", "crate::b", "child"]);
        assert!(paths("use ::other::Item;").is_empty());
    }

    #[test]
    fn types_expressions_and_arguments_count() {
        let source = "fn f(a: crate::a::A<super::B>) -> self::C { child::f::<u8>() }";
        assert_eq!(paths(source), ["crate::a::A", "super::B", "self::C", "child::f"]);
        assert_eq!(paths("impl crate::T for S { fn f(&self) { x::y!() } }"), ["crate::T", "x::y"]);
    }

    #[test]
    fn names_visibilities_and_attributes_do_not() {
        assert!(paths("pub(super) fn f(child: u8) -> u8 { child }").is_empty());
        assert!(paths("#[a::b] pub(in crate::a) struct S { pub(crate) field: u8 }").is_empty());
        assert!(paths("fn f() { ::other::f() }").is_empty());
    }

    #[test]
    fn macros_are_read_by_their_tokens() {
        let source = "fn f() { write!(out, \"{}\", crate::a::B::<u8>::c(child::d, e)); }";
        assert_eq!(paths(source), ["crate::a::B", "child::d"]);
        let rules = "macro_rules! m { ($x:ident) => { $crate::a::B; $x::c; ::other::d; y : crate::e; z: u8 } }";
        assert_eq!(paths(rules), ["crate::a::B", "crate::e"]);
    }

    #[test]
    fn code_for_tests_and_docs_does_not() {
        let source = |condition: &str| format!("#[{condition}] fn f() {{ crate::a::b() }}");
        for test in
            ["test", "tokio::test", "tokio::test(flavor = \"x\")", "cfg(test)", "cfg(all(unix, test))", "cfg(doc)"]
        {
            assert!(paths(&source(test)).is_empty(), "{test}");
        }
        for code in ["inline", "cfg(not(test))", "cfg(any(test, feature = \"x\"))", "cfg(feature = \"test\")"] {
            assert_eq!(paths(&source(code)), ["crate::a::b"], "{code}");
        }
        let members = "impl S { #[cfg(test)] fn f() { a::b() } } struct T { #[cfg(test)] f: a::B }";
        assert!(paths(members).is_empty());
    }

    #[test]
    fn a_reference_knows_its_line_and_name() {
        let file: syn::File = syn::parse_str("use crate::{\n  a::A,\n  b::{self as c},\n};").unwrap();
        let found = references(&file.items.iter().collect::<Vec<_>>());
        let told: Vec<_> = found.iter().map(|found| (found.line, found.form.clone())).collect();
        assert_eq!(told, [(2, PathForm::Import("A".to_owned())), (3, PathForm::Import("c".to_owned()))]);
    }
}
