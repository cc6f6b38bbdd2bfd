//! Facts of a loaded model for callers.

use repartee_engine_api::ModelInfo;

use crate::config::EngineConfig;
use crate::model::{Codec, Hearing, Model};
use crate::stage::EdgeKind;

/// [`ModelInfo::input_rate`] of a model without audio input, in Hz.
const NOMINAL_RATE: u32 = 16_000;
/// [`ModelInfo::output_rate`] and [`ModelInfo::frame`] of a model without audio output.
const NOMINAL_CODEC: Codec = Codec { sample_rate: 24_000, frame_samples: (1920, 1) };

/// Facts of a model, with its name and its default instructions.
pub fn model_info((name, instructions): (&str, &str), model: &Model, config: &EngineConfig) -> ModelInfo {
    let voices = model.voices.names();
    let codec = model.codec.unwrap_or(NOMINAL_CODEC);
    let most_frames = model.stages.iter().filter_map(|stage| stage.most_frames()).min();
    let longest = |frames: usize| codec.frame().saturating_mul(u32::try_from(frames).unwrap_or(u32::MAX));
    ModelInfo {
        name: name.to_owned(),
        default_voice: voices.first().cloned().unwrap_or_default(),
        voices,
        input_rate: model.hearing.as_ref().map_or(NOMINAL_RATE, Hearing::rate),
        output_rate: codec.sample_rate,
        frame: codec.frame(),
        context_tokens: model.slots.context as u32,
        audio_input: model.hearing.is_some(),
        hears_text: matches!(model.hearing, Some(Hearing::Text(_))),
        answers: model.answers(),
        audio_output: model.codec.is_some(),
        tools: model.template.tools().is_some(),
        answer_forms: model.template.holds_forms()
            || model.stages.first().is_some_and(|stage| stage.form_ids().is_some()),
        transcribes: model.transcribes(config.transcribes),
        hearing: model.hearing_info(config.translates),
        given_text: model.codec.is_some() && model.template.streamed(&[]).is_some(),
        reads_messages: model.codec.and(model.template.given_text_instructions()),
        reads_only: model.stages.first().is_some_and(|stage| !stage.writes()),
        // In a cascade the text has the limit of a response's tokens.
        reads_clauses: model.stages.first().is_some_and(|stage| stage.output_kind() == EdgeKind::Clauses),
        whole_texts: !model.tokenizer.encodes_pieces(),
        spoken_text: model.stages.iter().find_map(|stage| stage.spoken_text()).cloned(),
        speech_limit: most_frames.map(longest),
        instructions: instructions.to_owned(),
        recording_rate: model.voices.recording_rate(),
    }
}
