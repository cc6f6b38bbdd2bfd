//! `repartee ask`: one turn through the engine without a server.

use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use repartee_engine_api::{
    Command, Event, OpenError, Respond, Role, Sampling, SessionError, SpeechEngine, SubmitError,
};
use repartee_media::sound_file::{self, SoundFileError};
use repartee_media::wav::{self, WriteError};
use thiserror::Error;

/// Duration of one submitted slice, in ms.
const SLICE_MS: usize = 1_000;
/// Maximum size of a written question, in bytes.
const MAX_TEXT: u64 = 65_536;
/// Maximum size of a spoken question, in bytes: an hour of any format.
const MAX_SOUND: u64 = 1 << 30;
/// Maximum duration of a question; models accept less.
const MAX_QUESTION: Duration = Duration::from_secs(3_600);

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
    #[error("cannot write {path}: {error}")]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Reason of the failure.
        error: WriteError,
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
    /// Time from the end of the question to the first samples; `None` for an answer without audio.
    pub first_sound: Option<Duration>,
    /// Time from the end of the question to the end of the answer.
    pub took: Duration,
    /// Duration of the answer's audio.
    pub sound: Duration,
}

impl AskReport {
    /// RTF: generation time divided by duration; below 1 is faster than speech. `None` for an answer without audio.
    pub fn rtf(&self) -> Option<f64> {
        (!self.sound.is_zero()).then(|| self.took.as_secs_f64() / self.sound.as_secs_f64())
    }
}

/// Asks the engine the question in the file `question`, text if its name ends in `.txt`, else a sound file ([`sound_file`]); prints the transcript to `out` as it arrives, and writes
/// the audio to the wav file `answer` (16 bits, mono), unless the model answers with text alone. Dropping the future stops the answer and writes nothing.
pub async fn ask(
    engine: &dyn SpeechEngine,
    question: &Path,
    answer: &Path,
    out: &mut (impl Write + Send),
) -> Result<AskReport, AskError> {
    let info = engine.info();
    let commands = question_commands(question, info.input_rate)?;
    let session = engine.open()?;
    if info.audio_output && !info.instructions.is_empty() {
        session.submit_async(Command::SetInstructions(info.instructions.clone())).await?;
    }
    for command in commands {
        session.submit_async(command).await?;
    }
    let asked = Instant::now();
    // Greedy, so that the same question gets the same answer.
    let sampling = Some(Sampling::GREEDY);
    let respond = Respond { sampling, audio: info.audio_output, ..Respond::new(1, 2) };
    session.submit_async(Command::Respond(respond)).await?;

    let (mut transcript, mut samples, mut first_sound) = (String::new(), Vec::new(), None);
    loop {
        match session.next_event().await.ok_or(AskError::Stopped)? {
            Event::Text { text, .. } => {
                write!(out, "{text}")?;
                out.flush()?;
                transcript.push_str(&text);
            }
            Event::Audio { samples: more, .. } => {
                first_sound.get_or_insert_with(|| asked.elapsed());
                samples.extend(more);
            }
            Event::SegmentFinished { .. } => break,
            Event::Failed { error, .. } => return Err(error.into()),
            Event::InputText { .. } | Event::ToolCall { .. } | Event::ToolArguments { .. } | Event::Finished => {}
        }
    }
    writeln!(out)?;
    let took = asked.elapsed();
    if info.audio_output {
        wav::encode(&samples, info.output_rate)
            .and_then(|bytes| Ok(std::fs::write(answer, bytes)?))
            .map_err(|error| AskError::Write { path: answer.to_owned(), error })?;
    }
    let sound = Duration::from_secs_f64(samples.len() as f64 / f64::from(info.output_rate));
    Ok(AskReport { transcript, first_sound, took, sound })
}

/// Commands that make the question the user item 1.
fn question_commands(question: &Path, rate: u32) -> Result<Vec<Command>, AskError> {
    let read_error = |error| AskError::Read { path: question.to_owned(), error };
    let file = File::open(question).map_err(read_error)?;
    if question.extension().is_some_and(|extension| extension == "txt") {
        let mut text = String::new();
        file.take(MAX_TEXT + 1).read_to_string(&mut text).map_err(read_error)?;
        if text.len() as u64 > MAX_TEXT {
            return Err(AskError::TooLong { path: question.to_owned() });
        }
        return Ok(vec![Command::text(1, Role::User, text.trim())]);
    }
    let mut bytes = Vec::new();
    file.take(MAX_SOUND + 1).read_to_end(&mut bytes).map_err(read_error)?;
    if bytes.len() as u64 > MAX_SOUND {
        return Err(AskError::TooLarge { path: question.to_owned() });
    }
    let sound = sound_file::read(&bytes, rate, MAX_QUESTION)
        .map_err(|error| AskError::Sound { path: question.to_owned(), error })?;
    let slices = sound.chunks(rate as usize * SLICE_MS / 1_000).map(|slice| Command::Append(slice.to_vec()));
    Ok(slices.chain([Command::Commit { item: 1 }]).collect())
}
