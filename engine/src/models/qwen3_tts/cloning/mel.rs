//! Spectrogram for the speaker encoder. Its sizes are hard-coded in the reference.

use crate::models::parts::magnitude_mel::MagnitudeMel;

/// Sample rate in Hz.
pub const RATE: u32 = 24_000;

/// 128 bins up to half the rate, of 1024 samples each 256.
pub const MEL: MagnitudeMel = MagnitudeMel { rate: RATE, bins: 128, highest_hz: 12_000.0, frame: 1024, hop: 256 };
