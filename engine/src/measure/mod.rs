//! Measures one fixed turn of a checkpoint on this machine, stage by stage: a duration of input, a number of text
//! tokens and a duration of output sound. A model without audio input reads a text of as many characters aloud.
//!
//! The turn runs twice on the engine's own tick loop. First the stages run one after another, each alone on all
//! threads, so that time, bytes read and products of each stage are its own. Then they run in parallel, as in a server;
//! this run gives the time to the first sound and to the end.
//! - `metered`: wrappers that record what the steps of a stage cost
//! - `crowd`: turns of several sessions at once, on any device

mod concurrent;
mod metered;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use repartee_engine_api::{
    Command, Event, Respond, SessionError, SessionHandle, SessionPeer, SubmitError, WakeSignal, link,
};
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
use metered::{Meter, StageTally, Tallies};

/// Input audio submitted at once.
const SLICE: Duration = Duration::from_millis(100);
/// Size of the memory whose reading is timed, as a multiple of the last-level cache.
const CACHES: usize = 8;
/// Text to read aloud, repeated as needed.
const TEXT: &str = "the quick brown fox jumps over the lazy dog and then sings a song about the rain on the sea ";
/// Unmeasured turn before the measured ones: it brings everything into memory.
const WARM_UP: MeasuredTurn =
    MeasuredTurn { input: Duration::from_millis(500), text_tokens: 2, sound: Duration::from_millis(100), seed: 1 };

/// Sizes of a measured turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeasuredTurn {
    /// Duration of the noise submitted as input; 0 for a model without audio input.
    pub input: Duration,
    /// Most text tokens of the response. For a model without audio input: characters of the text that it reads.
    pub text_tokens: u32,
    /// Duration of sound after which the response is cut off.
    pub sound: Duration,
    /// Seed of the noise and of the response's random numbers.
    pub seed: u64,
}

impl MeasuredTurn {
    /// Returns `count` samples of input noise from sample `first` on.
    fn noise(&self, first: u64, count: u64) -> Vec<f32> {
        (first..first + count).map(|at| (uniform(self.seed, at, 0, 0) - 0.5) * 0.2).collect()
    }
}

/// Peak performance of the machine, on all threads.
#[derive(Debug, Clone)]
pub struct MachineLimits {
    /// Number of computing threads.
    pub threads: usize,
    /// Memory read bandwidth, in bytes per second.
    pub bandwidth: f64,
    /// MiB of memory read to measure the bandwidth.
    pub read_mib: usize,
    /// Huge-page setting that the operating system reports.
    pub huge_pages: String,
    /// Peak rate of single-precision multiply-adds.
    pub float_peak: PeakRate,
    /// Peak rate of byte multiply-adds; `None` if the processor has no instruction for them.
    pub integer_peak: Option<PeakRate>,
}

/// Part of a turn in which a stage computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnPhase {
    /// Input: while the caller speaks.
    Listening,
    /// Response: from the commit on.
    Answer,
}

/// Kind of output that a stage produces.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StageOutput {
    /// Text tokens or the rows that carry them.
    Text,
    /// Frames of codec codes.
    Codes,
    /// Any other output.
    #[default]
    Other,
}

/// Measured steps of one stage over rows of one kind.
#[derive(Debug, Clone)]
pub struct StageMeasurement {
    /// Part of the turn.
    pub phase: TurnPhase,
    /// Name of the stage, or `encoder`.
    pub stage: &'static str,
    /// Position in the chain of stages; the encoder's is 0.
    pub at: usize,
    /// Kind of output that the stage produces.
    pub output: StageOutput,
    /// Kind of rows: `prefill`, `decode`, `window` or `solver step`.
    pub kind: &'static str,
    /// Number of steps.
    pub steps: u64,
    /// Rows of all steps.
    pub rows: u64,
    /// Duration of all steps.
    pub took: Duration,
    /// Products of all steps.
    pub products: ProductWork,
}

