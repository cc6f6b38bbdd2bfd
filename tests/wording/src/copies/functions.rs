//! Functions of a file, as tokens without names and literals.

use std::collections::BTreeMap;

use proc_macro2::{Delimiter, Ident, LineColumn, TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{Block, ImplItem, Item, ItemImpl, ItemTrait, Signature, TraitItem, Type};

use crate::circles::references::{attributes_of, impl_attributes_of, is_left_out};

/// Stands for every name.
const NAME: &str = "name";
/// Stands for every literal.
const LITERAL: &str = "literal";

/// A function with a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFunction {
    /// Its name, after that of the type or trait that it belongs to.
    pub name: String,
    /// Line of its signature, counted from 1.
    pub line: usize,
    /// Number of lines from its signature to its closing brace.
    pub lines: usize,
    /// Tokens of signature and body: names and literals are replaced by a word each, keywords and signs stand.
    pub tokens: Vec<String>,
}

/// Returns the functions of a file that tests and docs do not need alone. `tokens` is the text of `file`.
pub fn functions_of(file: &syn::File, tokens: &TokenStream) -> Vec<SourceFunction> {
    let mut found = Functions::default();
    found.visit_file(file);
    let mut bodies = BTreeMap::new();
    collect(tokens.clone(), &mut bodies);
    let mut functions = found.functions;
    for (start, function) in &mut functions {
        function.tokens = bodies.remove(&(start.line, start.column)).unwrap_or_default();
    }
    functions.into_iter().map(|(_, function)| function).collect()
}

/// Collects the normalised tokens of each function by the position of its `fn`, from there to the end of its body.
fn collect(tokens: TokenStream, found: &mut BTreeMap<(usize, usize), Vec<String>>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => collect(group.stream(), found),
            // A type `fn(..)` has no name.
            TokenTree::Ident(word) if word == "fn" && matches!(tokens.get(at + 1), Some(TokenTree::Ident(_))) => {
                let is_end = |token: &TokenTree| match token {
                    TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
                    TokenTree::Punct(sign) => sign.as_char() == ';',
                    _ => false,
                };
                let end = tokens[at..].iter().position(is_end).map_or(tokens.len(), |end| at + end + 1);
                let start = word.span().start();
                let normalised = found.entry((start.line, start.column)).or_default();
                normalise(tokens[at..end].iter().cloned(), normalised);
            }
            _ => {}
        }
    }
}

fn normalise(tokens: impl Iterator<Item = TokenTree>, normalised: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(word) if word == "true" || word == "false" => normalised.push(LITERAL.to_owned()),
            TokenTree::Ident(word) => normalised.push(if is_name(&word) { NAME.to_owned() } else { word.to_string() }),
            TokenTree::Literal(_) => normalised.push(LITERAL.to_owned()),
            TokenTree::Punct(sign) => normalised.push(sign.to_string()),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                normalised.push(open.to_owned());
                normalise(group.stream().into_iter(), normalised);
                normalised.push(close.to_owned());
            }
        }
    }
}

/// False for a keyword.
fn is_name(word: &Ident) -> bool {
    syn::parse_str::<Ident>(&word.to_string()).is_ok()
}

#[derive(Default)]
struct Functions {
    /// Each function with the position of its `fn`; its tokens are still missing.
    functions: Vec<(LineColumn, SourceFunction)>,
    /// Type or trait of the functions being visited.
    owner: Option<String>,
}

impl Functions {
    fn add(&mut self, signature: &Signature, body: &Block) {
        let (start, end) = (signature.fn_token.span.start(), body.brace_token.span.close().end());
        let name = signature.ident.to_string();
        let name = self.owner.iter().cloned().chain([name]).collect::<Vec<_>>().join("::");
        let lines = end.line + 1 - start.line;
        self.functions.push((start, SourceFunction { name, line: start.line, lines, tokens: Vec::new() }));
    }

    fn within(&mut self, owner: Option<String>, visit: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        visit(self);
        self.owner = outer;
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item(&mut self, item: &'ast Item) {
        if is_left_out(attributes_of(item)) {
            return;
        }
        if let Item::Fn(function) = item {
            self.add(&function.sig, &function.block);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let owner = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.within(owner, |functions| visit::visit_item_impl(functions, item));
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.within(Some(item.ident.to_string()), |functions| visit::visit_item_trait(functions, item));
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if is_left_out(impl_attributes_of(item)) {
            return;
        }
        if let ImplItem::Fn(function) = item {
            self.add(&function.sig, &function.block);
        }
        visit::visit_impl_item(self, item);
    }

    fn visit_trait_item(&mut self, item: &'ast TraitItem) {
        if let TraitItem::Fn(function) = item
            && let Some(body) = &function.default
        {
            self.add(&function.sig, body);
        }
        visit::visit_trait_item(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::parse;

    fn told(text: &str) -> Vec<(String, usize, usize, String)> {
        let (file, tokens) = parse("a.rs", text).unwrap();
        let all = functions_of(&file, &tokens).into_iter();
        all.map(|found| (found.name, found.line, found.lines, found.tokens.join(" "))).collect()
    }

    #[test]
    fn names_and_literals_are_replaced() {
        let expected = "fn name ( name : & name ) - > name { name . name ( literal , literal ) ; name ! ( literal ) }";
        let found = told("pub fn f(a: &A) -> B { a.b(1.5, true); c!(\"d\") }");
        assert_eq!(found, [("f".to_owned(), 1, 1, expected.to_owned())]);
    }

    #[test]
    fn keywords_and_signs_stand() {
        let tokens = |text: &str| told(text).remove(0).3;
        assert_ne!(tokens("fn f() { if a { b } }"), tokens("fn f() { while a { b } }"));
        assert_ne!(tokens("fn f() { a + b }"), tokens("fn f() { a * b }"));
        assert_ne!(tokens("fn f() { [a] }"), tokens("fn f() { (a) }"));
    }

    #[test]
    fn methods_carry_their_type() {
        let text = "impl<T> S<T> { fn a() {} }\nimpl Tr for S {\n fn b(&self) {\n }\n}\ntrait Tr { fn c() {} fn d(); }";
        let names: Vec<_> = told(text).into_iter().map(|(name, line, lines, _)| (name, line, lines)).collect();
        assert_eq!(names, [("S::a".to_owned(), 1, 1), ("S::b".to_owned(), 3, 2), ("Tr::c".to_owned(), 6, 1)]);
    }

    #[test]
    fn functions_within_functions_are_found() {
        let names: Vec<_> = told("fn outer() { fn inner() {} let f: fn(u8) = g; }").into_iter().map(|f| f.0).collect();
        assert_eq!(names, ["outer", "inner"]);
    }
}
