//! Voice activity and turn detection with the semantics of `server_vad`.
//!
//! All offsets count received audio since the session started, not wall-clock time, so the same audio gives the same turns
//! at any speed. A turn-detection model runs outside ([`TurnDetector::next_query`], [`TurnDetector::on_prediction`]); with a model, a
//! turn also depends on the audio received before the answer.

use std::collections::VecDeque;
use std::time::Duration;

use super::barge_in::{self, BargeIn, BargeInVerdict, InputKind};
pub use super::barge_in_policy::BargeInPolicy;
use super::barge_in_policy::NetworkJudgement;
use super::decision::{Decision, DecisionKind, DecisionReason, Decisions};
use super::echo_guard::EchoLevel;
use super::endpointing::{Eagerness, PauseJudgement, PauseModel, TurnQuery};
use super::interruption_net::{HOP, InterruptionNet};
use super::level::rms;
use super::turn_evidence::TurnEvidence;
use super::turn_onset::TurnOnset;
pub use super::voice_detector::{Earshot, RATE, VoiceDetector};

/// Samples per millisecond; all offsets are whole milliseconds.
const PER_MS: u64 = (RATE / 1_000) as u64;
/// Voice that interrupts a response whose playback cannot pause; a cough or a backchannel is shorter.
const INTERRUPTION: Duration = Duration::from_millis(120);
/// Margin below the threshold that still counts as voice in an open turn, so that soft endings do not flicker.
const HYSTERESIS: f32 = 0.15;
/// Time beyond the required silence after which a turn ends without evidence of a voice, in samples. Whatever a voice does between two
/// pieces of evidence is shorter: soft sounds, held vowels and pauses.
const UNPROVEN: u64 = 800 * PER_MS;

/// Settings of turn detection. They may change while a turn is open.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TurnSettings {
    /// Minimum probability of a voice frame, 0 to 1.
    pub threshold: f32,
    /// Audio before the voice that belongs to the turn, in ms.
    pub prefix_padding_ms: u64,
    /// Silence that ends a turn without `eagerness`, in ms.
    pub silence_duration_ms: u64,
    /// Endpointing by eagerness; `None` for `silence_duration_ms`.
    pub eagerness: Option<Eagerness>,
    /// Silence before [`TurnEvent::Paused`], in ms; `None` for never.
    pub pause_ms: Option<u64>,
}

impl Default for TurnSettings {
    /// Returns the published defaults of `server_vad`.
    fn default() -> Self {
        Self { threshold: 0.5, prefix_padding_ms: 300, silence_duration_ms: 500, eagerness: None, pause_ms: None }
    }
}

/// Turn boundary, as an offset into the session's audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEvent {
    /// Start of a turn.
    SpeechStarted {
        /// Start of the turn in ms: the start of the voice minus the prefix padding, never inside the previous turn.
        audio_start_ms: u64,
    },
    /// Possible barge-in: the playback pauses. [`Self::SpeechStarted`] or [`Self::BargeInDismissed`] follows; neither, if the
    /// playback is cleared by other means.
    PossibleBargeIn {
        /// Position of the detection.
        audio_ms: u64,
    },
    /// No interruption, or none yet: the playback resumes. [`Self::SpeechStarted`] may follow.
    BargeInDismissed {
        /// Position of the decision.
        audio_ms: u64,
    },
    /// Pause of the caller: the turn may have ended. [`Self::Resumed`] or [`Self::SpeechStopped`] follows.
    Paused {
        /// End of the turn's audio, if the turn has ended.
        audio_end_ms: u64,
    },
    /// Continued speech after a pause.
    Resumed {
        /// Position of the new voice.
        audio_ms: u64,
    },
    /// End of a turn: enough silence, or the model's judgement.
    SpeechStopped {
        /// End of the turn's audio, including the silence.
        audio_end_ms: u64,
    },
}

