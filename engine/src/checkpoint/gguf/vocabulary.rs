//! The tokenizer's fields of a GGUF file.

use repartee_checkpoint::FormatError;
use repartee_checkpoint::gguf::Gguf;
use repartee_text::tokenizer::GgufVocabulary;

use super::super::error::CheckpointError;

/// Key of the tokens.
const TOKENS: &str = "tokenizer.ggml.tokens";

/// Reads the vocabulary, `tokenizer.ggml.*`; `None` if the file has no tokens.
///
/// # Errors
/// A list has items of another kind, or a number is no id.
pub fn read_vocabulary(gguf: &Gguf) -> Result<Option<GgufVocabulary>, CheckpointError> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let Some(tokens) = gguf.texts(TOKENS)? else { return Ok(None) };
    let id = |name: &str| -> Result<Option<u32>, CheckpointError> {
        let Some(id) = gguf.integer(&key(name)) else { return Ok(None) };
        let known = u32::try_from(id).ok().filter(|&id| (id as usize) < tokens.len());
        known.map(Some).ok_or_else(|| {
            let message = format!("{id} is no token: there are {}", tokens.len());
            FormatError::Refused { file: gguf.file().to_owned(), field: key(name), message }.into()
        })
    };
    let other_ends = [id("eot_token_id")?, id("eom_token_id")?];
    Ok(Some(GgufVocabulary {
        model: gguf.text(&key("model")).unwrap_or_default().to_owned(),
        pre: gguf.text(&key("pre")).map(str::to_owned),
        scores: gguf.numbers(&key("scores"))?.unwrap_or_default(),
        types: gguf.integers(&key("token_type"))?.unwrap_or_default(),
        merges: gguf.texts(&key("merges"))?.unwrap_or_default(),
        bos_id: id("bos_token_id")?,
        eos_id: id("eos_token_id")?,
        unk_id: id("unknown_token_id")?,
        pad_id: id("padding_token_id")?,
        other_ends: other_ends.into_iter().flatten().collect(),
        tokens,
        add_bos: gguf.flag(&key("add_bos_token")),
        add_space_prefix: gguf.flag(&key("add_space_prefix")),
        remove_extra_whitespaces: gguf.flag(&key("remove_extra_whitespaces")),
    }))
}

/// Reads the vocabulary of a file that must have one.
///
/// # Errors
/// As [`read_vocabulary`], or there are no tokens.
pub fn required_vocabulary(gguf: &Gguf) -> Result<GgufVocabulary, CheckpointError> {
    read_vocabulary(gguf)?.ok_or_else(|| CheckpointError::WrongField {
        file: gguf.file().to_owned(),
        field: TOKENS.to_owned(),
        message: "absent, so the file cannot read or write text".to_owned(),
    })
}
