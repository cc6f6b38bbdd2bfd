//! Redundant audio data (RFC 2198, RED): an RTP payload with a packet and copies of earlier ones, which repair losses without delay.
//!
//! Every second earlier packet is copied, starting with the newest. In-band FEC in each copy covers the packet before it, so `n`
//! copies cover a burst of `2 n` losses.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use thiserror::Error;

use super::opus::{FRAME, packet_duration};

/// Maximum number of copies that [`RedWriter`] puts into a payload.
pub const MAX_COPIES: usize = 3;
/// Distance between two copies, in packets.
const STRIDE: usize = 2;
/// Maximum number of copies per payload that [`parse`] accepts; more than any sender writes.
const MAX_READ: usize = 8;
/// Maximum size of a written payload in bytes; it fits one datagram with all headers.
const MAX_PAYLOAD: usize = 1_100;
/// Number of earlier packets that a writer keeps.
const KEPT: usize = STRIDE * (MAX_COPIES - 1) + 1;
/// Size of a copy's header in bytes: more follow (1 bit), payload type (7), timestamp offset (14), length (10).
const HEADER: usize = 4;
/// Maximum timestamp offset of a copy in RTP ticks, and its maximum length in bytes.
const MAX_OFFSET: u32 = (1 << 14) - 1;
const MAX_LENGTH: usize = (1 << 10) - 1;
/// RTP ticks per millisecond; Opus always uses a clock rate of 48 kHz.
const TICKS_PER_MS: u128 = 48;

/// Error of a malformed payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RedError {
    /// Payload that ends within its headers or blocks.
    #[error("the redundant payload is cut off")]
    Truncated,
    /// Payload with more than `MAX_READ` copies.
    #[error("the redundant payload holds more than {MAX_READ} copies")]
    TooMany,
    /// Primary block of another payload type.
    #[error("the redundant payload holds payload type {0}, which is not Opus")]
    WrongType(u8),
}

/// Copy of an earlier packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PacketCopy {
    /// Number of packets between the copied packet and the carrying one; subtract it from the sequence number. Wrong, but harmless, if
    /// a pause lies between two copies.
    pub distance: u16,
    /// Timestamp offset; subtract it from the RTP timestamp.
    pub offset: u32,
    /// Payload of the earlier packet.
    pub payload: Bytes,
}

/// Parsed redundant payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedPayload {
    /// Packet of the primary block.
    pub primary: Bytes,
    /// Copies of earlier packets, newest first.
    pub copies: Vec<PacketCopy>,
}

/// Parses a payload with blocks of the payload type `codec`; skips empty copies and copies of other types.
pub fn parse(payload: &Bytes, codec: u8) -> Result<RedPayload, RedError> {
    let mut headers = [(0_u8, 0_u32, 0_usize); MAX_READ];
    let (mut count, mut at) = (0, 0);
    let primary_type = loop {
        let first = *payload.get(at).ok_or(RedError::Truncated)?;
        if first & 0x80 == 0 {
            at += 1;
            break first;
        }
        let Some(&[_, high, middle, low]) = payload.get(at..at + HEADER) else { return Err(RedError::Truncated) };
        let header = headers.get_mut(count).ok_or(RedError::TooMany)?;
        let offset = u32::from(high) << 6 | u32::from(middle) >> 2;
        *header = (first & 0x7f, offset, usize::from(middle & 3) << 8 | usize::from(low));
        count += 1;
        at += HEADER;
    };
    if primary_type != codec {
        return Err(RedError::WrongType(primary_type));
    }
    let mut copies = Vec::with_capacity(count);
    for (kind, offset, length) in headers.into_iter().take(count) {
        if at + length > payload.len() {
            return Err(RedError::Truncated);
        }
        if kind == codec && length > 0 {
            copies.push(PacketCopy { distance: 0, offset, payload: payload.slice(at..at + length) });
        }
        at += length;
    }
    copies.reverse();
    // The wire has only time offsets, which include a pause before the packet: assumes that the newest copy is of the previous packet.
    let (mut distance, mut later) = (1, copies.first().map_or(0, |newest| newest.offset));
    for copy in &mut copies {
        let packets = copy.offset.saturating_sub(later).div_ceil(duration_ticks(&copy.payload));
        distance += u16::try_from(packets).unwrap_or(u16::MAX / MAX_READ as u16);
        (copy.distance, later) = (distance, copy.offset);
    }
    Ok(RedPayload { primary: payload.slice(at..), copies })
}

