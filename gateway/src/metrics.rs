//! Metrics in the Prometheus text format. Times are in seconds; no label identifies a session.
//!
//! - `stage`: stages of the time to first packet
//! - `network`: network quality of WebRTC calls
//! - `echo`: echo cancelling
//! - `engine`: work and queues of the engine
//! - `keys`: use of the server by API keys
//! - `thinker`: requests to the language model's server of a cascade
//! - `held_answers`: answers held to a form
//! - `headroom`: headroom of the machine, and late frames
//! - `watchdog`: delays of the server's runtime and of the engine

mod echo;
mod engine;
mod headroom;
mod held_answers;
mod keys;
mod network;
mod stage;
mod thinker;
mod watchdog;

use std::time::Duration;

#[cfg(target_os = "linux")]
use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Counter, Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec,
    Opts, Registry, TextEncoder,
};
use repartee_engine_api::{EngineLoad, StageWork};
use repartee_media::jitter::JitterStats;
use repartee_protocol::ErrorKind;

pub use echo::{CancellingCall, EchoMetrics};
use engine::EngineMetrics;
pub use headroom::HeadroomMetrics;
pub use held_answers::HeldAnswerMetrics;
use keys::KeyMetrics;
pub use keys::KeyUsage;
pub use network::{DropCause, NetworkMetrics};
pub use stage::TtfpStage;
pub use thinker::{ThinkerMetrics, ThinkerOutcome};
pub use watchdog::WatchdogMetrics;

/// All metrics of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Number of running calls.
    pub active_calls: IntGauge,
    /// Time from the end of the caller's turn to the first audible packet of the response.
    pub ttfp: Histogram,
    stages: HistogramVec,
    /// Number of responses by `status`: `completed`, `cancelled`, `incomplete` or `failed`.
    pub responses: IntCounterVec,
    /// Metrics of echo cancelling.
    pub echo: EchoMetrics,
    /// Number of answers that are held to a form.
    pub held_answers: HeldAnswerMetrics,
    /// Number of speculations by `outcome`: `committed` or `aborted`.
    pub speculations: IntCounterVec,
    /// Number of questions to the turn-detection model by `outcome`: the turn `ended` or `continued`; the model
    /// `failed`, or its queue was full (`busy`).
    pub turn_judgements: IntCounterVec,
    /// Number of errors sent to clients, by `code`.
    pub errors: IntCounterVec,
    /// Number of times that the playout clock found nothing to play within a response.
    pub underruns: IntCounter,
    /// Sound of files that was transcribed, in seconds.
    pub transcribed: Counter,
    /// Metrics of connections and requests.
    pub requests: RequestMetrics,
    /// Bytes of requests and large messages in memory.
    pub bytes_in_flight: IntGauge,
    /// Number of sessions that the engine can hold.
    pub slots: IntGauge,
    /// RTF: generation time of a response's audio divided by its duration. Responses under backpressure are not
    /// counted.
    pub rtf: Histogram,
    /// Time from the start of a caller's voice, at arrival, until the interrupted audio is silent; WebRTC only.
    pub barge_in: Histogram,
    /// Time from the end of the caller's voice to the first audible packet of the response, in calls with turn
    /// detection.
    pub response_delay: Histogram,
    calls: HistogramVec,
    engine: EngineMetrics,
    keys: KeyMetrics,
    /// Metrics of network quality in WebRTC calls.
    pub network: NetworkMetrics,
}

/// Metrics of connections, requests, and the language model's server. They exist before the model is loaded.
#[derive(Debug, Clone)]
pub struct RequestMetrics {
    /// Number of open connections without websockets.
    pub connections: IntGauge,
    /// Number of refused requests by `reason`: `full`, `overload`, `key`, `address`, `rate`, `budget`, `bytes`,
    /// `unauthorized`, `wrong_keys`, `not_local`, `draining`, `starting` or `connections`.
    pub refused: IntCounterVec,
    /// Number of calls that the server made, by `result`: `answered`, `busy`, `unanswered` or `failed`.
    pub calls_out: IntCounterVec,
    /// Number of recorded calls, by `result`: `kept`, `too_long`, `full` or `failed`.
    pub recordings: IntCounterVec,
    /// End of the TLS certificate's time, in seconds since 1970; 0 without TLS.
    pub certificate_expiry: IntGauge,
    /// Metrics of requests to the language model's server of a cascade.
    pub thinker: ThinkerMetrics,
    /// Delays of the runtime and the engine.
    pub watchdog: WatchdogMetrics,
    /// Headroom of the machine.
    pub headroom: HeadroomMetrics,
}

