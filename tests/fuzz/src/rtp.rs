//! RTP datagrams of one call, from the header to the samples. An input is a row of records: length in two bytes, time
//! since the last one in one byte of milliseconds, datagram.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_media::jitter::{JitterAction, JitterBuffer};
use repartee_media::opus::{OpusDecoder, OpusError};
use repartee_media::red;
use rtc::rtp::Packet;
use rtc::shared::marshal::Unmarshal as _;

/// Payload type of plain Opus; every other type is redundant Opus.
const OPUS: u8 = 111;
/// Datagrams of an input that are read.
const MAX_PACKETS: usize = 128;
/// Rate of the samples, in Hz.
const RATE: u32 = 16_000;
/// Steps of the decoder after one packet: the packets in the jitter buffer, and the losses before them.
const MAX_STEPS: usize = 1_024;

pub(crate) fn run(input: &[u8]) {
    let begun = Instant::now();
    let (mut jitter, mut now, mut rest) = (JitterBuffer::new(), begun, input);
    let Ok(mut decoder) = OpusDecoder::new(RATE) else { return };
    for _ in 0..MAX_PACKETS {
        let [high, low, wait, after @ ..] = rest else { break };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(after.len());
        let (datagram, after) = after.split_at(length);
        rest = after;
        now += Duration::from_millis(u64::from(*wait));
        push(&mut jitter, Bytes::copy_from_slice(datagram), now);
        decode(&mut jitter, &mut decoder, now);
    }
    // The caller stops sending.
    for _ in 0..50 {
        now += Duration::from_millis(60);
        decode(&mut jitter, &mut decoder, now);
    }
}

fn push(jitter: &mut JitterBuffer, mut datagram: Bytes, now: Instant) {
    let Ok(Packet { header, payload }) = Packet::unmarshal(&mut datagram) else { return };
    if header.payload_type == OPUS {
        return jitter.push(header.sequence_number, header.timestamp, payload, now);
    }
    let Ok(redundant) = red::parse(&payload, OPUS) else { return };
    jitter.push(header.sequence_number, header.timestamp, redundant.primary, now);
    for copy in redundant.copies {
        let sequence = header.sequence_number.wrapping_sub(copy.distance);
        jitter.push_redundant(sequence, header.timestamp.wrapping_sub(copy.offset), copy.payload, now);
    }
}

fn decode(jitter: &mut JitterBuffer, decoder: &mut OpusDecoder, now: Instant) {
    for _ in 0..MAX_STEPS {
        let samples: Result<Vec<f32>, OpusError> = match jitter.pop(now) {
            JitterAction::Packet { payload, .. } => decoder.decode(&payload),
            JitterAction::Fec { next, duration, .. } => decoder.decode_fec(&next, duration),
            JitterAction::Conceal { duration, .. } | JitterAction::Stall { duration } => decoder.conceal(duration),
            JitterAction::Silence { .. } => continue,
            JitterAction::Wait { .. } => return,
        };
        // Data that is not Opus is only an error.
        let samples = samples.unwrap_or_default();
        assert!(samples.iter().all(|sample| sample.is_finite()), "a sample that is no number");
        assert!(samples.len() <= RATE as usize / 2, "{} samples of one packet", samples.len());
    }
    panic!("one packet makes {MAX_STEPS} steps to do");
}