impl TurnEvent {
    /// Returns the boundary in samples at [`RATE`]: the first sample of the turn, or the first after it.
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

/// Turn detector of an audio stream.
#[derive(Debug)]
pub struct TurnDetector<D = Earshot> {
    detector: D,
    settings: TurnSettings,
    /// Samples of an incomplete frame.
    pending: Vec<f32>,
    /// Number of samples processed.
    position: u64,
    /// Length of the last voice when it was detected, in samples.
    onset: u64,
    /// End of the last turn in samples; the next one cannot start earlier.
    floor: u64,
    state: State,
    /// Longest turn in samples, after which it ends; `None` for no limit.
    longest: Option<u64>,
    /// True if the last turn ended there.
    is_cut: bool,
    /// Model that judges pauses, if any; only for endpointing by eagerness.
    model: Option<PauseModel>,
    /// Latest audio for the model, at most [`PauseModel::context_ms`].
    recent: VecDeque<f32>,
    /// Number of questions asked.
    questions: u64,
    /// Echo level of our playback; `None` while no response plays.
    echo_level: Option<EchoLevel>,
    /// True if the playback can pause until a barge-in is decided.
    pausable: bool,
    /// True if a response plays at a client that cannot pause, and whose interruption may be announced later.
    unpausable: bool,
    barge_in: BargeIn,
    policy: BargeInPolicy,
    /// True if the candidate's playback plays on.
    is_held: bool,
    /// Network that judges voices over the playback, once there was one.
    network: Option<Box<InterruptionNet>>,
    evidence: TurnEvidence,
    decisions: Decisions,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum State {
    /// No open turn.
    Quiet { onset: TurnOnset },
    /// Open turn since `begin`; its last voice ended at `voice_end`, and the last evidence of one at `proven`. `paused` is true if the pause
    /// since `voice_end` was reported; `judgement` is the model's.
    Speaking { begin: u64, voice_end: u64, proven: u64, paused: bool, judgement: PauseJudgement },
}

impl State {
    const QUIET: Self = Self::Quiet { onset: TurnOnset::NONE };
}

impl Default for TurnDetector {
    fn default() -> Self {
        Self::new(Earshot::default(), TurnSettings::default())
    }
}

impl<D: VoiceDetector> TurnDetector<D> {
    /// Creates a detector at the start of a session.
    pub fn new(detector: D, settings: TurnSettings) -> Self {
        Self {
            detector,
            settings,
            pending: Vec::new(),
            position: 0,
            onset: 0,
            floor: 0,
            state: State::QUIET,
            longest: None,
            is_cut: false,
            model: None,
            recent: VecDeque::new(),
            questions: 0,
            echo_level: None,
            pausable: false,
            unpausable: false,
            barge_in: BargeIn::new(RATE),
            policy: BargeInPolicy::default(),
            is_held: false,
            network: None,
            evidence: TurnEvidence::default(),
            decisions: Decisions::default(),
        }
    }

    /// Enables a turn-detection model for endpointing by eagerness: [`Self::next_query`] returns the questions, [`Self::on_prediction`] takes
    /// the answers. Until an answer, the fixed silence applies.
    pub fn with_turn_model(mut self, model: PauseModel) -> Self {
        self.model = Some(model);
        self
    }

    /// Judges voices over the playback by `policy`.
    pub fn with_barge_in(mut self, policy: BargeInPolicy) -> Self {
        self.policy = policy;
        self
    }

    /// Ends each turn after `longest`, also while a voice or what seems to be one goes on.
    pub fn with_longest_turn(mut self, longest: Duration) -> Self {
        self.longest = Some(longest.as_millis() as u64 * PER_MS);
        self
    }

    /// True if the last turn ended because it reached the longest duration. Returns it once.
    pub fn take_cut(&mut self) -> bool {
        std::mem::take(&mut self.is_cut)
    }

    /// Returns the decisions of the sound so far, each only once.
    pub fn take_decisions(&mut self) -> impl Iterator<Item = Decision> {
        self.decisions.take()
    }

    /// Returns the question that is due for the model, if any. Returns each question once.
    pub fn next_query(&mut self) -> Option<TurnQuery> {
        let position = self.position;
        let model = self.model.filter(|_| self.settings.eagerness.is_some())?;
        let State::Speaking { begin, voice_end, judgement, .. } = &mut self.state else { return None };
        let silence_ms = (position - *voice_end) / PER_MS;
        let due_ms = judgement.due_ms.unwrap_or(model.first_question_ms());
        if judgement.asked.is_some() || silence_ms < due_ms {
            return None;
        }
        self.questions += 1;
        *judgement = PauseJudgement {
            asked: Some(self.questions),
            due_ms: Some(silence_ms + model.next_question_ms()),
            ..*judgement
        };
        let length = usize::try_from(position - *begin).unwrap_or(usize::MAX).min(self.recent.len());
        let turn = self.recent.range(self.recent.len() - length..).copied().collect();
        Some(TurnQuery { id: self.questions, turn })
    }

