//! Measures one fixed turn of a checkpoint on this machine, stage by stage: a duration of input, a number of text
//! tokens and a duration of output sound. A model without audio input reads a text of as many characters aloud.
//!
//! The turn runs twice on the engine's own tick loop. First the stages run one after another, each alone on all
//! threads, so that time, bytes read and products of each stage are its own. Then they run in parallel, as in a server;
//! this run gives the time to the first sound and to the end.
//! - `metered`: wrappers that record what the steps of a stage cost
//! - `test_bed`: an engine without a thread of its own
//! - `machine`: peak performance of the machine
//! - `report`: results
//! - `concurrent`: turns of several sessions at once, on any device

mod concurrent;
mod machine;
mod metered;
mod report;
mod test_bed;

use std::time::{Duration, Instant};

use repartee_kernels::cpu::Cpu;

pub use self::concurrent::{ConcurrentRun, ConcurrentRuns, measure_concurrent};
pub use self::machine::MachineLimits;
use self::machine::resident;
use self::metered::Meter;
pub use self::report::{MeasureError, MeasuredTurn, StageMeasurement, StageOutput, TurnPhase, TurnReport, TurnTiming};
use self::test_bed::{TestBed, stage_rows};
use crate::checkpoint::{Checkpoint, Source};
use crate::config::EngineConfig;
use crate::model::Hearing;
use crate::models;
use crate::models::load_error::LoadError;

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
    let output_rate = model.codec.ok_or(MeasureError::TextOnly)?.sample_rate;
    let rates = (model.hearing.as_ref().map_or(0, Hearing::rate), output_rate);
    let turn = if rates.0 == 0 { MeasuredTurn { input: Duration::ZERO, ..turn } } else { turn };
    let alone = EngineConfig { threads: Some(1), ..config.clone() };
    let mut bed = TestBed::new(model, &alone, rates);
    bed.warm_up(&meter)?;
    let (in_turn, [listening, answer]) = bed.run(turn, &meter)?;
    bed.scheduler.set_pool(pool);
    let (side_by_side, _) = bed.run(MeasuredTurn { seed: turn.seed + 1, ..turn }, &meter)?;
    let mut stages = stage_rows(TurnPhase::Listening, listening);
    stages.extend(stage_rows(TurnPhase::Answer, answer));
    Ok(TurnReport { machine, loading, resident: resident(), turn, stages, sequential: in_turn, parallel: side_by_side })
}
