//! Names and docs of declared items.

use proc_macro2::{Ident, Span};
use syn::visit::{self, Visit};
use syn::{
    Attribute, Expr, ExprLit, Field, File, ImplItem, ItemConst, ItemEnum, ItemFn, ItemImpl, ItemMod, ItemStatic,
    ItemStruct, ItemTrait, ItemType, ItemUnion, Lit, Meta, TraitItem, Visibility,
};

use crate::finding::{Finding, Rule};
use crate::words::Words;

/// Fewest words in the doc of a public item.
const MIN_DOC_WORDS: usize = 3;

/// Returns the findings of all items of a file: replaced names of types, traits, functions, modules and fields, bare
/// nouns of types that other modules see, and docs of public items that are too short.
pub fn check(path: &str, file: &File, words: &Words) -> Vec<Finding> {
    let mut items = Items { path, words, findings: Vec::new() };
    items.visit_file(file);
    items.findings
}

struct Items<'a> {
    path: &'a str,
    words: &'a Words,
    findings: Vec<Finding>,
}

impl Items<'_> {
    fn report(&mut self, rule: Rule, span: Span, item: String, advice: String) {
        let line = span.start().line;
        self.findings.push(Finding { path: self.path.to_owned(), line, rule, item, advice });
    }

    fn name(&mut self, ident: &Ident) {
        let name = ident.to_string();
        let mut entries = self.words.replaced.iter().filter(|entry| entry.holds_for(self.path));
        if let Some(entry) = entries.find(|entry| entry.old.contains(&name)) {
            let advice = format!("say {}", entry.say);
            self.report(Rule::ReplacedName, ident.span(), name, advice);
        }
    }

    fn documented(&mut self, public: bool, attributes: &[Attribute], ident: &Ident) {
        if public
            && let Some(words) = doc_words(attributes)
            && words < MIN_DOC_WORDS
        {
            let advice = "say more than the name: shape, unit, range, error or source".to_owned();
            self.report(Rule::ShortDoc, ident.span(), ident.to_string(), advice);
        }
    }

    fn type_item(&mut self, visibility: &Visibility, attributes: &[Attribute], ident: &Ident) {
        self.name(ident);
        self.documented(is_public(visibility), attributes, ident);
        let name = ident.to_string();
        if !matches!(visibility, Visibility::Inherited) && self.words.bare.nouns.contains(&name) {
            let advice = format!("other modules see it: put its owner's word before `{name}`");
            self.report(Rule::BareNoun, ident.span(), name, advice);
        }
    }

    fn other_item(&mut self, visibility: &Visibility, attributes: &[Attribute], ident: &Ident) {
        self.name(ident);
        self.documented(is_public(visibility), attributes, ident);
    }

    fn trait_item(&mut self, public: bool, item: &TraitItem) {
        let (attributes, ident) = match item {
            TraitItem::Fn(item) => (&item.attrs, &item.sig.ident),
            TraitItem::Type(item) => (&item.attrs, &item.ident),
            TraitItem::Const(item) => (&item.attrs, &item.ident),
            _ => return,
        };
        self.name(ident);
        self.documented(public, attributes, ident);
    }
}

