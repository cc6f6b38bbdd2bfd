//! Marks around reasoning text, as a chat template spells them.

use repartee_spoken::ReasoningMarks;

use crate::model::ReasoningTokens;
use crate::text::Tokenizer;

/// Marks of published models: Qwen3, DeepSeek-R1 and others; Magistral; Command A; Seed-OSS.
const MARKS: [[&str; 2]; 4] = [
    ["<think>", "</think>"],
    ["[THINK]", "[/THINK]"],
    ["<|START_THINKING|>", "<|END_THINKING|>"],
    ["<seed:think>", "</seed:think>"],
];

/// Marks that a template knows: it writes the opening one, or takes reasoning text out of earlier answers by the closing
/// one. `None` if it knows none.
pub fn tokens(template: &str, tokenizer: &Tokenizer) -> Option<ReasoningTokens> {
    let [open, close] = *MARKS.iter().find(|marks| marks.iter().any(|mark| template.contains(mark)))?;
    Some(ReasoningTokens {
        open: tokenizer.token_id(open),
        close: tokenizer.token_id(close),
        marks: ReasoningMarks { open: open.to_owned(), close: close.to_owned() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_tells_its_marks() {
        let tokenizer = Tokenizer::of_bytes().unwrap();
        let marks = |template: &str| tokens(template, &tokenizer).map(|tokens| tokens.marks);
        assert_eq!(marks("{{ message.content }}"), None);
        assert_eq!(marks("{{ message.content.split('</think>')[-1] }}"), Some(ReasoningMarks::default()));
        assert_eq!(marks("{{ '[THINK]' }}").unwrap().close, "[/THINK]");
    }
}
