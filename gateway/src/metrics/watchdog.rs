//! Delays of the server's runtime and of the engine.

use prometheus::{Gauge, Histogram, HistogramOpts, Registry};

/// Metrics of the watchdog. Clones share them.
#[derive(Debug, Clone)]
pub struct WatchdogMetrics {
    /// Time that a task waits until the runtime runs it, one task each 100 ms.
    pub runtime: Histogram,
    /// Longest wait of the last second, in seconds.
    pub recent_runtime: Gauge,
    /// Longest running tick of the last second, in seconds.
    pub recent_tick: Gauge,
}

impl WatchdogMetrics {
    /// Creates them with a value of 0.
    pub fn new() -> Result<Self, prometheus::Error> {
        let runtime =
            HistogramOpts::new("repartee_runtime_delay_seconds", "Time that a task waits until the runtime runs it")
                .buckets(vec![0.000_1, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0]);
        Ok(Self {
            runtime: Histogram::with_opts(runtime)?,
            recent_runtime: Gauge::new(
                "repartee_runtime_delay_recent_seconds",
                "Longest wait of a task for the runtime within the last second",
            )?,
            recent_tick: Gauge::new(
                "repartee_engine_tick_recent_seconds",
                "Longest duration of a tick in progress within the last second",
            )?,
        })
    }

    pub(super) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.runtime.clone()))?;
        registry.register(Box::new(self.recent_runtime.clone()))?;
        registry.register(Box::new(self.recent_tick.clone()))
    }
}
