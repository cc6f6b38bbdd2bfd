//! The vocabulary of a GGUF file as plain data.

use candle_core::quantized::gguf_file::Value;

use super::contents::Gguf;
use crate::error::FormatError;

/// Vocabulary of a GGUF file, `tokenizer.ggml.*`.
#[derive(Debug, Clone, PartialEq)]
pub struct GgufVocabulary {
    /// Kind of the tokenizer: `gpt2` is byte-level BPE, `llama` SentencePiece's BPE by scores.
    pub model: String,
    /// Rule that splits text before merging, such as `smollm`; `None` if the file names none.
    pub pre: Option<String>,
    /// Text of each token, by id.
    pub tokens: Vec<String>,
    /// Score of each token; empty if the file has none.
    pub scores: Vec<f32>,
    /// Type of each token, as in GGML: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte; empty if the
    /// file has none.
    pub types: Vec<i32>,
    /// Merges of byte-level BPE, two parts separated by a space, most frequent first.
    pub merges: Vec<String>,
    /// Id of the beginning of a text.
    pub bos: Option<u32>,
    /// Id of the end of a text.
    pub eos: Option<u32>,
    /// Id of an unknown text.
    pub unknown: Option<u32>,
    /// Id of padding.
    pub padding: Option<u32>,
    /// True if an encoded text begins with `bos`; `None` if the file does not say.
    pub add_bos: Option<bool>,
    /// True if an encoded text ends with `eos`; `None` if the file does not say.
    pub add_eos: Option<bool>,
    /// True if a space is added before a text; `None` if the file does not say.
    pub add_space_prefix: Option<bool>,
    /// Template of conversations in Jinja; `None` if the file has none.
    pub chat_template: Option<String>,
}

impl Gguf {
    /// Reads the vocabulary; `None` if the file has no tokens.
    ///
    /// # Errors
    /// A key has another type, lists differ in length, or an id is no token.
    pub fn vocabulary(&self) -> Result<Option<GgufVocabulary>, FormatError> {
        let key = |key: &str| format!("tokenizer.ggml.{key}");
        let Some(tokens) = self.list(&key("tokens"), "texts", text)? else { return Ok(None) };
        let scores = self.list(&key("scores"), "numbers", number)?.unwrap_or_default();
        let types = self.list(&key("token_type"), "integers", integer)?.unwrap_or_default();
        for (name, length) in [("scores", scores.len()), ("token_type", types.len())] {
            if ![0, tokens.len()].contains(&length) {
                let message =
                    format!("has {length} entries, and there are {} tokens: copy the file again", tokens.len());
                return Err(FormatError::refused(self.file(), key(name), message));
            }
        }
        let id = |name: &str| {
            let name = key(name);
            let Some(id) = self.integer(&name) else { return Ok(None) };
            let known = u32::try_from(id).ok().filter(|&id| (id as usize) < tokens.len());
            let message = || format!("{id} is no token: there are {}", tokens.len());
            known.map(Some).ok_or_else(|| FormatError::refused(self.file(), name.clone(), message()))
        };
        let (bos, eos) = (id("bos_token_id")?, id("eos_token_id")?);
        let (unknown, padding) = (id("unknown_token_id")?, id("padding_token_id")?);
        Ok(Some(GgufVocabulary {
            model: self.text(&key("model")).unwrap_or_default().to_owned(),
            pre: self.text(&key("pre")).map(str::to_owned),
            scores,
            types,
            merges: self.list(&key("merges"), "texts", text)?.unwrap_or_default(),
            bos,
            eos,
            unknown,
            padding,
            tokens,
            add_bos: self.flag(&key("add_bos_token")),
            add_eos: self.flag(&key("add_eos_token")),
            add_space_prefix: self.flag(&key("add_space_prefix")),
            chat_template: self.text("tokenizer.chat_template").map(str::to_owned),
        }))
    }

    /// List under a metadata key, each item read by `read`.
    fn list<T>(
        &self,
        key: &str,
        kind: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, FormatError> {
        let Some(items) = self.items(key) else { return Ok(None) };
        let items: Option<Vec<T>> = items.iter().map(read).collect();
        let message = || format!("is no list of {kind}: copy the file again");
        items.map(Some).ok_or_else(|| FormatError::refused(self.file(), key, message()))
    }
}

fn text(value: &Value) -> Option<String> {
    if let Value::String(text) = value { Some(text.clone()) } else { None }
}

fn number(value: &Value) -> Option<f32> {
    if let Value::F32(number) = value { Some(*number) } else { None }
}

fn integer(value: &Value) -> Option<i32> {
    match *value {
        Value::I32(integer) => Some(integer),
        Value::U32(integer) => integer.try_into().ok(),
        Value::U8(integer) => Some(integer.into()),
        _ => None,
    }
}
