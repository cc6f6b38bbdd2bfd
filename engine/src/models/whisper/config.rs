//! Configuration of a Whisper: sizes, special tokens, suppressed tokens. It stands in config.json and
//! generation_config.json of transformers, or in config.json of CTranslate2, which leaves the sizes to the tensors.

use crate::checkpoint::{CONFIG, Checkpoint, CheckpointError};
use crate::models::parts::audio_encoder::layer::AudioLayerShape;
use crate::models::parts::audio_encoder::shape::{Convolutions, EncoderShape, Positions};
use crate::models::parts::config::limits::{HEADS, INNER, LAYERS, MEL_BINS, VOCABULARY, WIDTH, WINDOW};
use crate::models::parts::config::{ConfigFile, ConfigSection};
use crate::models::parts::generation::generation_file;
use crate::models::parts::special_tokens::TokenReader;
use crate::text::Tokenizer;

/// Width of an attention head in every published Whisper.
const HEAD: usize = 64;
/// Ids of the smallest vocabulary with several languages.
const MULTILINGUAL: usize = 51_865;

/// Sizes of the decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecoderSizes {
    /// Number of ids.
    pub vocabulary: usize,
    /// Width of a row.
    pub width: usize,
    /// Number of layers.
    pub layers: usize,
    /// Attention heads of a layer.
    pub heads: usize,
    /// Inner width of a feed-forward block.
    pub inner: usize,
    /// Most text positions.
    pub positions: usize,
    /// True if the head's matrix is the token table.
    pub tied: bool,
}

/// Ids of the special tokens that a prompt has or a text ends with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhisperTokens {
    /// `<|endoftext|>`; ids from here on are no text.
    pub end: u32,
    /// `<|startoftranscript|>`, the first token behind earlier text.
    pub start: u32,
    /// `<|transcribe|>`; `None` for a model of English alone, whose prompt has neither task nor language.
    pub transcribe: Option<u32>,
    /// `<|translate|>`, in place of it for an English translation; `None` for a model that does not translate.
    pub translate: Option<u32>,
    /// `<|startofprev|>`, before text that came earlier.
    pub previous: u32,
    /// `<|nospeech|>`, whose probability at `start` is that of silence.
    pub no_speech: u32,
    /// `<|notimestamps|>`; the first timestamp follows it.
    pub no_timestamps: u32,
    /// Languages by code, in the order of their ids; empty for a model of English alone.
    pub languages: Vec<(String, u32)>,
}

impl WhisperTokens {
    /// Id of `<|0.00|>`; those of later times follow it, in steps of 20 ms.
    pub fn first_timestamp(&self) -> u32 {
        self.no_timestamps + 1
    }
}

/// Configuration of a Whisper.
#[derive(Debug, Clone)]
pub struct WhisperConfig {
    /// Shape of the encoder.
    pub encoder: EncoderShape,
    /// Sizes of the decoder.
    pub decoder: DecoderSizes,
    /// Special tokens, by the tokenizer.
    pub tokens: WhisperTokens,
    /// Tokens that are never sampled.
    pub suppressed: Vec<u32>,
    /// Tokens that are not sampled first.
    pub suppressed_first: Vec<u32>,
    /// Heads whose attention follows the sound: layer and head.
    pub alignment_heads: Vec<[usize; 2]>,
    /// Most timestamps that the first one may lie behind the beginning.
    pub max_initial_timestamp: usize,
}

