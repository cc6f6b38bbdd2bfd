//! Audio on its way in and out, without I/O and without a clock: time is always a parameter.
//!
//! | file | what it holds |
//! |---|---|
//! | [`opus`] | Opus encoder and decoder |
//! | [`jitter`] | jitter buffer: RTP packets in any order to packets in order, losses named |
//! | [`vad`] | voice activity and turn detection |
//! | [`endpointing`] | how much silence ends a turn |
//! | [`echo_guard`] | keeps the echo of our playback from counting as speech |
//! | [`playout`] | the server's playout clock |
//! | [`resample`] | streaming sample-rate conversion |
//! | [`pcm`] | 16-bit PCM and G.711 |
//! | [`level`] | the threshold of audible sound |
//! | [`wav`] | wav files |
//!
//! Samples are mono `f32` in -1..1 everywhere.

pub mod echo_guard;
pub mod endpointing;
#[cfg(test)]
mod fuzz_tests;
pub mod jitter;
pub mod level;
#[cfg(test)]
mod network_tests;
pub mod opus;
pub mod pcm;
pub mod playout;
pub mod resample;
#[cfg(test)]
mod testdata;
pub mod vad;
pub mod wav;
