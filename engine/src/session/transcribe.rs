//! Transcripts of the caller's audio. A model that hears writes one in a background response to the audio and an
//! instruction; its text goes to the caller as that of the audio.

use repartee_engine_api::{MessageContent, Respond, ResponseInput, Role, Sampling, SessionError, Transcribe};

use super::{ModelContext, Session};
use crate::elements::MessagePart;

/// Instruction to the model.
const INSTRUCTION: &str = "Write down what is said in this recording, word for word, and nothing else.";
/// Instruction to translate.
const TRANSLATION: &str = "Translate what is said in this recording into English, and write the translation alone.";
/// Maximum number of text tokens: minutes of speech.
const MAX_TOKENS: u32 = 1_024;

/// Text that asks the model for a transcript.
pub(super) fn instruction(request: &Transcribe) -> String {
    let mut text = if request.translate { TRANSLATION } else { INSTRUCTION }.to_owned();
    if let Some(language) = &request.language {
        text.push_str(&format!(" The language is {language}."));
    }
    if !request.prompt.is_empty() {
        text.push_str(&format!(" {}", request.prompt));
    }
    text
}

impl Session {
    /// Requests the transcript of an audio item.
    pub(super) fn transcribe(&mut self, request: Transcribe, model: &mut ModelContext<'_>) -> Result<(), SessionError> {
        if !model.transcribes {
            return Err(SessionError::NoTranscription);
        }
        if request.translate && !model.translates {
            return Err(SessionError::NoTranslation);
        }
        if model.hears_text {
            return self.follow(&request);
        }
        let message = self.history.get(request.item).ok_or(SessionError::UnknownItem(request.item))?;
        if !message.parts.iter().any(|part| matches!(part, MessagePart::Audio(_))) {
            return Err(SessionError::bad("item", request.item, "an item with audio"));
        }
        let mut input = vec![ResponseInput::Item(request.item)];
        let taught = model.template.transcription();
        if taught.is_none() {
            let content = MessageContent::Text { role: Role::User, text: instruction(&request) };
            input.push(ResponseInput::Content(content));
        }
        let respond = Respond {
            audio: false,
            input: Some(input),
            out_of_band: true,
            background: true,
            instructions: Some(taught.unwrap_or_default().to_owned()),
            tools: model.template.tools().map(|_| Vec::new()),
            max_tokens: Some(MAX_TOKENS),
            sampling: Some(Sampling::GREEDY),
            // Out-of-band responses leave no item.
            ..Respond::new(request.response, request.item)
        };
        self.request(respond, Some(request.item), model)
    }
}
