//! `repartee.text.*`: given text that a response speaks while the client still streams it. An extension: the published
//! API has no such events.

use serde::{Deserialize, Serialize};

/// Repartee's extension of the parameters of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GivenTextRequest {
    /// True if the response speaks the text of [`TextAppend`] events instead of text that the model generates.
    pub reads: bool,
}

/// Payload of `repartee.text.append`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextAppend {
    /// Id of the response that speaks the text; absent for the last one requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Next piece of the text.
    pub text: String,
}

/// Payload of `repartee.text.done`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TextAppendDone {
    /// Id of the response whose text is complete; absent for the last one requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
}
