//! Fields of a session, its queues, and its events.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, Eviction, ItemId, ResponseId, SessionError, SessionPeer, Tenant, Tool};
use tracing::Span;

use super::active_response::ActiveResponse;
use super::followed_text::FollowedText;
use super::history::History;
use super::limits::HEARD_EVENTS;
use super::out_of_band::OutOfBandResponse;
use super::pending_response::PendingResponse;
use super::real_time::AudioRateLimiter;
use super::recognitions::Recognitions;
use super::slices::Slices;
use super::text_intake::TextIntake;
use crate::audio_input::{AudioInput, EncoderTimes, PendingAudio, PendingWindow};
use crate::recogniser::HearingOptions;

/// Queue lengths of one session, or of all sessions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Queues {
    /// Commands that the engine has not taken yet.
    pub commands: usize,
    /// Windows of input audio that wait for the encoder, or audio items that a recogniser hears.
    pub windows: usize,
    /// Requested responses that have not begun.
    pub responses: usize,
    /// Events that the caller has not read yet.
    pub events: usize,
}

/// State of [`Command::Finish`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// The command was not submitted yet.
    Open,
    /// The command was submitted; responses are unfinished.
    Requested,
    /// [`Event::Finished`] was reported.
    Reported,
}

/// Response that waits for commit or abort.
pub struct Speculation {
    /// Id of the user item.
    pub item: ItemId,
    /// Id of the response.
    pub response: ResponseId,
    /// Id of the assistant item.
    pub response_item: ItemId,
    /// Input audio up to the begin, still open.
    pub audio_input: AudioInput,
    /// Samples appended since the begin.
    pub held: Vec<f32>,
    /// Start of the speculation.
    pub since: Instant,
}

/// State of one session.
pub struct Session {
    /// Slot of the session in every stage; its in-band responses run there.
    pub(super) slot: usize,
    pub(super) peer: SessionPeer,
    /// Commands that wait until fewer windows wait for the encoder.
    pub(super) held_commands: VecDeque<Command>,
    pub(super) instructions: String,
    pub(super) tools: Arc<[Tool]>,
    /// Encoded system message of instructions and tools.
    pub(super) system: Option<Vec<u32>>,
    pub(super) history: History,
    pub(super) eviction: Eviction,
    pub(super) audio_input: Option<AudioInput>,
    pub(super) slices: Option<Slices>,
    pub(super) speculation: Option<Speculation>,
    /// Closed windows that wait for the encoder, in order.
    pub pending_windows: VecDeque<PendingWindow>,
    /// Duration of audio that is in no closed window yet.
    pub(super) unwindowed: Duration,
    pub(super) real_time: AudioRateLimiter,
    /// Complete audio that waits for the front end, in order.
    pub(super) pending_sounds: VecDeque<PendingAudio>,
    /// Audio that a recogniser hears, in order.
    pub recognitions: Recognitions,
    /// Hints and id of the next open audio.
    pub(super) next_hearing: Option<(HearingOptions, ItemId)>,
    /// Transcripts that follow the text of audio items.
    pub(super) followed: Vec<FollowedText>,
    /// Next command, while its texts are being tokenised.
    pub(super) text_intake: Option<Box<TextIntake>>,
    /// True while texts wait to be tokenised: the prompt will change soon, so it is not rendered before.
    pub(super) behind: bool,
    /// Time since which a response has waited for the encoder without progress.
    pub(super) stalled: Option<Instant>,
    /// Last step of the encoder with windows of this session.
    pub(super) encoder: Option<EncoderTimes>,
    /// In-band responses that wait for the one before them.
    pub(super) pending_responses: VecDeque<PendingResponse>,
    /// The in-band response being generated.
    pub(super) active: Option<ActiveResponse>,
    /// Out-of-band responses, pending or active.
    pub(super) out_of_band: Vec<OutOfBandResponse>,
    /// True if the last in-band response was text alone.
    pub(super) writes_alone: bool,
    /// True if the prompt may differ from the last one delivered to the stages.
    pub(super) changed: bool,
    pub(super) ending: Ending,
    /// Number of audio parts in responses' own inputs so far; numbers the next one.
    pub(super) input_audios: u64,
    /// Number of events sent so far.
    pub(super) emitted: Cell<u64>,
    /// While the event queue is full: start of the caller's inactivity, and the number of events it had read then.
    pub(super) unread: Option<(Instant, u64)>,
}

impl Session {
    /// Creates an empty session in slot `slot` of the stages.
    pub fn new(peer: SessionPeer, slot: usize) -> Self {
        Self {
            slot,
            peer,
            held_commands: VecDeque::new(),
            instructions: String::new(),
            tools: Arc::default(),
            system: None,
            history: History::default(),
            eviction: Eviction::default(),
            audio_input: None,
            slices: None,
            speculation: None,
            pending_windows: VecDeque::new(),
            unwindowed: Duration::ZERO,
            real_time: AudioRateLimiter::default(),
            pending_sounds: VecDeque::new(),
            recognitions: Recognitions::default(),
            next_hearing: None,
            followed: Vec::new(),
            text_intake: None,
            behind: false,
            stalled: None,
            encoder: None,
            pending_responses: VecDeque::new(),
            active: None,
            out_of_band: Vec::new(),
            writes_alone: false,
            changed: false,
            ending: Ending::Open,
            input_audios: 0,
            emitted: Cell::new(0),
            unread: None,
        }
    }

    /// True if the caller has dropped its handle.
    pub fn is_disconnected(&self) -> bool {
        self.peer.commands.is_disconnected()
    }

    /// True if the event queue has places for `events` events from each slot of the session. Otherwise the session is
    /// not runnable.
    pub fn has_capacity(&self, events: usize) -> bool {
        let events = events * (1 + self.out_of_band.len()) + HEARD_EVENTS;
        self.peer.events.capacity().is_none_or(|capacity| self.peer.events.len() + events <= capacity)
    }

    /// Owner of the session.
    pub fn tenant(&self) -> &Tenant {
        &self.peer.tenant
    }

    /// Tracing span in which the session was opened.
    pub fn span(&self) -> &Span {
        &self.peer.span
    }

    /// Queue lengths of the session.
    pub fn queues(&self) -> Queues {
        Queues {
            commands: self.peer.commands.len() + self.held_commands.len(),
            windows: self.pending_windows.len() + self.recognitions.len(),
            responses: self.pending_responses.len(),
            events: self.peer.events.len(),
        }
    }

    /// Sends an event. The scheduler checks the queue's capacity before the tick; a dropped handle is noticed by its
    /// command queue.
    pub(super) fn emit(&self, event: Event) {
        match self.peer.events.try_send(event) {
            Ok(()) => self.emitted.set(self.emitted.get() + 1),
            Err(flume::TrySendError::Full(event)) => {
                // The event itself is not logged: it holds the caller's words or sound.
                let kind = event.kind();
                self.peer.span.in_scope(|| tracing::error!(kind, "an event was dropped: the queue is full"));
            }
            Err(flume::TrySendError::Disconnected(_)) => {}
        }
    }

    /// Reports a failure of `response`, or of a command that requests none.
    pub fn fail(&self, response: Option<ResponseId>, error: SessionError) {
        self.emit(Event::Failed { response, error });
    }
}
