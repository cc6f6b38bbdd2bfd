//! Tokenizer: text to token ids and back, in any form that `repartee-text` reads. A streaming decoder follows generated
//! ids.

mod files;

use std::collections::BTreeSet;
use std::sync::Arc;

use repartee_text::template::{Prompt, TemplateTokens};
use repartee_text::tokenizer::{EncodedPiece, TextTokenizer, TokenizerError};
use serde_json::{Value, json};
use thiserror::Error;

use crate::checkpoint::{BadValue, Checkpoint, CheckpointError};

/// Upper bound of bytes of text encoded at once.
pub use repartee_engine_api::MAX_STRETCH;

/// Error of encoding text.
#[derive(Debug, Error)]
pub enum TextError {
    /// The bytes are no tokenizer.
    #[error("not a tokenizer: {0}")]
    NotATokenizer(String),
    /// A stretch of text without a space is longer than [`MAX_STRETCH`].
    #[error("over {MAX_STRETCH} bytes stand without a space: break the text up")]
    TooLong,
    /// The vocabulary cannot encode a text.
    #[error("the tokenizer cannot encode this text ({0})")]
    Unencodable(String),
}

/// Vocabulary of a checkpoint. Clones share it.
#[derive(Debug, Clone)]
pub struct Tokenizer(Arc<Inner>);

/// Sample text that vocabularies treat differently where it is cut: spaces, line breaks, digits, punctuation.
const PROBE: &str = "Two words, three  spaces\n and 12 34: it's \"so\"  (x) - e\u{301} \u{20ac} end";

#[derive(Debug)]
struct Inner {
    tokenizer: TextTokenizer,
    special: BTreeSet<u32>,
    /// True if a text cut before its words encodes to the same ids as the whole.
    encodes_pieces: bool,
    /// Number of ids decoded so far.
    #[cfg(test)]
    decoded: std::sync::atomic::AtomicUsize,
}

impl Tokenizer {
    /// Reads tokenizer.json, or without one vocab.json, merges.txt and tokenizer_config.json, or tokenizer.model; of a
    /// GGUF file its vocabulary. Every id must be below `rows`, the model's rows of embedding.
    pub fn load(checkpoint: &Checkpoint, rows: usize) -> Result<Self, CheckpointError> {
        let (file, tokenizer) = files::read(checkpoint)?;
        let tokenizer = Self::new(tokenizer);
        tokenizer.check_ids(file, rows)?;
        Ok(tokenizer)
    }

    fn check_ids(&self, file: String, rows: usize) -> Result<(), CheckpointError> {
        if let Some((id, token)) = self.0.tokenizer.highest()
            && usize::try_from(id).is_ok_and(|id| id >= rows)
        {
            let value = BadValue {
                field: format!("id of `{token}`"),
                value: id.to_string(),
                allowed: format!("below the model's vocab_size, which is {rows}"),
            };
            return Err(CheckpointError::BadValue { file, value });
        }
        Ok(())
    }

