//! `repartee ask`: one turn through the engine without a server.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use repartee_engine_api::{
    Command, Event, OpenError, Respond, Role, Sampling, SessionError, SpeechEngine, SubmitError,
};
use repartee_media::sound_file::{self, SoundFileError};
use thiserror::Error;

use super::speech::{GeneratedSpeech, SpeechTimes, SpeechWriteError, WavTarget};

/// Duration of one submitted slice, in ms.
const SLICE_MS: usize = 1_000;
/// Maximum size of a written question, in bytes.
const MAX_TEXT: u64 = 65_536;
/// Maximum size of a spoken question, in bytes: an hour of any format.
const MAX_SOUND: u64 = 1 << 30;
/// Maximum duration of a question; models accept less.
const MAX_QUESTION: Duration = Duration::from_secs(3_600);
/// Largest sample of a silent question: -60 dBFS.
const SILENCE: f32 = 0.001;
/// Name of the standard input in messages.
const STANDARD_INPUT: &str = "standard input";

/// Question to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// The question itself.
    Text(String),
    /// A file: text if its name ends in `.txt`, else sound ([`sound_file`]).
    File(PathBuf),
    /// Standard input: sound, or text if its bytes are no sound file.
    StandardInput,
}

/// Error of [`ask`].
#[derive(Debug, Error)]
pub enum AskError {
    /// The question's file cannot be opened.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the failure.
        error: std::io::Error,
    },
    /// The question's file is too large for a recording.
    #[error("{path} holds more than {MAX_SOUND} bytes: ask a shorter question")]
    TooLarge {
        /// Path of the file.
        path: PathBuf,
    },
    /// The question's file holds too much text.
    #[error("{path} holds more than {MAX_TEXT} bytes of text: ask a shorter question")]
    TooLong {
        /// Path of the file.
        path: PathBuf,
    },
    /// The question's file is no usable sound file.
    #[error("cannot use {path}: {error}")]
    Sound {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the failure.
        error: SoundFileError,
    },
    /// The answer cannot be written.
    #[error(transparent)]
    Write(#[from] SpeechWriteError),
    /// The question has no letter.
    #[error("the question is empty")]
    Empty,
    /// The question is silence, to which a model answers anything.
    #[error("{path} is silent: its loudest sample is below -60 dBFS; record the question again")]
    Silent {
        /// Path of the file.
        path: PathBuf,
    },
    /// The transcript cannot be printed.
    #[error("cannot print the transcript: {0}")]
    Print(#[from] std::io::Error),
    /// The engine opened no session.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine refused a command.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The engine failed to answer.
    #[error(transparent)]
    Engine(#[from] SessionError),
    /// The session ended without an answer.
    #[error("the engine has stopped")]
    Stopped,
}

/// Transcript and times of one answer.
#[derive(Debug, Clone, PartialEq)]
pub struct AskReport {
    /// Text of the answer.
    pub transcript: String,
    /// Times from the end of the question on.
    pub times: SpeechTimes,
}

/// Asks the engine a question; prints the transcript to `out` as it arrives, and writes the audio to `answer`. Without it, or
/// with a model that does not speak, the answer is text alone. Dropping the future stops the answer and writes nothing.
pub async fn ask(
    engine: &dyn SpeechEngine,
    question: &Question,
    answer: Option<&WavTarget>,
    out: &mut (impl Write + Send),
) -> Result<AskReport, AskError> {
    let info = engine.info();
    let target = answer.filter(|_| info.audio_output);
    let commands = question_commands(question, info.input_rate)?;
    let session = engine.open()?;
    if target.is_some() && !info.instructions.is_empty() {
        session.submit_async(Command::SetInstructions(info.instructions.clone())).await?;
    }
    for command in commands {
        session.submit_async(command).await?;
    }
    let mut speech = GeneratedSpeech::begin(info.output_rate);
    // Greedy, so that the same question gets the same answer.
    let sampling = Some(Sampling::GREEDY);
    let respond = Respond { sampling, audio: target.is_some(), ..Respond::new(1, 2) };
    session.submit_async(Command::Respond(respond)).await?;

    let mut transcript = String::new();
    loop {
        match session.next_event().await.ok_or(AskError::Stopped)? {
            Event::Text { text, .. } => {
                write!(out, "{text}")?;
                out.flush()?;
                transcript.push_str(&text);
            }
            Event::Audio { samples, .. } => speech.extend(&samples),
            Event::SegmentFinished { .. } => break,
            Event::Failed { error, .. } => return Err(error.into()),
            Event::InputText { .. }
            | Event::InputDetails { .. }
            | Event::ToolCall { .. }
            | Event::ToolArguments { .. }
            | Event::Finished => {}
        }
    }
    writeln!(out)?;
    let times = speech.times();
    if let Some(target) = target {
        speech.write(target)?;
    }
    Ok(AskReport { transcript, times })
}

/// Commands that make the question the user item 1.
fn question_commands(question: &Question, rate: u32) -> Result<Vec<Command>, AskError> {
    Ok(match read_question(question, rate)? {
        AskedQuestion::Text(text) => vec![Command::text(1, Role::User, text)],
        AskedQuestion::Sound(sound) => {
            let slices = sound.chunks(rate as usize * SLICE_MS / 1_000).map(|slice| Command::Append(slice.to_vec()));
            slices.chain([Command::Commit { item: 1 }]).collect()
        }
    })
}

/// Contents of a question.
#[derive(Debug)]
pub(super) enum AskedQuestion {
    /// A text with at least one letter, trimmed.
    Text(String),
    /// Samples in -1..1 that can be heard.
    Sound(Vec<f32>),
}

/// Reads a question; its sound at `rate`.
///
/// # Errors
/// The file or the input cannot be read, is too long, no sound file, empty or silent.
pub(super) fn read_question(question: &Question, rate: u32) -> Result<AskedQuestion, AskError> {
    match question {
        Question::Text(text) => text_question(text),
        Question::File(path) => {
            let file = File::open(path).map_err(|error| AskError::Read { path: path.clone(), error })?;
            if path.extension().is_some_and(|extension| extension == "txt") {
                let bytes = read(file, path, MAX_TEXT)?.ok_or_else(|| AskError::TooLong { path: path.clone() })?;
                let invalid = |error| AskError::Read { path: path.clone(), error: std::io::Error::other(error) };
                return text_question(&String::from_utf8(bytes).map_err(invalid)?);
            }
            let bytes = read(file, path, MAX_SOUND)?.ok_or_else(|| AskError::TooLarge { path: path.clone() })?;
            audible(sound_file::read(&bytes, rate, MAX_QUESTION), path)
        }
        Question::StandardInput => {
            let path = Path::new(STANDARD_INPUT);
            let bytes = read(std::io::stdin().lock(), path, MAX_SOUND)?
                .ok_or_else(|| AskError::TooLarge { path: path.to_owned() })?;
            match (sound_file::read(&bytes, rate, MAX_QUESTION), std::str::from_utf8(&bytes)) {
                (Err(SoundFileError::Container { .. }), Ok(text)) => match bytes.len() as u64 > MAX_TEXT {
                    true => Err(AskError::TooLong { path: path.to_owned() }),
                    false => text_question(text),
                },
                (sound, _) => audible(sound, path),
            }
        }
    }
}

/// Refuses a spoken question that cannot be heard.
fn audible(sound: Result<Vec<f32>, SoundFileError>, path: &Path) -> Result<AskedQuestion, AskError> {
    match sound {
        Ok(sound) if sound.iter().any(|sample| sample.abs() > SILENCE) => Ok(AskedQuestion::Sound(sound)),
        Ok(_) => Err(AskError::Silent { path: path.to_owned() }),
        Err(error) => Err(AskError::Sound { path: path.to_owned(), error }),
    }
}

/// Reads at most `most` bytes; `None` if there are more.
fn read(from: impl Read, path: &Path, most: u64) -> Result<Option<Vec<u8>>, AskError> {
    let mut bytes = Vec::new();
    from.take(most + 1).read_to_end(&mut bytes).map_err(|error| AskError::Read { path: path.to_owned(), error })?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= most))
}

fn text_question(text: &str) -> Result<AskedQuestion, AskError> {
    match text.trim() {
        "" => Err(AskError::Empty),
        text => Ok(AskedQuestion::Text(text.to_owned())),
    }
}
