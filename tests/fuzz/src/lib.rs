//! Targets of `cargo fuzz`: each reads bytes as they come from a client or a file, and may neither panic nor take more
//! memory or time than its [`Bounds`] allow. `fuzz/` runs them in libFuzzer, and `gateway/tests/fuzz.rs` over the seeds.
//!
//! | target | input | read by |
//! |---|---|---|
//! | [`SDP`] | an offer | `repartee-sdp`, which also answers it |
//! | [`EVENTS`] | client events, one a line | the parser and a realtime session |
//! | [`CHAT`] | the body of a chat completion, and of a speech request | their HTTP handlers' parsers |
//! | [`MULTIPART`] | a content type in the first line, then the body | the parsers of calls and of voices |
//! | [`SIP`] | datagrams of telephones, or bytes of their connections | the user agent of calls over SIP, the reader of their session descriptions, and the division of connections into messages |
//! | [`RTP`] | datagrams with their times | RTP header, RED, jitter buffer, Opus decoder |
//! | [`CHECKPOINT`] | a weight file | the readers of all forms |
//! | [`SOUND`] | a sound file | the decoders of recordings |
//!
//! - [`bounds`]: the bounds, and their measurement
//! - [`seeds`]: the folders of saved inputs
//! - the other files: one target each; `bodies` has two

mod bodies;
pub mod bounds;
mod checkpoint;
mod events;
mod rtp;
mod sdp;
pub mod seeds;
mod sip;
mod sound;

pub use bounds::{Bounds, Target};

const KIB: u64 = 1 << 10;

/// Offers of calls.
pub static SDP: Target = Target {
    name: "sdp",
    run: sdp::run,
    bounds: Bounds { bytes: 64 * KIB, bytes_per_byte: 16, ms: 100, us_per_byte: 2 },
};

/// A call whose client sends each line of the input as an event.
pub static EVENTS: Target = Target {
    name: "events",
    run: events::run,
    bounds: Bounds { bytes: 512 * KIB, bytes_per_byte: 64, ms: 200, us_per_byte: 20 },
};

/// JSON bodies of `POST /v1/chat/completions` and `POST /v1/audio/speech`. The resampler of sound takes 200 KiB.
pub static CHAT: Target = Target {
    name: "chat",
    run: bodies::run_chat,
    bounds: Bounds { bytes: 512 * KIB, bytes_per_byte: 32, ms: 100, us_per_byte: 4 },
};

/// Forms of `POST /v1/realtime/calls` and `POST /v1/audio/voices`.
pub static MULTIPART: Target = Target {
    name: "multipart",
    run: bodies::run_multipart,
    bounds: Bounds { bytes: 64 * KIB, bytes_per_byte: 16, ms: 100, us_per_byte: 4 },
};

/// Datagrams of telephones over SIP, and their session descriptions.
pub static SIP: Target = Target {
    name: "sip",
    run: sip::run,
    bounds: Bounds { bytes: 256 * KIB, bytes_per_byte: 64, ms: 200, us_per_byte: 20 },
};

/// RTP datagrams of one call. A packet of two bytes may be 120 ms of sound.
pub static RTP: Target = Target {
    name: "rtp",
    run: rtp::run,
    bounds: Bounds { bytes: 128 * KIB, bytes_per_byte: 32, ms: 2_000, us_per_byte: 50 },
};

/// Weight files of all forms. candle takes up to 32 bytes for a byte of a GGUF file's lists.
pub static CHECKPOINT: Target = Target {
    name: "checkpoint",
    run: checkpoint::run,
    bounds: Bounds { bytes: 256 * KIB, bytes_per_byte: 96, ms: 200, us_per_byte: 10 },
};

/// Sound files. A sample of one byte becomes several of four bytes at the model's rate.
pub static SOUND: Target = Target {
    name: "sound",
    run: sound::run,
    bounds: Bounds { bytes: 1024 * KIB, bytes_per_byte: 64, ms: 500, us_per_byte: 20 },
};

/// Every target, in the order in which `make fuzz` runs them.
pub static TARGETS: [&Target; 8] = [&SDP, &EVENTS, &CHAT, &MULTIPART, &SIP, &RTP, &CHECKPOINT, &SOUND];
