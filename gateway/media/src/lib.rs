//! Sound on its way in and out, without I/O and without a clock: time is always a parameter.
//!
//! | file | what it does |
//! |---|---|
//! | [`opus`] | encoder and decoder, typed |
//! | [`jitter`] | RTP packets in any order -> packets in order, losses named |
//! | [`level`] | whether anybody would hear it |
//! | [`resample`] | one sample rate to another, streaming |
//! | [`pcm`] | 16-bit and G.711 bytes to samples and back |
//! | [`vad`] | voice probability and turns |
//! | [`end_of_turn`] | how long a pause may last |
//! | [`own_voice`] | what the caller's microphone may hear of us |
//! | [`playout`] | the server's playout clock |
//! | [`wav`] | wav files |
//!
//! Samples are mono `f32` in -1..1 everywhere.

pub mod end_of_turn;
#[cfg(test)]
mod fuzz_tests;
pub mod jitter;
pub mod level;
#[cfg(test)]
mod network_tests;
pub mod opus;
pub mod own_voice;
pub mod pcm;
pub mod playout;
pub mod resample;
pub mod vad;
pub mod wav;