impl<'ast> Visit<'ast> for Items<'_> {
    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.type_item(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_union(&mut self, item: &'ast ItemUnion) {
        self.type_item(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_union(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.type_item(&item.vis, &item.attrs, &item.ident);
        for variant in &item.variants {
            self.documented(is_public(&item.vis), &variant.attrs, &variant.ident);
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.type_item(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_type(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.type_item(&item.vis, &item.attrs, &item.ident);
        for part in &item.items {
            self.trait_item(is_public(&item.vis), part);
        }
        visit::visit_item_trait(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        for part in &item.items {
            match part {
                // A trait's own declaration answers for the names of its items.
                _ if item.trait_.is_some() => {}
                ImplItem::Fn(item) => self.other_item(&item.vis, &item.attrs, &item.sig.ident),
                ImplItem::Const(item) => self.other_item(&item.vis, &item.attrs, &item.ident),
                _ => {}
            }
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.other_item(&item.vis, &item.attrs, &item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.other_item(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_mod(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.other_item(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_const(self, item);
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.other_item(&item.vis, &item.attrs, &item.ident);
        visit::visit_item_static(self, item);
    }

    fn visit_field(&mut self, field: &'ast Field) {
        if let Some(ident) = &field.ident {
            self.other_item(&field.vis, &field.attrs, ident);
        }
        visit::visit_field(self, field);
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Returns the number of words in the doc comment of an item; `None` without a doc comment.
fn doc_words(attributes: &[Attribute]) -> Option<usize> {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    });
    let count = |line: String| line.split_whitespace().filter(|word| word.contains(char::is_alphanumeric)).count();
    lines.map(count).reduce(|a, b| a + b)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = r#"
        [[replaced]]
        old = ["Talks", "forget"]
        say = "TalkerModel, remove_voice"
        except = ["tests/kit"]
        [bare]
        nouns = ["Row"]
        [large]
        files = []
    "#;

    fn found(path: &str, source: &str) -> Vec<(Rule, String)> {
        let words = Words::parse(WORDS).unwrap();
        let findings = check(path, &syn::parse_str(source).unwrap(), &words);
        findings.into_iter().map(|finding| (finding.rule, finding.item)).collect()
    }

    #[test]
    fn replaced_names_are_found_in_any_declaration() {
        for source in [
            "struct Talks;",
            "enum Talks {}",
            "pub trait Talks {}",
            "type Talks = u8;",
            "trait T { type Talks; }",
            "fn f() { struct Talks; }",
        ] {
            assert_eq!(found("a.rs", source), [(Rule::ReplacedName, "Talks".to_owned())], "{source}");
        }
        for source in [
            "fn forget() {}",
            "mod forget;",
            "mod forget { fn f() {} }",
            "struct S { forget: u8 }",
            "impl S { fn forget(&self) {} }",
            "trait T { fn forget(&self); }",
        ] {
            assert_eq!(found("a.rs", source), [(Rule::ReplacedName, "forget".to_owned())], "{source}");
        }
    }

    #[test]
    fn uses_locals_and_exceptions_are_no_declarations() {
        assert!(found("a.rs", "fn f(forget: u8) { let forget = std::mem::forget(forget); }").is_empty());
        assert!(found("a.rs", "impl Foreign for S { fn forget(&self) {} }").is_empty());
        assert!(found("tests/kit/a.rs", "struct Talks;").is_empty());
        assert_eq!(found("tests/kits/a.rs", "struct Talks;").len(), 1);
    }

    #[test]
    fn bare_nouns_stay_in_their_module() {
        let bare = [(Rule::BareNoun, "Row".to_owned())];
        assert_eq!(found("a.rs", "pub struct Row;"), bare);
        assert_eq!(found("a.rs", "pub(crate) enum Row {}"), bare);
        assert_eq!(found("a.rs", "mod m { pub(super) type Row = u8; }"), bare);
        assert!(found("a.rs", "struct Row; pub struct TalkerRow; pub trait T { type Row; }").is_empty());
    }

    #[test]
    fn public_docs_have_three_words() {
        let short = |item: &str| vec![(Rule::ShortDoc, item.to_owned())];
        assert_eq!(found("a.rs", "/// The id.\npub struct Id;"), short("Id"));
        assert_eq!(found("a.rs", "pub struct S {\n/// `name`\npub name: u8 }"), short("name"));
        assert_eq!(found("a.rs", "pub enum E {\n/// Text.\nText }"), short("Text"));
        assert_eq!(found("a.rs", "pub trait T {\n/// Reads.\nfn read(&self); }"), short("read"));
        assert_eq!(found("a.rs", "impl S {\n/// Sends it.\npub fn send(&self) {} }"), short("send"));
        assert!(found("a.rs", "/// Id of a\n/// session.\npub struct Id;").is_empty());
        assert!(found("a.rs", "/// The id.\nstruct Id; pub struct NoDoc;").is_empty());
    }
}
