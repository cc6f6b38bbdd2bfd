//! A doc comment opens with the thing or the action, never with a question word.

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::finding::{Finding, Rule};

/// Words that no doc comment opens with.
const QUESTION_WORDS: [&str; 8] = ["What", "Whether", "How", "Where", "When", "Which", "Who", "Whose"];

/// Returns a finding for each doc comment in `tokens` that opens with a question word.
pub fn check(path: &str, tokens: &TokenStream) -> Vec<Finding> {
    let mut findings = Vec::new();
    visit(tokens.clone(), &mut |line, text| {
        let first = text.split_whitespace().next().unwrap_or_default();
        let word = first.trim_matches(|c: char| !c.is_alphanumeric());
        if QUESTION_WORDS.contains(&word) {
            let item = text.split_whitespace().take(4).collect::<Vec<_>>().join(" ");
            let advice = "name the thing (\"Worker pool.\") or the action (\"Copies the tensor.\")".to_owned();
            findings.push(Finding { path: path.to_owned(), line, rule: Rule::DocOpening, item, advice });
        }
    });
    findings
}

/// Calls `found` with the line and the text of each doc comment, of which the lines are joined.
fn visit(tokens: TokenStream, found: &mut impl FnMut(usize, &str)) {
    let mut tokens = tokens.into_iter().peekable();
    let mut comment: Option<(usize, String)> = None;
    while let Some(token) = tokens.next() {
        if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#') {
            tokens.next_if(|next| matches!(next, TokenTree::Punct(punct) if punct.as_char() == '!'));
            let attribute = tokens.next_if(|next| bracketed(next).is_some());
            if let Some((line, text)) = attribute.as_ref().and_then(bracketed).and_then(doc_line) {
                let (_, lines) = comment.get_or_insert((line, String::new()));
                lines.push('\n');
                lines.push_str(&text);
                continue;
            }
            if let Some(TokenTree::Group(group)) = attribute {
                visit(group.stream(), found);
            }
        }
        if let Some((line, text)) = comment.take() {
            found(line, &text);
        }
        if let TokenTree::Group(group) = token {
            visit(group.stream(), found);
        }
    }
    if let Some((line, text)) = comment {
        found(line, &text);
    }
}

fn bracketed(token: &TokenTree) -> Option<&Group> {
    match token {
        TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => Some(group),
        _ => None,
    }
}

/// Returns line and text of an attribute's content `doc = "text"`; `None` for another attribute.
fn doc_line(group: &Group) -> Option<(usize, String)> {
    let attribute: syn::MetaNameValue = syn::parse2(group.stream()).ok()?;
    match attribute.value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) if attribute.path.is_ident("doc") => {
            Some((text.span().start().line, text.value()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(source: &str) -> Vec<String> {
        check("a.rs", &source.parse().unwrap()).into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn question_words_open_no_doc_comment() {
        for word in QUESTION_WORDS {
            assert_eq!(items(&format!("/// {word} it is for.\nstruct A;")), [format!("{word} it is for.")]);
        }
        assert_eq!(items("//! How it works.\nfn f() {}"), ["How it works."]);
        assert_eq!(items("enum E {\n    /// When it ended.\n    A,\n}"), ["When it ended."]);
    }

    #[test]
    fn only_the_opening_counts() {
        assert!(items("/// Number of rows.\n/// When none is left, 0.\nstruct A;").is_empty());
        assert!(items("/// Whatever is left.\nstruct A; // What a comment inside says.").is_empty());
        assert!(items("#[doc(hidden)]\nfn what() { let text = \"What\"; }").is_empty());
    }

    #[test]
    fn docs_inside_macros_are_checked() {
        assert_eq!(items("literal!(\n    /// Which one it is.\n    Name = \"name\"\n);"), ["Which one it is."]);
        assert_eq!(check("a.rs", &"\n\n/// Who asked.\nfn f() {}".parse().unwrap())[0].line, 3);
    }
}
