//! Metrics in the Prometheus text format. Times are in seconds; no label names a session.
//!
//! - `stage`: parts of the time to first packet
//! - `network`: network quality of WebRTC calls
//! - `engine`: what the engine has computed

mod engine;
mod network;
mod stage;

use std::time::Duration;

use prometheus::process_collector::ProcessCollector;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};
use repartee_engine_api::{EngineLoad, StageWork};
use repartee_media::jitter::JitterStats;
use repartee_protocol::ErrorKind;

use engine::EngineMetrics;
pub use network::{DropCause, NetworkMetrics};
pub use stage::TtfpStage;

/// Every metric of one server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Calls that are running.
    pub active_calls: IntGauge,
    /// Time from the end of the caller's turn to the first audible packet of the response.
    pub ttfp: Histogram,
    stages: HistogramVec,
    /// Responses by how they ended.
    pub responses: IntCounterVec,
    /// Speculations by outcome: `committed` or `aborted`.
    pub speculations: IntCounterVec,
    /// Answers of the turn-detection model: the turn `ended` or `continued`; or `failed`, `busy` where there is none.
    pub turn_judgements: IntCounterVec,
    /// Errors sent to clients, by code.
    pub errors: IntCounterVec,
    /// Times that the playout clock found nothing to play within a response.
    pub underruns: IntCounter,
    /// Connections and requests.
    pub requests: RequestMetrics,
    /// Sessions that the engine has room for.
    pub slots: IntGauge,
    /// Time to generate a response's audio divided by the audio's duration, of responses that nobody held back.
    pub rtf: Histogram,
    /// From the beginning of a caller's voice, as it arrived, to the moment when the interrupted audio was dropped; WebRTC alone.
    pub barge_in: Histogram,
    /// From the end of the caller's voice to the first audible packet of the response, where turns are detected.
    pub response_delay: Histogram,
    calls: HistogramVec,
    engine: EngineMetrics,
    /// Network quality of WebRTC calls.
    pub network: NetworkMetrics,
}

/// What is counted of connections and requests, also before there is a model.
#[derive(Debug, Clone)]
pub struct RequestMetrics {
    /// Connections that are open, websockets not included.
    pub connections: IntGauge,
    /// Requests for calls that were refused, by reason: `full`, `key`, `address`, `rate`, `unauthorized`, `not_local`, `draining`,
    /// `starting`, `connections`.
    pub refused: IntCounterVec,
}

impl RequestMetrics {
    /// Counters at 0.
    pub fn new() -> Result<Self, prometheus::Error> {
        let refused = Opts::new("repartee_refused_total", "Requests for calls that were refused");
        Ok(Self {
            connections: IntGauge::new("repartee_connections", "Connections that are open, websockets not included")?,
            refused: IntCounterVec::new(refused, &["reason"])?,
        })
    }
}

impl Metrics {
    /// New metrics; histogram buckets are multiples of the duration of a codec frame.
    pub fn new(frame: Duration) -> Result<Self, prometheus::Error> {
        Self::with(frame, RequestMetrics::new()?)
    }

