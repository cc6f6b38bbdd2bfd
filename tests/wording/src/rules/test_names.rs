//! The name of a test says the behaviour in at most eight words.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::finding::{Finding, Rule};

/// Most words in the name of a test.
const MAX_WORDS: usize = 8;

/// Returns a finding for each function with an attribute that ends in `test`, as `#[tokio::test]` does, whose name has
/// too many words.
pub fn check(path: &str, tokens: &TokenStream) -> Vec<Finding> {
    let mut findings = Vec::new();
    visit(tokens.clone(), path, &mut findings);
    findings
}

fn visit(tokens: TokenStream, path: &str, findings: &mut Vec<Finding>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut is_test = false;
    for (at, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let after_hash = at > 0 && matches!(&tokens[at - 1], TokenTree::Punct(punct) if punct.as_char() == '#');
                match group.delimiter() {
                    Delimiter::Bracket if after_hash => is_test |= names_a_test(group.stream()),
                    // The body of an item: what follows is another item.
                    Delimiter::Brace => is_test = false,
                    _ => {}
                }
                visit(group.stream(), path, findings);
            }
            TokenTree::Ident(keyword) if is_test && keyword == "fn" => {
                is_test = false;
                let Some(TokenTree::Ident(name)) = tokens.get(at + 1) else { continue };
                let item = name.to_string();
                let words = item.split('_').filter(|word| !word.is_empty()).count();
                if words > MAX_WORDS {
                    let advice = format!("{words} words: say the behaviour in at most {MAX_WORDS}");
                    let line = name.span().start().line;
                    findings.push(Finding { path: path.to_owned(), line, rule: Rule::LongTestName, item, advice });
                }
            }
            _ => {}
        }
    }
}

/// True for the content of `#[test]`, `#[tokio::test(start_paused = true)]` and the like.
fn names_a_test(attribute: TokenStream) -> bool {
    let path = attribute.into_iter().take_while(|token| !matches!(token, TokenTree::Group(_)));
    matches!(path.last(), Some(TokenTree::Ident(last)) if last == "test")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(source: &str) -> Vec<String> {
        check("a.rs", &source.parse().unwrap()).into_iter().map(|finding| finding.item).collect()
    }

    #[test]
    fn nine_words_are_too_many() {
        let long = "one_two_three_four_five_six_seven_eight_nine";
        assert_eq!(items(&format!("#[test]\nfn {long}() {{}}")), [long]);
        assert_eq!(items(&format!("#[tokio::test(start_paused = true)]\nasync fn {long}() {{}}")), [long]);
        assert_eq!(items(&format!("#[test]\n#[ignore = \"slow\"]\npub fn {long}() {{}}")), [long]);
        assert_eq!(items(&format!("mod tests {{ proptest! {{ #[test]\n fn {long}(x in 0..1) {{}} }} }}")), [long]);
    }

    #[test]
    fn eight_words_and_helpers_are_fine() {
        assert!(items("#[test]\nfn one_two_three_four_five_six_seven_eight() {}").is_empty());
        assert!(items("fn one_two_three_four_five_six_seven_eight_nine() {}").is_empty());
        assert!(items("#[cfg(test)]\nmod tests { fn a_b_c_d_e_f_g_h_i() {} }").is_empty());
    }
}
