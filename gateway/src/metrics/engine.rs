//! What the engine has computed, and what waits in it.

use std::time::Duration;

use prometheus::{Counter, CounterVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use repartee_engine_api::{EngineLoad, StageWork};

/// What the engine has computed.
#[derive(Debug)]
pub(super) struct Engine {
    steps: IntCounterVec,
    rows: IntCounterVec,
    busy: CounterVec,
    blocks: IntGaugeVec,
    capacity: IntGaugeVec,
    prompted: IntCounterVec,
    reused: IntCounterVec,
    ticks: IntCounter,
    tick_seconds: Counter,
    queues: IntGaugeVec,
}

impl Engine {
    /// Registers all of them.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let stage = &["stage"];
        let opts = |name, help| Opts::new(name, help);
        let engine = Self {
            steps: IntCounterVec::new(opts("repartee_engine_steps_total", "Steps of the engine's stages"), stage)?,
            rows: IntCounterVec::new(
                opts("repartee_engine_rows_total", "Rows of these steps; divided by the steps it is the mean batch"),
                stage,
            )?,
            busy: CounterVec::new(opts("repartee_engine_busy_seconds_total", "Time that the stages computed"), stage)?,
            blocks: IntGaugeVec::new(
                opts("repartee_engine_cache_blocks", "Cache blocks that sessions hold, by stage"),
                stage,
            )?,
            capacity: IntGaugeVec::new(
                opts("repartee_engine_cache_capacity_blocks", "Cache blocks that there are, by stage"),
                stage,
            )?,
            prompted: IntCounterVec::new(
                opts("repartee_engine_prompt_positions_total", "Positions of the prompts that stages were given"),
                stage,
            )?,
            reused: IntCounterVec::new(
                opts("repartee_engine_prompt_positions_reused_total", "Of these, those that were in the cache already"),
                stage,
            )?,
            ticks: IntCounter::new("repartee_engine_ticks_total", "Ticks of the engine that found something to do")?,
            tick_seconds: Counter::new("repartee_engine_tick_seconds_total", "Time that these ticks took")?,
            queues: IntGaugeVec::new(
                opts("repartee_engine_queue_length", "What waits in all sessions together, by queue"),
                &["queue"],
            )?,
        };
        registry.register(Box::new(engine.steps.clone()))?;
        registry.register(Box::new(engine.rows.clone()))?;
        registry.register(Box::new(engine.busy.clone()))?;
        registry.register(Box::new(engine.blocks.clone()))?;
        registry.register(Box::new(engine.capacity.clone()))?;
        registry.register(Box::new(engine.prompted.clone()))?;
        registry.register(Box::new(engine.reused.clone()))?;
        registry.register(Box::new(engine.ticks.clone()))?;
        registry.register(Box::new(engine.tick_seconds.clone()))?;
        registry.register(Box::new(engine.queues.clone()))?;
        Ok(engine)
    }

    /// Sets the totals since the engine's start, and what waits in it.
    pub fn set(&self, work: &[StageWork], load: &EngineLoad) {
        let raise = |counter: &IntCounter, total: u64| counter.inc_by(total.saturating_sub(counter.get()));
        let raise_seconds = |counter: &Counter, total: Duration| {
            counter.inc_by((total.as_secs_f64() - counter.get()).max(0.0));
        };
        let set = |gauge: &IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        for StageWork { stage, steps, rows, busy, blocks, capacity, prompted, reused } in work {
            raise(&self.steps.with_label_values(&[*stage]), *steps);
            raise(&self.rows.with_label_values(&[*stage]), *rows);
            raise_seconds(&self.busy.with_label_values(&[*stage]), *busy);
            set(&self.blocks.with_label_values(&[*stage]), *blocks);
            // Stages without a cache have nothing to say of one.
            if *capacity > 0 {
                set(&self.capacity.with_label_values(&[*stage]), *capacity);
            }
            if *prompted > 0 {
                raise(&self.prompted.with_label_values(&[*stage]), *prompted);
                raise(&self.reused.with_label_values(&[*stage]), *reused);
            }
        }
        raise(&self.ticks, load.ticks);
        raise_seconds(&self.tick_seconds, load.tick_time);
        for (queue, length) in &load.queues {
            set(&self.queues.with_label_values(&[*queue]), *length);
        }
    }
}
