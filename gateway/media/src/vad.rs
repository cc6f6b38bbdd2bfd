//! Voice activity and turn detection with the semantics of `server_vad`.
//!
//! Every offset counts the audio received since the session began, never a wall clock, so that the same audio gives the
//! same turns however fast it arrives. A model that judges pauses is asked from outside ([`TurnDetector::question`],
//! [`TurnDetector::judged`]): then a turn also depends on how much audio comes before the answer.

use std::collections::VecDeque;
use std::time::Duration;

use earshot::Detector;

use super::barge_in::{self, BargeIn, InputKind, BargeInVerdict};
use super::echo_guard::EchoLevel;
use super::endpointing::{CONTEXT_MS, Eagerness, PauseJudgement, NEXT_QUESTION_MS, TurnQuery};
use super::level::rms;

/// Samples a second that [`TurnDetector`] takes.
pub const RATE: u32 = 16_000;
/// Samples in a millisecond: all offsets are whole milliseconds.
const PER_MS: u64 = (RATE / 1_000) as u64;
/// Voiced time that a turn needs to begin; a click or a knock is shorter.
const ONSET: Duration = Duration::from_millis(64);
/// Voiced time that it takes to interrupt a response whose playback cannot be paused: a cough or an assenting hum is shorter.
const INTERRUPTION: Duration = Duration::from_millis(120);
/// A turn also needs one frame that lies this much above the threshold: a voice soon does, while a network that has just
/// met a fan or a street hovers around the middle for some tenths of a second.
const CLEAR_VOICE: f32 = 0.2;
/// Once a turn is open, this much less than the threshold still counts as voice, so that soft endings do not flicker.
const HYSTERESIS: f32 = 0.15;

/// Estimates the probability of voice frame by frame, at [`RATE`].
pub trait VoiceDetector {
    /// Samples of one frame.
    fn frame_len(&self) -> usize;
    /// How likely `frame` (exactly [`Self::frame_len`] samples) holds a voice, 0 to 1. Remembers the frames before.
    fn probability(&mut self, frame: &[f32]) -> f32;
}

/// The `earshot` network: weights in the binary, frames of 16 ms.
pub struct Earshot(Box<Detector>);

impl std::fmt::Debug for Earshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Earshot")
    }
}

impl Default for Earshot {
    fn default() -> Self {
        Self(Detector::default_boxed())
    }
}

impl VoiceDetector for Earshot {
    fn frame_len(&self) -> usize {
        256
    }

    fn probability(&mut self, frame: &[f32]) -> f32 {
        let mut clipped = [0.0; 256];
        for (to, from) in clipped.iter_mut().zip(frame) {
            // The network's state must never see a NaN: it would stay.
            *to = if from.is_finite() { from.clamp(-1.0, 1.0) } else { 0.0 };
        }
        self.0.predict_f32(&clipped)
    }
}

/// When a turn begins and ends. Settings may change while a turn is open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnSettings {
    /// Probability above which a frame is voice, 0 to 1.
    pub threshold: f32,
    /// How much audio before the voice belongs to the turn.
    pub prefix_padding_ms: u64,
    /// How much silence ends a turn without `eagerness`.
    pub silence_duration_ms: u64,
    /// End turns by eagerness; `None` for `silence_duration_ms`.
    pub eagerness: Option<Eagerness>,
    /// Silence after which [`TurnEvent::Paused`] is reported; `None` for never.
    pub pause_ms: Option<u64>,
}

impl Default for TurnSettings {
    /// The published defaults of `server_vad`.
    fn default() -> Self {
        Self { threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms: 500, eagerness: None, pause_ms: None }
    }
}

