//! A requested response that has not begun.

use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{ItemId, Respond, Tool};

use super::streamed_text::StreamedText;
use crate::answer_forms::PendingForm;
use crate::elements::Message;

/// A requested response that has not begun.
pub struct PendingResponse {
    pub(super) request: Respond,
    /// The system message as it was at the request.
    pub(super) system: Option<Vec<u32>>,
    /// The functions as they were at the request.
    pub(super) tools: Arc<[Tool]>,
    /// Audio item of the caller that it writes down; `None` for a response.
    pub(super) transcript_of: Option<ItemId>,
    /// Input in place of the history.
    pub(super) input: Option<Vec<InputPart>>,
    /// Text that streams in, if the response takes any.
    pub(super) streamed: Option<StreamedText>,
    /// Form that its text is held to, once it was read; `None` for none.
    pub(super) form: Option<PendingForm>,
    /// Time at which the engine took the request.
    pub(super) accepted: Instant,
}

impl PendingResponse {
    /// True if it waits for no form.
    pub(super) fn has_form(&self) -> bool {
        self.form.as_ref().is_none_or(|form| form.get().is_some())
    }
}

/// A part of a response's own input.
pub(super) enum InputPart {
    /// An item of the history.
    Item(ItemId),
    /// Content of the request; audio has a number.
    Own(Option<u64>, Message),
}