    /// Reads the contents of a tokenizer.json.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, TextError> {
        let refused = |error: TokenizerError| TextError::NotATokenizer(error.to_string());
        TextTokenizer::from_json(bytes).map(Self::new).map_err(refused)
    }

    /// Creates a vocabulary of the 256 bytes, for a model that reads text and has no tokens of its own. The id of a byte
    /// is its value, so any text can be encoded.
    ///
    /// # Errors
    ///
    /// None is known: the vocabulary is fixed.
    pub fn of_bytes() -> Result<Self, TextError> {
        // Byte-level vocabularies spell a byte as a character that can be printed.
        let printed = |byte: u32| matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
        let mut unprinted = 0x100..;
        let spelt = (0..=0xFF_u32).map(|byte| if printed(byte) { Some(byte) } else { unprinted.next() });
        let spelt = spelt.flatten().filter_map(char::from_u32).map(String::from);
        let vocabulary: serde_json::Map<String, Value> = spelt.zip((0_u32..).map(Value::from)).collect();
        let cuts = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false});
        let file = json!({
            "version": "1.0",
            "added_tokens": [],
            "pre_tokenizer": &cuts,
            "decoder": &cuts,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []},
        });
        Self::from_bytes(file.to_string().as_bytes())
    }

    fn new(tokenizer: TextTokenizer) -> Self {
        let special = tokenizer.special().map(|(id, _)| id).collect();
        let mut tokenizer = Self(Arc::new(Inner {
            tokenizer,
            special,
            encodes_pieces: false,
            #[cfg(test)]
            decoded: Default::default(),
        }));
        let encodes_pieces = tokenizer.piecewise(PROBE).ok() == tokenizer.encode(PROBE).ok();
        if let Some(inner) = Arc::get_mut(&mut tokenizer.0) {
            inner.encodes_pieces = encodes_pieces;
        }
        tokenizer
    }

    /// Encodes a text that arrives character by character.
    fn piecewise(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut encoder = self.encoder();
        let mut ids = Vec::new();
        for character in text.chars() {
            ids.extend(encoder.push(character.encode_utf8(&mut [0; 4]))?);
        }
        ids.extend(encoder.finish()?);
        Ok(ids)
    }

    /// True if [`TextEncoder`] gives the ids of the whole text with this vocabulary; tried on a sample at load time.
    pub fn encodes_pieces(&self) -> bool {
        self.0.encodes_pieces
    }

    /// Encodes `text`, without special tokens. A special token that is spelt out in it (say `<|im_end|>`) is read as
    /// its letters, so that a text cannot forge a role.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TextError> {
        self.0.tokenizer.encode(text).map_err(|error| TextError::Unencodable(error.0))
    }

    /// Encodes a rendered prompt: its marks are special tokens, everything else is text. Contents whose ids `known` has
    /// stand as these ids.
    pub fn encode_prompt(
        &self,
        prompt: &Prompt,
        known: &dyn Fn(usize, &str) -> Option<Vec<u32>>,
    ) -> Result<Vec<EncodedPiece>, TextError> {
        self.0.tokenizer.encode_prompt(prompt, known).map_err(|error| TextError::Unencodable(error.0))
    }

    /// Tokens that a chat template is given: these variables, and all special tokens of the vocabulary.
    pub fn template_tokens(&self, variables: Vec<(String, String)>) -> TemplateTokens {
        let special = self.0.tokenizer.special().map(|(_, text)| text.to_owned()).collect();
        TemplateTokens { variables, special }
    }

    /// Decodes `ids` without special tokens; invalid UTF-8 becomes U+FFFD, unknown ids become nothing.
    pub fn decode(&self, ids: &[u32]) -> String {
        #[cfg(test)]
        self.0.decoded.fetch_add(ids.len(), std::sync::atomic::Ordering::Relaxed);
        self.0.tokenizer.decode(ids)
    }

    /// Id of one token as the vocabulary spells it, special ones included.
    pub fn token_id(&self, token: &str) -> Option<u32> {
        self.0.tokenizer.token_id(token)
    }

    /// Tokens with text, and their bytes; see [`TextTokenizer::token_bytes`].
    pub fn token_bytes(&self) -> Vec<(u32, Vec<u8>)> {
        self.0.tokenizer.token_bytes()
    }

    /// True if an id is that of a special token.
    pub fn is_special(&self, id: u32) -> bool {
        self.0.special.contains(&id)
    }

    /// Number of tokens, special ones included.
    pub fn vocab_size(&self) -> usize {
        self.0.tokenizer.vocab_size()
    }

    /// Mask over a model's rows, 1 for those that have a token; `None` if all of them do.
    pub fn allowed(&self, rows: usize) -> Option<Vec<f32>> {
        let has = |row: usize| u32::try_from(row).is_ok_and(|id| self.0.tokenizer.has_token(id));
        let allowed: Vec<f32> = (0..rows).map(|row| f32::from(u8::from(has(row)))).collect();
        allowed.contains(&0.0).then_some(allowed)
    }

    /// Creates an encoder for text that arrives in pieces.
    pub fn encoder(&self) -> TextEncoder {
        TextEncoder { tokenizer: self.clone(), open: String::new() }
    }

    /// Longest prefix of `ids` whose text is a prefix of `text`, as a number of ids and its length in bytes.
    pub fn common_prefix(&self, ids: &[u32], text: &str) -> (usize, usize) {
        let (mut stream, mut read, mut common) = (self.stream(), 0, (0, 0));
        for (i, &id) in ids.iter().enumerate() {
            if let Some(piece) = stream.push(id) {
                if !text[read..].starts_with(&piece) {
                    break;
                }
                read += piece.len();
            }
            // Never ends within a character.
            if stream.is_whole() {
                common = (i + 1, read);
            }
        }
        common
    }

    /// Creates a streaming decoder of ids.
    pub fn stream(&self) -> TextStream {
        TextStream { tokenizer: self.clone(), ids: Vec::new(), whole: 0, emitted: 0 }
    }
}

/// Encodes text that arrives in pieces. The ids equal those of the whole text wherever it is split, for vocabularies
/// that join no characters across the beginning of a word: those of GPT-2's kind, Qwen's among them.
#[derive(Debug)]
pub struct TextEncoder {
    tokenizer: Tokenizer,
    /// Last word, which may continue.
    open: String,
}