    /// Handles the answer to a question: the probability that the turn has ended, `None` without an answer. Returns the end of the
    /// turn if the answer ends it, or a pause if the turn may have ended; ignores an answer about an earlier pause.
    pub fn on_prediction(&mut self, id: u64, probability: Option<f32>) -> Option<TurnEvent> {
        let (eagerness, model) = self.settings.eagerness.zip(self.model)?;
        let State::Speaking { voice_end, paused, judgement, .. } = &mut self.state else { return None };
        judgement.asked.take_if(|asked| *asked == id)?;
        let probability = probability.filter(|probability| probability.is_finite())?;
        judgement.probability = Some(probability);
        if self.position - *voice_end >= judgement.required_ms(eagerness, Some(model)) * PER_MS {
            return Some(self.stop(DecisionReason::Model));
        }
        let begins = !*paused && self.settings.pause_ms.is_some() && model.speculates(probability);
        *paused |= begins;
        begins.then(|| self.pause(DecisionReason::Model))
    }

    /// Notes a decision with the figures of the open turn's pause, if there is one.
    fn decide(&mut self, kind: DecisionKind, reason: DecisionReason) {
        let decision = Decision::new(kind, reason, self.position / PER_MS);
        self.decisions.push(match self.state {
            State::Speaking { voice_end, judgement, .. } => decision
                .with_probability(judgement.probability)
                .after_silence(Duration::from_millis((self.position - voice_end) / PER_MS)),
            State::Quiet { .. } => decision,
        });
    }

    /// Reports that the open turn may have ended at the current position.
    fn pause(&mut self, reason: DecisionReason) -> TurnEvent {
        self.decide(DecisionKind::TurnPaused, reason);
        TurnEvent::Paused { audio_end_ms: self.position / PER_MS }
    }

    /// Ends the open turn at the current position.
    fn stop(&mut self, reason: DecisionReason) -> TurnEvent {
        self.decide(DecisionKind::TurnEnded, reason);
        self.floor = self.position;
        self.state = State::QUIET;
        TurnEvent::SpeechStopped { audio_end_ms: self.position / PER_MS }
    }

    /// Sets the echo level of the audio that follows; `None` while no response plays. During playback a turn needs more voice to
    /// start, and echo does not count as voice.
    pub fn set_echo_level(&mut self, level: Option<EchoLevel>) {
        self.echo_level = level;
        self.detector.set_playing(level.is_some());
    }

    /// Sets whether a response plays that can pause. During such playback a voice first pauses it, and interrupts when the caller
    /// continues.
    pub fn set_pausable(&mut self, pausable: bool) {
        self.pausable = pausable;
    }

    /// Sets whether a response plays that a voice interrupts and that cannot pause. During such playback a voice starts a turn once it is
    /// more than a backchannel by the policy; without a policy of that kind, with 120 ms of voice. A voice that is not decided when the
    /// playback ends starts a turn.
    pub fn set_unpausable(&mut self, unpausable: bool) {
        self.unpausable = unpausable;
    }

    /// Sets new settings from the next frame on.
    pub fn configure(&mut self, settings: TurnSettings) {
        self.settings = settings;
    }

    /// Samples received since the session started.
    fn received(&self) -> u64 {
        self.position + self.pending.len() as u64
    }

    /// End of the last voice in the open turn, in samples: response times count from here. `None` without an open turn.
    pub fn voice_end(&self) -> Option<u64> {
        match self.state {
            State::Speaking { voice_end, .. } => Some(voice_end),
            State::Quiet { .. } => None,
        }
    }

    /// Length of the voice at the last [`TurnEvent::SpeechStarted`] or [`TurnEvent::PossibleBargeIn`].
    pub fn onset(&self) -> Duration {
        Duration::from_secs_f64(self.onset as f64 / f64::from(RATE))
    }

    /// Closes an open turn without an event, as when the client commits or clears the buffer. The next turn starts at the end of
    /// the received audio at the earliest.
    pub fn end_turn(&mut self) {
        self.floor = self.received();
        self.state = State::QUIET;
        self.drop_candidate();
        self.barge_in.reset();
    }

    /// Processes any number of samples; returns the detected boundaries in order.
    pub fn push(&mut self, samples: &[f32]) -> Vec<TurnEvent> {
        self.pending.extend_from_slice(samples);
        let frame_len = self.detector.frame_len();
        // Reuses the allocation.
        let mut pending = std::mem::take(&mut self.pending);
        let frames = pending.chunks_exact(frame_len);
        let whole = pending.len() - frames.remainder().len();
        let events = frames.filter_map(|frame| self.process(frame)).collect();
        pending.drain(..whole);
        self.pending = pending;
        events
    }

