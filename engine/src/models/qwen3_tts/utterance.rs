//! The talker's input of one utterance: a text part and a codec part for each position, added.

use std::sync::Arc;

use super::config::Config;
use super::voices::{Cloned, Speaker, Voice};
use repartee_kernels::ops::NO_ID;

/// Rows of an utterance beside those of its text and of a recording: header, language, speaker and marks.
pub const HEADER_ROWS: usize = 12;

/// A position.
#[derive(Debug, Clone, PartialEq)]
pub enum UtteranceRow {
    /// A text id and a codec id ([`NO_ID`] for none).
    Text {
        /// The text id.
        id: u32,
        /// The codec id.
        codec: u32,
    },
    /// A text id and a voice out of a recording.
    Cloned {
        /// The text id.
        id: u32,
        /// The voice.
        voice: Arc<Cloned>,
        /// Which frame of it, whose embeddings are added; `None` for the speaker's row.
        frame: Option<usize>,
    },
    /// A text id and the sum of the last frame's embeddings.
    Frame {
        /// The text id.
        id: u32,
    },
}

/// Ids that stand in every utterance.
#[derive(Debug, Clone)]
pub struct UtteranceTokens {
    /// `<|im_start|>assistant\n`
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
    /// Ends the speech.
    pub codec_eos: u32,
}

/// What is said, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct Utterance<'a> {
    /// Who says it.
    pub voice: &'a Voice,
    /// Text ids so far.
    pub text: &'a [u32],
    /// Whether no more come.
    pub ended: bool,
    /// Whether all of it stands before the first frame; otherwise one id stands beside each frame.
    pub whole: bool,
}

impl Utterance<'_> {
    /// Text ids that stand before the first frame where text stands beside frames: one, and one for each frame of the recording.
    fn lead(&self) -> usize {
        1 + self.voice.recording().map_or(0, |recording| recording.frames.len())
    }

    /// Text ids that are known, those of the recording included.
    fn known(&self) -> usize {
        self.text.len() + self.voice.recording().map_or(0, |recording| recording.text.len())
    }

    /// The text id at a place, those of the recording first.
    fn text_at(&self, at: usize) -> Option<u32> {
        let before = self.voice.recording().map_or(&[][..], |recording| &recording.text);
        before.get(at).or_else(|| self.text.get(at.checked_sub(before.len())?)).copied()
    }
}

impl UtteranceTokens {
    /// Those of a configuration; `header` is `<|im_start|>assistant\n`.
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

    /// The rows before the first frame, once enough of the text is known. An utterance without text has none.
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

    /// The text id beside frame `frame`, counted from 1; `None` while it is not known.
    pub fn beside(&self, utterance: &Utterance<'_>, frame: usize) -> Option<u32> {
        if utterance.whole {
            return Some(self.tts_pad);
        }
        let at = utterance.lead() + frame - 1;
        (utterance.ended || at < utterance.known()).then(|| self.text_or_pad(utterance, at))
    }

    /// The text id at a place of a text that has ended, or reaches so far: the end's after the last one, then padding.
    fn text_or_pad(&self, utterance: &Utterance<'_>, at: usize) -> u32 {
        let end = if at == utterance.known() { self.tts_eos } else { self.tts_pad };
        utterance.text_at(at).unwrap_or(end)
    }
}
