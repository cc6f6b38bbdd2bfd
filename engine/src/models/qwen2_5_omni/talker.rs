//! `talker`: reads the thinker's rows and predicts codes; after `Qwen2_5OmniTalkerForConditionalGeneration`.
//!
//! As in the reference, its prompt is the thinker's whole prompt. The row of a text token is the thinker's row of that
//! token, computed when the next token is sampled. So the last token of a text that ended at a limit has no row and is
//! not spoken.

use std::collections::BTreeMap;
use std::sync::Arc;

use repartee_engine_api::Role;
use repartee_kernels::{NO_ID, Ops, WeightLayout};

use super::config::{TalkerConfig, decoder};
use crate::device::Device;
use crate::elements::Element;
use crate::models::load_error::LoadError;
use crate::models::parts::decoder::FeedForward;
use crate::models::parts::language_model::LanguageModel;
use crate::models::parts::talker::codec_lm::CodecLm;
use crate::models::parts::talker::model::{TalkerModel, TalkerRow, TextPart};
use crate::models::parts::talker::speech_state::SpokenUtterance;
use crate::models::parts::weights::Weights;
use crate::stage::{EdgeKind, ResponseParams};

/// Rows between the prompt and the first code.
pub const HEADER_ROWS: usize = 2;
/// Logit high enough that greedy sampling picks its id.
const SURE: f32 = 1e3;

/// The talker without its stage.
pub struct Talker<O: Ops> {
    thinker_to_talker_proj: (O::Weight, O::Weight),
    /// The layers, and the codes. Allowed ids are the codec's codes and the ids that end the codes; the reference would
    /// fail on other ids.
    pub codec: CodecLm<O>,
    /// One row of logits that selects the padding id. The reference counts the prompt's ids as sampled; of those only
    /// the padding may be sampled.
    pub padding: O::Weight,
}

impl<O: Ops> Talker<O> {
    /// Loads `talker` for a codec of `codes` codes.
    pub fn load(w: &Weights<'_, O>, config: &TalkerConfig, codes: usize) -> Result<Self, LoadError> {
        let (text, input) = (&config.text, config.embedding_size);
        let (vocabulary, hidden) = (text.vocab_size, text.layers.hidden_size);
        let ends = ends(config);
        let padding = (0..vocabulary).map(|id| if id == config.tts_codec_pad_token_id as usize { SURE } else { 0.0 });
        let projection = w.at("thinker_to_talker_proj");
        Ok(Self {
            thinker_to_talker_proj: (projection.linear("weight", hidden, input)?, projection.vector("bias", hidden)?),
            codec: CodecLm::load(
                w,
                (vocabulary, "embed_tokens.weight", input),
                decoder(text),
                |_| FeedForward::Dense(text.layers.intermediate_size),
                |id| id < codes || ends.contains(&(id as u32)),
            )?,
            padding: w.made("padding", WeightLayout::Table, &padding.collect::<Vec<_>>(), &[1, vocabulary])?,
        })
    }

    /// Computes input rows: the sum of the thinker's rows and the embeddings of codec ids, projected.
    pub fn rows(&self, ops: &O, thinker: O::T, codec: &O::T) -> O::T {
        let (weight, bias) = &self.thinker_to_talker_proj;
        ops.linear(&ops.add(thinker, codec), weight, Some(bias))
    }
}

/// Ids that end the codes. The reference hard-codes them; in the published checkpoints they equal these two fields.
pub fn ends(config: &TalkerConfig) -> [u32; 2] {
    [config.tts_codec_pad_token_id, config.tts_codec_end_token_id]
}

/// The talker with its special tokens, and the thinker that provides its rows.
pub struct CodeTalker<O: Ops> {
    /// The thinker, for the rows of special tokens.
    pub thinker: Arc<LanguageModel<O>>,
    /// Weights with the layers over codes.
    pub talker: Talker<O>,
    /// Configuration of the talker.
    pub config: TalkerConfig,
    /// For each voice, the token before its text.
    pub bos: BTreeMap<String, u32>,
}

impl<O: Device> TalkerModel<O> for CodeTalker<O> {
    /// Token before the text.
    type Voice = u32;

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Rows
    }

    fn codec(&self) -> &CodecLm<O> {
        &self.talker.codec
    }

    fn token_rows(&self, ops: &O, ids: &O::Index) -> O::T {
        ops.embed_at(&self.thinker.embed_tokens, ids)
    }

    fn input_rows(&self, ops: &O, text: O::T, codec: &O::T) -> O::T {
        self.talker.rows(ops, text, codec)
    }

    fn said_before(&self) -> Option<&O::Weight> {
        Some(&self.talker.padding)
    }

    fn reads(&self, _: Role) -> bool {
        true
    }

    fn prompt_row(&self, _: &Element, position: usize) -> Option<TalkerRow> {
        Some(TalkerRow::new(TextPart::Handed(position), NO_ID))
    }

    fn voice(&self, params: &ResponseParams) -> u32 {
        self.bos.get(&params.voice).copied().unwrap_or(self.config.tts_text_pad_token_id)
    }

    fn first_rows(&self, &bos: &u32, said: &SpokenUtterance<TextPart>) -> Option<Vec<TalkerRow>> {
        let &first = said.known().first()?;
        Some(vec![
            TalkerRow::new(TextPart::Token(bos), self.config.tts_codec_pad_token_id),
            TalkerRow::new(first, self.config.tts_codec_start_token_id),
        ])
    }

    /// Each code goes with the next token, then the end token, then padding.
    fn next_text(&self, _: &u32, said: &SpokenUtterance<TextPart>, count: usize) -> Option<TextPart> {
        let known = said.known();
        match known.get(count) {
            Some(&text) => Some(text),
            None if said.ended.is_none() => None,
            None if count == known.len() => Some(TextPart::Token(self.config.tts_text_end_token_id)),
            None => Some(TextPart::Token(self.config.tts_text_pad_token_id)),
        }
    }

    fn is_end(&self, code: u32) -> bool {
        ends(&self.config).contains(&code)
    }
}
