//! `repartee ask`: one turn through the engine without a server.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use repartee_engine::session::{Command, Event, OpenError, Respond, Sampling, SessionError, SpeechEngine, SubmitError};
use thiserror::Error;

use crate::media::pcm::to_i16;
use crate::media::resample::{RATES, ResampleError, Resampler};

/// How much sound is submitted at once.
const SLICE_MS: usize = 1_000;

/// Why a question was not answered.
#[derive(Debug, Error)]
pub enum AskError {
    /// The question cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: hound::Error,
    },
    /// The question has a rate that is no sound of speech.
    #[error("cannot use {path}: {error}")]
    Rate {
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: ResampleError,
    },
    /// The question has no sound.
    #[error("{0} holds no sound")]
    Empty(PathBuf),
    /// The answer cannot be written.
    #[error("cannot write {path}: {error}")]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why not.
        error: hound::Error,
    },
    /// The transcript cannot be printed.
    #[error("cannot print the transcript: {0}")]
    Print(#[from] std::io::Error),
    /// The engine has no room.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The engine did not take a command.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The engine could not answer.
    #[error(transparent)]
    Engine(#[from] SessionError),
    /// The engine has stopped.
    #[error("the engine has stopped")]
    Stopped,
}

/// What one answer took.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// What was said.
    pub transcript: String,
    /// From the end of the question to the first samples; `None` for an answer without sound.
    pub first_sound: Option<Duration>,
    /// From the end of the question to the end of the answer.
    pub took: Duration,
    /// How long the answer sounds.
    pub sound: Duration,
}

impl Answered {
    /// Generation time over duration; below 1 is faster than speech. `None` for an answer without sound.
    pub fn rtf(&self) -> Option<f64> {
        (!self.sound.is_zero()).then(|| self.took.as_secs_f64() / self.sound.as_secs_f64())
    }
}

/// Puts the wav file `question` to the engine, prints the transcript to `out` as it comes, and writes the sound to the
/// wav file `answer` (16 bits, mono). Dropping the future stops the answer and writes nothing.
pub async fn ask(
    engine: &dyn SpeechEngine,
    question: &Path,
    answer: &Path,
    out: &mut (impl Write + Send),
) -> Result<Answered, AskError> {
    let info = engine.info();
    let sound = read(question, info.input_rate)?;
    let session = engine.open()?;
    for slice in sound.chunks(info.input_rate as usize * SLICE_MS / 1_000) {
        session.submit_async(Command::Append(slice.to_vec())).await?;
    }
    session.submit_async(Command::Commit { item: 1 }).await?;
    let asked = Instant::now();
    // The same question gets the same answer.
    let sampling = Some(Sampling::GREEDY);
    let respond = Respond { sampling, ..Respond::new(1, 2) };
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
            Event::ToolCall { .. } | Event::ToolArguments { .. } | Event::Finished => {}
        }
    }
    writeln!(out)?;
    let took = asked.elapsed();
    write_wav(answer, &samples, info.output_rate)
        .map_err(|error| AskError::Write { path: answer.to_owned(), error })?;
    let sound = Duration::from_secs_f64(samples.len() as f64 / f64::from(info.output_rate));
    Ok(Answered { transcript, first_sound, took, sound })
}

/// A wav file of any kind as mono samples at `rate`.
fn read(path: &Path, rate: u32) -> Result<Vec<f32>, AskError> {
    let unreadable = |error| AskError::Read { path: path.to_owned(), error };
    let mut reader = hound::WavReader::open(path).map_err(unreadable)?;
    let spec = reader.spec();
    let interleaved: Vec<f32> = match spec.sample_format {
        hound::SampleFormat::Float => reader.samples::<f32>().collect::<Result<_, _>>().map_err(unreadable)?,
        hound::SampleFormat::Int => {
            let full_scale = 2f32.powi(i32::from(spec.bits_per_sample) - 1);
            let scaled = reader.samples::<i32>().map(|sample| sample.map(|sample| sample as f32 / full_scale));
            scaled.collect::<Result<_, _>>().map_err(unreadable)?
        }
    };
    let channels = usize::from(spec.channels.max(1));
    let mono = average(&interleaved, channels);
    if mono.is_empty() {
        return Err(AskError::Empty(path.to_owned()));
    }
    // Studio rates are brought into range by averaging neighbours: speech has nothing up there that could fold back.
    let fold = spec.sample_rate.div_ceil(*RATES.end()).max(1);
    let unusable = |error| AskError::Rate { path: path.to_owned(), error };
    let mut filter = Resampler::new(spec.sample_rate / fold, rate).map_err(unusable)?;
    let mut sound = filter.push(&average(&mono, fold as usize)).map_err(unusable)?;
    sound.extend(filter.flush().map_err(unusable)?);
    Ok(sound)
}

fn average(samples: &[f32], group: usize) -> Vec<f32> {
    samples.chunks_exact(group).map(|group| group.iter().sum::<f32>() / group.len() as f32).collect()
}

fn write_wav(path: &Path, samples: &[f32], rate: u32) -> Result<(), hound::Error> {
    let sample_format = hound::SampleFormat::Int;
    let spec = hound::WavSpec { channels: 1, sample_rate: rate, bits_per_sample: 16, sample_format };
    let mut writer = hound::WavWriter::create(path, spec)?;
    for sample in samples {
        writer.write_sample(to_i16(*sample))?;
    }
    writer.finalize()
}
