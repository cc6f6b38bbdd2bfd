//! Fuzzed RTP: no packet makes the jitter buffer or the decoder panic, grow, or produce audio without bound.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_testkit::fuzz::fuzz;
use repartee_testkit::signal::sine;

use super::jitter::{CAPACITY, JitterAction, JitterBuffer};
use super::opus::{FRAME, OpusDecoder, OpusEncoder};

/// Valid and malformed voice packets, each with sequence number, timestamp and payload.
fn corpus() -> Vec<Vec<u8>> {
    let mut encoder = OpusEncoder::new(16_000).unwrap();
    let voice = sine(300.0, 16_000, 320 * 20);
    let mut packets: Vec<Vec<u8>> = Vec::new();
    for (number, frame) in voice.chunks_exact(320).chain(std::iter::repeat_n(&[0.0; 320][..], 5)).enumerate() {
        let mut packet = (number as u16).to_be_bytes().to_vec();
        packet.extend((number as u32 * 960).to_be_bytes());
        packet.extend_from_slice(&encoder.encode(frame).unwrap().payload);
        packets.push(packet);
    }
    // Empty; code 3 without its count; more than 120 ms; padding beyond the end; CELT and hybrid; two frames in one packet.
    for odd in
        [&[][..], &[3], &[0x1b, 0x3f, 0, 0], &[0x0b, 0x41, 0xff, 0xff, 1], &[0xfc, 1, 2], &[0x7c, 1], &[9, 1, 2, 3]]
    {
        packets.push([&[0, 7, 0, 0, 9, 9], odd].concat());
    }
    packets
}

fn fuzz_packets(count: usize, seed: u64) {
    let (mut jitter, mut decoder) = (JitterBuffer::new(), OpusDecoder::new(16_000).unwrap());
    let begin = Instant::now();
    let (mut now, mut packets, mut decoded) = (begin, 0_u32, Duration::ZERO);
    fuzz(&corpus(), count, seed, |input| {
        packets += 1;
        now += FRAME;
        // Sequence numbers and timestamps advance, except for the mutations.
        let field = |from: usize, length: usize| input.get(from..from + length).map(<[u8]>::to_vec);
        let number = field(0, 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let ticks = field(2, 4).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let (sequence, timestamp) =
            (number.wrapping_add(packets as u16), ticks.wrapping_add(packets.wrapping_mul(960)));
        jitter.push(sequence, timestamp, Bytes::copy_from_slice(input.get(6..).unwrap_or(&[])), now);
        for step in 0.. {
            assert!(step <= 2 * CAPACITY, "one packet makes this much to do");
            let samples = match jitter.pop(now) {
                JitterAction::Packet { payload, .. } => decoder.decode(&payload),
                JitterAction::Fec { next, duration, .. } => decoder.decode_fec(&next, duration),
                JitterAction::Conceal { duration, .. } | JitterAction::Stall { duration } => decoder.conceal(duration),
                JitterAction::Silence { duration, .. } => {
                    decoded += duration;
                    continue;
                }
                JitterAction::Wait { .. } => break,
            };
            // Data that is not Opus is only an error.
            let samples = samples.unwrap_or_default();
            assert!(samples.iter().all(|sample| sample.is_finite()));
            decoded += Duration::from_secs(samples.len() as u64) / 16_000;
        }
    });
    // A packet may claim six times our packet duration; nothing causes more work than that.
    assert!(decoded <= (now - begin) * 7, "{decoded:?} of audio in {:?}", now - begin);
}

#[test]
fn fuzzed_packets_neither_panic_nor_grow() {
    fuzz_packets(10_000, 0x5eed);
}

#[test]
#[ignore = "takes minutes: for the long suite"]
fn million_packets_neither_panic_nor_grow() {
    fuzz_packets(1_000_000, 0xfeed);
}
