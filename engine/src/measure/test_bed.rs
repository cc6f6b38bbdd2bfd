//! An engine without a thread of its own, on which turns are measured.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, Respond, SessionHandle, SessionPeer, WakeSignal, link};
use repartee_kernels::random::uniform;

use super::metered::{Meter, StageTally, Tallies};
use super::report::{MeasureError, MeasuredTurn, StageMeasurement, TurnPhase, TurnTiming};
use crate::config::EngineConfig;
use crate::model::Model;
use crate::scheduler::{Gauges, Scheduler, Tick};
use crate::stage::RowKind;

/// Input audio submitted at once.
pub(super) const SLICE: Duration = Duration::from_millis(100);
/// Text to read aloud, repeated as needed.
const TEXT: &str = "the quick brown fox jumps over the lazy dog and then sings a song about the rain on the sea ";
/// Unmeasured turn before the measured ones.
const WARM_UP: MeasuredTurn =
    MeasuredTurn { input: Duration::from_millis(500), text_tokens: 2, sound: Duration::from_millis(100), seed: 1 };

impl MeasuredTurn {
    /// Returns `count` samples of input noise from sample `first` on.
    pub(super) fn noise(&self, first: u64, count: u64) -> Vec<f32> {
        (first..first + count).map(|at| (uniform(self.seed, at, 0, 0) - 0.5) * 0.2).collect()
    }
}

/// An engine without a thread of its own, ticked until no work is left.
pub(super) struct TestBed {
    pub(super) scheduler: Scheduler,
    pub(super) arrivals: flume::Sender<SessionPeer>,
    pub(super) gauges: Arc<Gauges>,
    pub(super) wake: WakeSignal,
    input_rate: u32,
    pub(super) output_rate: u32,
}

impl TestBed {
    pub(super) fn new(model: Model, config: &EngineConfig, (input_rate, output_rate): (u32, u32)) -> Self {
        let (arrivals, arriving) = flume::bounded(model.slots.sessions);
        let gauges = Arc::new(Gauges::default());
        let scheduler = Scheduler::new(model, config, arriving, Arc::clone(&gauges));
        let (wake, _) = WakeSignal::new();
        Self { scheduler, arrivals, gauges, wake, input_rate, output_rate }
    }

    /// Number of input samples in `time`.
    pub(super) fn samples(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * f64::from(self.input_rate)) as u64
    }

    /// Ticks until no work is left.
    pub(super) fn settle(&mut self) {
        while self.scheduler.tick() == Tick::Moved {}
    }

    /// Runs a short turn that brings everything into memory. Models that speak after some words of text stay silent in it.
    pub(super) fn warm_up(&mut self, meter: &Meter) -> Result<(), MeasureError> {
        let run = self.run(WARM_UP, meter);
        // The session's slot is free for the next one, also after an error.
        self.settle();
        match run {
            Ok(_) | Err(MeasureError::Silent) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Runs one turn of a new session. Returns its times and the tallies of both phases.
    pub(super) fn run(
        &mut self,
        turn: MeasuredTurn,
        meter: &Meter,
    ) -> Result<(TurnTiming, [Tallies; 2]), MeasureError> {
        let (session, peer) = link(self.wake.clone());
        self.gauges.open.fetch_add(1, Ordering::AcqRel);
        // The queue has one place for each session slot, and only one session is open.
        let _ = self.arrivals.try_send(peer);
        self.settle();
        meter.take();
        let mut timing = TurnTiming::default();
        let slice = self.samples(SLICE).max(1);
        for first in (0..self.samples(turn.input)).step_by(slice as usize) {
            let begun = Instant::now();
            session.submit(Command::Append(turn.noise(first, slice)))?;
            self.settle();
            timing.listening += begun.elapsed();
        }
        let listening = meter.take();
        self.measure_response(&session, turn, &mut timing)?;
        let answer = meter.take();
        drop(session);
        self.settle();
        Ok((timing, [listening, answer]))
    }

    /// Commits what was heard and asks for a response; a model that only reads texts gets one to read.
    pub(super) fn ask(&self, session: &SessionHandle, turn: MeasuredTurn) -> Result<(), MeasureError> {
        let respond = Respond { max_tokens: Some(turn.text_tokens), seed: turn.seed, ..Respond::new(1, 2) };
        if self.input_rate > 0 {
            session.submit(Command::Commit { item: 1 })?;
            session.submit(Command::Respond(respond))?;
        } else {
            let response = respond.response;
            let text = TEXT.chars().cycle().take(turn.text_tokens as usize).collect();
            session.submit(Command::Respond(Respond { streamed: true, ..respond }))?;
            session.submit(Command::StreamText { response, text })?;
            session.submit(Command::EndText { response })?;
        }
        Ok(())
    }

    /// Asks, then runs until the response has `turn.sound` of sound or no work is left.
    fn measure_response(
        &mut self,
        session: &SessionHandle,
        turn: MeasuredTurn,
        timing: &mut TurnTiming,
    ) -> Result<(), MeasureError> {
        let begun = Instant::now();
        self.ask(session, turn)?;
        let mut made = 0;
        loop {
            let moved = self.scheduler.tick() == Tick::Moved;
            let mut read = false;
            while let Some(event) = session.try_next_event() {
                read = true;
                match event {
                    Event::Audio { samples, .. } => {
                        if made == 0 {
                            timing.first_sound = begun.elapsed();
                        }
                        made += samples.len();
                    }
                    Event::Failed { error, .. } => return Err(error.into()),
                    _ => {}
                }
            }
            timing.sound = Duration::from_secs_f64(made as f64 / f64::from(self.output_rate));
            if timing.sound >= turn.sound || !(moved || read) {
                timing.whole = begun.elapsed();
                return if made == 0 { Err(MeasureError::Silent) } else { Ok(()) };
            }
        }
    }
}

/// Lists tallies as measurements of a part of the turn.
pub(super) fn stage_rows(phase: TurnPhase, tallies: Tallies) -> Vec<StageMeasurement> {
    let row = |((at, stage, kind), tally)| {
        let StageTally { steps, rows, took, products, makes } = tally;
        StageMeasurement { phase, stage, at, output: makes, kind: kind_name(kind), steps, rows, took, products }
    };
    tallies.into_iter().map(row).collect()
}

fn kind_name(kind: RowKind) -> &'static str {
    match kind {
        RowKind::Prefill => "prefill",
        RowKind::Decode => "decode",
        RowKind::Window => "window",
        RowKind::SolverStep => "solver step",
    }
}
