//! Time to first packet of a response, and its parts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{ResponseId, Stamps};

use crate::metrics::{Metrics, Stage};

/// Times of the response whose first audible packet is awaited.
#[derive(Debug)]
pub(super) struct ResponseTiming {
    metrics: Arc<Metrics>,
    /// The response whose first audible packet was not sent, and since when the caller waits.
    waiting: Option<(ResponseId, Instant)>,
    stamps: Option<Stamps>,
    /// Endpointing delay of the last turn, until a response is counted with it.
    endpointing: Option<Duration>,
}

impl ResponseTiming {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, waiting: None, stamps: None, endpointing: None }
    }

    /// Counts the endpointing delay of a turn.
    pub fn endpointing(&mut self, waited: Option<Duration>) {
        if let Some(waited) = waited {
            self.endpointing = Some(waited);
            self.metrics.stage(Stage::Endpointing, waited);
        }
    }

    /// The caller waits for this response since `since`.
    pub fn requested(&mut self, response: ResponseId, since: Instant) {
        self.waiting = Some((response, since));
        self.stamps = None;
    }

    /// The engine's times of the first codec frame.
    pub fn stamped(&mut self, response: ResponseId, stamps: Stamps) {
        if self.waiting.is_some_and(|(waiting, _)| waiting == response) {
            self.stamps = Some(stamps);
        }
    }

    /// The first audible packet was sent.
    pub fn audible(&mut self, response: ResponseId, at: Instant) {
        let Some((_, since)) = self.waiting.take_if(|(waiting, _)| *waiting == response) else { return };
        let ttfp = at.saturating_duration_since(since);
        self.metrics.ttfp.observe(ttfp.as_secs_f64());
        if let Some(endpointing) = self.endpointing.take() {
            self.metrics.response_delay.observe((endpointing + ttfp).as_secs_f64());
        }
        if let Some(stamps) = self.stamps.take() {
            // Nobody waited for what a speculation did before the turn had ended.
            let between = |from: Instant, to: Instant| to.max(since).saturating_duration_since(from.max(since));
            self.metrics.stage(Stage::Prefill, between(since, stamps.accepted));
            self.metrics.stage(Stage::FirstToken, between(stamps.accepted, stamps.first_token));
            self.metrics.stage(Stage::FirstFrame, between(stamps.first_token, stamps.first_frame));
            self.metrics.stage(Stage::Codec, between(stamps.first_frame, stamps.first_samples));
            self.metrics.stage(Stage::Wire, between(stamps.first_samples, at));
        }
    }
}
