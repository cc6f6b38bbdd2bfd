//! Prompt of an utterance, after `prepare_input_embed` of the published code, and the caption that instructions become.

use std::fmt::Write;

use repartee_kernels::NO_ID;
use serde_json::{Map, Value};

use super::config::FolderForm;
use crate::checkpoint::{Checkpoint, CheckpointError};
use crate::models::parts::patch_speech::stage::UtterancePrompt;
use crate::models::parts::special_tokens::TokenReader;
use crate::text::Tokenizer;

/// Fields of a caption, in the published order; with music that has a level, it stands further ahead.
const FIELDS: [&str; 10] = ["序号", "说话人", "方言", "风格", "语速", "基频", "音量", "情感", MUSIC, "IP"];
const FIELDS_WITH_MUSIC: [&str; 10] = ["序号", "说话人", MUSIC, "情感", "方言", "风格", "语速", "基频", "音量", "IP"];
const MUSIC: &str = "BGM";
const FIELDS_OF_MUSIC: [&str; 6] = ["Genre", "Mood", "Instrument", "Theme", "ENV", "SNR"];
/// Field for instructions in plain words.
const STYLE: &str = "风格";

/// Ids of the prompt around an utterance.
pub struct PromptIds {
    tokenizer: Tokenizer,
    /// Ids before the text; [`NO_ID`] is the row of no speaker, which is zero.
    before: Vec<u32>,
    /// Ids after the text.
    after: Vec<u32>,
    /// Id after instructions.
    instructed: u32,
    /// Id before the sound.
    audio: u32,
}

impl PromptIds {
    /// Looks the ids up.
    pub fn load(checkpoint: &Checkpoint, tokenizer: &Tokenizer, form: FolderForm) -> Result<Self, CheckpointError> {
        let reader = TokenReader::new(checkpoint, tokenizer);
        let spelt = |pieces: &[&str]| -> Result<Vec<u32>, CheckpointError> {
            let mut ids = Vec::new();
            for piece in pieces {
                if piece.starts_with("<|") { ids.push(reader.special(piece)?) } else { ids.extend(reader.text(piece)?) }
            }
            Ok(ids)
        };
        let system = ["<|im_start|>", "system\nYou are a helpful assistant.", "<|im_end|>", "\n"];
        let asked = ["<|im_start|>", "user\n", "Please generate speech based on the following description.\n"];
        let mut before = spelt(&[&system[..], &asked, &["  speaker_1:", "<|vision_start|>"]].concat())?;
        before.push(NO_ID);
        before.extend(spelt(&["<|vision_end|>", "\n", " Text input:\n"])?);
        // The two published forms of the prompt differ here alone.
        let mark = if form == FolderForm::Tts { "<|endoftext|>" } else { "<|im_end|>" };
        Ok(Self {
            tokenizer: tokenizer.clone(),
            before,
            after: spelt(&["<|im_end|>", "\n", "<|im_start|>", "assistant\n"])?,
            instructed: reader.special(mark)?,
            audio: reader.special("<audio>")?,
        })
    }
}

impl UtterancePrompt for PromptIds {
    /// Those of a caption.
    fn instructions(&self, text: &str) -> Vec<u32> {
        self.tokenizer.encode(&caption(text)).unwrap_or_default()
    }

    fn rows(&self, text: &[u32], instructions: &[u32]) -> Vec<u32> {
        let mark = (!instructions.is_empty()).then_some(self.instructed);
        let parts = [&self.before[..], text, &self.after, instructions].concat();
        parts.into_iter().chain(mark).chain([self.audio]).collect()
    }
}

/// Caption of instructions: plain words are a style, an object of JSON has fields of a caption, and a whole caption stays as it
/// is.
fn caption(instructions: &str) -> String {
    let text = instructions.trim();
    let given = match serde_json::from_str(text) {
        Ok(Value::Object(fields)) if fields.contains_key("audio_sequence") => return text.to_owned(),
        Ok(Value::Object(fields)) => fields,
        _ => Map::from_iter([(STYLE.to_owned(), Value::from(text))]),
    };
    let music = given.get(MUSIC).and_then(Value::as_object);
    let has_level = music.and_then(|music| music.get("SNR")).is_some_and(|level| !level.is_null());
    let fields = if has_level { FIELDS_WITH_MUSIC } else { FIELDS };
    let shown = fields.map(|field| {
        let value = match (given.get(field), field) {
            (Some(Value::Object(music)), MUSIC) => {
                let known = FIELDS_OF_MUSIC.iter().filter(|name| music.contains_key(**name));
                object(known.map(|name| (*name, music[*name].to_string())))
            }
            (Some(value), _) => value.to_string(),
            (None, MUSIC) => object(FIELDS_OF_MUSIC.map(|name| (name, Value::Null.to_string()))),
            (None, "序号") => "1".to_owned(),
            (None, "说话人") => r#""speaker_1""#.to_owned(),
            (None, _) => Value::Null.to_string(),
        };
        (field, value)
    });
    format!(r#"{{"audio_sequence": [{}]}}"#, object(shown))
}

/// An object with these fields, spaced as Python writes it.
fn object<'a>(fields: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let mut text = String::from("{");
    for (at, (field, value)) in fields.into_iter().enumerate() {
        let between = if at == 0 { "" } else { ", " };
        // Writing to a string cannot fail.
        let _ = write!(text, r#"{between}"{field}": {value}"#);
    }
    text + "}"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_become_captions() {
        let music = r#"{"Genre": null, "Mood": null, "Instrument": null, "Theme": null, "ENV": null, "SNR": null}"#;
        let of = |style: &str, feeling: &str| {
            let voice = format!(r#""方言": null, "风格": {style}, "语速": null, "基频": null, "音量": null"#);
            let whole = format!(
                r#"{{"序号": 1, "说话人": "speaker_1", {voice}, "情感": {feeling}, "BGM": {music}, "IP": null}}"#
            );
            format!(r#"{{"audio_sequence": [{whole}]}}"#)
        };
        assert_eq!(caption(" be \"kind\" "), of(r#""be \"kind\"""#, "null"));
        assert_eq!(caption(r#"{"情感": "高兴", "other": 1}"#), of("null", r#""高兴""#));
        assert_eq!(caption(r#"{"audio_sequence": []}"#), r#"{"audio_sequence": []}"#);
        let level = caption(r#"{"BGM": {"SNR": 10.0, "Genre": "jazz"}, "IP": "a"}"#);
        let ahead =
            r#"[{"序号": 1, "说话人": "speaker_1", "BGM": {"Genre": "jazz", "SNR": 10.0}, "情感": null, "方言""#;
        assert!(level.contains(ahead) && level.ends_with(r#""IP": "a"}]}"#), "{level}");
    }
}
