//! Joins a language model that answers with text and a model that speaks a given text.

use super::bridge::BridgePart;
use super::error::CascadeError;
use super::read_aloud::ReadAloudPart;
use crate::device::Device;
use crate::models::parts::pipeline::{Assembly, ModelFrame};
use crate::spoken_text::SpokenTextConfig;

/// Lets `speak` say the text of `think`, in the form that `spoken` sets. Sessions, prompts and tools are those of `think`;
/// voices and sound those of `speak`.
pub fn join_voice<O: Device>(
    think: Assembly<O>,
    speak: Assembly<O>,
    spoken: &SpokenTextConfig,
) -> Result<Assembly<O>, CascadeError> {
    if think.pipeline.only_hears() {
        return Err(CascadeError::ThinkOnlyHears);
    }
    if think.frame.codec.is_some() {
        return Err(CascadeError::ThinkSpeaks);
    }
    if speak.frame.codec.is_none() {
        return Err(CascadeError::SpeakSilent);
    }
    if speak.frame.template.streamed(&[]).is_none() {
        return Err(CascadeError::SpeakWrites);
    }
    let ModelFrame { tokenizer, template, voices, codec, .. } = speak.frame;
    // A reader of clauses makes the text speakable itself.
    let spoken = spoken.options().filter(|_| !template.reads_clauses());
    let bridge = BridgePart { text: think.frame.tokenizer.clone(), speech: tokenizer, template, spoken };
    let pipeline = think.pipeline.first_stage(|first| Box::new(ReadAloudPart(first)));
    Ok(pipeline.stage(bridge).then(speak.pipeline).with(ModelFrame { voices, codec, ..think.frame }))
}
