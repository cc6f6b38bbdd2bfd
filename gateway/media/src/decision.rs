//! Decisions about the caller's sound with their reasons, for those who want to see them.

use std::time::Duration;

/// Most decisions that wait to be taken; more are dropped.
const MOST: usize = 16;

/// Decision about the caller's sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionKind {
    /// A turn begins.
    TurnStarted,
    /// A turn begins over an answer, which it interrupts.
    Interrupted,
    /// The playback pauses until it is clear what a voice is.
    PlaybackPaused,
    /// The playback resumes before it is clear what a voice is.
    PlaybackResumed,
    /// A voice over an answer is no interruption: the playback resumes, if it was paused.
    VoiceDismissed,
    /// The turn may have ended.
    TurnPaused,
    /// The caller continues.
    TurnResumed,
    /// The turn has ended.
    TurnEnded,
    /// An echo of the playback was found, and is cancelled.
    EchoFound,
    /// No echo was found: the input passes as it is until one is.
    EchoNotFound,
    /// No echo was found in two answers: it is sought no more.
    EchoCancellingEnded,
    /// Noise is reduced from now on.
    NoiseReduced,
    /// Noise is left as it is from now on.
    NoiseLeft,
}

/// Reason of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecisionReason {
    /// A voice was heard.
    Voice,
    /// A voice clearly louder than any echo was heard.
    LoudVoice,
    /// A voice went on for longer than a backchannel.
    VoiceWentOn,
    /// A voice began again soon after a short one.
    VoiceBeganAgain,
    /// A voice was short, or too soft to go on.
    VoiceEnded,
    /// The interruption network was sure.
    NetworkSure,
    /// The interruption network takes a voice that goes on for no interruption, or is not sure.
    NetworkUnsure,
    /// The interruption network judged a short voice at its end.
    NetworkAtEnd,
    /// The interruption network was not sure until the longest wait.
    LongestWait,
    /// The playback had ended before the decision.
    PlaybackEnded,
    /// There was silence for long enough.
    Silence,
    /// The turn-detection model judged the pause.
    Model,
    /// For a while no sound was one that only a voice makes.
    NoVoice,
    /// The turn had the longest duration.
    LongestTurn,
    /// The canceller compared playback and input.
    Playback,
    /// The session asks for the kind of a close microphone.
    NearField,
    /// The session asks for the kind of a room.
    FarField,
    /// The session asks for none.
    Session,
    /// The noise is steady.
    SteadyNoise,
    /// The noise is not steady, as many voices are.
    UnsteadyNoise,
}

/// Decision with its reason and the figures behind it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decision {
    /// Decision by name on the wire, such as `turn_ended`.
    pub kind: DecisionKind,
    /// Cause that the figures below belong to.
    pub reason: DecisionReason,
    /// Input received until it, in ms.
    pub audio_ms: u64,
    /// Probability of an interruption by the interruption network, or of the end of the turn by the turn-detection model.
    pub probability: Option<f32>,
    /// Length of the voice.
    pub voice: Option<Duration>,
    /// Length of the silence.
    pub silence: Option<Duration>,
}

impl Decision {
    /// Creates a decision without figures.
    pub fn new(kind: DecisionKind, reason: DecisionReason, audio_ms: u64) -> Self {
        Self { kind, reason, audio_ms, probability: None, voice: None, silence: None }
    }

    /// Sets the probability.
    pub fn with_probability(self, probability: Option<f32>) -> Self {
        Self { probability, ..self }
    }

    /// Sets the length of the voice.
    pub fn after_voice(self, voice: Duration) -> Self {
        Self { voice: Some(voice), ..self }
    }

    /// Sets the length of the silence.
    pub fn after_silence(self, silence: Duration) -> Self {
        Self { silence: Some(silence), ..self }
    }
}

impl DecisionKind {
    /// Name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::TurnStarted => "turn_started",
            Self::Interrupted => "interrupted",
            Self::PlaybackPaused => "playback_paused",
            Self::PlaybackResumed => "playback_resumed",
            Self::VoiceDismissed => "voice_dismissed",
            Self::TurnPaused => "turn_paused",
            Self::TurnResumed => "turn_resumed",
            Self::TurnEnded => "turn_ended",
            Self::EchoFound => "echo_found",
            Self::EchoNotFound => "echo_not_found",
            Self::EchoCancellingEnded => "echo_cancelling_ended",
            Self::NoiseReduced => "noise_reduced",
            Self::NoiseLeft => "noise_left",
        }
    }
}

impl DecisionReason {
    /// Name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Voice => "voice",
            Self::LoudVoice => "loud_voice",
            Self::VoiceWentOn => "voice_went_on",
            Self::VoiceBeganAgain => "voice_began_again",
            Self::VoiceEnded => "voice_ended",
            Self::NetworkSure => "network_sure",
            Self::NetworkUnsure => "network_unsure",
            Self::NetworkAtEnd => "network_at_end",
            Self::LongestWait => "longest_wait",
            Self::PlaybackEnded => "playback_ended",
            Self::Silence => "silence",
            Self::Model => "model",
            Self::NoVoice => "no_voice",
            Self::LongestTurn => "longest_turn",
            Self::Playback => "playback",
            Self::NearField => "near_field",
            Self::FarField => "far_field",
            Self::Session => "session",
            Self::SteadyNoise => "steady_noise",
            Self::UnsteadyNoise => "unsteady_noise",
        }
    }
}

/// Decisions that wait to be taken, a bounded number.
#[derive(Debug, Default)]
pub(crate) struct Decisions(Vec<Decision>);

impl Decisions {
    /// Adds a decision, if there is space.
    pub fn push(&mut self, decision: Decision) {
        if self.0.len() < MOST {
            self.0.push(decision);
        }
    }

    /// Returns the decisions in order; each only once.
    pub fn take(&mut self) -> std::vec::Drain<'_, Decision> {
        self.0.drain(..)
    }
}