    fn process(&mut self, frame: &[f32]) -> Option<TurnEvent> {
        // The network has state, so it gets every frame.
        let voice = self.detector.probability(frame);
        let level = rms(frame);
        let is_echo = self.echo_level.is_some_and(|echo| level < echo.loudest);
        let is_judged = self.pausable || (self.unpausable && self.policy != BargeInPolicy::Immediate);
        let is_noise = is_judged && self.echo_level.is_some_and(|echo| !barge_in::is_audible(level, echo));
        let probability = if is_echo || is_noise { 0.0 } else { voice };
        self.keep_recent(frame);
        let interruption = self.interruption(frame, is_judged);
        let (start, length) = (self.position, frame.len() as u64);
        self.position += length;
        let threshold = self.settings.threshold;
        let least = threshold - HYSTERESIS.min(threshold / 2.0);
        // An echo is no noise floor: beside it a caller would not stand out.
        let acoustics = self.detector.acoustics().filter(|_| self.echo_level.is_none());
        let evidence = match acoustics {
            Some(acoustics) => self.evidence.push(acoustics, probability >= least, self.position),
            None => Some(self.position),
        };
        if let Some(since) = self.barge_in.since().filter(|_| !is_judged) {
            let was_held = self.is_held;
            self.drop_candidate();
            if was_held {
                // The playback has ended before the decision.
                return Some(self.start(since, DecisionKind::TurnStarted, DecisionReason::PlaybackEnded, None));
            }
        }
        match &mut self.state {
            State::Quiet { .. } if is_judged && self.barge_in.is_open() => {
                let heard = match probability >= threshold {
                    true => InputKind::Voice,
                    false if is_echo && !is_noise => InputKind::Echo,
                    false => InputKind::Silence,
                };
                self.judge_barge_in(heard, level, length, interruption)
            }
            State::Quiet { onset } => {
                if !onset.push(probability, threshold, acoustics, start.max(self.floor), length) {
                    return None;
                }
                let (since, voiced) = (onset.since(), onset.voiced());
                let interrupts = |least: Duration| onset.lasts(least, threshold);
                let begins = match self.echo_level {
                    Some(echo) if self.pausable => {
                        let stands_out = self.barge_in.stands_out(level, echo, length);
                        interrupts(INTERRUPTION) || (stands_out && interrupts(barge_in::ONSET))
                    }
                    Some(_) => interrupts(INTERRUPTION),
                    None => onset.begins(threshold),
                };
                if !begins {
                    return None;
                }
                let is_long = interrupts(INTERRUPTION);
                if is_judged {
                    self.onset = self.position - since;
                    self.barge_in.begin(since, self.position, voiced, level);
                    if let Some(network) = &mut self.network {
                        network.begin(((self.position - since) / length) as usize);
                    }
                    self.is_held = !self.pausable;
                    return self.pausable.then(|| self.pause_playback(is_long));
                }
                let kind = if self.unpausable { DecisionKind::Interrupted } else { DecisionKind::TurnStarted };
                Some(self.start(since, kind, DecisionReason::Voice, None))
            }
            State::Speaking { begin, .. } if self.longest.is_some_and(|longest| self.position - *begin >= longest) => {
                self.is_cut = true;
                Some(self.stop(DecisionReason::LongestTurn))
            }
            State::Speaking { voice_end, proven, paused, judgement, .. } => {
                *proven = evidence.map_or(*proven, |end| end.max(*proven));
                let required = PER_MS
                    * match self.settings.eagerness {
                        None => self.settings.silence_duration_ms,
                        Some(eagerness) => judgement.required_ms(eagerness, self.model),
                    };
                if self.position - *proven >= required + UNPROVEN {
                    return Some(self.stop(DecisionReason::NoVoice));
                }
                if probability >= least {
                    *voice_end = self.position;
                    *judgement = PauseJudgement::NONE;
                    return std::mem::take(paused).then(|| self.resume(start));
                }
                let silence = self.position - *voice_end;
                if silence >= required {
                    let is_judged = judgement.probability.is_some();
                    return Some(self.stop(if is_judged { DecisionReason::Model } else { DecisionReason::Silence }));
                }
                let begins = !*paused && self.settings.pause_ms.is_some_and(|pause| silence >= pause * PER_MS);
                *paused |= begins;
                begins.then(|| self.pause(DecisionReason::Silence))
            }
        }
    }

