//! Measures one fixed turn of a checkpoint on this machine, stage by stage: so many seconds heard, so many text tokens and so many seconds
//! of sound in answer. A model that hears nothing reads a text of as many characters aloud.
//!
//! The turn runs twice on the engine's own tick loop. First the stages run one after another, each alone on all threads, so that what a
//! stage takes, reads and multiplies is its own; then side by side, as a server runs them, for the first sound and the whole answer.
//! - `metered`: stages that note what their steps take
//! - `crowd`: turns of several sessions at once, on any device

mod concurrent;
mod metered;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use repartee_engine_api::{Command, Event, SessionPeer, Respond, SessionError, SessionHandle, SubmitError, WakeSignal, link};
use repartee_kernels::cpu::hardware_peaks::{self, PeakRate};
use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::{Cpu, ProductWork};
use repartee_kernels::random::uniform;
use thiserror::Error;

use crate::checkpoint::{Checkpoint, Source};
use crate::config::{ConfigError, EngineConfig};
use crate::model::Model;
use crate::models::{self, LoadError};
use crate::scheduler::{Gauges, Scheduler, Tick};
use crate::stage::RowKind;
pub use concurrent::{ConcurrentRun, ConcurrentRuns, measure_concurrent};
use metered::{Meter, Tallies, StageTally};

/// Sound that is sent at once.
const SLICE: Duration = Duration::from_millis(100);
/// Caches of the last level that the memory must exceed whose reading is timed.
const CACHES: usize = 8;
/// What is read aloud, over and over.
const TEXT: &str = "the quick brown fox jumps over the lazy dog and then sings a song about the rain on the sea ";
/// Turn before those that are measured: everything is in memory after it.
const WARM_UP: MeasuredTurn =
    MeasuredTurn { input: Duration::from_millis(500), text_tokens: 2, sound: Duration::from_millis(100), seed: 1 };

/// A turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredTurn {
    /// Noise that is heard; none by a model without ears.
    pub input: Duration,
    /// Most text tokens of the answer; of a model without ears, characters of the text that it reads.
    pub text_tokens: u32,
    /// Sound after which the answer is cut off.
    pub sound: Duration,
    /// Of the noise and the answer's random numbers.
    pub seed: u64,
}

impl MeasuredTurn {
    /// Samples that are heard.
    fn noise(&self, first: u64, count: u64) -> Vec<f32> {
        (first..first + count).map(|at| (uniform(self.seed, at, 0, 0) - 0.5) * 0.2).collect()
    }
}

/// What the machine could at best, on all threads.
#[derive(Debug, Clone)]
pub struct MachineLimits {
    /// Threads that compute.
    pub threads: usize,
    /// Bytes a second read from memory.
    pub bandwidth: f64,
    /// MiB of the memory that was read.
    pub read_mib: usize,
    /// What the system says of huge pages.
    pub huge_pages: String,
    /// Multiply-adds of single precision.
    pub float_peak: PeakRate,
    /// Multiply-adds of bytes; `None` where the processor has no instruction for it.
    pub integer_peak: Option<PeakRate>,
}

/// When a stage computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnPhase {
    /// While the caller speaks.
    Listening,
    /// From the commit on.
    Answer,
}

/// What a stage's rows make.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StageOutput {
    /// Text tokens.
    Text,
    /// Codec frames.
    Codes,
    /// Anything else.
    #[default]
    Other,
}

/// Steps of one stage over rows of one kind.
#[derive(Debug, Clone)]
pub struct StageMeasurement {
    /// When.
    pub phase: TurnPhase,
    /// The stage's name, or `encoder`.
    pub stage: &'static str,
    /// Its place among the stages; the encoder's is 0.
    pub at: usize,
    /// What its rows make.
    pub output: StageOutput,
    /// What its rows are: `prefill`, `decode`, `window` or `solver step`.
    pub kind: &'static str,
    /// Steps.
    pub steps: u64,
    /// Rows.
    pub rows: u64,
    /// Time.
    pub took: Duration,
    /// Products.
    pub products: ProductWork,
}

