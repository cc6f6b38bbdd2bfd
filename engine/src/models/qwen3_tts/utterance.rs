//! Talker input of one utterance: the sum of a text part and a codec part for each position.

use std::sync::Arc;

use super::config::Config;
use super::voices::{Cloned, Speaker, Voice};
use repartee_kernels::ops::NO_ID;

/// Rows of an utterance without its text and recording: header, language, speaker and special tokens.
pub const HEADER_ROWS: usize = 12;

/// Input of a position.
#[derive(Debug, Clone, PartialEq)]
pub enum UtteranceRow {
    /// A text id and a codec id ([`NO_ID`] for none).
    Text {
        /// Id of the text token.
        id: u32,
        /// Codec id, or [`NO_ID`].
        codec: u32,
    },
    /// A text id and part of a cloned voice.
    Cloned {
        /// Id of the text token.
        id: u32,
        /// The cloned voice.
        voice: Arc<Cloned>,
        /// Frame of the recording whose embeddings are added; `None` for the speaker embedding.
        frame: Option<usize>,
    },
    /// A text id and the sum of the last frame's embeddings.
    Frame {
        /// Id of the text token.
        id: u32,
    },
}

/// Special ids of every utterance.
#[derive(Debug, Clone)]
pub struct UtteranceTokens {
    /// Ids of `<|im_start|>assistant\n`.
    header: [u32; 3],
    tts_bos: u32,
    tts_eos: u32,
    tts_pad: u32,
    think: u32,
    nothink: u32,
    think_bos: u32,
    think_eos: u32,
    codec_pad: u32,
    codec_bos: u32,
    /// Codec id that ends the speech.
    pub codec_eos: u32,
}

/// Text of an utterance as far as it is known, and its voice.
#[derive(Debug, Clone, Copy)]
pub struct Utterance<'a> {
    /// Voice that speaks the text.
    pub voice: &'a Voice,
    /// Text ids received so far.
    pub text: &'a [u32],
    /// True once no more text ids come.
    pub ended: bool,
    /// True if all text precedes the first frame; otherwise each frame goes with one text id.
    pub whole: bool,
}

impl Utterance<'_> {
    /// Text ids before the first frame, if each frame goes with one: one, and one for each frame of the recording.
    fn lead(&self) -> usize {
        1 + self.voice.recording().map_or(0, |recording| recording.frames.len())
    }

    /// Number of known text ids, those of the recording included.
    fn known(&self) -> usize {
        self.text.len() + self.voice.recording().map_or(0, |recording| recording.text.len())
    }

    /// Text id at index `at`, those of the recording first.
    fn text_at(&self, at: usize) -> Option<u32> {
        let before = self.voice.recording().map_or(&[][..], |recording| &recording.text);
        before.get(at).or_else(|| self.text.get(at.checked_sub(before.len())?)).copied()
    }
}

impl UtteranceTokens {
    /// Takes the ids of a configuration; `header` is `<|im_start|>assistant\n`.
    pub fn new(config: &Config, header: [u32; 3]) -> Self {
        let talker = &config.talker;
        Self {
            header,
            tts_bos: config.tts_bos_token_id,
            tts_eos: config.tts_eos_token_id,
            tts_pad: config.tts_pad_token_id,
            think: talker.codec_think_id,
            nothink: talker.codec_nothink_id,
            think_bos: talker.codec_think_bos_id,
            think_eos: talker.codec_think_eos_id,
            codec_pad: talker.codec_pad_id,
            codec_bos: talker.codec_bos_id,
            codec_eos: talker.codec_eos_token_id,
        }
    }

    /// Rows before the first frame; `None` until enough of the text is known, or if there is no text.
    pub fn begin(&self, utterance: &Utterance<'_>) -> Option<Vec<UtteranceRow>> {
        let Utterance { voice, text, ended, whole } = utterance;
        let (lead, known) = (utterance.lead(), utterance.known());
        let enough = if *whole { *ended } else { *ended || known >= lead };
        if text.is_empty() || !enough {
            return None;
        }
        let with = |id, codec| UtteranceRow::Text { id, codec };
        let mut rows: Vec<UtteranceRow> = self.header.into_iter().map(|id| with(id, NO_ID)).collect();
        let language = match voice.language {
            Some(language) => vec![self.think, self.think_bos, language, self.think_eos],
            None => vec![self.nothink, self.think_bos, self.think_eos],
        };
        rows.extend(language.into_iter().map(|codec| with(self.tts_pad, codec)));
        match &voice.speaker {
            Speaker::Any => {}
            Speaker::Listed(speaker) => rows.push(with(self.tts_pad, *speaker)),
            Speaker::Cloned(cloned) => {
                rows.push(UtteranceRow::Cloned { id: self.tts_pad, voice: Arc::clone(cloned), frame: None });
            }
        }
        rows.push(with(self.tts_bos, self.codec_pad));
        if *whole {
            let text = (0..known).filter_map(|at| utterance.text_at(at)).chain([self.tts_eos]);
            rows.extend(text.map(|id| with(id, self.codec_pad)));
        }
        let beside = |at| if *whole { self.tts_pad } else { self.text_or_pad(utterance, at) };
        rows.push(with(beside(0), self.codec_bos));
        if let Some(recording) = utterance.voice.recording() {
            let frame = |at| UtteranceRow::Cloned { id: beside(at + 1), voice: Arc::clone(recording), frame: Some(at) };
            rows.extend((0..recording.frames.len()).map(frame));
        }
        Some(rows)
    }

    /// Text id that goes with frame `frame`, counted from 1; `None` while it is not known.
    pub fn text_with_frame(&self, utterance: &Utterance<'_>, frame: usize) -> Option<u32> {
        if utterance.whole {
            return Some(self.tts_pad);
        }
        let at = utterance.lead() + frame - 1;
        (utterance.ended || at < utterance.known()).then(|| self.text_or_pad(utterance, at))
    }

    /// Text id at index `at`, which is known or past the end: the end token after the last id, then padding.
    fn text_or_pad(&self, utterance: &Utterance<'_>, at: usize) -> u32 {
        let end = if at == utterance.known() { self.tts_eos } else { self.tts_pad };
        utterance.text_at(at).unwrap_or(end)
    }
}