    /// Processes a frame of a barge-in candidate, with the probability of an interruption by the network, if it judges.
    fn judge_barge_in(
        &mut self,
        heard: InputKind,
        level: f32,
        length: u64,
        interruption: Option<f32>,
    ) -> Option<TurnEvent> {
        let since = self.barge_in.since()?;
        let is_paused = !self.is_held;
        let judged = interruption.zip(self.policy.thresholds());
        let network = judged.map(|(interruption, thresholds)| NetworkJudgement { interruption, thresholds, is_paused });
        let verdict = self.barge_in.frame(heard, level, self.position, length, network);
        let reason = self.barge_in.reason();
        let made = |kind| Decision::new(kind, reason, self.position / PER_MS).with_probability(interruption);
        match verdict {
            BargeInVerdict::Open => return None,
            BargeInVerdict::PlayOn => {
                self.decisions.push(made(DecisionKind::PlaybackResumed));
                self.is_held = true;
                return Some(TurnEvent::BargeInDismissed { audio_ms: self.position / PER_MS });
            }
            BargeInVerdict::Nothing => self.decisions.push(made(DecisionKind::VoiceDismissed)),
            BargeInVerdict::Interruption => {}
        }
        self.drop_candidate();
        if verdict == BargeInVerdict::Interruption {
            return Some(self.start(since, DecisionKind::Interrupted, reason, interruption));
        }
        self.state = State::QUIET;
        is_paused.then_some(TurnEvent::BargeInDismissed { audio_ms: self.position / PER_MS })
    }

    /// Drops the barge-in candidate, if any.
    fn drop_candidate(&mut self) {
        self.barge_in.reset_open();
        self.is_held = false;
        if let Some(network) = &mut self.network {
            network.end();
        }
    }

    /// Passes a frame to the network while a response plays that a voice may interrupt; returns its judgement of the candidate.
    fn interruption(&mut self, frame: &[f32], is_judged: bool) -> Option<f32> {
        if !is_judged || self.policy == BargeInPolicy::Immediate || frame.len() != HOP {
            if let Some(network) = &mut self.network {
                network.reset();
            }
            return None;
        }
        self.network.get_or_insert_default().push(frame)
    }

    /// Reports a voice over a playback that can pause; `is_long` if any voice of its length pauses it.
    fn pause_playback(&mut self, is_long: bool) -> TurnEvent {
        let reason = if is_long { DecisionReason::Voice } else { DecisionReason::LoudVoice };
        let decision = Decision::new(DecisionKind::PlaybackPaused, reason, self.position / PER_MS);
        self.decisions.push(decision.after_voice(self.onset()));
        TurnEvent::PossibleBargeIn { audio_ms: self.position / PER_MS }
    }

    /// Reports that the caller continues with the voice at `start`.
    fn resume(&mut self, start: u64) -> TurnEvent {
        let resumed = Decision::new(DecisionKind::TurnResumed, DecisionReason::Voice, self.position / PER_MS);
        self.decisions.push(resumed);
        TurnEvent::Resumed { audio_ms: start / PER_MS }
    }

    /// Starts a turn whose voice started at `since`.
    fn start(
        &mut self,
        since: u64,
        kind: DecisionKind,
        reason: DecisionReason,
        interruption: Option<f32>,
    ) -> TurnEvent {
        let begin = since.saturating_sub(self.settings.prefix_padding_ms * PER_MS).max(self.floor);
        self.onset = self.position - since;
        let decision = Decision::new(kind, reason, self.position / PER_MS);
        self.decisions.push(decision.after_voice(self.onset()).with_probability(interruption));
        let (voice_end, proven, judgement) = (self.position, self.position, PauseJudgement::NONE);
        self.state = State::Speaking { begin, voice_end, proven, paused: false, judgement };
        // Rounded up: the floor may lie inside a millisecond, and the start must not lie in the previous turn.
        TurnEvent::SpeechStarted { audio_start_ms: begin.div_ceil(PER_MS) }
    }

    fn keep_recent(&mut self, frame: &[f32]) {
        if let Some(model) = self.model.filter(|_| self.settings.eagerness.is_some()) {
            self.recent.extend(frame);
            let excess = self.recent.len().saturating_sub((model.context_ms() * PER_MS) as usize);
            self.recent.drain(..excess);
        } else {
            self.recent.clear();
        }
    }
}

#[cfg(test)]
#[path = "vad_acoustics_tests.rs"]
mod acoustics_tests;
#[cfg(test)]
#[path = "vad_barge_in_tests.rs"]
mod barge_in_tests;
#[cfg(test)]
#[path = "decision_tests.rs"]
mod decision_tests;
#[cfg(test)]
#[path = "vad_tests.rs"]
mod tests;
