//! Times of a response: the caller's wait with its parts, and the generation speed of the audio.

use std::sync::Arc;
use std::time::{Duration, Instant};

use repartee_engine_api::{LatencyStamps, ResponseId};
use repartee_protocol::ErrorKind;

use super::CallEnd;
use crate::metrics::{Metrics, TtfpStage};
use crate::telemetry::{CallError, CallSpan};

/// Times of the response whose first audible packet is awaited, and of the response that is generated.
#[derive(Debug)]
pub(super) struct ResponseTiming {
    metrics: Arc<Metrics>,
    trace: CallSpan,
    /// Sample rate of the audio, in Hz.
    rate: u32,
    /// The response without an audible packet yet, and the start of the caller's wait.
    waiting: Option<(ResponseId, Instant)>,
    stamps: Option<LatencyStamps>,
    /// Endpointing delay of the last detected turn, and the time of its end.
    endpointing: Option<(Duration, Instant)>,
    generating: Option<GeneratedAudio>,
}

/// Progress of a response's audio.
#[derive(Debug)]
struct GeneratedAudio {
    response: ResponseId,
    /// Time when the engine accepted the response, and time of the last audio.
    begun: Instant,
    last: Instant,
    samples: usize,
    /// True if the call stopped reading it for a while, so that the engine had to wait.
    held_back: bool,
}

impl ResponseTiming {
    /// Creates the times of a call whose audio has `rate` samples a second.
    pub fn new(metrics: Arc<Metrics>, trace: CallSpan, rate: u32) -> Self {
        Self { metrics, trace, rate, waiting: None, stamps: None, endpointing: None, generating: None }
    }

    /// Counts the endpointing delay of a turn that ended now.
    pub fn endpointing(&mut self, waited: Option<Duration>, now: Instant) {
        if let Some(waited) = waited {
            self.endpointing = Some((waited, now));
            self.metrics.observe_stage(TtfpStage::Endpointing, waited);
        }
    }

    /// Starts the wait for this response; the caller waits since `since`.
    pub fn requested(&mut self, response: ResponseId, since: Instant) {
        self.unanswered(since);
        self.waiting = Some((response, since));
        self.stamps = None;
    }

    /// Takes the engine's times of the first codec frame.
    pub fn stamped(&mut self, response: ResponseId, stamps: LatencyStamps) {
        if self.waiting.is_some_and(|(waiting, _)| waiting == response) {
            self.stamps = Some(stamps);
        }
        let begun = stamps.accepted;
        self.generating = Some(GeneratedAudio { response, begun, last: begun, samples: 0, held_back: false });
    }

    /// Adds audio of a response from the engine; returns its duration.
    pub fn generated(&mut self, response: ResponseId, samples: usize, now: Instant) -> Duration {
        if let Some(generating) = self.generating.as_mut().filter(|generating| generating.response == response) {
            generating.last = now;
            generating.samples += samples;
        }
        Duration::from_secs_f64(samples as f64 / f64::from(self.rate.max(1)))
    }

    /// Notes whether the call reads the engine's events now.
    pub fn note_reading(&mut self, reads: bool) {
        if let Some(generating) = &mut self.generating {
            generating.held_back |= !reads;
        }
    }

    /// Counts the generation speed once all audio of a response has come.
    pub fn complete(&mut self, response: ResponseId) {
        let Some(done) = self.generating.take_if(|generating| generating.response == response) else { return };
        if !done.held_back && done.samples > 0 {
            let took = done.last.saturating_duration_since(done.begun).as_secs_f64();
            self.metrics.rtf.observe(took * f64::from(self.rate) / done.samples as f64);
        }
    }

