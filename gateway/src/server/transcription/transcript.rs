//! Transcript of a file: each piece of its sound is an audio item of one engine session.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, EngineUsage, Event, Listen, ModelInfo, Transcribe, TranscriptDetails};
use repartee_media::pauses::SoundPiece;
use tokio::time::sleep;

use super::super::api_error::ApiError;
use super::super::generation::Generation;
use super::decoded_sound::DecodedSound;
use super::request::{TranscriptTask, TranscriptionPlan};
use super::segments::{TranscriptSegment, TranscriptWord, segments, words};
use crate::budget::account::KeyAccount;
use crate::metrics::Metrics;

/// Interval and number of retries while the engine has no free slot.
const RETRY: Duration = Duration::from_secs(1);
const TRIES: u32 = 30;

/// Transcript of a file so far.
#[derive(Debug, Default)]
pub(super) struct Transcript {
    pub text: String,
    /// Code of the language: the one that was named, or that of the first words.
    pub language: Option<String>,
    pub segments: Vec<TranscriptSegment>,
    pub words: Vec<TranscriptWord>,
    /// Duration of the file, once all of it was heard.
    pub duration: Duration,
    pub usage: TranscriptUsage,
}

/// Use of the model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum TranscriptUsage {
    /// The model counts no tokens.
    #[default]
    Duration,
    /// Tokens of prompts, by kind, and of the text.
    Tokens { text: u32, audio: u32, output: u32 },
}

impl TranscriptUsage {
    fn add(&mut self, engine: &EngineUsage) {
        let (text, audio, output) = match *self {
            Self::Duration => (0, 0, 0),
            Self::Tokens { text, audio, output } => (text, audio, output),
        };
        if *engine != EngineUsage::default() {
            *self = Self::Tokens {
                text: text.saturating_add(engine.input_text_tokens),
                audio: audio.saturating_add(engine.input_audio_tokens),
                output: output.saturating_add(engine.output_text_tokens),
            };
        }
    }
}

/// Next part of a text that is being written.
#[derive(Debug, PartialEq)]
pub(super) struct TranscriptDelta {
    /// Text behind the one before; may be empty.
    pub text: String,
    /// Sound of the file that was heard so far, in whole pieces.
    pub heard: Duration,
}

/// Writes the transcript of a file. Dropping it ends the session and the decoding.
pub(super) struct Transcription {
    generation: Generation,
    sound: DecodedSound,
    plan: TranscriptionPlan,
    /// Sample rate of the sound, in Hz.
    rate: u32,
    /// True if the text of a piece is returned as it grows; a recogniser gives all of it at once.
    grows: bool,
    account: Arc<KeyAccount>,
    metrics: Arc<Metrics>,
    /// Number of pieces so far.
    pieces: u64,
    piece: Option<ActivePiece>,
    /// Sound that was heard so far, and that was counted for the key.
    heard: Duration,
    counted: Duration,
    transcript: Transcript,
}

/// Piece of sound that is being heard.
struct ActivePiece {
    request: Transcribe,
    sound: Range<Duration>,
    /// Text so far, without white space before it.
    text: String,
    /// Bytes of it that were returned.
    sent: usize,
    details: Option<Box<TranscriptDetails>>,
    tries: u32,
}

impl Transcription {
    /// Begins the transcript of `sound`, whose samples are at the model's rate.
    pub fn new(
        generation: Generation,
        (sound, info): (DecodedSound, &ModelInfo),
        plan: TranscriptionPlan,
        account: Arc<KeyAccount>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let transcript = Transcript { language: plan.language.clone(), ..Transcript::default() };
        Self {
            generation,
            sound,
            plan,
            rate: info.input_rate,
            grows: !info.hears_text,
            account,
            metrics,
            pieces: 0,
            piece: None,
            heard: Duration::ZERO,
            counted: Duration::ZERO,
            transcript,
        }
    }

    /// Returns the next part of the text, or the error that ends it; `None` once it is complete.
    pub async fn next(&mut self) -> Result<Option<TranscriptDelta>, ApiError> {
        loop {
            let Some(piece) = &mut self.piece else {
                // The session reports alone that the server stops, or that the time is over.
                let next = tokio::select! {
                    piece = self.sound.next() => piece,
                    event = self.generation.next() => {
                        event?;
                        continue;
                    }
                };
                match next.map_err(|error| self.generation.fail(error))? {
                    Some(piece) => self.begin(piece),
                    None => {
                        self.transcript.duration = self.sound.duration();
                        self.count(self.transcript.duration);
                        return Ok(None);
                    }
                }
                continue;
            };
            let event = match self.generation.next_unless_busy().await? {
                Some(event) => event,
                None if piece.tries < TRIES => {
                    piece.tries += 1;
                    sleep(RETRY).await;
                    self.generation.submit([Command::Transcribe(piece.request.clone())]);
                    continue;
                }
                None => return Err(self.generation.fail_busy()),
            };
            if event.response() != Some(piece.request.response) {
                continue;
            }
            match event {
                Event::InputText { text, stable, .. } => {
                    let stays = text.get(..stable).unwrap_or_default().trim().len();
                    text.trim_start().clone_into(&mut piece.text);
                    let new = piece.text.get(piece.sent..stays).unwrap_or_default();
                    if self.grows && !new.is_empty() {
                        let text = joined(&self.transcript.text, piece.sent, new);
                        piece.sent = stays;
                        return Ok(Some(TranscriptDelta { text, heard: self.heard }));
                    }
                }
                Event::InputDetails { details, .. } => piece.details = Some(details),
                Event::SegmentFinished { usage, .. } => {
                    self.transcript.usage.add(&usage);
                    if let Some(piece) = self.piece.take() {
                        return Ok(Some(self.end(piece)));
                    }
                }
                _ => {}
            }
        }
    }

