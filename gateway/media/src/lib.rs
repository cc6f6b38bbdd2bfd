//! Audio on its way in and out, without I/O and without a clock: time is always a parameter.
//!
//! | file | what it holds |
//! |---|---|
//! | [`opus`] | Opus encoder and decoder |
//! | [`red`] | redundant packets: each with copies of those before |
//! | [`adaptation`] | bit rate, redundancy and effort by what is reported |
//! | [`jitter`] | jitter buffer: RTP packets in any order to packets in order, losses named |
//! | [`vad`] | voice activity and turn detection |
//! | [`endpointing`] | how much silence ends a turn |
//! | [`barge_in`] | whether a voice over our playback is an interruption |
//! | [`echo_guard`] | keeps the echo of our playback from counting as speech |
//! | `echo_path` | how loud and how late our playback comes back |
//! | [`playout`] | the server's playout clock |
//! | [`resample`] | streaming sample-rate conversion |
//! | [`pcm`] | 16-bit PCM and G.711 |
//! | [`level`] | the threshold of audible sound |
//! | [`wav`] | wav files |
//! | [`ogg`] | Opus files |
//! | [`mp3`] | MP3 streams |
//!
//! Samples are mono `f32` in -1..1 everywhere.
//!
//! Encoded packets that arrive in the wrong order are decoded in the right one:
//!
//! ```
//! use std::time::Instant;
//!
//! use repartee_media::jitter::{Action, JitterBuffer};
//! use repartee_media::opus::{OpusDecoder, OpusEncoder};
//!
//! let mut encoder = OpusEncoder::new(24_000)?;
//! let packets: Vec<_> = (0..3).map(|_| encoder.encode(&[0.1; 480])).collect::<Result<_, _>>()?;
//!
//! let now = Instant::now();
//! let mut jitter = JitterBuffer::new();
//! for index in [0, 2, 1] {
//!     let (sequence, timestamp) = (100 + index as u16, 960 * index as u32);
//!     jitter.push(sequence, timestamp, packets[index].payload.clone(), now);
//! }
//!
//! let mut decoder = OpusDecoder::new(16_000)?;
//! let (mut order, mut samples) = (Vec::new(), Vec::new());
//! while let Action::Packet { sequence, payload } = jitter.pop(now) {
//!     order.push(sequence as u16);
//!     samples.extend(decoder.decode(&payload)?);
//! }
//! assert_eq!(order, [100, 101, 102]);
//! assert_eq!(samples.len(), 3 * 320);
//! # Ok::<(), repartee_media::opus::OpusError>(())
//! ```

pub mod adaptation;
pub mod barge_in;
pub mod echo_guard;
mod echo_path;
#[cfg(test)]
mod echo_tests;
pub mod endpointing;
#[cfg(test)]
mod fuzz_tests;
pub mod jitter;
pub mod level;
pub mod mp3;
#[cfg(test)]
mod network_tests;
pub mod ogg;
pub mod opus;
pub mod pcm;
pub mod playout;
pub mod red;
pub mod resample;
#[cfg(test)]
mod stall_tests;
#[cfg(test)]
mod testdata;
pub mod vad;
pub mod wav;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: repartee_testkit::memory::CountingAllocator = repartee_testkit::memory::CountingAllocator;
