//! Metrics of network quality in WebRTC calls.

use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, IntCounter, IntCounterVec, Opts, Registry};
use repartee_media::jitter::JitterStats;

/// Reason for dropped audio of a WebRTC call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropCause {
    /// The call's task did not read the caller's packets for seconds.
    Unread,
    /// The task that encodes and sends did not take a frame in time.
    Stalled,
}

impl DropCause {
    fn label(self) -> &'static str {
        match self {
            Self::Unread => "unread",
            Self::Stalled => "stalled",
        }
    }
}

/// Network metrics of all WebRTC calls.
#[derive(Debug)]
pub struct NetworkMetrics {
    round_trip: Histogram,
    jitter: Histogram,
    loss: Histogram,
    packets: IntCounterVec,
    dropped: IntCounterVec,
    dropped_audio: IntCounterVec,
    /// Number of times that a caller's address changed within a call.
    pub address_changes: IntCounter,
}

impl NetworkMetrics {
    /// Creates the metrics with a value of 0.
    pub fn new() -> Result<Self, prometheus::Error> {
        let seconds = |name, help| {
            let buckets = vec![0.001, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28];
            Histogram::with_opts(HistogramOpts::new(name, help).buckets(buckets))
        };
        let loss = HistogramOpts::new(
            "repartee_rtp_loss_ratio",
            "Share of sent packets that a caller lost between two of its reports",
        );
        let dropped = Opts::new("repartee_udp_dropped_total", "Datagrams of calls that were dropped, by reason");
        let dropped_audio =
            Opts::new("repartee_audio_dropped_total", "Packets and frames of audio that were dropped, by cause");
        let packets = Opts::new("repartee_rtp_packets_total", "Audio packets of callers, by fate");
        Ok(Self {
            round_trip: seconds(
                "repartee_round_trip_seconds",
                "Round-trip time to callers, from each of their reports",
            )?,
            jitter: seconds("repartee_rtp_jitter_seconds", "Jitter of sent packets, as callers report it")?,
            loss: Histogram::with_opts(loss.buckets(vec![0.0, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5]))?,
            packets: IntCounterVec::new(packets, &["fate"])?,
            dropped: IntCounterVec::new(dropped, &["reason"])?,
            dropped_audio: IntCounterVec::new(dropped_audio, &["cause"])?,
            address_changes: IntCounter::new(
                "repartee_address_changes_total",
                "Times that a caller's address changed within a call",
            )?,
        })
    }

    /// Adds them to `registry`.
    pub fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.round_trip.clone()))?;
        registry.register(Box::new(self.jitter.clone()))?;
        registry.register(Box::new(self.loss.clone()))?;
        registry.register(Box::new(self.packets.clone()))?;
        registry.register(Box::new(self.dropped.clone()))?;
        registry.register(Box::new(self.dropped_audio.clone()))?;
        registry.register(Box::new(self.address_changes.clone()))
    }

    /// Observes a caller's RTCP report; the loss is a share, 0 to 1.
    pub fn observe_report(&self, round_trip: Option<Duration>, jitter: Option<Duration>, loss: Option<f64>) {
        let observe = |histogram: &Histogram, value: Option<f64>| {
            if let Some(value) = value {
                histogram.observe(value);
            }
        };
        observe(&self.round_trip, round_trip.map(|time| time.as_secs_f64()));
        observe(&self.jitter, jitter.map(|time| time.as_secs_f64()));
        observe(&self.loss, loss);
    }

    /// Sets the number of datagrams dropped for `reason` since the start.
    pub fn set_dropped(&self, reason: &str, total: u64) {
        let counter = self.dropped.with_label_values(&[reason]);
        counter.inc_by(total.saturating_sub(counter.get()));
    }

    /// Counts packets dropped because they claim more audio than time has passed.
    pub fn count_early(&self, packets: u64) {
        self.packets.with_label_values(&["early"]).inc_by(packets);
    }

    /// Counts dropped audio, in packets or frames of 20 ms.
    pub fn dropped_audio(&self, cause: DropCause, packets: u64) {
        self.dropped_audio.with_label_values(&[cause.label()]).inc_by(packets);
    }

    /// Counts a caller's audio packets between two states of its jitter buffer.
    pub fn count_received(&self, before: &JitterStats, now: &JitterStats) {
        for (fate, before, now) in [
            ("played", before.released, now.released),
            ("copied", before.copied, now.copied),
            ("recovered", before.recovered, now.recovered),
            ("concealed", before.concealed, now.concealed),
            ("skipped", before.skipped, now.skipped),
            ("late", before.late, now.late),
            ("duplicate", before.duplicate, now.duplicate),
            ("reordered", before.reordered, now.reordered),
            ("invalid", before.invalid, now.invalid),
        ] {
            self.packets.with_label_values(&[fate]).inc_by(now.saturating_sub(before));
        }
    }
}
