//! Serde of durations as a number of seconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serializer, de};

/// Maximum of one year, so that adding it to a clock never overflows.
const LONGEST: u64 = 365 * 24 * 3_600;

pub fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    if duration.subsec_nanos() == 0 {
        serializer.serialize_u64(duration.as_secs())
    } else {
        serializer.serialize_f64(duration.as_secs_f64())
    }
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(deserializer)?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= Duration::from_secs(LONGEST))
        .ok_or_else(|| de::Error::custom(format!("{seconds} is not within 0 to {LONGEST} seconds, a year")))
}
