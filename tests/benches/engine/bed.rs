//! An engine without its own thread: the benchmark ticks the scheduler until it is idle.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use repartee_engine::internals::{Checkpoint, Gauges, Scheduler, Tick, Times, load_model};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_api::{Command, Event, Respond, SessionHandle, SessionPeer, WakeSignal, link};
use repartee_media::sound_file;
use repartee_tests::questions;

/// Input sample rate of the demo model, in Hz.
pub const RATE: usize = 16_000;

/// An engine that is ticked by hand.
pub struct Bed {
    scheduler: Scheduler,
    arrivals: flume::Sender<SessionPeer>,
    gauges: Arc<Gauges>,
    wake: WakeSignal,
    /// Output sample rate of the model, in Hz.
    pub output_rate: u32,
}

/// Times of one answer.
#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Commit to the first samples.
    pub first: Duration,
    /// Commit to the end of the answer.
    pub whole: Duration,
    /// Duration of the answer's sound.
    pub sound: Duration,
}

impl Bed {
    /// Loads the model in `folder` with `config`, and warms it up with one answer.
    pub fn new(folder: &Path, config: &EngineConfig) -> Result<Self> {
        let checkpoint = Checkpoint::open(Source::Folder(folder.to_owned()))?;
        let model = load_model(&checkpoint, config)?;
        let output_rate = model.codec.map_or(0, |codec| codec.sample_rate);
        let (arrivals, arriving) = flume::bounded(model.slots.sessions);
        let gauges = Arc::new(Gauges::default());
        let scheduler = Scheduler::new(model, config, arriving, Arc::clone(&gauges));
        let (wake, _) = WakeSignal::new();
        let mut bed = Self { scheduler, arrivals, gauges, wake, output_rate };
        let question = sound("three-plus-four.wav")?;
        let session = bed.prefilled(&question)?;
        bed.answers(&[&session], Respond::new(0, 1))?;
        drop(session);
        bed.settle();
        Ok(bed)
    }

    /// Opens a new session. Fails if no slot is free.
    pub fn open(&self) -> Result<SessionHandle> {
        let (session, peer) = link(self.wake.clone());
        self.gauges.open.fetch_add(1, Ordering::AcqRel);
        self.arrivals.try_send(peer).context("no slot is free")?;
        Ok(session)
    }

    /// Ticks until the scheduler is idle.
    pub fn settle(&mut self) {
        while self.scheduler.tick() == Tick::Moved {}
    }

    /// Opens a session and appends `samples` in slices of 100 ms, each prefilled before the next.
    pub fn prefilled(&mut self, samples: &[f32]) -> Result<SessionHandle> {
        let session = self.open()?;
        for slice in samples.chunks(RATE / 10) {
            session.submit(Command::Append(slice.to_vec()))?;
            self.settle();
        }
        Ok(session)
    }

    /// Commits the input of every session, requests all answers at once, and times each.
    pub fn answers(&mut self, sessions: &[&SessionHandle], request: Respond) -> Result<Vec<Timing>> {
        let begun = Instant::now();
        for session in sessions {
            session.submit(Command::Commit { item: 2 * request.item })?;
            session.submit(Command::Respond(Respond { item: 2 * request.item + 1, ..request.clone() }))?;
        }
        let mut timings: Vec<(Option<Duration>, Option<Duration>, usize)> = vec![(None, None, 0); sessions.len()];
        while timings.iter().any(|(_, whole, _)| whole.is_none()) {
            let moved = self.scheduler.tick() == Tick::Moved;
            let mut read = false;
            for (session, (first, whole, samples)) in sessions.iter().zip(&mut timings) {
                while let Some(event) = session.try_next_event() {
                    read = true;
                    match event {
                        Event::Audio { samples: more, .. } => {
                            first.get_or_insert_with(|| begun.elapsed());
                            *samples += more.len();
                        }
                        Event::SegmentFinished { .. } => *whole = Some(begun.elapsed()),
                        Event::Failed { error, .. } => return Err(error.into()),
                        _ => {}
                    }
                }
            }
            ensure!(moved || read, "an answer does not come");
        }
        let timing = |(first, whole, samples): (Option<Duration>, Option<Duration>, usize)| {
            let (Some(first), Some(whole)) = (first, whole) else { bail!("an answer has no sound") };
            let sound = Duration::from_secs_f64(samples as f64 / f64::from(self.output_rate));
            Ok(Timing { first, whole, sound })
        };
        timings.into_iter().map(timing).collect()
    }

    /// Returns the accumulated compute time of each stage.
    pub fn times(&self) -> Times {
        self.scheduler.times()
    }
}

/// Reads the sound of a question in `tests/questions`.
pub fn sound(file: &str) -> Result<Vec<f32>> {
    let file = std::fs::read(questions::named(file)?.path())?;
    Ok(sound_file::read(&file[..], RATE as u32, Duration::from_secs(60))?)
}

/// Returns the median; 0 if empty.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
