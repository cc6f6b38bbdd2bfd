//! `repartee say`: reads a text aloud, without a server.

use std::collections::VecDeque;

use repartee_engine_api::{Command, Event, FinishReason, OpenError, Respond, SessionError, SpeechEngine, SubmitError};
use repartee_spoken::{SentenceEnd, SpokenOptions};
use thiserror::Error;

use super::speech::GeneratedSpeech;
use crate::read_text::{MAX_TEXT, ReadText};

/// Maximum number of voices that an error lists.
const LISTED: usize = 24;

/// Error of [`say`].
#[derive(Debug, Error)]
pub enum SayError {
    /// The model speaks no given text.
    #[error("`{0}` cannot read a given text aloud: use `repartee ask`, or a model with a voice (--speak DIR)")]
    NoGivenText(String),
    /// The model has no such voice.
    #[error("there is no voice `{name}`: choose one of {voices}")]
    UnknownVoice {
        /// The name.
        name: String,
        /// Names of the model's voices.
        voices: String,
    },
    /// The text is too long.
    #[error("the text has {0} bytes, at most {MAX_TEXT} are read: split it")]
    TooLong(usize),
    /// The text has no letter or digit.
    #[error("the text holds nothing to read")]
    Empty,
    /// The engine opened no session.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine refused a command.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The engine failed to speak.
    #[error(transparent)]
    Engine(#[from] SessionError),
    /// The session ended before the speech.
    #[error("the engine has stopped")]
    Stopped,
}

/// Speech of a text.
#[derive(Debug)]
pub struct SaidText {
    /// Samples and times of the speech.
    pub speech: GeneratedSpeech,
    /// Number of pieces whose speech ended at the model's limit.
    pub cut: usize,
}

/// Reads `text` aloud; `None` is the default voice, and the written form in place of the `spoken` one.
///
/// # Errors
///
/// The model reads no given text or lacks the voice, the text is empty or too long, or the engine fails.
pub async fn say(
    engine: &dyn SpeechEngine,
    text: &str,
    voice: Option<&str>,
    spoken: Option<SpokenOptions>,
) -> Result<SaidText, SayError> {
    let info = engine.info();
    if !info.given_text {
        return Err(SayError::NoGivenText(info.name.clone()));
    }
    if let Some(name) = voice.filter(|name| info.voices.iter().all(|voice| voice != name)) {
        let (listed, more) = (info.voices.iter().take(LISTED), info.voices.len().saturating_sub(LISTED));
        let mut voices = listed.map(String::as_str).collect::<Vec<_>>().join(", ");
        if more > 0 {
            voices += &format!(" and {more} more");
        }
        return Err(SayError::UnknownVoice { name: name.to_owned(), voices });
    }
    if text.len() > MAX_TEXT {
        return Err(SayError::TooLong(text.len()));
    }
    let mut read = ReadText::new(info, spoken);
    let mut cuts = read.push(text);
    cuts.extend(read.finish());
    let mut pieces = whole_pieces(cuts);
    if pieces.is_empty() {
        return Err(SayError::Empty);
    }
    let session = engine.open()?;
    let (mut speech, mut cut) = (GeneratedSpeech::begin(info.output_rate), 0);
    let mut response = 0;
    while let Some(text) = pieces.pop_front() {
        let most = u32::try_from(text.len() + 1).ok();
        let respond = Respond {
            voice: voice.map(str::to_owned),
            streamed: true,
            input: Some(Vec::new()),
            instructions: Some(String::new()),
            tools: Some(Vec::new()),
            max_tokens: most,
            ..Respond::new(response, response)
        };
        for command in
            [Command::Respond(respond), Command::StreamText { response, text }, Command::EndText { response }]
        {
            session.submit_async(command).await?;
        }
        loop {
            match session.next_event().await.ok_or(SayError::Stopped)? {
                Event::Audio { samples, .. } => speech.extend(&samples),
                Event::SegmentFinished { reason, .. } => {
                    cut += usize::from(reason == FinishReason::Length);
                    break;
                }
                Event::Failed { error, .. } => return Err(error.into()),
                _ => {}
            }
        }
        response += 1;
    }
    Ok(SaidText { speech, cut })
}

/// Joins the parts of each piece of a whole text.
fn whole_pieces(cuts: Vec<SentenceEnd>) -> VecDeque<String> {
    let (mut pieces, mut piece) = (VecDeque::new(), String::new());
    for cut in cuts {
        match cut {
            SentenceEnd::Text(text) => piece.push_str(&text),
            SentenceEnd::End if piece.is_empty() => {}
            SentenceEnd::End => pieces.push_back(std::mem::take(&mut piece)),
        }
    }
    pieces
}
