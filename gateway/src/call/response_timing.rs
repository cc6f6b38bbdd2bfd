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
    /// Endpointing delay of the last detected turn, and when that ended.
    endpointing: Option<(Duration, Instant)>,
}

impl ResponseTiming {
    pub fn new(metrics: Arc<Metrics>) -> Self {
        Self { metrics, waiting: None, stamps: None, endpointing: None }
    }

    /// Counts the endpointing delay of a turn that ended now.
    pub fn endpointing(&mut self, waited: Option<Duration>, now: Instant) {
        if let Some(waited) = waited {
            self.endpointing = Some((waited, now));
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
        // A response that was asked for later is not the answer to that turn.
        if let Some((endpointing, _)) = self.endpointing.take().filter(|(_, ended)| *ended >= since) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How many responses are counted from the end of the voice, and the seconds of all.
    fn delays(metrics: &Metrics) -> (u64, f64) {
        (metrics.response_delay.get_sample_count(), metrics.response_delay.get_sample_sum())
    }

    #[test]
    fn delay_counts_from_the_end_of_the_voice() {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let mut timing = ResponseTiming::new(metrics.clone());
        let ended = Instant::now();
        timing.requested(1, ended);
        timing.endpointing(Some(Duration::from_millis(500)), ended);
        timing.audible(1, ended + Duration::from_millis(250));
        assert_eq!(delays(&metrics), (1, 0.75));
    }

    #[test]
    fn later_request_is_no_answer_to_the_turn() {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let mut timing = ResponseTiming::new(metrics.clone());
        let ended = Instant::now();
        timing.endpointing(Some(Duration::from_millis(500)), ended);
        let asked = ended + Duration::from_secs(5);
        timing.requested(2, asked);
        timing.audible(2, asked + Duration::from_millis(250));
        assert_eq!(delays(&metrics), (0, 0.0));
        assert_eq!(metrics.ttfp.get_sample_count(), 1);
    }
}