/// A boundary of a turn, as an offset into the audio of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEvent {
    /// The caller began to speak.
    SpeechStarted {
        /// The first millisecond of the turn: the voice's beginning less the prefix padding, never inside the turn before.
        audio_start_ms: u64,
    },
    /// The caller may be about to interrupt: the playback pauses. What follows is [`Self::SpeechStarted`] or
    /// [`Self::BargeInDismissed`]; neither, if the playback has been cleared by other means.
    PossibleBargeIn {
        /// Where the voice was noticed.
        audio_ms: u64,
    },
    /// It was no interruption: the playback goes on.
    BargeInDismissed {
        /// Where that was known.
        audio_ms: u64,
    },
    /// The caller pauses: the turn may have ended. What follows is [`Self::Resumed`] or [`Self::SpeechStopped`].
    Paused {
        /// The end of the turn's audio, if it has ended.
        audio_end_ms: u64,
    },
    /// The caller goes on after a pause.
    Resumed {
        /// Where the voice came back.
        audio_ms: u64,
    },
    /// The caller has been silent for the configured time.
    SpeechStopped {
        /// The end of the turn's audio, the silence included.
        audio_end_ms: u64,
    },
}

impl TurnEvent {
    /// The boundary in samples at [`RATE`]: the turn's first sample, or the first one after it.
    pub fn sample(self) -> u64 {
        match self {
            Self::SpeechStarted { audio_start_ms: ms }
            | Self::Paused { audio_end_ms: ms }
            | Self::PossibleBargeIn { audio_ms: ms }
            | Self::BargeInDismissed { audio_ms: ms }
            | Self::Resumed { audio_ms: ms }
            | Self::SpeechStopped { audio_end_ms: ms } => ms * PER_MS,
        }
    }
}

/// Finds turns in a stream of audio.
#[derive(Debug)]
pub struct TurnDetector<D = Earshot> {
    detector: D,
    settings: TurnSettings,
    /// Samples that do not fill a frame yet.
    pending: Vec<f32>,
    /// Samples processed so far.
    position: u64,
    /// How many samples of the last voice there were when it was found.
    onset: u64,
    /// Where the last turn ended; the next one cannot begin earlier.
    floor: u64,
    state: State,
    /// Whether a model judges the pauses of turns that end by eagerness.
    judged: bool,
    /// The latest audio, as much as the model is given.
    recent: VecDeque<f32>,
    /// Questions asked so far.
    questions: u64,
    /// What of the input may be an echo of our playback; `None` while no response plays.
    echo_level: Option<EchoLevel>,
    /// Whether what plays can be paused until it is known what a voice means.
    pausable: bool,
    barge_in: BargeIn,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// No turn is open. Since `since` there were `voiced` samples more of voice than of silence, and `peak` was the highest
    /// probability.
    Quiet { since: u64, voiced: u64, peak: f32 },
    /// A turn is open since `begin`; its last voice ended at `voice_end`. Of the pause since then: whether it was reported, and
    /// what a model has said of it.
    Speaking { begin: u64, voice_end: u64, paused: bool, judgement: PauseJudgement },
}

impl State {
    const QUIET: Self = Self::Quiet { since: 0, voiced: 0, peak: 0.0 };
}

impl Default for TurnDetector {
    fn default() -> Self {
        Self::new(Earshot::default(), TurnSettings::default())
    }
}

impl<D: VoiceDetector> TurnDetector<D> {
    /// A detector at the session's beginning.
    pub fn new(detector: D, settings: TurnSettings) -> Self {
        Self {
            detector,
            settings,
            pending: Vec::new(),
            position: 0,
            onset: 0,
            floor: 0,
            state: State::QUIET,
            judged: false,
            recent: VecDeque::new(),
            questions: 0,
            echo_level: None,
            pausable: false,
            barge_in: BargeIn::new(RATE),
        }
    }

    /// A model judges the pauses of turns that end by eagerness: [`Self::question`] has what to ask it, [`Self::judged`] takes
    /// the answers. Until one comes the fixed silence holds.
    pub fn with_turn_model(mut self) -> Self {
        self.judged = true;
        self
    }

    /// What to ask the model now, if there is anything. Each question is returned once, and counts as asked.
    pub fn next_query(&mut self) -> Option<TurnQuery> {
        let (judged, position) = (self.is_judged(), self.position);
        let State::Speaking { begin, voice_end, judgement, .. } = &mut self.state else { return None };
        let silence_ms = (position - *voice_end) / PER_MS;
        if !judged || judgement.asked.is_some() || silence_ms < judgement.due_ms {
            return None;
        }
        self.questions += 1;
        *judgement = PauseJudgement { asked: Some(self.questions), due_ms: silence_ms + NEXT_QUESTION_MS, ..*judgement };
        let length = usize::try_from(position - *begin).unwrap_or(usize::MAX).min(self.recent.len());
        let turn = self.recent.range(self.recent.len() - length..).copied().collect();
        Some(TurnQuery { id: self.questions, turn })
    }

