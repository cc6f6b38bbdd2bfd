//! Metrics of echo cancelling.

use prometheus::{Histogram, HistogramOpts, IntCounterVec, IntGauge, Opts, Registry};

/// Metrics of the echo cancellers of all calls.
#[derive(Debug)]
pub struct EchoMetrics {
    /// Calls whose echo is known and cancelled.
    cancelling_calls: IntGauge,
    answers: IntCounterVec,
    removed: Histogram,
}

/// A call that cancels its echo; counted until it is dropped.
#[derive(Debug)]
pub struct CancellingCall(IntGauge);

impl Drop for CancellingCall {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl EchoMetrics {
    /// Creates the metrics with a value of 0.
    pub fn new() -> Result<Self, prometheus::Error> {
        let answers = Opts::new("repartee_echo_answers_total", "Answers beside which an echo was sought, by outcome");
        let removed = HistogramOpts::new(
            "repartee_echo_removed_decibels",
            "Input beside an answer, less the same without its echo",
        )
        .buckets(vec![0.0, 3.0, 6.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0]);
        let metrics = Self {
            cancelling_calls: IntGauge::new("repartee_echo_cancelling_calls", "Calls whose echo is being cancelled")?,
            answers: IntCounterVec::new(answers, &["outcome"])?,
            removed: Histogram::with_opts(removed)?,
        };
        for outcome in ["found", "none"] {
            metrics.answers.with_label_values(&[outcome]);
        }
        Ok(metrics)
    }

    /// Adds them to `registry`.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.cancelling_calls.clone()))?;
        registry.register(Box::new(self.answers.clone()))?;
        registry.register(Box::new(self.removed.clone()))
    }

    /// Counts a call that cancels its echo.
    pub fn cancelling_call(&self) -> CancellingCall {
        self.cancelling_calls.inc();
        CancellingCall(self.cancelling_calls.clone())
    }

    /// Observes an answer and the decibels of its echo that were removed; `None` without an echo.
    pub fn observe(&self, removed_db: Option<f32>) {
        let outcome = if removed_db.is_some() { "found" } else { "none" };
        self.answers.with_label_values(&[outcome]).inc();
        removed_db.into_iter().for_each(|removed| self.removed.observe(removed.into()));
    }
}
