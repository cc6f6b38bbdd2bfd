//! Changes to a template's source before it is compiled: marks become their characters, in its own text and in its
//! string literals, and `{% generation %}`, which tells a trainer the assistant's text, becomes a block without effect.
//! Code and comments stay.

use super::special_tokens::SpecialTokens;

/// Changes a template's source. Lines stay; all of them end with a line feed alone.
pub fn prepare(source: &str, marks: &SpecialTokens) -> String {
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut reader = Reader { rest: &source, out: String::with_capacity(source.len()), marks };
    reader.template();
    reader.out
}

struct Reader<'a> {
    rest: &'a str,
    out: String,
    marks: &'a SpecialTokens,
}

impl Reader<'_> {
    fn template(&mut self) {
        while !self.rest.is_empty() {
            let begins = ["{{", "{%", "{#"].iter().filter_map(|tag| self.rest.find(tag)).min();
            self.text(begins.unwrap_or(self.rest.len()));
            if self.rest.starts_with("{#") {
                let end = self.rest.find("#}").map_or(self.rest.len(), |at| at + 2);
                self.copy(end);
            } else if self.rest.starts_with("{{") {
                self.code("}}");
            } else if self.rest.starts_with("{%") {
                self.statement();
            }
        }
    }

    /// Copies `bytes` of code or of a comment.
    fn copy(&mut self, bytes: usize) {
        let (copied, rest) = self.rest.split_at(bytes);
        self.out.push_str(copied);
        self.rest = rest;
    }

    /// Takes `bytes` of text with its marks replaced.
    fn text(&mut self, bytes: usize) {
        let (text, rest) = self.rest.split_at(bytes);
        self.marks.replace(text, &mut self.out);
        self.rest = rest;
    }

    /// Takes a statement, and the text of a raw block.
    fn statement(&mut self) {
        let end = self.rest.find("%}");
        let name = self.rest[2..end.unwrap_or(self.rest.len())].trim_matches(['-', '+']).trim();
        let other = match name {
            "generation" => Some("with"),
            "endgeneration" => Some("endwith"),
            _ => None,
        };
        if let (Some(other), Some(end)) = (other, end) {
            self.out.push_str(&self.rest[..end + 2].replace(name, other));
            self.rest = &self.rest[end + 2..];
            return;
        }
        if let ("raw", Some(end)) = (name, end) {
            let trims = self.rest[..end].ends_with('-');
            self.copy(end + 2);
            if !trims && self.rest.starts_with('\n') {
                // The reference keeps the line break after this tag, the engine drops one.
                self.out.push('\n');
            }
            let closes = self
                .rest
                .match_indices("{%")
                .find(|(at, _)| self.rest[at + 2..].trim_start_matches(['-', '+']).trim_start().starts_with("endraw"));
            self.text(closes.map_or(self.rest.len(), |(at, _)| at));
            let end = self.rest.find("%}").map_or(self.rest.len(), |at| at + 2);
            self.copy(end);
            return;
        }
        self.code("%}");
    }

    /// Takes code to the end of its tag. String literals are text, and a tag does not end within braces.
    fn code(&mut self, close: &str) {
        self.copy(2);
        let mut braces = 0_usize;
        while let Some(c) = self.rest.chars().next() {
            if braces == 0 && self.rest.starts_with(close) {
                self.copy(2);
                return;
            }
            match c {
                '{' => braces += 1,
                '}' => braces = braces.saturating_sub(1),
                '\'' | '"' => {
                    self.literal(c);
                    continue;
                }
                _ => {}
            }
            self.copy(c.len_utf8());
        }
    }

    /// Takes a string literal.
    fn literal(&mut self, quote: char) {
        self.copy(1);
        let mut escaped = false;
        let end = self.rest.char_indices().find(|(_, c)| {
            let ends = !escaped && *c == quote;
            escaped = !escaped && *c == '\\';
            ends
        });
        self.text(end.map_or(self.rest.len(), |(at, _)| at));
        if !self.rest.is_empty() {
            self.copy(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prepares a source with the mark `<s>`, shown as `@`.
    fn prepared(source: &str) -> String {
        let marks = SpecialTokens::new(["<s>".to_owned()]);
        prepare(source, &marks).replace('\u{D0000}', "@")
    }

    #[test]
    fn marks_are_replaced_in_text_and_literals_alone() {
        assert_eq!(prepared("<s>{{ '<s>' + \"<s>\\\"<s>\" }}<s>"), "@{{ '@' + \"@\\\"@\" }}@");
        assert_eq!(prepared("{# <s> #}{% if a <s> b %}<s>{% endif %}"), "{# <s> #}{% if a <s> b %}@{% endif %}");
        assert_eq!(prepared("{{ {'<s>': {'}}': 1}} }}<s>"), "{{ {'@': {'}}': 1}} }}@");
        assert_eq!(prepared("{%- raw -%}<s>{{ '{%- endraw %}<s>{{ <s> }}"), "{%- raw -%}@{{ '{%- endraw %}@{{ <s> }}");
        assert_eq!(prepared("<s>{{ 'open <s>"), "@{{ 'open @");
        assert_eq!(prepared("{% '%}' <s>"), "{% '%}' <s>");
    }

    #[test]
    fn generation_blocks_lose_their_effect() {
        assert_eq!(
            prepared("{%- generation -%}a{% endgeneration +%}{% set generation = 1 %}"),
            "{%- with -%}a{% endwith +%}{% set generation = 1 %}"
        );
    }
}
