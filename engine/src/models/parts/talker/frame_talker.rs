//! The talker of Qwen3's families: text and handed rows through projections, codebook 0 from the language model, the
//! other codes from the code predictor.

use std::sync::Arc;

use repartee_engine_api::Role;
use repartee_kernels::{NO_ID, Ops, WeightLayout};

use super::codec_lm::CodecLm;
use super::model::{TalkerModel, TalkerRow, TextPart};
use super::resize_mlp::ResizeMlp;
use super::speech_state::SpokenUtterance;
use super::utterance::{Utterance, UtteranceTokens};
use super::voice::Voice;
use crate::device::Device;
use crate::elements::{Element, ElementValue};
use crate::models::load_error::LoadError;
use crate::models::parts::depth::model::DepthModel;
use crate::models::parts::language_model::LanguageModel;
use crate::models::parts::weights::Weights;
use crate::stage::{EdgeKind, ResponseParams};

/// Added to the logit of the end of speech while a response has fewer frames than the least.
const NEVER: f32 = -1e9;

/// Table of the text tokens.
pub enum TextTable<O: Ops> {
    /// A table of the talker.
    Own(O::Weight),
    /// The table of the language model before it.
    Shared(Arc<LanguageModel<O>>),
}

/// Least number of frames in a response.
pub struct LeastFrames<O: Ops> {
    frames: usize,
    /// One row, added to the logits of a response that may not end yet.
    endless: O::Weight,
}

/// Weights of the talker and its code predictor.
pub struct FrameTalkerWeights<O: Ops> {
    /// Table of the text tokens.
    pub text: TextTable<O>,
    /// Projection of embedded text.
    pub text_projection: ResizeMlp<O>,
    /// Projection of handed rows; `None` if there are none.
    pub hidden_projection: Option<ResizeMlp<O>>,
    /// Language model over codebook 0.
    pub codec: CodecLm<O>,
    /// Least number of frames; `None` if a response may end at once.
    pub least: Option<LeastFrames<O>>,
    /// Predictor of codebooks 1 and up.
    pub code_predictor: DepthModel<O>,
}

impl<O: Ops> LeastFrames<O> {
    /// Creates the limit over `vocabulary` ids, of which `end` ends the speech.
    pub fn load(w: &Weights<'_, O>, frames: usize, vocabulary: usize, end: u32) -> Result<Self, LoadError> {
        let endless: Vec<f32> = (0..vocabulary).map(|id| if id == end as usize { NEVER } else { 0.0 }).collect();
        Ok(Self { frames, endless: w.made("the end of speech", WeightLayout::Table, &endless, &[1, vocabulary])? })
    }
}

impl<O: Ops> FrameTalkerWeights<O> {
    /// Computes rows of text: its embeddings, projected.
    pub fn text_rows(&self, ops: &O, ids: &O::Index) -> O::T {
        let table = match &self.text {
            TextTable::Own(table) => table,
            TextTable::Shared(model) => &model.embed_tokens,
        };
        self.text_projection.forward(ops, &ops.embed_at(table, ids))
    }

    /// Computes rows from handed ones, projected.
    pub fn audio_rows(&self, ops: &O, hidden: &O::T) -> O::T {
        match &self.hidden_projection {
            Some(projection) => projection.forward(ops, hidden),
            None => ops.copy(hidden),
        }
    }
}

/// The talker with its special tokens and voices.
pub struct FrameTalker<O: Ops> {
    /// Weights of the talker.
    pub weights: FrameTalkerWeights<O>,
    /// Ids before, between and after the text and the codes.
    pub tokens: UtteranceTokens,
    /// Role of the prompt positions that the talker reads.
    pub reads: Role,
    /// True if text that does not stream in precedes the first frame.
    pub whole: bool,
    /// Finds a voice by its name.
    pub voices: Box<dyn Fn(&str) -> Voice + Send>,
}

/// Voice of a response, and the placement of its text.
pub struct SpeakingStyle {
    voice: Voice,
    /// True if all text precedes the first frame.
    whole: bool,
}

impl SpeakingStyle {
    fn utterance<'a>(&'a self, said: &'a SpokenUtterance<TextPart>) -> Utterance<'a> {
        Utterance { voice: &self.voice, text: &said.tokens, ended: said.ended.is_some(), whole: self.whole }
    }
}

impl<O: Device> TalkerModel<O> for FrameTalker<O> {
    type Voice = SpeakingStyle;

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn codec(&self) -> &CodecLm<O> {
        &self.weights.codec
    }

    fn code_predictor(&self) -> Option<&DepthModel<O>> {
        Some(&self.weights.code_predictor)
    }

    fn token_rows(&self, ops: &O, ids: &O::Index) -> O::T {
        self.weights.text_rows(ops, ids)
    }

    fn handed_rows(&self, ops: &O, rows: O::T) -> O::T {
        self.weights.audio_rows(ops, &rows)
    }

    fn least_codes(&self) -> Option<(usize, &O::Weight)> {
        self.weights.least.as_ref().map(|least| (least.frames, &least.endless))
    }

    fn reads(&self, role: Role) -> bool {
        role == self.reads
    }

    fn prompt_row(&self, element: &Element, position: usize) -> Option<TalkerRow> {
        let text = match element.value {
            ElementValue::Token(id) => TextPart::Token(id),
            _ if self.weights.hidden_projection.is_none() => return None,
            ElementValue::Audio { .. } | ElementValue::Codes(_) => TextPart::Handed(position),
        };
        Some(TalkerRow::new(text, NO_ID))
    }

    /// Text to speak takes positions too, but a talker that reads the user's rows gets it from the language model.
    fn used(&self, prompt: &[Element]) -> usize {
        let spoken = self.weights.hidden_projection.is_none();
        prompt.iter().filter(|element| spoken || element.role == self.reads).count()
    }

    fn voice(&self, params: &ResponseParams) -> SpeakingStyle {
        SpeakingStyle { voice: (self.voices)(&params.voice), whole: self.whole && !params.streamed }
    }

    fn lead<'a>(&self, style: &'a SpeakingStyle) -> &'a [Vec<u32>] {
        style.voice.recording().map_or(&[], |recording| &recording.frames)
    }

    fn first_rows(&self, style: &SpeakingStyle, said: &SpokenUtterance<TextPart>) -> Option<Vec<TalkerRow>> {
        self.tokens.begin(&style.utterance(said))
    }

    fn next_text(&self, style: &SpeakingStyle, said: &SpokenUtterance<TextPart>, frame: usize) -> Option<TextPart> {
        self.tokens.text_with_frame(&style.utterance(said), frame)
    }

    fn is_end(&self, code: u32) -> bool {
        code == self.tokens.ids.codec_eos
    }
}