/// Times of a measured turn.
#[derive(Debug, Clone, Default)]
pub struct TurnTiming {
    /// Computing time while the caller speaks.
    pub listening: Duration,
    /// Time from the commit to the first sound.
    pub first_sound: Duration,
    /// Time from the commit to the end.
    pub whole: Duration,
    /// Duration of the output sound.
    pub sound: Duration,
}

/// Results of measuring one turn.
#[derive(Debug, Clone)]
pub struct TurnReport {
    /// Peak performance of the machine.
    pub machine: MachineLimits,
    /// Time to draw or read the weights and pack them.
    pub loading: Duration,
    /// Resident memory of this process after the turns, in bytes.
    pub resident: u64,
    /// Sizes of the turn; its input is 0 for a model without audio input.
    pub turn: MeasuredTurn,
    /// Every stage, from the turn with stages one after another.
    pub stages: Vec<StageMeasurement>,
    /// Times of the turn with stages one after another.
    pub sequential: TurnTiming,
    /// Times of the turn with stages in parallel, as in a server.
    pub parallel: TurnTiming,
}

/// Reasons for a failed measurement.
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
    /// A session refused a command.
    #[error("the engine took no command: {0}")]
    Submit(#[from] SubmitError),
    /// The model failed during the turn.
    #[error("the model failed: {0}")]
    Failed(#[from] SessionError),
    /// The memory has room for fewer sessions.
    #[error("{asked} sessions are to be measured, and engine.cache_mib has room for {slots}")]
    TooMany {
        /// Sessions asked for.
        asked: usize,
        /// Sessions that fit.
        slots: usize,
    },
    /// The model made no sound.
    #[error("the answer ended without sound: choose another seed")]
    Silent,
}

impl MachineLimits {
    /// Measures the machine with `threads` threads; takes seconds.
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

    /// Least seconds that products take: to read their weights from memory, and to multiply in registers alone.
    pub fn lower_bound(&self, products: ProductWork) -> (f64, f64) {
        let integers = self.integer_peak.unwrap_or(self.float_peak).multiplies;
        let multiplying = products.float_multiplies as f64 / self.float_peak.multiplies
            + products.integer_multiplies as f64 / integers;
        (products.bytes as f64 / self.bandwidth, multiplying)
    }
}

/// Loads a checkpoint on the CPU and measures a turn.
pub fn measure(source: Source, config: &EngineConfig, turn: MeasuredTurn) -> Result<TurnReport, MeasureError> {
    config.check()?;
    let machine = MachineLimits::measure(config.threads())?;
    let begun = Instant::now();
    let pool = models::worker_pool(config.threads());
    let cpu = Cpu::default().with_kv(config.kv_cache.into()).on(pool.clone()).counting();
    let meter = Meter::counting(cpu.clone());
    let mut model = models::load_on(cpu, pool.clone(), &Checkpoint::open(source).map_err(LoadError::from)?, config)?;
    let loading = begun.elapsed();
    // Without threads of its own the scheduler runs the stages one after another; their products still use all threads.
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

/// Resident memory of this process in bytes; 0 if the system does not report it.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// An engine without a thread of its own, ticked until no work is left.
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

    /// Number of input samples in `time`.
    fn samples(&self, time: Duration) -> u64 {
        (time.as_secs_f64() * f64::from(self.input_rate)) as u64
    }

    fn settle(&mut self) {
        while self.scheduler.tick() == Tick::Moved {}
    }

    /// Runs one turn of a new session. Returns its times and the tallies of both phases.
    fn run(&mut self, turn: MeasuredTurn, meter: &Meter) -> Result<(TurnTiming, [Tallies; 2]), MeasureError> {
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

    /// Commits, then runs until the response has `turn.sound` of sound or no work is left.
    fn measure_response(
        &mut self,
        session: &SessionHandle,
        turn: MeasuredTurn,
        timing: &mut TurnTiming,
    ) -> Result<(), MeasureError> {
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
