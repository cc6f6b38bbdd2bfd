//! RTP from anybody: no packet makes the jitter buffer or the decoder panic, grow, or make more sound than time has passed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_testkit::fuzz::fuzz;
use repartee_testkit::signal::sine;

use super::jitter::{CAPACITY, JitterBuffer, Play};
use super::opus::{FRAME, OpusDecoder, OpusEncoder};

/// Voice packets of every kind, and some that once were trouble elsewhere: a sequence number, a time stamp and a payload.
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
    // Nothing; code 3 without its count; more than 120 ms; padding beyond the end; CELT and hybrid; two frames in one.
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
    let (mut now, mut packets, mut heard) = (begin, 0_u32, Duration::ZERO);
    fuzz(&corpus(), count, seed, |input| {
        packets += 1;
        now += FRAME;
        // The caller's numbers go on, but for what the mutation did to them.
        let field = |from: usize, length: usize| input.get(from..from + length).map(<[u8]>::to_vec);
        let number = field(0, 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
        let ticks = field(2, 4).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]));
        let (sequence, timestamp) =
            (number.wrapping_add(packets as u16), ticks.wrapping_add(packets.wrapping_mul(960)));
        jitter.push(sequence, timestamp, Bytes::copy_from_slice(input.get(6..).unwrap_or(&[])), now);
        for step in 0.. {
            assert!(step <= 2 * CAPACITY, "one packet makes this much to do");
            let samples = match jitter.pop(now) {
                Play::Packet { payload, .. } => decoder.decode(&payload),
                Play::Fec { next, duration, .. } => decoder.decode_fec(&next, duration),
                Play::Conceal { duration, .. } => decoder.conceal(duration),
                Play::Silence { duration } => {
                    heard += duration;
                    continue;
                }
                Play::Wait { .. } => break,
            };
            // What is not Opus after all is an error and nothing else.
            let samples = samples.unwrap_or_default();
            assert!(samples.iter().all(|sample| sample.is_finite()));
            heard += Duration::from_secs(samples.len() as u64) / 16_000;
        }
    });
    // A packet may claim to last six times as long as ours do; beyond that nobody makes us do more work.
    assert!(heard <= (now - begin) * 7, "{heard:?} of sound in {:?}", now - begin);
}

#[test]
fn no_packet_makes_the_listener_panic_or_grow() {
    fuzz_packets(10_000, 0x5eed);
}

#[test]
#[ignore = "takes minutes: for the long suite"]
fn none_of_a_million_packets_makes_the_listener_panic_or_grow() {
    fuzz_packets(1_000_000, 0xfeed);
}
