//! Quotations of a server's messages: short, on one line and without our own secrets, which some servers repeat.

/// Maximum length of a quotation, in bytes.
const MAX_QUOTE: usize = 300;

/// Returns the longest beginning of a text that is at most `max` bytes long.
pub(crate) fn prefix(text: &str, max: usize) -> &str {
    let mut end = text.len().min(max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// Makes quotations.
#[derive(Clone, Default)]
pub(crate) struct Quoter {
    secrets: Vec<String>,
}

impl Quoter {
    /// Creates a quoter that leaves out these secrets.
    pub fn new(secrets: Vec<String>) -> Self {
        Self { secrets }
    }

    /// Returns the beginning of a text, without control characters and secrets.
    pub fn quote(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret, "[secret]");
        }
        let mut quote = String::new();
        for word in text.split(|sign: char| sign.is_whitespace() || sign.is_control()).filter(|word| !word.is_empty()) {
            if !quote.is_empty() {
                quote.push(' ');
            }
            quote.push_str(word);
            if quote.len() > MAX_QUOTE {
                quote.truncate(prefix(&quote, MAX_QUOTE).len());
                quote.push('…');
                break;
            }
        }
        quote
    }
}

impl std::fmt::Debug for Quoter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Quoter")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotations_are_short_and_on_one_line() {
        let quoter = Quoter::default();
        assert_eq!(quoter.quote(" a\r\n\tb\u{1b}[31m c "), "a b [31m c");
        assert_eq!(quoter.quote(&"é".repeat(1_000)), format!("{}…", "é".repeat(150)));
        assert_eq!(quoter.quote(&"é ".repeat(1_000)).len(), MAX_QUOTE + "…".len());
    }

    #[test]
    fn quotations_leave_out_secrets() {
        let quoter = Quoter::new(vec!["sk-abc".to_owned()]);
        assert_eq!(quoter.quote("Incorrect API key: sk-abc, sk-abc"), "Incorrect API key: [secret], [secret]");
        assert_eq!(format!("{quoter:?}"), "Quoter");
    }
}
