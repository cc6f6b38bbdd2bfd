//! The talker's input of one utterance: a text part and a codec part for each position, added.

use super::config::Config;
use super::voices::Voice;
use repartee_kernels::ops::NO_ID;

/// Rows of an utterance beside those of its text: header, language, speaker and marks.
pub const HEADER_ROWS: usize = 12;

/// A position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Row {
    /// A text id and a codec id ([`NO_ID`] for none).
    Text {
        /// The text id.
        id: u32,
        /// The codec id.
        codec: u32,
    },
    /// A text id and the sum of the last frame's embeddings.
    Frame {
        /// The text id.
        id: u32,
    },
}

/// Ids that stand in every utterance.
#[derive(Debug, Clone)]
pub struct Marks {
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
#[derive(Debug, Clone, Default)]
pub struct Utterance {
    /// Text ids so far.
    pub text: Vec<u32>,
    /// Whether no more come.
    pub ended: bool,
    /// Whether all of it stands before the first frame; otherwise one id stands beside each frame.
    pub whole: bool,
}

impl Marks {
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
    pub fn begin(&self, utterance: &Utterance, voice: Voice) -> Option<Vec<Row>> {
        let Utterance { text, ended, whole } = utterance;
        let first = *text.first()?;
        if *whole && !ended {
            return None;
        }
        let row = |id| move |codec| Row::Text { id, codec };
        let mut rows: Vec<Row> = self.header.into_iter().map(|id| Row::Text { id, codec: NO_ID }).collect();
        let language = match voice.language {
            Some(language) => vec![self.think, self.think_bos, language, self.think_eos],
            None => vec![self.nothink, self.think_bos, self.think_eos],
        };
        rows.extend(language.into_iter().chain(voice.speaker).map(row(self.tts_pad)));
        rows.push(Row::Text { id: self.tts_bos, codec: self.codec_pad });
        if *whole {
            let text = text.iter().copied().chain([self.tts_eos]);
            rows.extend(text.map(|id| Row::Text { id, codec: self.codec_pad }));
        }
        rows.push(Row::Text { id: if *whole { self.tts_pad } else { first }, codec: self.codec_bos });
        Some(rows)
    }

    /// The text id beside frame `frame`, counted from 1; `None` while it is not known.
    pub fn beside(&self, utterance: &Utterance, frame: usize) -> Option<u32> {
        let Utterance { text, ended, whole } = utterance;
        match text.get(frame) {
            _ if *whole => Some(self.tts_pad),
            Some(&id) => Some(id),
            None if !ended => None,
            None if frame == text.len() => Some(self.tts_eos),
            None => Some(self.tts_pad),
        }
    }
}