    /// Counts the wait for the first audible packet. `sent` holds the stages after the engine's, each with its end. Returns
    /// the wait since the end of the caller's speech; `None` if this packet is not the first.
    pub fn audible<const N: usize>(
        &mut self,
        response: ResponseId,
        sent: [(TtfpStage, Instant); N],
    ) -> Option<Duration> {
        let (_, since) = self.waiting.take_if(|(waiting, _)| *waiting == response)?;
        let (_, at) = sent.last().copied()?;
        let ttfp = at.saturating_duration_since(since);
        self.metrics.ttfp.observe(ttfp.as_secs_f64());
        let mut stages = Vec::new();
        let mut begun = since;
        if let Some(endpointing) = self.take_endpointing(since) {
            self.metrics.response_delay.observe((endpointing + ttfp).as_secs_f64());
            begun = since.checked_sub(endpointing).unwrap_or(since);
            stages.push((TtfpStage::Endpointing, begun, since));
        }
        if let Some(stamps) = self.stamps.take() {
            stages.extend(stages_since(since, stamps, sent));
            for (stage, from, to) in stages.iter().filter(|(stage, ..)| *stage != TtfpStage::Endpointing) {
                self.metrics.observe_stage(*stage, to.saturating_duration_since(*from));
            }
        }
        tracing::debug!(ttfp_ms = ttfp.as_secs_f64() * 1e3, "the first audible packet of an answer was sent");
        self.trace.turn((begun, at), true, &stages);
        Some(at.saturating_duration_since(begun))
    }

    /// Ends the call's span.
    pub fn ended(&mut self, end: CallEnd, now: Instant) {
        self.unanswered(now);
        let failure = || CallError { code: ErrorKind::Internal.code().to_owned(), is_server_error: true };
        self.trace.end(end.label(), (end == CallEnd::Failed).then(failure));
    }

    /// Ends the wait for a response that will not be heard any more.
    fn unanswered(&mut self, now: Instant) {
        let Some((_, since)) = self.waiting.take() else { return };
        self.trace.turn((since, now.max(since)), false, &[]);
    }

    /// Returns the endpointing delay of the turn whose answer the caller awaits since `since`. A response that was
    /// requested later is not the answer to that turn.
    fn take_endpointing(&mut self, since: Instant) -> Option<Duration> {
        self.endpointing.take().filter(|(_, ended)| *ended >= since).map(|(endpointing, _)| endpointing)
    }
}

