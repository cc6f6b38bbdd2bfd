//! Metrics of a cascade's language model behind a server.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};
use repartee_engine_api::RemoteFailureKind;

/// Outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThinkerOutcome {
    /// The answer came to its end.
    Completed,
    /// The caller interrupted it or left.
    Cancelled,
    /// The answer failed.
    Failed(RemoteFailureKind),
}

/// Metrics of the requests to a language model's server. Clones share them.
#[derive(Debug, Clone)]
pub struct ThinkerMetrics {
    /// Number of requests by `outcome`: `completed`, `cancelled` or `failed`.
    requests: IntCounterVec,
    /// Number of failed requests by `kind`.
    failures: IntCounterVec,
    /// Number of further attempts.
    pub retries: IntCounter,
    /// Time from a request to its first token.
    first_token: Histogram,
}

impl ThinkerMetrics {
    /// Creates them with a value of 0.
    pub fn new() -> Result<Self, prometheus::Error> {
        let requests =
            Opts::new("repartee_thinker_requests_total", "Requests to the language model's server, by outcome");
        let failures =
            Opts::new("repartee_thinker_failures_total", "Failed requests to the language model's server, by kind");
        let first_token = HistogramOpts::new(
            "repartee_thinker_first_token_seconds",
            "Time from a request to the language model's server to its first token, failed attempts included",
        )
        .buckets(vec![0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0]);
        let metrics = Self {
            requests: IntCounterVec::new(requests, &["outcome"])?,
            failures: IntCounterVec::new(failures, &["kind"])?,
            retries: IntCounter::new(
                "repartee_thinker_retries_total",
                "Further attempts of requests to the language model's server",
            )?,
            first_token: Histogram::with_opts(first_token)?,
        };
        for outcome in ["completed", "cancelled", "failed"] {
            metrics.requests.with_label_values(&[outcome]);
        }
        for kind in RemoteFailureKind::ALL {
            metrics.failures.with_label_values(&[kind.name()]);
        }
        Ok(metrics)
    }

    pub(super) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.requests.clone()))?;
        registry.register(Box::new(self.failures.clone()))?;
        registry.register(Box::new(self.retries.clone()))?;
        registry.register(Box::new(self.first_token.clone()))
    }

    /// Counts a request that ended; `first_token` is the time to its first token, if one came.
    pub fn observe(&self, outcome: ThinkerOutcome, first_token: Option<Duration>) {
        let label = match outcome {
            ThinkerOutcome::Completed => "completed",
            ThinkerOutcome::Cancelled => "cancelled",
            ThinkerOutcome::Failed(kind) => {
                self.failures.with_label_values(&[kind.name()]).inc();
                "failed"
            }
        };
        self.requests.with_label_values(&[label]).inc();
        if let Some(time) = first_token {
            self.first_token.observe(time.as_secs_f64());
        }
    }
}