/// A measured turn.
#[derive(Debug, Clone, Default)]
pub struct TurnTiming {
    /// Computing while the caller spoke.
    pub listening: Duration,
    /// From the commit to the first sound.
    pub first_sound: Duration,
    /// From the commit to the end.
    pub whole: Duration,
    /// Duration of the sound.
    pub sound: Duration,
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct TurnReport {
    /// The machine.
    pub machine: MachineLimits,
    /// Drawing or reading the weights, and packing them.
    pub loading: Duration,
    /// Bytes of this process in memory after the turns.
    pub resident: u64,
    /// The turn.
    pub turn: MeasuredTurn,
    /// Every stage, of the turn with stages one after another.
    pub stages: Vec<StageMeasurement>,
    /// The turn with stages one after another.
    pub sequential: TurnTiming,
    /// The turn with stages side by side, as a server runs them.
    pub parallel: TurnTiming,
}

/// Why nothing was measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The checkpoint cannot be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A setting is out of range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operating system refused a thread.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
    /// A session took no command.
    #[error("the engine took no command: {0}")]
    Submit(#[from] SubmitError),
    /// The model failed.
    #[error("the model failed: {0}")]
    Failed(#[from] SessionError),
    /// Fewer sessions fit into memory.
    #[error("{asked} sessions are to be measured, and engine.cache_mib has room for {slots}")]
    TooMany {
        /// Sessions.
        asked: usize,
        /// How many have room.
        slots: usize,
    },
    /// The model made no sound.
    #[error("the answer ended without sound: choose another seed")]
    Silent,
}

impl MachineLimits {
    /// Measures it with so many threads; takes seconds.
    pub fn measure(threads: usize) -> std::io::Result<Self> {
        let pool = Pool::new(threads)?;
        let read_mib = (CACHES * hardware_peaks::last_cache()).div_ceil(16 << 20) * 16;
        Ok(Self {
            threads,
            bandwidth: hardware_peaks::read_bandwidth(&pool, read_mib),
            read_mib,
            huge_pages: hardware_peaks::huge_pages(),
            float_peak: hardware_peaks::float_peak(&pool),
            integer_peak: hardware_peaks::integer_peak(&pool),
        })
    }

    /// Seconds that products take at least: reading their weights from memory, or multiplying on registers alone.
    pub fn lower_bound(&self, products: ProductWork) -> (f64, f64) {
        let integers = self.integer_peak.unwrap_or(self.float_peak).multiplies;
        let multiplying = products.float_multiplies as f64 / self.float_peak.multiplies
            + products.integer_multiplies as f64 / integers;
        (products.bytes as f64 / self.bandwidth, multiplying)
    }
}

/// Loads a checkpoint and measures a turn of it.
pub fn measure(source: Source, config: &EngineConfig, turn: MeasuredTurn) -> Result<TurnReport, MeasureError> {
    config.check()?;
    let machine = MachineLimits::measure(config.threads())?;
    let begun = Instant::now();
    let pool = models::worker_pool(config.threads());
    let cpu = Cpu::default().with_kv(config.kv_cache.into()).on(pool.clone()).counting();
    let meter = Meter::counting(cpu.clone());
    let mut model = models::load_on(cpu, pool.clone(), &Checkpoint::open(source).map_err(LoadError::from)?, config)?;
    let loading = begun.elapsed();
    // The scheduler's own threads: with none the stages run one after another, and their products on all threads still.
    model.pool = None;
    meter.attach(&mut model);
    let rates = (model.audio.as_ref().map_or(0, |ears| ears.front_end.rate()), model.codec.sample_rate);
    let turn = if rates.0 == 0 { MeasuredTurn { input: Duration::ZERO, ..turn } } else { turn };
    let alone = EngineConfig { threads: Some(1), ..config.clone() };
    let mut bed = TestBed::new(model, &alone, rates);
    bed.run(WARM_UP, &meter)?;
    let (in_turn, [listening, answer]) = bed.run(turn, &meter)?;
    bed.scheduler.set_pool(pool);
    let (side_by_side, _) = bed.run(MeasuredTurn { seed: turn.seed + 1, ..turn }, &meter)?;
    let mut stages = stage_rows(TurnPhase::Listening, listening);
    stages.extend(stage_rows(TurnPhase::Answer, answer));
    Ok(TurnReport { machine, loading, resident: resident(), turn, stages, sequential: in_turn, parallel: side_by_side })
}

fn stage_rows(phase: TurnPhase, tallies: Tallies) -> Vec<StageMeasurement> {
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

/// Bytes of this process in memory; 0 where the system does not tell.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// An engine without a thread of its own, ticked until nothing is left to do.
struct TestBed {
    scheduler: Scheduler,
    arrivals: flume::Sender<SessionPeer>,
    gauges: Arc<Gauges>,
    wake: WakeSignal,
    input_rate: u32,
    output_rate: u32,
}

impl TestBed {
    fn new(model: Model, config: &EngineConfig, (input_rate, output_rate): (u32, u32)) -> Self {
        let (arrivals, arriving) = flume::bounded(model.slots.sessions);
        let gauges = Arc::new(Gauges::default());
        let scheduler = Scheduler::new(model, config, arriving, Arc::clone(&gauges));
        let (wake, _) = WakeSignal::new();
        Self { scheduler, arrivals, gauges, wake, input_rate, output_rate }
    }

    /// Samples of so much input.
    fn samples(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * f64::from(self.input_rate)) as u64
    }

    fn settle(&mut self) {
        while self.scheduler.tick() == Tick::Moved {}
    }

    /// One turn of a new session. Returns what was noted while it listened, and after.
    fn run(&mut self, turn: MeasuredTurn, meter: &Meter) -> Result<(TurnTiming, [Tallies; 2]), MeasureError> {
        let (session, peer) = link(self.wake.clone());
        self.gauges.open.fetch_add(1, Ordering::AcqRel);
        // One session at a time, and the queue has room for as many as there are slots.
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
        self.answer(&session, turn, &mut timing)?;
        let answer = meter.take();
        drop(session);
        self.settle();
        Ok((timing, [listening, answer]))
    }

    /// Commits, and takes the answer's sound until there is enough of it.
    fn answer(&mut self, session: &SessionHandle, turn: MeasuredTurn, timing: &mut TurnTiming) -> Result<(), MeasureError> {
        let begun = Instant::now();
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