    /// The same, going on with `requests`, which were counted before the frame was known.
    pub fn with(frame: Duration, requests: RequestMetrics) -> Result<Self, prometheus::Error> {
        let frame = frame.as_secs_f64();
        let buckets: Vec<f64> =
            [0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 32.0, 64.0].map(|n| n * frame).to_vec();
        // A stage of the demo takes one to four milliseconds, the wait for the end of a turn takes some hundred.
        let fine = [0.000_25, 0.000_5, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008].into_iter();
        let stage_buckets = fine.filter(|bound| *bound < buckets[0]).chain(buckets.iter().copied()).collect();
        let ttfp = HistogramOpts::new(
            "repartee_ttfp_seconds",
            "Time from the end of the caller's turn to the first audible packet of the response",
        );
        let stages = HistogramOpts::new("repartee_stage_seconds", "Parts of the time to first packet");
        let delay = HistogramOpts::new(
            "repartee_response_delay_seconds",
            "From the end of the caller's voice to the first audible packet of the response, where turns are detected",
        );
        let calls =
            HistogramOpts::new("repartee_call_seconds", "How long calls lasted, by transport and by what ended them")
                .buckets(vec![1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3_600.0, 14_400.0]);
        let rtf = HistogramOpts::new(
            "repartee_rtf_ratio",
            "Time to generate a response's audio divided by the audio's duration, of responses that nobody held back",
        )
        .buckets(vec![0.01, 0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 4.0]);
        let barge_in = HistogramOpts::new(
            "repartee_barge_in_seconds",
            "From the beginning of a caller's voice, as it arrived, until the interrupted audio fell silent",
        )
        .buckets(vec![0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 2.0]);
        let registry = Registry::new();
        let metrics = Self {
            engine: EngineMetrics::new(&registry)?,
            registry,
            rtf: Histogram::with_opts(rtf)?,
            barge_in: Histogram::with_opts(barge_in)?,
            response_delay: Histogram::with_opts(delay.buckets(buckets.clone()))?,
            calls: HistogramVec::new(calls, &["transport", "end"])?,
            active_calls: IntGauge::new("repartee_active_sessions", "Calls that are running")?,
            ttfp: Histogram::with_opts(ttfp.buckets(buckets.clone()))?,
            stages: HistogramVec::new(stages.buckets(stage_buckets), &["stage"])?,
            responses: IntCounterVec::new(Opts::new("repartee_turns_total", "Responses by how they ended"), &["status"])?,
            speculations: IntCounterVec::new(
                Opts::new("repartee_speculations_total", "Speculations by outcome: committed or aborted"),
                &["outcome"],
            )?,
            turn_judgements: IntCounterVec::new(
                Opts::new("repartee_turn_judgements_total", "Questions to the turn-detection model, by the answer"),
                &["outcome"],
            )?,
            errors: IntCounterVec::new(Opts::new("repartee_errors_total", "Errors sent to clients"), &["code"])?,
            underruns: IntCounter::new(
                "repartee_underruns_total",
                "Times that the playout clock found nothing to play within a response",
            )?,
            requests,
            slots: IntGauge::new("repartee_session_slots", "Sessions that the engine has room for")?,
            network: NetworkMetrics::new()?,
        };
        let build =
            IntGaugeVec::new(Opts::new("repartee_build_info", "Always 1; the version is a label"), &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        metrics.registry.register(Box::new(build))?;
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
        metrics.registry.register(Box::new(metrics.requests.refused.clone()))?;
        metrics.registry.register(Box::new(metrics.requests.connections.clone()))?;
        metrics.registry.register(Box::new(metrics.slots.clone()))?;
        metrics.network.register(&metrics.registry)?;
        metrics.show_zeros();
        Ok(metrics)
    }

    /// Makes the common labels appear before the first event, so that a rate over them sees that event.
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
        for reason in
            ["full", "key", "address", "rate", "unauthorized", "not_local", "draining", "starting", "connections"]
        {
            self.requests.refused.with_label_values(&[reason]);
        }
        for transport in ["webrtc", "websocket"] {
            self.calls.with_label_values(&[transport, "hangup"]);
        }
        self.errors.with_label_values(&[ErrorKind::Internal.code()]);
        self.network.count_received(&JitterStats::default(), &JitterStats::default());
        self.network.count_early(0);
        for cause in [DropCause::Unread, DropCause::Stalled] {
            self.network.dropped_audio(cause, 0);
        }
    }

    /// Counts one part of a time to first packet.
    pub fn observe_stage(&self, stage: TtfpStage, duration: Duration) {
        self.stages.with_label_values(&[stage.label()]).observe(duration.as_secs_f64());
    }

    /// Counts a call that ended.
    pub fn observe_call(&self, transport: &str, end: &str, lasted: Duration) {
        self.calls.with_label_values(&[transport, end]).observe(lasted.as_secs_f64());
    }

    /// Sets what the engine has computed since its start, and what waits in it.
    pub fn set_engine(&self, work: &[StageWork], load: &EngineLoad) {
        self.engine.set(work, load);
    }

    /// All metrics as text.
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

    /// What `docs/metrics.md` lists: name and type.
    fn documented() -> BTreeSet<(String, String)> {
        let rows = include_str!("../../docs/metrics.md").lines().filter(|line| line.starts_with("| `"));
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
        let text = metrics.render().unwrap();
        assert_eq!(documented(), shown(&text));
        assert!(text.contains("repartee_engine_rows_total{stage=\"any\"} 5"), "{text}");
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
        };
        metrics.set_engine(&[work], &load);
        work = StageWork { steps: 3, rows: 9, busy: Duration::from_millis(750), blocks: 1, ..work };
        (work.prompted, work.reused) = (20, 16);
        load = EngineLoad {
            ticks: 5,
            tick_time: Duration::from_millis(500),
            ticks_within: within(1, 3),
            queues: vec![("commands", 1)],
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