impl RequestMetrics {
    /// Creates them with a value of 0.
    pub fn new() -> Result<Self, prometheus::Error> {
        let refused = Opts::new("repartee_refused_total", "Requests for calls that were refused");
        let recordings = Opts::new("repartee_recordings_total", "Telephone calls that were recorded");
        let calls_out = Opts::new("repartee_calls_out_total", "Calls that the server made");
        Ok(Self {
            connections: IntGauge::new("repartee_connections", "Open connections without websockets")?,
            refused: IntCounterVec::new(refused, &["reason"])?,
            calls_out: IntCounterVec::new(calls_out, &["result"])?,
            recordings: IntCounterVec::new(recordings, &["result"])?,
            certificate_expiry: IntGauge::new(
                "repartee_certificate_expiry_seconds",
                "End of the TLS certificate's time in seconds since 1970; 0 without TLS",
            )?,
            thinker: ThinkerMetrics::new()?,
            watchdog: WatchdogMetrics::new()?,
            headroom: HeadroomMetrics::new()?,
        })
    }
}

impl Metrics {
    /// Creates the metrics; the buckets of the main histograms are multiples of `frame`, the duration of a codec frame.
    pub fn new(frame: Duration) -> Result<Self, prometheus::Error> {
        Self::with(frame, RequestMetrics::new()?)
    }

