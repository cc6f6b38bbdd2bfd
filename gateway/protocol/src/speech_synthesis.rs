//! `repartee.text.*`: a given text that is read aloud while it streams in. An extension: the published API has no such events.

use serde::{Deserialize, Serialize};

/// What Repartee adds to the parameters of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenTextRequest {
    /// Whether the response reads what [`Append`] brings aloud, in the place of a text of the model's own.
    pub reads: bool,
}

/// `repartee.text.append`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextAppend {
    /// The response that reads it; absent for the last one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// The next piece of the text.
    pub text: String,
}

/// `repartee.text.done`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextAppendDone {
    /// The response whose text is whole; absent for the last one that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}
