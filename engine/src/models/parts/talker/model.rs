//! The interface of a talker to its stage: the rows of a prompt and of an utterance, and the weights that compute them.

use std::sync::Arc;

use repartee_engine_api::Role;
use repartee_kernels::Ops;

use super::codec_lm::CodecLm;
use super::speech_state::SpokenUtterance;
use super::voice::Cloned;
use crate::elements::Element;
use crate::models::parts::depth::model::DepthModel;
use crate::stage::{EdgeKind, ResponseParams, StageEnd, StageItem};

/// Text part of a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextPart {
    /// Id of a text token.
    Token(u32),
    /// Position of a row that the stage before left on the device.
    Handed(usize),
}

/// Codec part of a position.
#[derive(Debug, Clone, PartialEq)]
pub enum CodecPart {
    /// An id of the codec's vocabulary; [`NO_ID`](repartee_kernels::NO_ID) for none.
    Id(u32),
    /// The codes of the slot's last frame.
    LastFrame,
    /// Part of a cloned voice.
    Cloned {
        /// The cloned voice.
        voice: Arc<Cloned>,
        /// Frame of the recording; `None` for the speaker embedding.
        frame: Option<usize>,
    },
}

/// Input of a position: the sum of a text part and a codec part.
#[derive(Debug, Clone, PartialEq)]
pub struct TalkerRow {
    /// The text part.
    pub text: TextPart,
    /// The codec part.
    pub codec: CodecPart,
}

impl TalkerRow {
    /// Row of a text part and a codec id.
    pub fn new(text: TextPart, codec: u32) -> Self {
        Self { text, codec: CodecPart::Id(codec) }
    }
}

impl TextPart {
    /// Text part of an item that has one.
    pub fn of(item: &StageItem) -> Option<Self> {
        match item {
            StageItem::Token(id) => Some(Self::Token(*id)),
            // The item names the row that the token was sampled from, one before its own.
            StageItem::Row { position, .. } => Some(Self::Handed(position + 1)),
            _ => None,
        }
    }
}

impl SpokenUtterance<TextPart> {
    /// Tokens whose rows are known. A handed row is computed when the next token is sampled, so the last one of a text
    /// that goes on or ended at a limit is not.
    pub fn known(&self) -> &[TextPart] {
        let waits = matches!(self.tokens.last(), Some(TextPart::Handed(_))) && self.ended != Some(StageEnd::Stop);
        &self.tokens[..self.tokens.len() - usize::from(waits)]
    }
}

/// A model that turns text into codes: its rows, and their computation.
pub trait TalkerModel<O: Ops>: Send {
    /// Voice or style of a response.
    type Voice: Send;

    /// Edge kind of the stage's input.
    fn input_kind(&self) -> EdgeKind;
    /// Codec language model: the layers, and the ids to sample from.
    fn codec(&self) -> &CodecLm<O>;
    /// Predictor of a frame's other codes; `None` if a frame has one code.
    fn code_predictor(&self) -> Option<&DepthModel<O>> {
        None
    }

    /// Computes rows of text tokens.
    fn token_rows(&self, ops: &O, ids: &O::Index) -> O::T;
    /// Computes rows from those that the stage before left.
    fn handed_rows(&self, _ops: &O, rows: O::T) -> O::T {
        rows
    }
    /// Computes the layers' input from text and codec parts.
    fn input_rows(&self, ops: &O, text: O::T, codec: &O::T) -> O::T {
        ops.add(text, codec)
    }
    /// Least number of a response's codes, and the row that is added to the logits until then.
    fn least_codes(&self) -> Option<(usize, &O::Weight)> {
        None
    }
    /// Logits of one row; their most likely id counts as said before a response's codes.
    fn said_before(&self) -> Option<&O::Weight> {
        None
    }

    /// True if the talker reads prompt positions of this role.
    fn reads(&self, role: Role) -> bool;
    /// Row of a prompt element that the talker reads; `position` is its position in the prompt.
    fn prompt_row(&self, element: &Element, position: usize) -> Option<TalkerRow>;
    /// Number of talker positions that a prompt takes.
    fn used(&self, prompt: &[Element]) -> usize {
        prompt.len()
    }

    /// Voice or style of a response. The voice was checked when the response was requested.
    fn voice(&self, params: &ResponseParams) -> Self::Voice;
    /// Lead frames: they precede all others in the codec, and their samples are discarded.
    fn lead<'a>(&self, _voice: &'a Self::Voice) -> &'a [Vec<u32>] {
        &[]
    }
    /// Rows before the first codes; `None` until enough of the text is known.
    fn first_rows(&self, voice: &Self::Voice, said: &SpokenUtterance<TextPart>) -> Option<Vec<TalkerRow>>;
    /// Text of the row after codes, which are the `count`-th, counted from 1; `None` while it is not known.
    fn next_text(&self, voice: &Self::Voice, said: &SpokenUtterance<TextPart>, count: usize) -> Option<TextPart>;
    /// True if a code ends the speech.
    fn is_end(&self, code: u32) -> bool;
}
