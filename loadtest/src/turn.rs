//! One turn: a question and its answer, or a question whose answer the caller interrupts with another one. It is told what happens
//! and when, and has no clock.

use std::time::{Duration, Instant};

use crate::measure::playback::{AnswerPlayback, Playback};
use crate::scenario::TransportKind;
use crate::speech::{FRAME, Utterance};
use crate::server_events::{Event, TimedEvent};

/// Sound and events take different ways: the first packet may arrive this long before the event of the commit.
const MAX_OVERTAKING: Duration = Duration::from_millis(40);
/// An answer is over when it is done and no sound has come for so long, where the server does not report its end.
const SILENT_END: Duration = Duration::from_secs(2);

/// What a caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Listens.
    Wait,
    /// Begins to speak into the answer.
    BargeIn,
    /// The turn is over.
    Over,
    /// It will never be.
    Failed(&'static str),
}

/// How far a turn has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The question is asked, or its answer awaited or heard.
    Asking,
    /// The caller speaks into the answer.
    Interrupting,
}

/// The times of a turn that was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnTimes {
    /// The true end of the caller's speech; of a turn that is answered slice by slice, its first slice's commit.
    pub speech_end: Instant,
    /// From there to the commit; unknown where its event came late.
    pub endpointing: Option<Duration>,
    /// Commit to the first audible packet; unknown where the commit's event came late.
    pub ttfp: Option<Duration>,
    /// True end of speech to the first audible sound.
    pub to_sound: Duration,
    /// First voiced sample of the barge-in to silence.
    pub barge_in: Option<Duration>,
    /// What the answer says.
    pub transcript: Option<String>,
}

/// A turn in progress.
#[derive(Debug)]
pub struct TurnTracker {
    transport: TransportKind,
    /// After the first sound of the answer, until the caller has barged in.
    interrupt_after: Option<Duration>,
    /// Whether it is answered slice by slice, while the caller speaks.
    slices: bool,
    /// Slices that were committed and not answered.
    unanswered: usize,
    phase: Phase,
    /// The last time that anything went on.
    latest: Instant,
    /// The first voiced sample of what is spoken now.
    voiced: Option<Instant>,
    speech_end: Option<Instant>,
    committed: Option<Instant>,
    /// The commit of the first slice.
    first_slice: Option<Instant>,
    cut_off: bool,
    /// When the server noticed the barge-in; over a websocket the client falls silent then.
    noticed: Option<Instant>,
    /// The last audible packet of the answer that was interrupted.
    silent: Option<Instant>,
    barge_in: Option<Duration>,
    done: Option<Instant>,
    stopped: bool,
    failed: Option<&'static str>,
    transcript: Option<String>,
}

impl TurnTracker {
    /// A turn that begins now.
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

    /// A turn that begins now and is answered slice by slice.
    pub fn sliced(transport: TransportKind) -> Self {
        Self { slices: true, ..Self::new(transport, None) }
    }

    /// Frame `index` of `utterance` left at `sent`. A microphone sends a frame at its end. What is heard after an interruption's last frame
    /// is the next answer.
    pub fn frame_sent(&mut self, utterance: &Utterance, index: usize, sent: Instant, playback: &mut Playback) {
        let end = FRAME * (index as u32 + 1);
        self.latest = sent;
        if self.voiced.is_none() && end > utterance.first_audible {
            self.voiced = sent.checked_sub(end - utterance.first_audible);
        }
        if index + 1 == utterance.frames.len() {
            self.speech_end = sent.checked_sub(end.saturating_sub(utterance.speech_end));
            if self.phase == Phase::Interrupting {
                // Not at the commit: the next answer's first packet may overtake its event.
                self.silent = playback.take_answer().last_packet;
            }
        }
    }

    /// The turn was committed.
    pub fn committed(&mut self, at: Instant) {
        if self.slices {
            self.first_slice.get_or_insert(at);
            self.unanswered += 1;
            self.stopped = false;
        }
        self.cut_off |= !self.slices && self.speech_end.is_none();
        self.committed = Some(at);
    }

    /// Takes an event; the code of an error that it reports.
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
            // What ends of the interrupted answer is not the end of the turn.
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

    /// The barge-in is a turn like any other.
    fn interrupted(&mut self, at: Instant) {
        if self.noticed.is_none() {
            self.failed = Some("the server did not notice the barge-in");
        }
        let silent = match self.transport {
            TransportKind::Webrtc => self.silent,
            TransportKind::Websocket => self.noticed,
        };
        self.barge_in = silent.zip(self.voiced).and_then(|(silent, voiced)| silent.checked_duration_since(voiced));
        (self.phase, self.done, self.stopped, self.transcript) = (Phase::Asking, None, false, None);
        self.committed(at);
    }

    /// What the caller does at `now`, who waits for anything to happen as long as `patience`.
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
            TransportKind::Webrtc => (self.stopped && played) || silent,
        };
        if over { NextAction::Over } else { NextAction::Wait }
    }

    /// The turn's times, or why it measures nothing.
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
        // On a bad network the event is sent again until it arrives; the sound does not wait for it.
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

    /// 100 ms of silence and 300 ms of sound.
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
        // The first frame was spoken in the 20 ms before it left.
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
            TurnTracker::new(TransportKind::Webrtc, None).into_times(&AnswerPlayback::default()).unwrap_err().contains("before the question")
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
        // Neither the end of what was interrupted nor its transcript count.
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
        // The voice began 100 ms into what left from 200 ms on, 20 ms before; the last sound came at 780 ms.
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
