//! Audio input and output without I/O and without a clock: time is always a parameter.
//!
//! | file | contents |
//! |---|---|
//! | [`opus`] | Opus encoder and decoder |
//! | [`red`] | redundant packets (RFC 2198): each carries copies of earlier ones |
//! | [`adaptation`] | bit rate, redundancy and encoder complexity, adapted to receiver reports and load |
//! | [`jitter`] | jitter buffer: orders RTP packets and reports losses |
//! | [`packet_format`] | formats of the packets that it orders |
//! | `jitter_stats`, `rtp_clock` | its statistics; RTP ticks and durations |
//! | `rtp_steps`, `lateness` | timestamps of senders that count otherwise, and packets that come in clumps |
//! | [`dtmf`] | telephone keys in RTP |
//! | [`vad`] | turn detection |
//! | [`voice_detector`] | probability of a voice, frame by frame |
//! | [`acoustics`], `tonality`, `pitch` | level above the noise floor, tones and pitch of a frame |
//! | `turn_onset`, `turn_evidence` | the voice that opens a turn; sound that only a voice makes, without which a turn ends |
//! | [`endpointing`] | silence that ends a turn |
//! | [`barge_in`] | detects whether a voice over our playback is an interruption |
//! | `barge_in_policy` | how sure that has to be, and how long it may take |
//! | `interruption_net` | a network that hears whether the caller interrupts, listens or coughs |
//! | [`decision`] | decisions about the caller's sound, with their reasons |
//! | [`echo_guard`] | prevents the echo of our playback from counting as speech |
//! | `echo_path` | estimates gain and delay of the echo |
//! | [`echo_canceller`] | removes the echo of our playback from the input |
//! | [`call_echo`] | the canceller of a call: when it runs, and when it ends |
//! | [`noise_reducer`] | softens steady noise beside the caller |
//! | `noise_steadiness` | tells steady noise from many voices |
//! | `transforms` | Fourier transforms, planned once for all calls |
//! | `input_clock` | our clock's time of the input's samples |
//! | [`playout`] | the server's playout clock |
//! | [`resample`] | streaming sample-rate conversion |
//! | [`tempo`] | speed of speech without a change of pitch |
//! | [`pcm`] | 16-bit PCM and G.711 |
//! | [`level`] | the threshold of audible sound |
//! | [`downmix`] | several channels to one |
//! | [`sound_file`] | decoder of sound files: wav, flac, mp3, m4a, ogg, webm |
//! | [`pauses`] | long sound in pieces, cut at its pauses |
//! | [`wav`] | writers of wav files |
//! | [`ogg`] | Opus files |
//! | [`mp3`] | MP3 streams |
//! | [`flac`] | FLAC streams |
//!
//! Samples are mono `f32` in -1..1 everywhere.
//!
//! The jitter buffer restores the order of encoded packets:
//!
//! ```
//! use std::time::Instant;
//!
//! use repartee_media::jitter::{JitterAction, JitterBuffer};
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
//! while let JitterAction::Packet { sequence, payload } = jitter.pop(now) {
//!     order.push(sequence as u16);
//!     samples.extend(decoder.decode(&payload)?);
//! }
//! assert_eq!(order, [100, 101, 102]);
//! assert_eq!(samples.len(), 3 * 320);
//! # Ok::<(), repartee_media::opus::OpusError>(())
//! ```

pub mod acoustics;
pub mod adaptation;
pub mod barge_in;
mod barge_in_policy;
pub mod call_echo;
pub mod decision;
pub mod downmix;
pub mod dtmf;
pub mod echo_canceller;
pub mod echo_guard;
mod echo_path;
#[cfg(test)]
mod echo_scene_tests;
#[cfg(test)]
mod echo_scenes;
#[cfg(test)]
mod echo_tests;
pub mod endpointing;
pub mod flac;
#[cfg(test)]
mod fuzz_tests;
mod input_clock;
mod interruption_net;
pub mod jitter;
mod jitter_stats;
mod lateness;
pub mod level;
pub mod mp3;
#[cfg(test)]
mod network_tests;
pub mod noise_reducer;
mod noise_steadiness;
pub mod ogg;
pub mod opus;
pub mod packet_format;
pub mod pauses;
pub mod pcm;
mod pitch;
pub mod playout;
pub mod red;
pub mod resample;
mod rtp_clock;
mod rtp_steps;
#[cfg(test)]
mod soft_caller_tests;
pub mod sound_file;
#[cfg(test)]
mod stall_tests;
pub mod tempo;
#[cfg(test)]
mod testdata;
mod tonality;
mod transforms;
#[cfg(test)]
mod turn_end_tests;
mod turn_evidence;
#[cfg(test)]
mod turn_grid_sounds;
#[cfg(test)]
mod turn_grid_tests;
mod turn_onset;
pub mod vad;
pub mod voice_detector;
pub mod wav;

#[cfg(test)]
#[global_allocator]
static ALLOCATOR: repartee_testkit::memory::CountingAllocator = repartee_testkit::memory::CountingAllocator;
