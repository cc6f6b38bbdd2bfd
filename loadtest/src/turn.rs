//! One turn: a question and its answer, or a question whose answer the caller interrupts with another question. The
//! state machine receives events with their times, and has no clock.

use std::time::{Duration, Instant};

use crate::measure::playback::{AnswerPlayback, Playback};
use crate::scenario::TransportKind;
use crate::server_events::{Event, TimedEvent};
use crate::speech::{FRAME, Utterance};

/// Longest lead of the first packet over the commit event; sound and events travel separately.
const MAX_OVERTAKING: Duration = Duration::from_millis(40);
/// Silence after which a done answer counts as over, if the server does not report its end.
const SILENT_END: Duration = Duration::from_secs(2);

/// Next action of the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// The caller listens.
    Wait,
    /// The caller begins to speak into the answer.
    BargeIn,
    /// The turn is complete.
    Over,
    /// The turn failed, for this reason.
    Failed(&'static str),
}

/// Progress of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The caller asks, waits for the answer, or listens to it.
    Asking,
    /// The caller speaks into the answer.
    Interrupting,
}

/// Times of an answered turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnTimes {
    /// True end of the caller's speech; for a turn answered slice by slice, commit of the first slice.
    pub speech_end: Instant,
    /// End of speech to commit; `None` if the commit event came late.
    pub endpointing: Option<Duration>,
    /// Commit to the first audible packet; `None` if the commit event came late.
    pub ttfp: Option<Duration>,
    /// True end of speech to the first audible sound.
    pub to_sound: Duration,
    /// First voiced sample of the barge-in to silence.
    pub barge_in: Option<Duration>,
    /// Transcript of the answer.
    pub transcript: Option<String>,
}

/// State machine of one turn.
#[derive(Debug)]
pub struct TurnTracker {
    transport: TransportKind,
    /// Time from the answer's first sound to the barge-in; `None` once the caller has barged in.
    interrupt_after: Option<Duration>,
    /// True if the server answers slice by slice, while the caller speaks.
    slices: bool,
    /// Committed slices without an answer yet.
    unanswered: usize,
    phase: Phase,
    /// Time of the last activity.
    latest: Instant,
    /// Time of the first voiced sample of the current utterance.
    voiced: Option<Instant>,
    speech_end: Option<Instant>,
    committed: Option<Instant>,
    /// Commit of the first slice.
    first_slice: Option<Instant>,
    cut_off: bool,
    /// Time at which the server noticed the barge-in; over a websocket the client stops playing then.
    noticed: Option<Instant>,
    /// Last audible packet of the interrupted answer.
    silent: Option<Instant>,
    barge_in: Option<Duration>,
    done: Option<Instant>,
    stopped: bool,
    failed: Option<&'static str>,
    transcript: Option<String>,
}

impl TurnTracker {
    /// Creates a turn that begins now.
    pub fn new(transport: TransportKind, interrupt_after: Option<Duration>) -> Self {
        Self {
            transport,
            interrupt_after,
            slices: false,
            unanswered: 0,
            phase: Phase::Asking,
            latest: Instant::now(),
            voiced: None,
            speech_end: None,
            committed: None,
            first_slice: None,
            cut_off: false,
            noticed: None,
            silent: None,
            barge_in: None,
            done: None,
            stopped: false,
            failed: None,
            transcript: None,
        }
    }

    /// Creates a turn that begins now and is answered slice by slice.
    pub fn sliced(transport: TransportKind) -> Self {
        Self { slices: true, ..Self::new(transport, None) }
    }

    /// Records that frame `index` of `utterance` was sent at `sent`. A microphone sends a frame at its end. Sound that
    /// arrives after the last frame of an interruption belongs to the next answer.
    pub fn frame_sent(&mut self, utterance: &Utterance, index: usize, sent: Instant, playback: &mut Playback) {
        let end = FRAME * (index as u32 + 1);
        self.latest = sent;
        if self.voiced.is_none() && end > utterance.first_audible {
            self.voiced = sent.checked_sub(end - utterance.first_audible);
        }
        if index + 1 == utterance.frames.len() {
            self.speech_end = sent.checked_sub(end.saturating_sub(utterance.speech_end));
            if self.phase == Phase::Interrupting {
                // Not at the commit event: the next answer's first packet may overtake it.
                self.silent = playback.take_answer().last_packet;
            }
        }
    }

    /// Records the commit of the turn or of a slice.
    pub fn committed(&mut self, at: Instant) {
        if self.slices {
            self.first_slice.get_or_insert(at);
            self.unanswered += 1;
            self.stopped = false;
        }
        self.cut_off |= !self.slices && self.speech_end.is_none();
        self.committed = Some(at);
    }

