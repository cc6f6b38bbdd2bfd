//! Settings of recorded calls.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::seconds;

/// Settings of recorded telephone calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordingConfig {
    /// Folder of the recordings; `None` to record nothing.
    pub folder: Option<PathBuf>,
    /// Longest recording of a call.
    #[serde(rename = "longest_s", with = "seconds")]
    pub longest: Duration,
    /// Most MiB of recordings in the folder.
    pub mib: u32,
    /// Age at which a recording is deleted.
    #[serde(rename = "keep_s", with = "seconds")]
    pub keep: Duration,
}

impl Default for RecordingConfig {
    fn default() -> Self {
        let (longest, keep) = (Duration::from_secs(3_600), Duration::from_secs(7 * 86_400));
        Self { folder: None, longest, mib: 1_024, keep }
    }
}
