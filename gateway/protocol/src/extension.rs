//! Repartee's extension of protocol events: the field `repartee`.

use serde::{Deserialize, Serialize};

/// Extension of one event: warnings about settings that were served differently from the request. They are not `error`
/// events, because some clients end their session on an error.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventExtension {
    /// One human-readable sentence for each difference.
    pub warnings: Vec<String>,
}

impl EventExtension {
    /// True if there are no warnings; then the extension is not serialized.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }
}