    /// Handles an event. Returns the code of an error event.
    pub fn event(&mut self, incoming: TimedEvent) -> Option<String> {
        let TimedEvent { event, at } = incoming;
        self.latest = self.latest.max(at);
        match event {
            Event::Error(code) => return Some(code),
            Event::Committed if self.phase == Phase::Interrupting => self.interrupted(at),
            Event::Committed => self.committed(at),
            Event::SpeechStarted | Event::Cleared if self.phase == Phase::Interrupting => {
                self.noticed.get_or_insert(at);
            }
            // The end of the interrupted answer is not the end of the turn.
            _ if self.phase == Phase::Interrupting => {}
            Event::Transcript(text) => self.transcript = Some(text),
            Event::Done(status) => {
                self.done = Some(at);
                self.unanswered = self.unanswered.saturating_sub(1);
                if status == "failed" {
                    self.failed = Some("the answer failed");
                }
            }
            Event::Stopped => self.stopped = true,
            _ => {}
        }
        None
    }

    /// Handles the commit of a barge-in, which is then asked like any question.
    fn interrupted(&mut self, at: Instant) {
        if self.noticed.is_none() {
            self.failed = Some("the server did not notice the barge-in");
        }
        let silent = match self.transport {
            TransportKind::Webrtc | TransportKind::Sip => self.silent,
            TransportKind::Websocket => self.noticed,
        };
        self.barge_in = silent.zip(self.voiced).and_then(|(silent, voiced)| silent.checked_duration_since(voiced));
        (self.phase, self.done, self.stopped, self.transcript) = (Phase::Asking, None, false, None);
        self.committed(at);
    }

    /// Returns the caller's next action at `now`. The turn fails after `patience` without activity.
    pub fn progress(&mut self, now: Instant, playback: &Playback, patience: Duration) -> NextAction {
        if let Some(why) = self.failed {
            return NextAction::Failed(why);
        }
        let heard = playback.answer();
        if let Some(until) = playback.played_until() {
            self.latest = self.latest.max(until.min(now));
        }
        if now.saturating_duration_since(self.latest) > patience {
            return NextAction::Failed("no answer in time");
        }
        if self.phase == Phase::Interrupting || self.speech_end.is_none() || self.committed.is_none() {
            return NextAction::Wait;
        }
        if let (Some(after), Some(first)) = (self.interrupt_after, heard.first_sound)
            && now >= first + after
        {
            self.interrupt_after = None;
            self.phase = Phase::Interrupting;
            (self.voiced, self.speech_end, self.noticed, self.silent) = (None, None, None, None);
            return NextAction::BargeIn;
        }
        // The last slice is committed after the speech, and answered after the others.
        if self.slices && (self.unanswered > 0 || self.committed < self.speech_end) {
            return NextAction::Wait;
        }
        let Some(done) = self.done else { return NextAction::Wait };
        let played = playback.played_until().is_none_or(|until| now >= until);
        let silent = playback.played_until().is_none_or(|until| now >= until + SILENT_END) && now >= done + SILENT_END;
        let over = match self.transport {
            TransportKind::Websocket => played,
            TransportKind::Webrtc | TransportKind::Sip => (self.stopped && played) || silent,
        };
        if over { NextAction::Over } else { NextAction::Wait }
    }

