//! Text in the form and in the pieces that the model reads.

use repartee_engine_api::ModelInfo;
use repartee_spoken::{MAX_PIECE, SentenceEnd, SentenceSplitter, SpokenOptions, SpokenPiece, SpokenText};

/// Maximum length of one text in bytes, the same as over the websocket.
pub(crate) const MAX_TEXT: usize = 64 << 10;
/// Bytes of text that a slow voice speaks in a second; most speak 12 to 16.
const SLOW_BYTES_PER_S: usize = 9;

/// Text of one request, from the written form to the pieces that are read, each by one response. The pieces do not depend on
/// how the text arrives.
#[derive(Debug)]
pub(crate) enum ReadText {
    /// Sentences, made speakable or as they are written.
    Sentences {
        /// Spoken form; `None` for the written form.
        spoken: Option<Box<SpokenText>>,
        sentences: SentenceSplitter,
    },
    /// The whole text, for a model that makes it speakable and cuts it by itself.
    Whole {
        /// Text without a letter or digit so far, which may have nothing to read.
        silent: String,
        /// True once a letter or digit came.
        begun: bool,
    },
}

impl ReadText {
    /// Begins a text; `spoken` is the form in which it is read.
    pub fn new(info: &ModelInfo, spoken: Option<SpokenOptions>) -> Self {
        if info.reads_clauses {
            return Self::Whole { silent: String::new(), begun: false };
        }
        let spoken = spoken.map(|options| Box::new(SpokenText::new(options)));
        // A piece whose speech does not fit would be cut in its middle.
        let fits = info.speech_limit.map_or(MAX_PIECE, |limit| {
            usize::try_from(limit.as_secs()).unwrap_or(MAX_PIECE).saturating_mul(SLOW_BYTES_PER_S)
        });
        Self::Sentences { spoken, sentences: SentenceSplitter::with_limit(fits) }
    }

    /// Maximum length of a piece, in bytes.
    pub fn max_piece(&self) -> usize {
        match self {
            Self::Sentences { .. } => MAX_PIECE,
            Self::Whole { .. } => MAX_TEXT,
        }
    }

    /// Adds a part of the text; returns the pieces that are certain now.
    pub fn push(&mut self, text: &str) -> Vec<SentenceEnd> {
        match self {
            Self::Sentences { spoken: Some(spoken), sentences } => sentences.push(&joined(spoken.push(text))),
            Self::Sentences { spoken: None, sentences } => sentences.push(text),
            Self::Whole { silent, begun } => {
                silent.push_str(text);
                *begun |= text.contains(char::is_alphanumeric);
                if *begun && !silent.is_empty() { vec![SentenceEnd::Text(std::mem::take(silent))] } else { Vec::new() }
            }
        }
    }

    /// Ends the text and its last piece.
    pub fn finish(&mut self) -> Vec<SentenceEnd> {
        match self {
            Self::Sentences { spoken, sentences } => {
                let rest = spoken.as_mut().map(|spoken| joined(spoken.finish())).unwrap_or_default();
                let mut pieces = sentences.push(&rest);
                pieces.extend(sentences.finish());
                pieces
            }
            Self::Whole { begun, .. } => begun.then_some(SentenceEnd::End).into_iter().collect(),
        }
    }
}

fn joined(pieces: Vec<SpokenPiece>) -> String {
    pieces.into_iter().map(|piece| piece.text).collect()
}