/// Writer of payloads with copies of earlier packets. Needs every sent packet, so that copies are of the latest ones.
#[derive(Debug)]
pub struct RedWriter {
    /// Payload type of the packets.
    codec: u8,
    /// Timestamp of the next packet in RTP ticks, relative to the first.
    position: u32,
    /// Latest sent packets with their positions.
    sent: VecDeque<(u32, Bytes)>,
}

impl RedWriter {
    /// Creates a writer for packets of the payload type `codec`.
    pub fn new(codec: u8) -> Self {
        Self { codec, position: 0, sent: VecDeque::with_capacity(KEPT) }
    }

    /// Takes the next packet of 20 ms, which follows a silence of `gap`. Returns a payload with up to `copies` copies of every
    /// second earlier packet; `None` if there is nothing to add, and the packet is sent unchanged.
    pub fn write(&mut self, gap: Duration, packet: &Bytes, copies: usize) -> Option<Bytes> {
        self.position = self.position.wrapping_add(ticks(gap));
        let position = self.position;
        let (mut size, mut taken) = (1 + packet.len(), 0);
        for (at, copy) in self.sent.iter().rev().step_by(STRIDE).take(copies) {
            size += HEADER + copy.len();
            if position.wrapping_sub(*at) > MAX_OFFSET || copy.len() > MAX_LENGTH || size > MAX_PAYLOAD {
                break;
            }
            taken += 1;
        }
        let copies = self.sent.iter().rev().step_by(STRIDE).take(taken).rev();
        let payload = (taken > 0).then(|| {
            let mut payload = BytesMut::with_capacity(MAX_PAYLOAD);
            for (at, copy) in copies.clone() {
                let offset = position.wrapping_sub(*at);
                payload.put_u32(1 << 31 | u32::from(self.codec) << 24 | offset << 10 | copy.len() as u32);
            }
            payload.put_u8(self.codec);
            copies.for_each(|(_, copy)| payload.extend_from_slice(copy));
            payload.extend_from_slice(packet);
            payload.freeze()
        });
        if self.sent.len() == KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back((position, packet.clone()));
        self.position = position.wrapping_add(ticks(FRAME));
        payload
    }
}

/// Duration of a packet in RTP ticks; 20 ms for a packet that is not Opus.
fn duration_ticks(packet: &[u8]) -> u32 {
    ticks(packet_duration(packet).unwrap_or(FRAME)).max(1)
}