    /// Takes the answer to a question: the probability that the turn has ended, `None` if there is no answer. Returns the end of
    /// the turn if that is what it means; an answer to a pause that is over means nothing.
    pub fn on_prediction(&mut self, id: u64, probability: Option<f32>) -> Option<TurnEvent> {
        let eagerness = self.settings.eagerness.filter(|_| self.judged)?;
        let State::Speaking { judgement, .. } = &mut self.state else { return None };
        judgement.asked.take_if(|asked| *asked == id)?;
        let probability = probability.filter(|probability| probability.is_finite())?;
        if probability >= eagerness.threshold() {
            return Some(self.stop());
        }
        judgement.unfinished = true;
        None
    }

    fn is_judged(&self) -> bool {
        self.judged && self.settings.eagerness.is_some()
    }

    /// Ends the open turn here.
    fn stop(&mut self) -> TurnEvent {
        self.floor = self.position;
        self.state = State::QUIET;
        TurnEvent::SpeechStopped { audio_end_ms: self.position / PER_MS }
    }

    /// Sets what of the audio that comes next may be an echo of our playback; `None` while no response plays. While one does, a turn
    /// takes more voice to begin, and echo is no voice.
    pub fn set_echo_level(&mut self, level: Option<EchoLevel>) {
        self.echo_level = level;
    }

    /// Whether a response plays that can be paused. While one does, a voice pauses it at first, and interrupts it once it is clear
    /// that the caller goes on.
    pub fn set_pausable(&mut self, pausable: bool) {
        self.pausable = pausable;
    }

    /// New settings, from the next frame on.
    pub fn configure(&mut self, settings: TurnSettings) {
        self.settings = settings;
    }

    /// Samples received since the session began.
    fn received(&self) -> u64 {
        self.position + self.pending.len() as u64
    }

    /// Where the voice of the open turn ended so far, in samples: the moment from which response times count.
    pub fn voice_end(&self) -> Option<u64> {
        match self.state {
            State::Speaking { voice_end, .. } => Some(voice_end),
            State::Quiet { .. } => None,
        }
    }

    /// How long the voice had sounded when the last [`TurnEvent::SpeechStarted`] or [`TurnEvent::PossibleBargeIn`] was returned.
    pub fn onset(&self) -> Duration {
        Duration::from_secs_f64(self.onset as f64 / f64::from(RATE))
    }

    /// Closes an open turn without an event, as when the client commits or clears the buffer itself. The next turn begins
    /// at the audio received so far, at the earliest.
    pub fn end_turn(&mut self) {
        self.floor = self.received();
        self.state = State::QUIET;
        self.barge_in.reset();
    }

    /// Takes any number of samples and returns the boundaries found, in order.
    pub fn push(&mut self, samples: &[f32]) -> Vec<TurnEvent> {
        self.pending.extend_from_slice(samples);
        let frame_len = self.detector.frame_len();
        // Keeps its memory from push to push.
        let mut pending = std::mem::take(&mut self.pending);
        let frames = pending.chunks_exact(frame_len);
        let whole = pending.len() - frames.remainder().len();
        let events = frames.filter_map(|frame| self.process(frame)).collect();
        pending.drain(..whole);
        self.pending = pending;
        events
    }

