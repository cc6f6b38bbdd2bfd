//! How long the caller waits for the first sound, and where the time goes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{ResponseId, Stamps};

use crate::metrics::{Metrics, Stage};

/// The times of the answer that is waited for.
#[derive(Debug)]
pub(super) struct Timing {
    metrics: Arc<Metrics>,
    /// The answer whose first sound has not left, and since when the caller waits.
    waiting: Option<(ResponseId, Instant)>,
    stamps: Option<Stamps>,
}

impl Timing {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, waiting: None, stamps: None }
    }

    /// The end of a turn was noticed so long after the voice had ended.
    pub fn endpointing(&self, waited: Option<Duration>) {
        if let Some(waited) = waited {
            self.metrics.stage(Stage::Endpointing, waited);
        }
    }

    /// The caller waits for this answer.
    pub fn asked(&mut self, response: ResponseId, since: Instant) {
        self.waiting = Some((response, since));
        self.stamps = None;
    }

    /// The engine says when the parts of the first sound were ready.
    pub fn stamped(&mut self, response: ResponseId, stamps: Stamps) {
        if self.waiting.is_some_and(|(waiting, _)| waiting == response) {
            self.stamps = Some(stamps);
        }
    }

    /// The first sound that can be heard left.
    pub fn audible(&mut self, response: ResponseId, at: Instant) {
        let Some((_, since)) = self.waiting.take_if(|(waiting, _)| *waiting == response) else { return };
        self.metrics.ttfp.observe(at.saturating_duration_since(since).as_secs_f64());
        if let Some(stamps) = self.stamps.take() {
            // What was done before the turn had ended, on the suspicion that it would, nobody waited for.
            let between = |from: Instant, to: Instant| to.max(since).saturating_duration_since(from.max(since));
            self.metrics.stage(Stage::Prefill, between(since, stamps.accepted));
            self.metrics.stage(Stage::FirstToken, between(stamps.accepted, stamps.first_token));
            self.metrics.stage(Stage::FirstFrame, between(stamps.first_token, stamps.first_frame));
            self.metrics.stage(Stage::Codec, between(stamps.first_frame, stamps.first_samples));
            self.metrics.stage(Stage::Wire, between(stamps.first_samples, at));
        }
    }
}