impl TextEncoder {
    /// Takes a piece; returns the ids that it makes certain. They end before the last space that begins a word.
    pub fn push(&mut self, text: &str) -> Result<Vec<u32>, TextError> {
        // The last character seen so far may be a space whose word begins with this piece.
        let from = self.open.char_indices().next_back().map_or(0, |(at, _)| at);
        self.open.push_str(text);
        let mut certain = 0;
        let mut characters = self.open[from..].char_indices().peekable();
        while let Some((at, c)) = characters.next() {
            if c == ' ' && from + at > 0 && characters.peek().is_some_and(|(_, next)| !next.is_whitespace()) {
                certain = from + at;
            }
        }
        if self.open.len() - certain > MAX_STRETCH {
            return Err(TextError::TooLong);
        }
        let rest = self.open.split_off(certain);
        let whole = std::mem::replace(&mut self.open, rest);
        if whole.is_empty() { Ok(Vec::new()) } else { self.tokenizer.encode(&whole) }
    }

    /// Encodes the rest of the text.
    pub fn finish(&mut self) -> Result<Vec<u32>, TextError> {
        let rest = std::mem::take(&mut self.open);
        if rest.is_empty() { Ok(Vec::new()) } else { self.tokenizer.encode(&rest) }
    }
}

/// Number of ids without a whole character, after which a stream drops older ids. Such ids are invalid UTF-8.
const LONGEST_RUN: usize = 24;
/// Length of the longest incomplete character, in bytes.
const BEGUN: usize = 3;

/// Streaming decoder: decodes ids one by one, in work that is linear in their number. The pieces add up to
/// [`Tokenizer::decode`] of all ids, without an incomplete character at the end; none ends within a character.
#[derive(Debug)]
pub struct TextStream {
    tokenizer: Tokenizer,
    /// Last ids. Some decoders look at the text before, so the ids of the last whole piece stay.
    ids: Vec<u32>,
    /// Number of leading `ids` whose text was emitted completely.
    whole: usize,
    /// Emitted bytes of the text of `ids`.
    emitted: usize,
}

impl TextStream {
    /// Takes the next id; returns the text that it makes certain, if any. Special tokens have none.
    pub fn push(&mut self, id: u32) -> Option<String> {
        if self.tokenizer.0.special.contains(&id) {
            return None;
        }
        let was_whole = self.is_whole();
        self.ids.push(id);
        let text = self.tokenizer.decode(&self.ids);
        let certain = certain(&text);
        let piece = text.get(self.emitted..certain).unwrap_or_default().to_owned();
        self.emitted = self.emitted.max(certain);
        if certain == text.len() {
            if piece.is_empty() && was_whole {
                // An id without text has no effect on the next one.
                self.ids.pop();
                return None;
            }
            self.ids.drain(..self.whole);
            self.whole = self.ids.len();
            self.emitted = self.tokenizer.decode(&self.ids).len();
        } else if self.ids.len() - self.whole >= LONGEST_RUN {
            self.shorten(&text);
        }
        (!piece.is_empty()).then_some(piece)
    }

    /// Drops leading ids, up to one after which a character begins. `text` is the text of all `ids`.
    fn shorten(&mut self, text: &str) {
        let cuts = (LONGEST_RUN / 2..self.ids.len()).rev();
        for cut in cuts.filter(|cut| *cut > self.whole) {
            let (before, last) =
                (self.tokenizer.decode(&self.ids[..cut]), self.tokenizer.decode(&self.ids[cut - 1..cut]));
            let rest = text.strip_prefix(before.as_str()).filter(|_| before.len() <= self.emitted);
            if rest.is_some() && self.tokenizer.decode(&self.ids[cut - 1..]).strip_prefix(last.as_str()) == rest {
                self.ids.drain(..cut - 1);
                self.whole = 1;
                self.emitted = last.len() + self.emitted - before.len();
                return;
            }
        }
    }

    /// True if nothing is held back.
    pub fn is_whole(&self) -> bool {
        self.whole == self.ids.len()
    }

    /// Ends the stream; returns the held-back text. An incomplete character at its end is left out,
    /// and so is U+FFFD there, which decodes alike.
    pub fn finish(self) -> Option<String> {
        let text = self.tokenizer.decode(&self.ids);
        text.get(self.emitted..certain(&text)).filter(|piece| !piece.is_empty()).map(str::to_owned)
    }
}

