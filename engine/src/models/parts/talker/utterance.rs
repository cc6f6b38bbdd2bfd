//! Rows of an utterance of Qwen3's talkers: a header with the language and the speaker, then the text, one token with
//! each frame or all of it before the first frame.

use repartee_kernels::NO_ID;
use std::sync::Arc;

use super::model::{CodecPart, TalkerRow, TextPart};
use super::voice::{Speaker, Voice};
use crate::checkpoint::CheckpointError;
use crate::models::parts::config::ConfigSection;

/// Most rows of an utterance without its text and recording: header, language, speaker and special tokens.
pub const HEADER_ROWS: usize = 12;

/// Special ids of every utterance, from config.json.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UtteranceIds {
    /// Text token before the text.
    pub tts_bos: u32,
    /// Text token at the end of the text.
    pub tts_eos: u32,
    /// Text token that pads the text after its end.
    pub tts_pad: u32,
    /// Codec id before a language.
    pub think: u32,
    /// Codec id for speech without a language.
    pub nothink: u32,
    /// Codec id that opens the language.
    pub think_bos: u32,
    /// Codec id that closes the language.
    pub think_eos: u32,
    /// Codec id that pads.
    pub codec_pad: u32,
    /// Codec id before the first frame.
    pub codec_bos: u32,
    /// Codec id that ends the speech.
    pub codec_eos: u32,
}

impl UtteranceIds {
    /// Reads the text's ids at the top of config.json, and the codec's ids in `talker`, the talker's section. The
    /// vocabularies have `text` and `codec` ids. Without `languages` none can be requested.
    pub fn read(
        (top, talker): (&ConfigSection<'_>, &ConfigSection<'_>),
        (text, codec): (usize, usize),
        languages: bool,
    ) -> Result<Self, CheckpointError> {
        let nothink = talker.id("codec_nothink_id", 4203, codec)?;
        Ok(Self {
            tts_bos: top.id("tts_bos_token_id", 151_672, text)?,
            tts_eos: top.id("tts_eos_token_id", 151_673, text)?,
            tts_pad: top.id("tts_pad_token_id", 151_671, text)?,
            think: if languages { talker.id("codec_think_id", 4202, codec)? } else { nothink },
            nothink,
            think_bos: talker.id("codec_think_bos_id", 4204, codec)?,
            think_eos: talker.id("codec_think_eos_id", 4205, codec)?,
            codec_pad: talker.id("codec_pad_id", 4196, codec)?,
            codec_bos: talker.id("codec_bos_id", 4197, codec)?,
            codec_eos: talker.id("codec_eos_token_id", 4198, codec)?,
        })
    }
}

/// Special ids of a response's utterances.
#[derive(Debug, Clone)]
pub struct UtteranceTokens {
    /// Ids of `<|im_start|>assistant\n`.
    pub header: [u32; 3],
    /// Ids of every utterance.
    pub ids: UtteranceIds,
}

/// Text of an utterance as far as it is known, and its voice.
#[derive(Debug, Clone, Copy)]
pub struct Utterance<'a> {
    /// Voice that speaks the text.
    pub voice: &'a Voice,
    /// Text received so far.
    pub text: &'a [TextPart],
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
    fn text_at(&self, at: usize) -> Option<TextPart> {
        let before = self.voice.recording().map_or(&[][..], |recording| &recording.text);
        let recorded = before.get(at).map(|&id| TextPart::Token(id));
        recorded.or_else(|| self.text.get(at.checked_sub(before.len())?).copied())
    }
}

impl UtteranceTokens {
    /// Rows before the first frame; `None` until enough of the text is known, or if there is no text.
    pub fn begin(&self, utterance: &Utterance<'_>) -> Option<Vec<TalkerRow>> {
        let Utterance { voice, text, ended, whole } = utterance;
        let (lead, known) = (utterance.lead(), utterance.known());
        let enough = if *whole { *ended } else { *ended || known >= lead };
        if text.is_empty() || !enough {
            return None;
        }
        let with = |id, codec| TalkerRow::new(TextPart::Token(id), codec);
        let mut rows: Vec<TalkerRow> = self.header.into_iter().map(|id| with(id, NO_ID)).collect();
        let language = match voice.language {
            Some(language) => vec![self.ids.think, self.ids.think_bos, language, self.ids.think_eos],
            None => vec![self.ids.nothink, self.ids.think_bos, self.ids.think_eos],
        };
        rows.extend(language.into_iter().map(|codec| with(self.ids.tts_pad, codec)));
        match &voice.speaker {
            Speaker::Any => {}
            Speaker::Listed(speaker) => rows.push(with(self.ids.tts_pad, *speaker)),
            Speaker::Cloned(cloned) => {
                let codec = CodecPart::Cloned { voice: Arc::clone(cloned), frame: None };
                rows.push(TalkerRow { text: TextPart::Token(self.ids.tts_pad), codec });
            }
        }
        rows.push(with(self.ids.tts_bos, self.ids.codec_pad));
        if *whole {
            let text = (0..known).filter_map(|at| utterance.text_at(at)).chain([TextPart::Token(self.ids.tts_eos)]);
            rows.extend(text.map(|text| TalkerRow::new(text, self.ids.codec_pad)));
        }
        let beside = |at| if *whole { TextPart::Token(self.ids.tts_pad) } else { self.text_or_pad(utterance, at) };
        rows.push(TalkerRow::new(beside(0), self.ids.codec_bos));
        if let Some(recording) = utterance.voice.recording() {
            let codec = |at| CodecPart::Cloned { voice: Arc::clone(recording), frame: Some(at) };
            let frame = |at| TalkerRow { text: beside(at + 1), codec: codec(at) };
            rows.extend((0..recording.frames.len()).map(frame));
        }
        Some(rows)
    }

    /// Text that goes with frame `frame`, counted from 1; `None` while it is not known.
    pub fn text_with_frame(&self, utterance: &Utterance<'_>, frame: usize) -> Option<TextPart> {
        if utterance.whole {
            return Some(TextPart::Token(self.ids.tts_pad));
        }
        let at = utterance.lead() + frame - 1;
        (utterance.ended || at < utterance.known()).then(|| self.text_or_pad(utterance, at))
    }

    /// Text at index `at`, which is known or past the end: the end token after the last one, then padding.
    fn text_or_pad(&self, utterance: &Utterance<'_>, at: usize) -> TextPart {
        let end = if at == utterance.known() { self.ids.tts_eos } else { self.ids.tts_pad };
        utterance.text_at(at).unwrap_or(TextPart::Token(end))
    }
}