fn ticks(duration: Duration) -> u32 {
    // Wraps like RTP timestamps.
    (duration.as_micros() * TICKS_PER_MS / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPUS: u8 = 111;

    fn packet(number: u8) -> Bytes {
        Bytes::from(vec![0x08, number, number])
    }

    #[test]
    fn copies_are_read_as_written() {
        let mut writer = RedWriter::new(OPUS);
        assert_eq!(writer.write(Duration::ZERO, &packet(0), 2), None, "there is nothing to copy");
        let one = writer.write(Duration::ZERO, &packet(1), 2).unwrap();
        let copy = |distance: u16, offset, number| PacketCopy { distance, offset, payload: packet(number) };
        assert_eq!(parse(&one, OPUS), Ok(RedPayload { primary: packet(1), copies: vec![copy(1, 960, 0)] }));
        assert_eq!(writer.write(Duration::ZERO, &packet(2), 0), None, "none is asked for");
        let two = writer.write(Duration::from_millis(40), &packet(3), 2).unwrap();
        let expected = vec![copy(1, 960 + 1_920, 2), copy(3, 3 * 960 + 1_920, 0)];
        assert_eq!(parse(&two, OPUS), Ok(RedPayload { primary: packet(3), copies: expected }));
    }

    #[test]
    fn adjacent_copies_are_numbered_by_time_offset() {
        // Two copies of 3 bytes, 40 and 20 ms before.
        let offset = |ticks: u32| (1 << 31 | u32::from(OPUS) << 24 | ticks << 10 | 3).to_be_bytes();
        let payload = [&offset(1_920)[..], &offset(960), &[OPUS], &packet(1), &packet(2), &packet(3)].concat();
        let copies = parse(&Bytes::from(payload), OPUS).unwrap().copies;
        let found: Vec<_> = copies.iter().map(|copy| (copy.distance, copy.payload.clone())).collect();
        assert_eq!(found, [(1, packet(2)), (2, packet(1))]);
    }

    #[test]
    fn payloads_have_the_published_layout() {
        let mut writer = RedWriter::new(OPUS);
        writer.write(Duration::ZERO, &packet(7), 1);
        // More follow and type; 14 bits of offset; 10 bits of length; type; the copy; the packet.
        let expected = [0x80 | OPUS, (960 >> 6) as u8, (960 << 2 & 0xff) as u8, 3];
        let payload = writer.write(Duration::ZERO, &packet(8), 1).unwrap();
        assert_eq!(payload[..4], expected);
        assert_eq!(payload[4..], [OPUS, 0x08, 7, 7, 0x08, 8, 8]);
    }

    #[test]
    fn old_and_large_packets_are_not_copied() {
        let mut writer = RedWriter::new(OPUS);
        writer.write(Duration::ZERO, &packet(0), 2);
        assert_eq!(writer.write(Duration::from_millis(400), &packet(1), 2), None, "beyond 14 bits of offset");
        let large = Bytes::from(vec![0x08; 600]);
        writer.write(Duration::ZERO, &large, 2);
        for _ in 0..2 {
            assert_eq!(writer.write(Duration::ZERO, &large, 2), None, "two of them fit no datagram");
        }
        let mixed = writer.write(Duration::ZERO, &packet(2), 2).unwrap();
        assert_eq!(parse(&mixed, OPUS).unwrap().copies.len(), 1);
        assert!(mixed.len() <= MAX_PAYLOAD);
    }

    #[test]
    fn broken_payloads_are_typed_errors() {
        let mut writer = RedWriter::new(OPUS);
        writer.write(Duration::ZERO, &packet(0), 2);
        let payload = writer.write(Duration::ZERO, &packet(1), 2).unwrap();
        for length in 0..8 {
            assert_eq!(parse(&payload.slice(..length), OPUS), Err(RedError::Truncated), "{length} bytes");
        }
        assert_eq!(parse(&payload, 96), Err(RedError::WrongType(OPUS)));
        let many = Bytes::from([0x80 | OPUS, 0, 0, 0].repeat(MAX_READ + 1));
        assert_eq!(parse(&many, OPUS), Err(RedError::TooMany));
        // Copies of another codec and empty copies are skipped.
        let other = Bytes::from_static(&[0x80 | 13, 0, 0, 1, 0x80 | OPUS, 0, 0, 0, OPUS, 9, 8]);
        assert_eq!(parse(&other, OPUS), Ok(RedPayload { primary: Bytes::from_static(&[8]), copies: Vec::new() }));
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_the_reader_panic(bytes in proptest::collection::vec(0u8.., 0..60)) {
            let bytes = Bytes::from(bytes);
            if let Ok(read) = parse(&bytes, bytes.first().map_or(0, |first| first & 0x7f)) {
                let held: usize = read.copies.iter().map(|copy| copy.payload.len()).sum();
                assert!(held + read.primary.len() < bytes.len() && read.copies.len() <= MAX_READ);
            }
        }
    }
}