/// Number of bytes of `text` that no further id changes: its end may be an incomplete character, which decoders show as
/// one U+FFFD, or as one for each byte.
fn certain(text: &str) -> usize {
    let marks = text.chars().rev().take(BEGUN).take_while(|c| *c == char::REPLACEMENT_CHARACTER).count();
    text.len() - marks * char::REPLACEMENT_CHARACTER.len_utf8()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokenizers::pre_tokenizers::byte_level::ByteLevel;

    use super::*;

    const END: &str = "<|im_end|>";

    /// Builds a byte-level vocabulary: every byte, a few merges that cut characters in odd places, two special tokens.
    fn tokenizer() -> Tokenizer {
        let mut alphabet: Vec<String> = ByteLevel::alphabet().into_iter().map(String::from).collect();
        alphabet.sort();
        // In this alphabet the bytes of `é` are `Ã©`, those of a space `Ġ`; the euro sign's are `âĤ¬`.
        let merges = [("Ã", "©"), ("h", "e"), ("Ġ", "â"), ("Ĥ", "¬"), ("l", "l"), ("he", "ll")];
        alphabet.extend(merges.iter().map(|(left, right)| format!("{left}{right}")));
        let vocabulary: serde_json::Map<String, serde_json::Value> =
            alphabet.iter().enumerate().map(|(id, token)| (token.clone(), json!(id))).collect();
        let special = |id: usize, content: &str| {
            json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
                   "normalized": false, "special": true})
        };
        let file = json!({
            "version": "1.0",
            "added_tokens": [special(alphabet.len(), "<|im_start|>"), special(alphabet.len() + 1, END)],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
            "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
            "model": {"type": "BPE", "vocab": vocabulary,
                      "merges": merges.iter().map(|(left, right)| json!([left, right])).collect::<Vec<_>>()},
        });
        Tokenizer::from_bytes(file.to_string().as_bytes()).unwrap()
    }

    /// Streams `ids`; returns the pieces and the text at the end.
    fn stream(tokenizer: &Tokenizer, ids: &[u32]) -> (Vec<String>, String) {
        let mut stream = tokenizer.stream();
        let pieces = ids.iter().filter_map(|id| stream.push(*id)).collect();
        (pieces, stream.finish().unwrap_or_default())
    }

    #[test]
    fn a_character_is_emitted_once_complete() {
        let tokenizer = tokenizer();
        let byte = |spelt: &str| tokenizer.token_id(spelt).unwrap();
        let mut stream = tokenizer.stream();
        assert_eq!(stream.push(byte("he")).as_deref(), Some("he"));
        assert_eq!(stream.push(byte("Ġâ")).as_deref(), Some(" "), "the space is certain, the euro sign is not");
        assert_eq!(stream.push(byte("Ĥ¬")).as_deref(), Some("€"));
        assert_eq!(stream.finish(), None);
    }

    #[test]
    fn an_incomplete_character_is_left_out() {
        let tokenizer = tokenizer();
        let ids = [tokenizer.token_id("h").unwrap(), tokenizer.token_id("â").unwrap()];
        assert_eq!(stream(&tokenizer, &ids), (vec!["h".to_owned()], String::new()));
    }

    #[test]
    fn special_tokens_have_no_text() {
        let tokenizer = tokenizer();
        let ids =
            [tokenizer.token_id("Ã").unwrap(), tokenizer.token_id(END).unwrap(), tokenizer.token_id("©").unwrap()];
        assert_eq!(stream(&tokenizer, &ids), (vec!["é".to_owned()], String::new()));
    }

    #[test]
    fn bytes_encode_any_text() {
        let tokenizer = Tokenizer::of_bytes().unwrap();
        let text = "One\ttwo,\r\n  naïve 日本 \u{1F600}\0 \u{ad}";
        let ids = tokenizer.encode(text).unwrap();
        assert_eq!(ids, text.bytes().map(u32::from).collect::<Vec<_>>());
        assert_eq!((tokenizer.decode(&ids), tokenizer.vocab_size()), (text.to_owned(), 256));
        assert!(tokenizer.encodes_pieces());
    }

    #[test]
    fn spelt_out_special_tokens_stay_text() {
        let tokenizer = tokenizer();
        let ids = tokenizer.encode(END).unwrap();
        assert!(!ids.contains(&tokenizer.token_id(END).unwrap()));
        assert_eq!(tokenizer.decode(&ids), END);
    }

    #[test]
    fn invalid_tokenizer_bytes_are_refused() {
        let error = Tokenizer::from_bytes(b"{\"model\": 3}").unwrap_err().to_string();
        assert!(error.starts_with("not a tokenizer: "), "{error}");
    }

    #[test]
    fn a_common_prefix_is_found_in_linear_work() {
        let tokenizer = tokenizer();
        let text = "hello é€ ".repeat(200);
        let ids = tokenizer.encode(&text).unwrap();
        tokenizer.0.decoded.store(0, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(tokenizer.common_prefix(&ids, &text), (ids.len(), text.len()));
        let decoded = tokenizer.0.decoded.load(std::sync::atomic::Ordering::Relaxed);
        assert!(decoded <= 10 * ids.len(), "{decoded} ids were decoded for {}", ids.len());
    }

    /// Ids of bytes that make up characters of two, three and four bytes; random sequences of them are often invalid
    /// UTF-8.
    fn parts() -> Vec<u32> {
        let tokenizer = tokenizer();
        ["©", "Ã", "â", "Ĥ", "¬", "ð", "Ł", "ĺ"].map(|spelt| tokenizer.token_id(spelt).unwrap()).to_vec()
    }

    /// Number of ids decoded for each of `ids` in a stream.
    fn work(tokenizer: &Tokenizer, ids: &[u32]) -> usize {
        tokenizer.0.decoded.store(0, std::sync::atomic::Ordering::Relaxed);
        let (pieces, rest) = stream(tokenizer, ids);
        let decoded = tokenizer.0.decoded.load(std::sync::atomic::Ordering::Relaxed);
        let whole = tokenizer.decode(ids);
        assert_eq!(pieces.concat() + &rest, whole[..certain(&whole)]);
        decoded / ids.len()
    }

    #[test]
    fn streams_take_linear_work() {
        let tokenizer = tokenizer();
        let byte = |spelt: &str| tokenizer.token_id(spelt).unwrap();
        let text = tokenizer.encode(&"hello é€ ".repeat(300)).unwrap();
        assert!(work(&tokenizer, &text) <= 5, "{} ids for each", work(&tokenizer, &text));
        // Bytes that never become a character, bytes that become one U+FFFD each three, and ids without text.
        let stray = vec![byte("©"); 3_000];
        let begun = [byte("ð"), byte("Ł"), byte("ĺ")].repeat(1_000);
        let unknown = [vec![byte("h")], vec![9_999; 3_000], vec![byte("h")]].concat();
        for ids in [stray, begun, unknown] {
            let work = work(&tokenizer, &ids);
            assert!(work <= 2 * LONGEST_RUN, "{work} ids for each of {:?}", &ids[..3]);
        }
    }

    proptest! {
        #[test]
        fn a_common_prefix_ends_where_texts_differ(spoken in "[ahel é€]{0,20}", n in 0_usize..20, rest in "[ahel é€]{0,4}") {
            let tokenizer = tokenizer();
            let ids = tokenizer.encode(&spoken).unwrap();
            let text = spoken.chars().take(n).collect::<String>() + &rest;
            let fits = |n: &usize| text.starts_with(&tokenizer.decode(&ids[..*n]));
            let longest = (0..=ids.len()).rev().find(fits).unwrap();
            let expected = (longest, tokenizer.decode(&ids[..longest]).len());
            prop_assert_eq!(tokenizer.common_prefix(&ids, &text), expected);
        }

        #[test]
        fn text_survives_encoding_and_streaming(text in any::<String>()) {
            let tokenizer = tokenizer();
            let (pieces, rest) = stream(&tokenizer, &tokenizer.encode(&text).unwrap());
            prop_assert_eq!(pieces.concat() + &rest, &text[..certain(&text)]);
        }

        #[test]
        fn pieces_of_text_encode_as_the_whole(text in "[a-zà-ü€ 0-9.,!\\n\\t']{0,60}", cuts in proptest::collection::vec(0_usize..60, 0..8)) {
            let tokenizer = tokenizer();
            let mut encoder = tokenizer.encoder();
            let mut ids = Vec::new();
            let mut from = 0;
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|cut| text.is_char_boundary(*cut)).collect();
            cuts.sort_unstable();
            for cut in cuts {
                ids.extend(encoder.push(&text[from..cut]).unwrap());
                from = cut;
            }
            ids.extend(encoder.push(&text[from..]).unwrap());
            ids.extend(encoder.finish().unwrap());
            prop_assert_eq!(ids, tokenizer.encode(&text).unwrap());
        }

        #[test]
        fn pieces_add_up_to_one_decode(
            ids in proptest::collection::vec(prop_oneof![0_u32..264, prop::sample::select(parts())], 0..150),
        ) {
            let tokenizer = tokenizer();
            let (pieces, rest) = stream(&tokenizer, &ids);
            let whole = tokenizer.decode(&ids);
            prop_assert_eq!(pieces.concat() + &rest, &whole[..certain(&whole)]);
        }
    }
}