impl WhisperConfig {
    /// Reads the configuration, and the tokenizer, which names the special tokens. A size that config.json lacks is that of
    /// the tensors.
    pub fn load(checkpoint: &Checkpoint) -> Result<(Self, Tokenizer), CheckpointError> {
        let (file, generation) = (ConfigFile::config(checkpoint)?, generation_file(checkpoint)?);
        let (at, generation) = (file.top()?, generation.top()?);
        let encoder = encoder(checkpoint, &at)?;
        let decoder = decoder(checkpoint, &at, encoder.layer.width)?;
        let vocabulary = decoder.vocabulary;
        let tokenizer = Tokenizer::load(checkpoint, vocabulary)?;
        let multilingual = generation.switch("is_multilingual", vocabulary >= MULTILINGUAL)?;
        let ids = |names: [(&ConfigSection<'_>, &str); 3]| -> Result<Vec<u32>, CheckpointError> {
            let [first, ..] = names;
            let (at, name) = names.into_iter().find(|(at, name)| at.has(name)).unwrap_or(first);
            let known = |ids: &[u32]| ids.len() <= vocabulary && ids.iter().all(|id| (*id as usize) < vocabulary);
            at.list(name, &[], known, "ids of the vocabulary")
        };
        let last_half = (decoder.layers / 2..decoder.layers)
            .flat_map(|layer| (0..decoder.heads).map(move |head| [layer, head]))
            .collect::<Vec<_>>();
        let heads = if generation.has("alignment_heads") { &generation } else { &at };
        let known = |heads: &[[usize; 2]]| {
            heads.len() <= decoder.layers * decoder.heads
                && heads.iter().all(|[layer, head]| *layer < decoder.layers && *head < decoder.heads)
        };
        let allowed = format!("pairs of a layer below {} and a head below {}", decoder.layers, decoder.heads);
        let config = Self {
            tokens: tokens(checkpoint, &tokenizer, (multilingual, vocabulary))?,
            suppressed: ids([(&generation, "suppress_tokens"), (&at, "suppress_ids"), (&at, "suppress_tokens")])?,
            suppressed_first: ids([
                (&generation, "begin_suppress_tokens"),
                (&at, "suppress_ids_begin"),
                (&at, "begin_suppress_tokens"),
            ])?,
            alignment_heads: heads.list("alignment_heads", &last_half, known, &allowed)?,
            max_initial_timestamp: generation.size("max_initial_timestamp_index", 50, WINDOW)?,
            encoder,
            decoder,
        };
        Ok((config, tokenizer))
    }
}

/// Size of an axis of a tensor; `absent` without the tensor.
fn axis(checkpoint: &Checkpoint, tensor: &str, axis: usize, absent: usize) -> usize {
    checkpoint.shape(tensor).and_then(|shape| shape.get(axis)).copied().unwrap_or(absent)
}

/// Number of layers of one side by its tensors; `absent` without any.
fn layers(checkpoint: &Checkpoint, side: &str, absent: usize) -> usize {
    let has = |layer: &usize| checkpoint.has_tensor(&format!("model.{side}.layers.{layer}.fc1.weight"));
    match (0..).take_while(has).count() {
        0 => absent,
        count => count,
    }
}

fn encoder(checkpoint: &Checkpoint, at: &ConfigSection<'_>) -> Result<EncoderShape, CheckpointError> {
    let first = "model.encoder.conv1.weight";
    at.only("activation_function", "gelu")?;
    at.only("scale_embedding", false)?;
    let width = at.even("d_model", axis(checkpoint, first, 0, 384), WIDTH)?;
    let heads = at.size("encoder_attention_heads", (width / HEAD).max(1), HEADS)?;
    at.multiple("d_model", width, WIDTH, ("encoder_attention_heads", heads))?;
    let inner = axis(checkpoint, "model.encoder.layers.0.fc1.weight", 0, 4 * width);
    let rows = axis(checkpoint, "model.encoder.embed_positions.weight", 0, 1500);
    let window = 2 * at.size("max_source_positions", rows, WINDOW)?;
    Ok(EncoderShape {
        bins: at.size("num_mel_bins", axis(checkpoint, first, 1, 80), MEL_BINS)?,
        window,
        chunk: window,
        convolutions: Convolutions::Conv1d,
        positions: Positions::Table("embed_positions.weight"),
        layers: at.size("encoder_layers", layers(checkpoint, "encoder", 4), LAYERS)?,
        layer: AudioLayerShape { width, heads, inner: at.size("encoder_ffn_dim", inner, INNER)?, key_bias: false },
        reach: (None, None),
        skip: None,
        pairs: false,
        norm: "layer_norm",
        projection: Vec::new(),
    })
}

fn decoder(checkpoint: &Checkpoint, at: &ConfigSection<'_>, width: usize) -> Result<DecoderSizes, CheckpointError> {
    let heads = at.size("decoder_attention_heads", (width / HEAD).max(1), HEADS)?;
    at.multiple("d_model", width, WIDTH, ("decoder_attention_heads", heads))?;
    let inner = axis(checkpoint, "model.decoder.layers.0.fc1.weight", 0, 4 * width);
    let positions = axis(checkpoint, "model.decoder.embed_positions.weight", 0, 448);
    let vocabulary = axis(checkpoint, "model.decoder.embed_tokens.weight", 0, MULTILINGUAL);
    Ok(DecoderSizes {
        vocabulary: at.size("vocab_size", vocabulary, VOCABULARY)?,
        width,
        layers: at.size("decoder_layers", layers(checkpoint, "decoder", 4), LAYERS)?,
        heads,
        inner: at.size("decoder_ffn_dim", inner, INNER)?,
        // A run needs its prompt and a few tokens of text.
        positions: at.size("max_target_positions", positions, 16..=*WINDOW.end())?,
        tied: at.switch("tie_word_embeddings", !checkpoint.has_tensor("proj_out.weight"))?,
    })
}

fn tokens(
    checkpoint: &Checkpoint,
    tokenizer: &Tokenizer,
    (multilingual, vocabulary): (bool, usize),
) -> Result<WhisperTokens, CheckpointError> {
    let reader = TokenReader::new(checkpoint, tokenizer);
    let no_speech = match tokenizer.token_id("<|nocaptions|>") {
        // Its name in older files.
        Some(id) => id,
        None => reader.special("<|nospeech|>")?,
    };
    let no_timestamps = reader.special("<|notimestamps|>")?;
    if no_timestamps as usize + 1 >= vocabulary {
        let (file, field) = (checkpoint.label(CONFIG), "vocab_size".to_owned());
        let message = format!("has {vocabulary} ids, and none for timestamps behind `<|notimestamps|>`");
        return Err(CheckpointError::WrongField { file, field, message });
    }
    let code = |token: &String| {
        let code = token.strip_prefix("<|")?.strip_suffix("|>")?;
        let is_code = (2..=3).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase());
        Some((code.to_owned(), tokenizer.token_id(token).filter(|_| is_code)?))
    };
    let mut languages: Vec<_> = if multilingual {
        tokenizer.template_tokens(Vec::new()).special.iter().filter_map(code).collect()
    } else {
        Vec::new()
    };
    languages.sort_by_key(|(_, id)| *id);
    Ok(WhisperTokens {
        end: reader.special("<|endoftext|>")?,
        start: reader.special("<|startoftranscript|>")?,
        transcribe: multilingual.then(|| reader.special("<|transcribe|>")).transpose()?,
        translate: tokenizer.token_id("<|translate|>").filter(|_| multilingual),
        previous: reader.special("<|startofprev|>")?,
        no_speech,
        no_timestamps,
        languages,
    })
}