    fn process(&mut self, frame: &[f32]) -> Option<TurnEvent> {
        // The network gets every frame, for it has state.
        let voice = self.detector.probability(frame);
        let level = rms(frame);
        let is_echo = self.echo_level.is_some_and(|echo| level < echo.loudest);
        let is_noise = self.pausable && self.echo_level.is_some_and(|echo| !barge_in::is_audible(level, echo));
        let probability = if is_echo || is_noise { 0.0 } else { voice };
        self.keep_recent(frame);
        let (start, length) = (self.position, frame.len() as u64);
        self.position += length;
        let threshold = self.settings.threshold;
        match &mut self.state {
            State::Quiet { .. } if self.pausable && self.barge_in.is_open() => {
                let heard = match probability >= threshold {
                    true => InputKind::Voice,
                    false if is_echo && !is_noise => InputKind::Echo,
                    false => InputKind::Silence,
                };
                self.judge_barge_in(heard, level, length)
            }
            State::Quiet { since, voiced, peak } => {
                // The playback has ended meanwhile.
                self.barge_in.reset_open();
                if probability < threshold {
                    *voiced = voiced.saturating_sub(length);
                    return None;
                }
                if *voiced == 0 {
                    (*since, *peak) = (start.max(self.floor), 0.0);
                }
                *voiced += length;
                *peak = peak.max(probability);
                // High thresholds leave less room above.
                let clear = threshold + CLEAR_VOICE.min((1.0 - threshold) / 2.0);
                let (since, voiced, peak) = (*since, *voiced, *peak);
                let lasts = |onset: Duration| voiced >= onset.as_millis() as u64 * PER_MS && peak >= clear;
                let begins = match self.echo_level {
                    Some(echo) if self.pausable => {
                        let stands_out = self.barge_in.stands_out(level, echo, length);
                        lasts(INTERRUPTION) || (stands_out && lasts(barge_in::ONSET))
                    }
                    Some(_) => lasts(INTERRUPTION),
                    None => lasts(ONSET),
                };
                if !begins {
                    return None;
                }
                if self.pausable {
                    self.onset = self.position - since;
                    self.barge_in.begin(since, self.position, voiced, level);
                    return Some(TurnEvent::PossibleBargeIn { audio_ms: self.position / PER_MS });
                }
                Some(self.start(since))
            }
            State::Speaking { voice_end, paused, judgement, .. } => {
                if probability >= threshold - HYSTERESIS.min(threshold / 2.0) {
                    *voice_end = self.position;
                    *judgement = PauseJudgement::NONE;
                    return std::mem::take(paused).then_some(TurnEvent::Resumed { audio_ms: start / PER_MS });
                }
                let silence = self.position - *voice_end;
                let required = match self.settings.eagerness {
                    None => self.settings.silence_duration_ms,
                    Some(eagerness) => judgement.required_ms(eagerness),
                };
                if silence >= required * PER_MS {
                    return Some(self.stop());
                }
                let begins = !*paused && self.settings.pause_ms.is_some_and(|pause| silence >= pause * PER_MS);
                *paused |= begins;
                begins.then_some(TurnEvent::Paused { audio_end_ms: self.position / PER_MS })
            }
        }
    }

    /// A frame of a voice that may interrupt.
    fn judge_barge_in(&mut self, heard: InputKind, level: f32, length: u64) -> Option<TurnEvent> {
        let since = self.barge_in.since()?;
        match self.barge_in.frame(heard, level, self.position, length) {
            BargeInVerdict::Open => None,
            BargeInVerdict::Interruption => Some(self.start(since)),
            BargeInVerdict::Nothing => {
                self.state = State::QUIET;
                Some(TurnEvent::BargeInDismissed { audio_ms: self.position / PER_MS })
            }
        }
    }

    /// Begins a turn whose first voice was at `since`.
    fn start(&mut self, since: u64) -> TurnEvent {
        let begin = since.saturating_sub(self.settings.prefix_padding_ms * PER_MS).max(self.floor);
        self.onset = self.position - since;
        let (voice_end, judgement) = (self.position, PauseJudgement::NONE);
        self.state = State::Speaking { begin, voice_end, paused: false, judgement };
        // Rounded up at the floor, which may lie inside of a millisecond: never into the turn before.
        TurnEvent::SpeechStarted { audio_start_ms: begin.div_ceil(PER_MS) }
    }

    fn keep_recent(&mut self, frame: &[f32]) {
        if self.is_judged() {
            self.recent.extend(frame);
            let excess = self.recent.len().saturating_sub((CONTEXT_MS * PER_MS) as usize);
            self.recent.drain(..excess);
        } else {
            self.recent.clear();
        }
    }
}

#[cfg(test)]
#[path = "vad_tests.rs"]
mod tests;
