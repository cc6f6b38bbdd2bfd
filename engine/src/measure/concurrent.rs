//! Measures turns of several sessions that end at the same moment, scheduled as in a server, on the configured device.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, SessionHandle, link};

use super::machine::resident;
use super::metered::Meter;
use super::report::{MeasureError, MeasuredTurn, StageMeasurement, TurnPhase};
use super::test_bed::{SLICE, TestBed, stage_rows};
use crate::checkpoint::{Checkpoint, Source};
use crate::config::EngineConfig;
use crate::device::DeviceChoice;
use crate::model::Hearing;
use crate::models;
use crate::models::load_error::LoadError;
use crate::scheduler::Tick;

/// Measurement of a number of concurrent sessions.
#[derive(Debug, Clone)]
pub struct ConcurrentRun {
    /// Number of concurrent sessions.
    pub sessions: usize,
    /// Computing time while the callers speak.
    pub listening: Duration,
    /// Time from the commit to the first sound, one entry for each session, ascending.
    pub first_sound: Vec<Duration>,
    /// RTF of each session, ascending: time from the commit to its end, divided by the duration of its sound.
    pub rtf: Vec<f64>,
    /// Duration of the sound of all sessions together.
    pub sound: Duration,
    /// Time from the commit to the last session's end.
    pub whole: Duration,
    /// Steps of every stage, run in parallel with the other stages. Products are not counted.
    pub stages: Vec<StageMeasurement>,
}

/// Measurements of all runs, with the memory and the load time.
#[derive(Debug, Clone)]
pub struct ConcurrentRuns {
    /// Time to draw or read the weights, pack them, and prepare everything else before the first turn.
    pub loading: Duration,
    /// Resident memory of this process after the turns, in bytes.
    pub resident: u64,
    /// One run for each number of sessions.
    pub runs: Vec<ConcurrentRun>,
}

/// Loads a checkpoint on the configured device and measures one turn for each number of sessions in `counts`; on a device other than the
/// processor the second of two equal turns.
pub fn measure_concurrent(
    source: Source,
    config: &EngineConfig,
    turn: MeasuredTurn,
    counts: &[usize],
) -> Result<ConcurrentRuns, MeasureError> {
    let most = counts.iter().copied().max().unwrap_or(1);
    let config = EngineConfig { sessions: most, out_of_band: 0, ..config.clone() };
    config.check()?;
    let begun = Instant::now();
    let mut model = models::load_model(&Checkpoint::open(source).map_err(LoadError::from)?, &config)?;
    if model.slots.sessions < most {
        return Err(MeasureError::TooMany { asked: most, slots: model.slots.sessions });
    }
    let loading = begun.elapsed();
    let meter = Meter::time_only();
    meter.attach(&mut model);
    let output_rate = model.codec.ok_or(MeasureError::TextOnly)?.sample_rate;
    let rates = (model.hearing.as_ref().map_or(0, Hearing::rate), output_rate);
    let mut bed = TestBed::new(model, &config, rates);
    bed.warm_up(&meter)?;
    let mut crowds = Vec::with_capacity(counts.len());
    for &sessions in counts {
        // A device captures a graph of each new shape: the measured turn is the second of its kind, as most are that a server answers.
        if config.device != DeviceChoice::Cpu {
            bed.run_concurrent(turn, sessions, &meter)?;
        }
        crowds.push(bed.run_concurrent(turn, sessions, &meter)?);
    }
    Ok(ConcurrentRuns { loading, resident: resident(), runs: crowds })
}

/// A session whose response is measured.
struct ConcurrentSession {
    /// `None` once it has made enough sound or has ended.
    session: Option<SessionHandle>,
    samples: usize,
    first: Option<Duration>,
    done: Duration,
}

impl TestBed {
    /// Runs one turn on each of `sessions` new sessions at the same time.
    fn run_concurrent(
        &mut self,
        turn: MeasuredTurn,
        sessions: usize,
        meter: &Meter,
    ) -> Result<ConcurrentRun, MeasureError> {
        let mut all = Vec::with_capacity(sessions);
        for _ in 0..sessions {
            let (session, peer) = link(self.wake.clone());
            self.gauges.open.fetch_add(1, Ordering::AcqRel);
            // The queue has one place for each session slot, so it is never full.
            let _ = self.arrivals.try_send(peer);
            self.settle();
            all.push(ConcurrentSession { session: Some(session), samples: 0, first: None, done: Duration::ZERO });
        }
        meter.take();
        let begun = Instant::now();
        let heard = self.samples(turn.input);
        let slice = self.samples(SLICE).max(1);
        for first in (0..heard).step_by(slice as usize) {
            for (number, one) in all.iter().enumerate() {
                let Some(session) = &one.session else { continue };
                session.submit(Command::Append(
                    MeasuredTurn { seed: turn.seed + number as u64, ..turn }.noise(first, slice),
                ))?;
            }
            self.settle();
        }
        let (listening, mut stages) = (begun.elapsed(), stage_rows(TurnPhase::Listening, meter.take()));

        let begun = Instant::now();
        for (number, one) in all.iter().enumerate() {
            let Some(session) = &one.session else { continue };
            self.ask(session, MeasuredTurn { seed: turn.seed + number as u64, ..turn })?;
        }
        let enough = (turn.sound.as_secs_f64() * f64::from(self.output_rate)) as usize;
        while all.iter().any(|one| one.session.is_some()) {
            let mut moved = self.scheduler.tick() == Tick::Moved;
            for one in &mut all {
                let Some(session) = &one.session else { continue };
                let mut over = false;
                while let Some(event) = session.try_next_event() {
                    moved = true;
                    match event {
                        Event::Audio { samples, .. } => {
                            one.first.get_or_insert_with(|| begun.elapsed());
                            one.samples += samples.len();
                        }
                        Event::SegmentFinished { .. } => over = true,
                        Event::Failed { error, .. } => return Err(error.into()),
                        _ => {}
                    }
                }
                if over || one.samples >= enough {
                    one.done = begun.elapsed();
                    one.session = None;
                }
            }
            if !moved {
                break;
            }
        }
        let whole = begun.elapsed();
        stages.extend(stage_rows(TurnPhase::Answer, meter.take()));
        self.settle();
        let seconds = |samples: usize| samples as f64 / f64::from(self.output_rate);
        let mut first_sound: Vec<Duration> = all.iter().filter_map(|one| one.first).collect();
        if first_sound.len() < sessions {
            return Err(MeasureError::Silent);
        }
        first_sound.sort_unstable();
        let mut rtf: Vec<f64> = all.iter().map(|one| one.done.as_secs_f64() / seconds(one.samples)).collect();
        rtf.sort_unstable_by(f64::total_cmp);
        let sound = Duration::from_secs_f64(all.iter().map(|one| seconds(one.samples)).sum());
        Ok(ConcurrentRun { sessions, listening, first_sound, rtf, sound, whole, stages })
    }
}