    /// The request, and the transcript once it is complete.
    pub fn result(&self) -> (&TranscriptionPlan, &Transcript) {
        (&self.plan, &self.transcript)
    }

    fn duration(&self, samples: u64) -> Duration {
        Duration::from_secs_f64(samples as f64 / f64::from(self.rate.max(1)))
    }

    /// Counts the sound of the file up to `until` for its key.
    fn count(&mut self, until: Duration) {
        let sound = until.saturating_sub(self.counted);
        self.counted += sound;
        self.account.count_sound(sound, Instant::now());
    }

    fn begin(&mut self, SoundPiece { begin, samples }: SoundPiece) {
        let sound = self.duration(begin)..self.duration(begin + samples.len() as u64);
        self.count(sound.end);
        let (item, response) = (self.pieces, self.pieces);
        self.pieces += 1;
        let (language, prompt) = (self.transcript.language.clone(), self.plan.prompt.clone());
        let translate = self.plan.task == TranscriptTask::Translate;
        let listen = Listen {
            language: language.clone(),
            prompt: prompt.clone(),
            translate,
            recorded: true,
            ..Listen::new(item)
        };
        let request = Transcribe { language, prompt, translate, ..Transcribe::new(response, item) };
        let slices = samples.chunks(self.rate.max(1) as usize).map(|slice| Command::Append(slice.to_vec()));
        let ends = [Command::Commit { item }, Command::Transcribe(request.clone())];
        self.generation.submit([Command::Listen(listen)].into_iter().chain(slices).chain(ends));
        self.piece = Some(ActivePiece { request, sound, text: String::new(), sent: 0, details: None, tries: 0 });
    }

    fn end(&mut self, piece: ActivePiece) -> TranscriptDelta {
        let ActivePiece { request, sound, text, sent, details, .. } = piece;
        // Nothing else reads the item.
        self.generation.submit([Command::Delete { item: request.item }]);
        let (text, before) = (text.trim_end(), &self.transcript.text);
        let rest = text.get(sent..).unwrap_or_default();
        let delta = if rest.is_empty() { String::new() } else { joined(before, sent, rest) };
        let whole = if text.is_empty() { String::new() } else { joined(before, 0, text) };
        self.metrics.transcribed.inc_by((sound.end - sound.start).as_secs_f64());
        self.heard = sound.end;
        let transcript = &mut self.transcript;
        transcript.text.push_str(&whole);
        transcript.segments.extend(segments(transcript.segments.len(), &sound, text, details.as_deref()));
        if let Some(details) = details {
            transcript.words.extend(words(sound.start, &details));
            if transcript.language.is_none() && !text.is_empty() {
                transcript.language = details.language;
            }
        }
        TranscriptDelta { text: delta, heard: self.heard }
    }
}

/// Text `new` behind `sent` bytes of its piece, which follows the pieces `before`: with a space between two pieces whose
/// language has spaces.
fn joined(before: &str, sent: usize, new: &str) -> String {
    let ends = [before.chars().next_back(), new.chars().next()];
    match ends {
        [Some(last), Some(first)] if sent == 0 && !(is_unspaced(last) && is_unspaced(first)) => format!(" {new}"),
        _ => new.to_owned(),
    }
}

/// True for characters of languages that do not separate words by spaces.
fn is_unspaced(c: char) -> bool {
    matches!(
        u32::from(c),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x2E80..=0x9FFF | 0xF900..=0xFAFF | 0xFF00..=0xFFEF
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_joined_as_their_language_is_written() {
        assert_eq!(joined("", 0, "Hello."), "Hello.");
        assert_eq!(joined("Hello.", 0, "And"), " And");
        assert_eq!(joined("Hello.", 3, "more"), "more");
        assert_eq!(joined("你好。", 0, "再见"), "再见");
        assert_eq!(joined("네.", 0, "안녕"), " 안녕");
    }

    #[test]
    fn usage_is_in_tokens_where_they_are_counted() {
        let mut usage = TranscriptUsage::default();
        usage.add(&EngineUsage::default());
        assert_eq!(usage, TranscriptUsage::Duration);
        let engine = EngineUsage {
            input_text_tokens: 3,
            input_audio_tokens: 20,
            output_text_tokens: 5,
            ..EngineUsage::default()
        };
        usage.add(&engine);
        usage.add(&engine);
        assert_eq!(usage, TranscriptUsage::Tokens { text: 6, audio: 40, output: 10 });
    }
}