    /// Creates the metrics around `requests`, which were counted before the model was loaded.
    pub fn with(frame: Duration, requests: RequestMetrics) -> Result<Self, prometheus::Error> {
        let frame = frame.as_secs_f64();
        let buckets: Vec<f64> =
            [0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0].map(|n| n * frame).to_vec();
        // A stage of the demo takes one to four milliseconds; endpointing takes some hundred.
        let fine = [0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008].into_iter();
        let stage_buckets = fine.filter(|bound| *bound < buckets[0]).chain(buckets.iter().copied()).collect();
        let ttfp = HistogramOpts::new(
            "repartee_ttfp_seconds",
            "Time from the end of the caller's turn to the first audible packet of the response",
        );
        let stages = HistogramOpts::new("repartee_stage_seconds", "Parts of the time to first packet");
        let delay = HistogramOpts::new(
            "repartee_response_delay_seconds",
            "Time from the end of the caller's voice to the first audible packet of the response, with turn detection",
        );
        let calls =
            HistogramOpts::new("repartee_call_seconds", "Duration of calls, by transport and reason of the end")
                .buckets(vec![1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0]);
        let rtf = HistogramOpts::new(
            "repartee_rtf_ratio",
            "Time to generate a response's audio divided by the audio's duration, of responses without backpressure",
        )
        .buckets(vec![0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 4.0]);
        let barge_in = HistogramOpts::new(
            "repartee_barge_in_seconds",
            "Time from the start of a caller's voice, at arrival, until the interrupted audio is silent; WebRTC only",
        )
        .buckets(vec![0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0]);
        let registry = Registry::new();
        let metrics = Self {
            engine: EngineMetrics::new(&registry)?,
            keys: KeyMetrics::new(&registry)?,
            registry,
            rtf: Histogram::with_opts(rtf)?,
            barge_in: Histogram::with_opts(barge_in)?,
            response_delay: Histogram::with_opts(delay.buckets(buckets.clone()))?,
            calls: HistogramVec::new(calls, &["transport", "end"])?,
            active_calls: IntGauge::new("repartee_active_sessions", "Calls that are running")?,
            ttfp: Histogram::with_opts(ttfp.buckets(buckets.clone()))?,
            stages: HistogramVec::new(stages.buckets(stage_buckets), &["stage"])?,
            responses: IntCounterVec::new(
                Opts::new("repartee_turns_total", "Responses, by final status"),
                &["status"],
            )?,
            speculations: IntCounterVec::new(
                Opts::new("repartee_speculations_total", "Speculations by outcome: committed or aborted"),
                &["outcome"],
            )?,
            turn_judgements: IntCounterVec::new(
                Opts::new("repartee_turn_judgements_total", "Questions to the turn-detection model, by outcome"),
                &["outcome"],
            )?,
            errors: IntCounterVec::new(Opts::new("repartee_errors_total", "Errors sent to clients"), &["code"])?,
            underruns: IntCounter::new(
                "repartee_underruns_total",
                "Times that the playout clock found nothing to play within a response",
            )?,
            transcribed: Counter::new(
                "repartee_transcribed_seconds_total",
                "Sound of files that was transcribed, in seconds",
            )?,
            requests,
            bytes_in_flight: IntGauge::new(
                "repartee_bytes_in_flight",
                "Bytes of requests and large messages in memory",
            )?,
            slots: IntGauge::new("repartee_session_slots", "Sessions that the engine can hold")?,
            network: NetworkMetrics::new()?,
            echo: EchoMetrics::new()?,
            held_answers: HeldAnswerMetrics::new()?,
        };
        let build =
            IntGaugeVec::new(Opts::new("repartee_build_info", "Always 1; the version is a label"), &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        metrics.registry.register(Box::new(build))?;
        // It reads /proc.
        #[cfg(target_os = "linux")]
        metrics.registry.register(Box::new(ProcessCollector::for_self()))?;
        metrics.registry.register(Box::new(metrics.response_delay.clone()))?;
        metrics.registry.register(Box::new(metrics.rtf.clone()))?;
        metrics.registry.register(Box::new(metrics.barge_in.clone()))?;
        metrics.registry.register(Box::new(metrics.calls.clone()))?;
        metrics.registry.register(Box::new(metrics.active_calls.clone()))?;
        metrics.registry.register(Box::new(metrics.ttfp.clone()))?;
        metrics.registry.register(Box::new(metrics.stages.clone()))?;
        metrics.registry.register(Box::new(metrics.responses.clone()))?;
        metrics.registry.register(Box::new(metrics.speculations.clone()))?;
        metrics.registry.register(Box::new(metrics.turn_judgements.clone()))?;
        metrics.registry.register(Box::new(metrics.errors.clone()))?;
        metrics.registry.register(Box::new(metrics.underruns.clone()))?;
        metrics.registry.register(Box::new(metrics.transcribed.clone()))?;
        metrics.registry.register(Box::new(metrics.requests.refused.clone()))?;
        metrics.registry.register(Box::new(metrics.requests.calls_out.clone()))?;
        metrics.registry.register(Box::new(metrics.requests.recordings.clone()))?;
        metrics.registry.register(Box::new(metrics.requests.certificate_expiry.clone()))?;
        metrics.registry.register(Box::new(metrics.requests.connections.clone()))?;
        metrics.requests.thinker.register(&metrics.registry)?;
        metrics.requests.watchdog.register(&metrics.registry)?;
        metrics.requests.headroom.register(&metrics.registry)?;
        metrics.registry.register(Box::new(metrics.bytes_in_flight.clone()))?;
        metrics.registry.register(Box::new(metrics.slots.clone()))?;
        metrics.network.register(&metrics.registry)?;
        metrics.echo.register(&metrics.registry)?;
        metrics.held_answers.register(&metrics.registry)?;
        metrics.show_zeros();
        Ok(metrics)
    }

    /// Initialises the common labels at 0, so that a rate sees their first event.
    fn show_zeros(&self) {
        for stage in TtfpStage::ALL {
            self.stages.with_label_values(&[stage.label()]);
        }
        for status in ["completed", "cancelled", "incomplete", "failed"] {
            self.responses.with_label_values(&[status]);
        }
        for outcome in ["committed", "aborted"] {
            self.speculations.with_label_values(&[outcome]);
        }
        for outcome in ["ended", "continued", "failed", "busy"] {
            self.turn_judgements.with_label_values(&[outcome]);
        }
        for reason in [
            "full",
            "overload",
            "key",
            "address",
            "rate",
            "budget",
            "bytes",
            "unauthorized",
            "wrong_keys",
            "not_local",
            "draining",
            "starting",
            "connections",
        ] {
            self.requests.refused.with_label_values(&[reason]);
        }
        for result in ["kept", "too_long", "full", "failed"] {
            self.requests.recordings.with_label_values(&[result]);
        }
        for result in ["answered", "busy", "unanswered", "failed"] {
            self.requests.calls_out.with_label_values(&[result]);
        }
        for transport in ["webrtc", "websocket", "telephone", "sip"] {
            self.calls.with_label_values(&[transport, "hangup"]);
        }
        self.errors.with_label_values(&[ErrorKind::Internal.code()]);
        self.network.count_received(&JitterStats::default(), &JitterStats::default());
        self.network.count_early(0);
        for cause in [DropCause::Unread, DropCause::Stalled] {
            self.network.dropped_audio(cause, 0);
        }
    }

    /// Observes one stage of a time to first packet.
    pub fn observe_stage(&self, stage: TtfpStage, duration: Duration) {
        self.stages.with_label_values(&[stage.label()]).observe(duration.as_secs_f64());
    }

    /// Observes the duration of a call that ended.
    pub fn observe_call(&self, transport: &str, end: &str, lasted: Duration) {
        self.calls.with_label_values(&[transport, end]).observe(lasted.as_secs_f64());
    }

    /// Sets the engine's totals since its start, and its queue lengths.
    pub fn set_engine(&self, work: &[StageWork], load: &EngineLoad) {
        self.engine.set(work, load);
    }

    /// Sets the use of the server by API keys, by name.
    pub fn set_keys<'a>(&self, keys: impl IntoIterator<Item = (&'a str, KeyUsage)>) {
        self.keys.set(keys);
    }

    /// Renders all metrics as Prometheus text.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        String::from_utf8(text).map_err(|error| prometheus::Error::Msg(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Parses `docs/metrics.md`: pairs of name and type.
    fn documented() -> BTreeSet<(String, String)> {
        let rows = include_str!("../../docs/metrics.md").lines().filter(|line| line.starts_with("| `"));
        // Those of a cluster are shown by its nodes alone.
        let rows = rows.filter(|row| !row.starts_with("| `repartee_cluster_"));
        let cells =
            rows.map(|row| row.split('|').map(|cell| cell.trim().trim_matches('`').to_owned()).collect::<Vec<_>>());
        cells.map(|cells| (cells[1].clone(), cells[2].clone())).collect()
    }

    fn shown(text: &str) -> BTreeSet<(String, String)> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        types.filter_map(|line| line.split_once(' ')).map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
    }

    #[test]
    fn documented_metrics_are_those_that_are_shown() {
        let metrics = Metrics::new(Duration::from_millis(80)).unwrap();
        let busy = Duration::from_millis(3);
        let cache =
            StageWork { blocks: 4, capacity: 10, prompted: 7, reused: 6, eager: Some(1), ..StageWork::default() };
        let work = StageWork { stage: "any", steps: 2, rows: 5, busy, ..cache };
        metrics.set_engine(&[work], &EngineLoad { queues: vec![("any", 3)], ..EngineLoad::default() });
        metrics.network.set_dropped("stranger", 0);
        metrics.set_keys([("phone", KeyUsage { refused: vec![("calls_per_key", 0)], ..KeyUsage::default() })]);
        let text = metrics.render().unwrap();
        assert_eq!(documented(), shown(&text));
        assert!(text.contains("repartee_engine_rows_total{stage=\"any\"} 5"), "{text}");
    }

    #[test]
    fn removed_keys_are_not_shown() {
        let metrics = Metrics::new(Duration::from_millis(80)).unwrap();
        let usage = |prefill| KeyUsage { prefill, refused: vec![("calls_per_key", 3)], ..KeyUsage::default() };
        for _ in 0..2 {
            metrics.set_keys([("phone", usage(7)), ("tablet", usage(5))]);
        }
        let text = metrics.render().unwrap();
        for line in [
            "repartee_key_prefill_tokens_total{key=\"phone\"} 7",
            "repartee_key_prefill_tokens_total{key=\"tablet\"} 5",
            "repartee_key_refused_total{key=\"phone\",limit=\"calls_per_key\"} 3",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        metrics.set_keys([("tablet", usage(6))]);
        let text = metrics.render().unwrap();
        assert!(
            !text.contains("\"phone\"") && text.contains("repartee_key_prefill_tokens_total{key=\"tablet\"} 6"),
            "{text}"
        );
    }

    #[test]
    fn engine_counters_follow_totals() {
        let metrics = Metrics::new(Duration::from_millis(80)).unwrap();
        let cache = StageWork { blocks: 4, capacity: 10, prompted: 7, reused: 6, ..StageWork::default() };
        let mut work = StageWork { stage: "any", steps: 2, rows: 5, busy: Duration::from_millis(500), ..cache };
        let within = |short, long| vec![(Duration::from_millis(1), short), (Duration::from_millis(200), long)];
        let mut load = EngineLoad {
            ticks: 4,
            tick_time: Duration::from_millis(250),
            ticks_within: within(1, 2),
            queues: vec![("commands", 3)],
            ..EngineLoad::default()
        };
        metrics.set_engine(&[work], &load);
        work = StageWork { steps: 3, rows: 9, busy: Duration::from_millis(750), blocks: 1, ..work };
        (work.prompted, work.reused) = (20, 16);
        load = EngineLoad {
            ticks: 5,
            tick_time: Duration::from_millis(500),
            ticks_within: within(1, 3),
            queues: vec![("commands", 1)],
            ..EngineLoad::default()
        };
        metrics.set_engine(&[work], &load);
        metrics.set_engine(&[work], &load);
        let text = metrics.render().unwrap();
        for line in [
            "repartee_engine_steps_total{stage=\"any\"} 3",
            "repartee_engine_rows_total{stage=\"any\"} 9",
            "repartee_engine_busy_seconds_total{stage=\"any\"} 0.75",
            "repartee_engine_cache_blocks{stage=\"any\"} 1",
            "repartee_engine_cache_capacity_blocks{stage=\"any\"} 10",
            "repartee_engine_prompt_positions_total{stage=\"any\"} 20",
            "repartee_engine_prompt_positions_reused_total{stage=\"any\"} 16",
            "repartee_engine_tick_seconds_bucket{le=\"0.001\"} 1",
            "repartee_engine_tick_seconds_bucket{le=\"0.2\"} 3",
            "repartee_engine_tick_seconds_bucket{le=\"+Inf\"} 5",
            "repartee_engine_tick_seconds_sum 0.5",
            "repartee_engine_tick_seconds_count 5",
            "repartee_engine_queue_length{queue=\"commands\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[test]
    fn buckets_are_fractions_and_multiples_of_a_frame() {
        let metrics = Metrics::new(Duration::from_millis(80)).unwrap();
        metrics.ttfp.observe(0.1);
        metrics.observe_stage(TtfpStage::Codec, Duration::from_millis(5));
        let text = metrics.render().unwrap();
        assert!(text.contains("repartee_ttfp_seconds_bucket{le=\"0.08\"} 0"), "{text}");
        assert!(text.contains("repartee_ttfp_seconds_bucket{le=\"0.12\"} 1"), "{text}");
        assert!(text.contains("repartee_stage_seconds_bucket{stage=\"codec\",le=\"0.004\"} 0"), "{text}");
        assert!(text.contains("repartee_stage_seconds_bucket{stage=\"codec\",le=\"0.006\"} 1"), "{text}");
    }
}
