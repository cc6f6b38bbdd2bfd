//! Ways to cut a text into words before its bytes are merged, by the names that GGUF files have for them
//! (`tokenizer.ggml.pre`).

use super::error::TokenizerError;

/// Cuts of one name: each regular expression cuts the parts of the one before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WordCuts {
    /// Regular expressions: each match is a word, and so is each text between matches.
    pub patterns: &'static [&'static str],
    /// True if a word that is a token is not merged from its bytes.
    pub whole_words: bool,
}

/// Contractions, words, numbers and punctuation with a space before them.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
/// One digit.
const DIGIT: &str = r"\p{N}";
/// Three decimal digits.
const THREE_DIGITS: &str = r"[0-9][0-9][0-9]";
/// Contractions in either case, words with a character before them, single digits.
pub const QWEN2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// As [`QWEN2`], with up to three digits.
const LLAMA3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// As [`QWEN2`], with combining marks in words.
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Words that end where a capital follows a small letter, single digits.
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// As [`TEKKEN`], with contractions at the end of words and up to three digits.
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Runs of punctuation, of the file format's default.
const PUNCTUATION: &str = r"[\p{P}$+<=>^~|]+";
/// Runs of punctuation of Falcon.
const FALCON_PUNCTUATION: &str = r"[\p{P}$+<=>^~|`]+";
/// Any number.
const NUMBER: &str = r"\p{N}+";

/// Names and their cuts.
const CUTS: [(&[&str], WordCuts); 9] = [
    (&["gpt-2", "phi-2", "jais", "mpt", "olmo", "roberta-bpe", "gigachat", "exaone4"], cuts(&[GPT2], false)),
    (&["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"], cuts(&[DIGIT, GPT2], false)),
    (&["qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan"], cuts(&[QWEN2], false)),
    (&["qwen35"], cuts(&[QWEN35], false)),
    (
        &["llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "falcon3", "pixtral", "lfm2", "falcon-h1"],
        cuts(&[LLAMA3], true),
    ),
    (&["tekken"], cuts(&[TEKKEN], true)),
    (&["gpt-4o", "llama4"], cuts(&[GPT4O], false)),
    (&["falcon"], cuts(&[FALCON_PUNCTUATION, GPT2, THREE_DIGITS], false)),
    (&["default"], cuts(&[PUNCTUATION, GPT2, NUMBER, THREE_DIGITS], false)),
];

const fn cuts(patterns: &'static [&'static str], whole_words: bool) -> WordCuts {
    WordCuts { patterns, whole_words }
}

/// Cuts of a name.
pub fn of_name(name: &str) -> Result<WordCuts, TokenizerError> {
    let found = CUTS.iter().find(|(names, _)| names.contains(&name));
    found.map(|(_, cuts)| *cuts).ok_or_else(|| TokenizerError::NotServed {
        field: "tokenizer.ggml.pre".to_owned(),
        value: name.to_owned(),
        served: CUTS.iter().flat_map(|(names, _)| names.iter().copied()).collect::<Vec<_>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused() {
        assert_eq!(of_name("qwen2").unwrap().patterns, [QWEN2]);
        let error = of_name("viking").unwrap_err().to_string();
        assert!(
            error.starts_with("`tokenizer.ggml.pre` is `viking`, which is not served; served are: gpt-2, "),
            "{error}"
        );
    }
}
