//! Work and queues of the engine.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, Metric, MetricFamily, MetricType};
use prometheus::{Counter, CounterVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry};
use repartee_engine_api::{EngineLoad, StageWork};

/// Metrics of the engine.
#[derive(Debug)]
pub(super) struct EngineMetrics {
    steps: IntCounterVec,
    rows: IntCounterVec,
    eager: IntCounterVec,
    busy: CounterVec,
    blocks: IntGaugeVec,
    capacity: IntGaugeVec,
    prompted: IntCounterVec,
    reused: IntCounterVec,
    ticks: TickTimes,
    queues: IntGaugeVec,
}

impl EngineMetrics {
    /// Creates and registers the metrics.
    pub fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let stage = &["stage"];
        let opts = |name, help| Opts::new(name, help);
        let engine = Self {
            steps: IntCounterVec::new(opts("repartee_engine_steps_total", "Steps of the engine's stages"), stage)?,
            rows: IntCounterVec::new(
                opts(
                    "repartee_engine_rows_total",
                    "Rows of the steps; divided by the steps they give the mean batch size",
                ),
                stage,
            )?,
            eager: IntCounterVec::new(
                opts(
                    "repartee_engine_eager_steps_total",
                    "Steps that ran without a captured graph, on a device that captures graphs",
                ),
                stage,
            )?,
            busy: CounterVec::new(
                opts("repartee_engine_busy_seconds_total", "Compute time of the engine's stages"),
                stage,
            )?,
            blocks: IntGaugeVec::new(
                opts("repartee_engine_cache_blocks", "KV cache blocks that sessions hold, by stage"),
                stage,
            )?,
            capacity: IntGaugeVec::new(
                opts("repartee_engine_cache_capacity_blocks", "KV cache blocks in total, by stage"),
                stage,
            )?,
            prompted: IntCounterVec::new(
                opts("repartee_engine_prompt_positions_total", "Prompt positions submitted to the stages"),
                stage,
            )?,
            reused: IntCounterVec::new(
                opts(
                    "repartee_engine_prompt_positions_reused_total",
                    "Prompt positions that were in the KV cache already",
                ),
                stage,
            )?,
            ticks: TickTimes::new()?,
            queues: IntGaugeVec::new(
                opts("repartee_engine_queue_length", "Queue length of all sessions together, by queue"),
                &["queue"],
            )?,
        };
        registry.register(Box::new(engine.steps.clone()))?;
        registry.register(Box::new(engine.rows.clone()))?;
        registry.register(Box::new(engine.eager.clone()))?;
        registry.register(Box::new(engine.busy.clone()))?;
        registry.register(Box::new(engine.blocks.clone()))?;
        registry.register(Box::new(engine.capacity.clone()))?;
        registry.register(Box::new(engine.prompted.clone()))?;
        registry.register(Box::new(engine.reused.clone()))?;
        registry.register(Box::new(engine.ticks.clone()))?;
        registry.register(Box::new(engine.queues.clone()))?;
        Ok(engine)
    }

    /// Sets the totals since the engine's start, and the queue lengths.
    pub fn set(&self, work: &[StageWork], load: &EngineLoad) {
        let raise = |counter: &IntCounter, total: u64| counter.inc_by(total.saturating_sub(counter.get()));
        let raise_seconds = |counter: &Counter, total: Duration| {
            counter.inc_by((total.as_secs_f64() - counter.get()).max(0.0));
        };
        let set = |gauge: &IntGauge, value: u64| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        for StageWork { stage, steps, rows, busy, blocks, capacity, prompted, reused, eager } in work {
            raise(&self.steps.with_label_values(&[*stage]), *steps);
            raise(&self.rows.with_label_values(&[*stage]), *rows);
            raise_seconds(&self.busy.with_label_values(&[*stage]), *busy);
            set(&self.blocks.with_label_values(&[*stage]), *blocks);
            if let Some(eager) = eager {
                raise(&self.eager.with_label_values(&[*stage]), *eager);
            }
            // Stages without a KV cache show no capacity.
            if *capacity > 0 {
                set(&self.capacity.with_label_values(&[*stage]), *capacity);
            }
            if *prompted > 0 {
                raise(&self.prompted.with_label_values(&[*stage]), *prompted);
                raise(&self.reused.with_label_values(&[*stage]), *reused);
            }
        }
        self.ticks.set(load);
        for (queue, length) in &load.queues {
            set(&self.queues.with_label_values(&[*queue]), *length);
        }
    }
}

/// Histogram of tick times, counted by the engine itself.
#[derive(Debug, Clone)]
struct TickTimes {
    desc: Arc<Desc>,
    load: Arc<Mutex<EngineLoad>>,
}

impl TickTimes {
    fn new() -> Result<Self, prometheus::Error> {
        let help = "Time of the engine's ticks that did work".to_owned();
        let desc = Desc::new("repartee_engine_tick_seconds".to_owned(), help, Vec::new(), HashMap::new())?;
        Ok(Self { desc: Arc::new(desc), load: Arc::default() })
    }

    fn set(&self, load: &EngineLoad) {
        self.load.lock().unwrap_or_else(PoisonError::into_inner).clone_from(load);
    }
}

impl Collector for TickTimes {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        let buckets = load.ticks_within.iter().map(|(most, ticks)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(most.as_secs_f64());
            bucket.set_cumulative_count(*ticks);
            bucket
        });
        let mut histogram = Histogram::default();
        histogram.set_bucket(buckets.collect());
        histogram.set_sample_count(load.ticks);
        histogram.set_sample_sum(load.tick_time.as_secs_f64());
        let mut metric = Metric::default();
        metric.set_histogram(histogram);
        let mut family = MetricFamily::default();
        family.set_name(self.desc.fq_name.clone());
        family.set_help(self.desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(vec![metric]);
        vec![family]
    }
}
