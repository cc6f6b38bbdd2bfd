//! Sizes of the family.

/// Width of both language models.
pub const HIDDEN: usize = 32;
/// Width of keys and of values.
pub const KV_WIDTH: usize = 16;
/// Inner width of feed-forward parts.
pub const INNER: usize = 48;
/// Layers of a language model.
pub const LAYERS: usize = 2;
/// Ids of the borrowed tokenizer.
pub const TEXT_IDS: usize = 300;
/// Number of all ids: text, and the prompt template's marks.
pub const VOCABULARY: usize = TEXT_IDS + 4;
/// Codes of a frame.
pub const CODES: usize = 2;
/// Entries of a codebook.
pub const BOOK: usize = 32;
/// Frames that the speaker makes of a row.
pub const PIECE_FRAMES: usize = 2;
/// Codes that the speaker samples from a row.
pub const PIECE_CODES: usize = PIECE_FRAMES * CODES;
/// Width of a latent.
pub const LATENT: usize = 16;
/// Sampling rate, in Hz.
pub const RATE: u32 = 44_100;
/// Codec frames a second.
pub const FRAMES: u32 = 25;
/// Samples of a frame.
pub const SAMPLES: usize = (RATE / FRAMES) as usize;
