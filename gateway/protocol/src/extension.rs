//! What Repartee adds to events of the protocol, under the name `repartee`.

use serde::{Deserialize, Serialize};

/// The extension of one event: what was done differently from what was asked. It is not an `error`, because some clients end
/// their session on one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventExtension {
    /// One sentence a difference, for a person.
    pub warnings: Vec<String>,
}

impl EventExtension {
    /// Whether there is nothing to say; then the extension is left out.
    pub fn is_empty(&self) -> bool {
        self.warnings.is_empty()
    }
}