    /// Returns the turn's times.
    ///
    /// # Errors
    /// The turn cannot be measured; the error says the reason.
    pub fn into_times(self, answer: &AnswerPlayback) -> Result<TurnTimes, &'static str> {
        let speech_end = self.speech_end.ok_or("the answer was over before the question")?;
        let committed = self.committed.ok_or("the turn was never committed")?;
        if self.cut_off {
            return Err("the turn was cut off within the question");
        }
        let (first_packet, first_sound) =
            answer.first_packet.zip(answer.first_sound).ok_or("the answer has no sound")?;
        if let Some(first_slice) = self.first_slice {
            return Ok(TurnTimes {
                speech_end: first_slice,
                endpointing: None,
                ttfp: Some(first_packet.saturating_duration_since(first_slice)),
                to_sound: first_sound.saturating_duration_since(first_slice),
                barge_in: None,
                // Parts of a question have no right answer.
                transcript: None,
            });
        }
        if first_packet < speech_end {
            return Err("the answer began before the end of the question");
        }
        if self.interrupt_after.is_some() {
            return Err("the answer ended before the barge-in");
        }
        // On a bad network the commit event is retransmitted; sound does not wait for it.
        let in_time = (first_packet + MAX_OVERTAKING >= committed).then_some(committed);
        Ok(TurnTimes {
            speech_end,
            endpointing: in_time.map(|committed| committed.saturating_duration_since(speech_end)),
            ttfp: in_time.map(|committed| first_packet.saturating_duration_since(committed)),
            to_sound: first_sound.saturating_duration_since(speech_end),
            barge_in: self.barge_in,
            transcript: self.transcript,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const PATIENCE: Duration = Duration::from_secs(10);

    fn at(event: Event, at: Instant) -> TimedEvent {
        TimedEvent { event, at }
    }

    /// An utterance of 100 ms of silence and 300 ms of sound.
    fn question() -> Utterance {
        Utterance::new(&[vec![0.0; 2_400], vec![0.2; 7_200]].concat()).unwrap()
    }

    /// Speaks a whole question whose first frame leaves at `start`.
    fn speak(turn: &mut TurnTracker, start: Instant, playback: &mut Playback) {
        let question = question();
        let frames = 0..question.frames.len();
        frames.for_each(|index| turn.frame_sent(&question, index, start + FRAME * index as u32, playback));
    }

    fn sound(playback: &mut Playback, position: u64, arrival: Instant) {
        playback.push(position, &[0.1; 480], arrival, false);
    }

    #[test]
    fn times_begin_at_true_end_of_speech() {
        let start = Instant::now();
        let mut playback = Playback::new(Duration::ZERO);
        let mut turn = TurnTracker::new(TransportKind::Webrtc, None);
        speak(&mut turn, start, &mut playback);
        // The first frame was spoken in the 20 ms before it was sent.
        let speech_end = start + 380 * MS;
        turn.event(at(Event::Committed, speech_end + 500 * MS));
        sound(&mut playback, 0, speech_end + 620 * MS);
        turn.event(at(Event::Done("completed".into()), speech_end + 630 * MS));
        assert_eq!(turn.progress(speech_end + 640 * MS, &playback, PATIENCE), NextAction::Wait);
        turn.event(at(Event::Stopped, speech_end + 650 * MS));
        assert_eq!(turn.progress(speech_end + 660 * MS, &playback, PATIENCE), NextAction::Over);
        let times = turn.into_times(&playback.take_answer()).unwrap();
        assert_eq!(times.speech_end, speech_end);
        assert_eq!((times.endpointing, times.ttfp), (Some(500 * MS), Some(120 * MS)));
        assert_eq!(times.to_sound, 620 * MS);
    }

    #[test]
    fn turns_that_measure_nothing_are_errors() {
        let (start, mut playback) = (Instant::now(), Playback::new(Duration::ZERO));
        let turn = || {
            let mut turn = TurnTracker::new(TransportKind::Webrtc, None);
            speak(&mut turn, start, &mut Playback::new(Duration::ZERO));
            turn
        };
        assert!(
            TurnTracker::new(TransportKind::Webrtc, None)
                .into_times(&AnswerPlayback::default())
                .unwrap_err()
                .contains("before the question")
        );
        assert!(turn().into_times(&AnswerPlayback::default()).unwrap_err().contains("never committed"));
        let mut silent = turn();
        silent.committed(start + 900 * MS);
        assert!(silent.into_times(&AnswerPlayback::default()).unwrap_err().contains("no sound"));
        let mut early = turn();
        early.committed(start + 900 * MS);
        sound(&mut playback, 0, start + 300 * MS);
        assert!(early.into_times(playback.answer()).unwrap_err().contains("before the end"));
        let mut cut = TurnTracker::new(TransportKind::Webrtc, None);
        cut.committed(start);
        speak(&mut cut, start, &mut playback);
        cut.committed(start + 550 * MS);
        assert!(cut.into_times(playback.answer()).unwrap_err().contains("cut off"));
    }

    #[test]
    fn late_commit_event_leaves_ttfp_unknown() {
        let (start, mut playback) = (Instant::now(), Playback::new(Duration::ZERO));
        let mut turn = TurnTracker::new(TransportKind::Webrtc, None);
        speak(&mut turn, start, &mut playback);
        sound(&mut playback, 0, start + 900 * MS);
        turn.committed(start + 1_900 * MS);
        let times = turn.into_times(playback.answer()).unwrap();
        assert_eq!((times.endpointing, times.ttfp, times.to_sound), (None, None, 520 * MS));
    }

    #[test]
    fn barge_in_is_timed_from_its_voice() {
        let (start, mut playback) = (Instant::now(), Playback::new(Duration::ZERO));
        let mut turn = TurnTracker::new(TransportKind::Webrtc, Some(200 * MS));
        speak(&mut turn, start, &mut playback);
        turn.event(at(Event::Committed, start + 900 * MS));
        let answered = start + 1_000 * MS;
        for n in 0..40 {
            sound(&mut playback, n * 480, answered + FRAME * n as u32);
        }
        assert_eq!(turn.progress(answered + 199 * MS, &playback, PATIENCE), NextAction::Wait);
        assert_eq!(turn.progress(answered + 200 * MS, &playback, PATIENCE), NextAction::BargeIn);
        speak(&mut turn, answered + 200 * MS, &mut playback);
        // Neither the end nor the transcript of the interrupted answer counts.
        turn.event(at(Event::SpeechStarted, answered + 400 * MS));
        turn.event(at(Event::Done("cancelled".into()), answered + 800 * MS));
        turn.event(at(Event::Transcript("what was interrupted".into()), answered + 800 * MS));
        // The next answer's sound overtakes the event of the commit.
        sound(&mut playback, 60 * 480, answered + 1_090 * MS);
        turn.event(at(Event::Committed, answered + 1_100 * MS));
        turn.event(at(Event::Stopped, answered + 1_300 * MS));
        turn.event(at(Event::Done("completed".into()), answered + 1_300 * MS));
        assert_eq!(turn.progress(answered + 1_400 * MS, &playback, PATIENCE), NextAction::Over);
        let times = turn.into_times(&playback.take_answer()).unwrap();
        // Frames leave from 200 ms on, 20 ms after they were spoken; the voice is 100 ms in. The last sound arrives at
        // 780 ms.
        assert_eq!(times.barge_in, Some(780 * MS - (200 + 100 - 20) * MS));
        assert_eq!((times.ttfp, times.to_sound), (Some(Duration::ZERO), 510 * MS));
        assert_eq!(times.transcript, None);
    }

    #[test]
    fn slices_are_timed_from_the_first_commit() {
        let start = Instant::now();
        let mut playback = Playback::new(Duration::ZERO);
        let mut turn = TurnTracker::sliced(TransportKind::Webrtc);
        let question = question();
        turn.frame_sent(&question, 0, start, &mut playback);
        turn.event(at(Event::Committed, start + 100 * MS));
        sound(&mut playback, 0, start + 150 * MS);
        turn.event(at(Event::Done("completed".into()), start + 160 * MS));
        turn.event(at(Event::Stopped, start + 190 * MS));
        assert_eq!(turn.progress(start + 200 * MS, &playback, PATIENCE), NextAction::Wait, "the caller still speaks");
        (1..question.frames.len()).for_each(|index| {
            turn.frame_sent(&question, index, start + FRAME * index as u32, &mut playback);
        });
        assert_eq!(
            turn.progress(start + 400 * MS, &playback, PATIENCE),
            NextAction::Wait,
            "the last slice is not committed"
        );
        turn.event(at(Event::Committed, start + 900 * MS));
        assert_eq!(turn.progress(start + 900 * MS, &playback, PATIENCE), NextAction::Wait, "nor answered");
        sound(&mut playback, 480, start + 950 * MS);
        turn.event(at(Event::Done("completed".into()), start + 960 * MS));
        turn.event(at(Event::Stopped, start + 990 * MS));
        assert_eq!(turn.progress(start + 1_000 * MS, &playback, PATIENCE), NextAction::Over);
        let times = turn.into_times(&playback.take_answer()).unwrap();
        assert_eq!((times.speech_end, times.ttfp), (start + 100 * MS, Some(50 * MS)));
        assert_eq!((times.endpointing, times.transcript), (None, None));
    }

    #[test]
    fn unnoticed_barge_in_fails_the_turn() {
        let (start, mut playback) = (Instant::now(), Playback::new(Duration::ZERO));
        let mut turn = TurnTracker::new(TransportKind::Webrtc, Some(Duration::ZERO));
        speak(&mut turn, start, &mut playback);
        turn.event(at(Event::Committed, start + 900 * MS));
        sound(&mut playback, 0, start + 1_000 * MS);
        assert_eq!(turn.progress(start + 1_000 * MS, &playback, PATIENCE), NextAction::BargeIn);
        speak(&mut turn, start + 1_000 * MS, &mut playback);
        turn.event(at(Event::Committed, start + 2_000 * MS));
        let why = turn.progress(start + 2_000 * MS, &playback, PATIENCE);
        assert_eq!(why, NextAction::Failed("the server did not notice the barge-in"));
    }

    #[test]
    fn silent_server_fails_the_turn() {
        let start = Instant::now();
        let mut playback = Playback::new(Duration::ZERO);
        let mut turn = TurnTracker::new(TransportKind::Webrtc, None);
        speak(&mut turn, start, &mut playback);
        assert_eq!(turn.progress(start + 5_000 * MS, &playback, PATIENCE), NextAction::Wait);
        let late = turn.progress(start + 11_000 * MS, &playback, PATIENCE);
        assert_eq!(late, NextAction::Failed("no answer in time"));
    }
}
