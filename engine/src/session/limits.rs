//! Upper bounds of one session.

/// Upper bound of one audio item, in seconds: a caller that never commits must not fill the memory.
pub const MAX_AUDIO_S: u32 = 600;
/// Upper bound of pending in-band responses.
pub(super) const MAX_WAITING: usize = 64;
/// Upper bound of a session's concurrent out-of-band responses.
pub(super) const MAX_OUT_OF_BAND: usize = 2;
/// Upper bound of a session's concurrent background responses.
pub(super) const MAX_BACKGROUND: usize = 1;
/// Upper bound of items that a model without responses keeps.
pub(super) const MAX_HEARD_ITEMS: usize = 256;
/// Upper bound of events about heard text in one tick: text of the open audio, a transcript, its details and its end.
pub const HEARD_EVENTS: usize = 4;
/// Upper bound of a session's concurrent responses.
pub const MAX_RESPONSES: usize = 1 + MAX_OUT_OF_BAND + MAX_BACKGROUND;