/// Returns the stages of a wait that began at `since`, each with its beginning and end: the engine's, then those in
/// `sent`, given with their ends.
pub fn stages_since(
    since: Instant,
    stamps: LatencyStamps,
    sent: impl IntoIterator<Item = (TtfpStage, Instant)>,
) -> Vec<(TtfpStage, Instant, Instant)> {
    let LatencyStamps { accepted: _, encoding, begun, prefilled, first_token, first_frame, first_samples } = stamps;
    let engine = [
        (TtfpStage::SliceWait, encoding),
        (TtfpStage::Encoder, begun),
        (TtfpStage::Prefill, prefilled),
        (TtfpStage::FirstToken, first_token),
        (TtfpStage::FirstFrame, first_frame),
        (TtfpStage::Codec, first_samples),
    ];
    let mut from = since;
    let stages = engine.into_iter().chain(sent).map(|(stage, to)| {
        // Work of a speculation before the end of the turn is no waiting time.
        let to = to.max(from);
        (stage, std::mem::replace(&mut from, to), to)
    });
    stages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of response delays counted from the end of the voice, and their sum in seconds.
    fn delays(metrics: &Metrics) -> (u64, f64) {
        (metrics.response_delay.get_sample_count(), metrics.response_delay.get_sample_sum())
    }

    #[test]
    fn delay_counts_from_the_end_of_the_voice() {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let mut timing = ResponseTiming::new(metrics.clone(), CallSpan::default(), 1_000);
        let ended = Instant::now();
        timing.requested(1, ended);
        timing.endpointing(Some(Duration::from_millis(500)), ended);
        let waited = timing.audible(1, [(TtfpStage::Wire, ended + Duration::from_millis(250))]);
        assert_eq!(waited, Some(Duration::from_millis(750)));
        assert_eq!(delays(&metrics), (1, 0.75));
        assert_eq!(timing.audible(1, [(TtfpStage::Wire, ended)]), None, "a later packet");
    }

    #[test]
    fn later_request_is_no_answer_to_the_turn() {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let mut timing = ResponseTiming::new(metrics.clone(), CallSpan::default(), 1_000);
        let ended = Instant::now();
        timing.endpointing(Some(Duration::from_millis(500)), ended);
        let asked = ended + Duration::from_secs(5);
        timing.requested(2, asked);
        timing.audible(2, [(TtfpStage::Wire, asked + Duration::from_millis(250))]);
        assert_eq!(delays(&metrics), (0, 0.0));
        assert_eq!(metrics.ttfp.get_sample_count(), 1);
    }

    fn stamps(accepted: Instant) -> LatencyStamps {
        let later = |ms| accepted + Duration::from_millis(ms);
        LatencyStamps {
            accepted,
            encoding: later(1),
            begun: later(3),
            prefilled: later(6),
            first_token: later(10),
            first_frame: later(30),
            first_samples: later(40),
        }
    }

    /// Milliseconds counted of each stage, in order.
    fn waited(metrics: &Metrics) -> Vec<(&'static str, u64)> {
        let text = metrics.render().unwrap();
        let sum = |stage: &str| {
            let name = format!("repartee_stage_seconds_sum{{stage=\"{stage}\"}} ");
            let value = text.lines().find_map(|line| line.strip_prefix(&name)).unwrap();
            (value.parse::<f64>().unwrap() * 1e3).round() as u64
        };
        TtfpStage::ALL.map(|stage| (stage.label(), sum(stage.label()))).into_iter().filter(|(_, ms)| *ms > 0).collect()
    }

    #[test]
    fn stages_add_up_to_what_the_caller_waits() {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let mut timing = ResponseTiming::new(metrics.clone(), CallSpan::default(), 1_000);
        let ended = Instant::now();
        let later = |ms| ended + Duration::from_millis(ms);
        timing.endpointing(Some(Duration::from_millis(500)), ended);
        timing.requested(1, ended);
        timing.stamped(1, stamps(later(2)));
        timing
            .audible(1, [(TtfpStage::Playout, later(60)), (TtfpStage::Opus, later(61)), (TtfpStage::Wire, later(62))]);
        let waterfall = waited(&metrics);
        let expected = [
            ("endpointing", 500),
            ("slice_wait", 3),
            ("encoder", 2),
            ("prefill", 3),
            ("first_token", 4),
            ("first_frame", 20),
            ("codec", 10),
            ("playout", 18),
            ("opus", 1),
            ("wire", 1),
        ];
        assert_eq!(waterfall, expected);
        assert_eq!(delays(&metrics), (1, 0.562));
    }

    #[test]
    fn speculation_stages_count_from_the_turns_end() {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let mut timing = ResponseTiming::new(metrics.clone(), CallSpan::default(), 1_000);
        let ended = Instant::now();
        timing.requested(1, ended);
        timing.stamped(1, stamps(ended.checked_sub(Duration::from_millis(25)).unwrap()));
        timing.audible(1, [(TtfpStage::Wire, ended + Duration::from_millis(16))]);
        assert_eq!(waited(&metrics), [("first_frame", 5), ("codec", 10), ("wire", 1)]);
    }

    #[test]
    fn rtf_counts_audio_that_was_not_held_back() {
        let metrics = Arc::new(Metrics::new(Duration::from_millis(80)).unwrap());
        let mut timing = ResponseTiming::new(metrics.clone(), CallSpan::default(), 1_000);
        let begun = Instant::now();
        for (response, reads) in [(1, true), (2, false)] {
            timing.stamped(response, stamps(begun));
            timing.generated(response, 500, begun + Duration::from_millis(100));
            timing.note_reading(reads);
            timing.generated(response, 500, begun + Duration::from_millis(250));
            timing.note_reading(true);
            timing.complete(response);
        }
        // One second of audio generated in a quarter of a second.
        assert_eq!((metrics.rtf.get_sample_count(), metrics.rtf.get_sample_sum()), (1, 0.25));
    }
}
