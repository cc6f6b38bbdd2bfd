//! Headroom of the machine, and the frames that it is measured by.

use prometheus::{Gauge, IntCounter, Registry};

/// Metrics of the headroom. Clones share them.
#[derive(Debug, Clone)]
pub struct HeadroomMetrics {
    /// Share of the machine that is left for new calls, 0 to 1.
    pub left: Gauge,
    /// Frames of 20 ms that WebRTC calls were due to play.
    pub frames: IntCounter,
    /// Frames of these that were played 20 ms or more after their time.
    pub late_frames: IntCounter,
}

impl HeadroomMetrics {
    /// Creates them for a server without calls.
    pub fn new() -> Result<Self, prometheus::Error> {
        let left = Gauge::new(
            "repartee_headroom_ratio",
            "Share of the machine that is left for new calls, 0 to 1; at 0 they are refused",
        )?;
        left.set(1.0);
        Ok(Self {
            left,
            frames: IntCounter::new("repartee_frames_total", "Frames of 20 ms that WebRTC calls played")?,
            late_frames: IntCounter::new(
                "repartee_frames_late_total",
                "Frames of 20 ms that WebRTC calls played 20 ms or more after their time",
            )?,
        })
    }

    pub(super) fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.left.clone()))?;
        registry.register(Box::new(self.frames.clone()))?;
        registry.register(Box::new(self.late_frames.clone()))
    }
}
