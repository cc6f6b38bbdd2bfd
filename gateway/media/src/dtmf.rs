//! Telephone keys in RTP (RFC 4733): each press is reported once, whatever packets of it are lost, late or repeated.

use std::collections::VecDeque;

/// Presses whose further packets are recognised. A sender repeats the last packet three times, and may press ten keys a second.
const REMEMBERED: usize = 16;
/// Duration of the segments of a long press; the next one begins where this one ends (RFC 4733, 2.5.1.3).
const SEGMENT: u16 = u16::MAX;

/// A press, or a segment of one.
#[derive(Debug, Clone, Copy)]
struct Press {
    event: u8,
    timestamp: u32,
    /// Duration so far, in ticks.
    duration: u16,
}

/// Reader of the telephone events of one RTP stream.
#[derive(Debug, Default)]
pub struct DtmfReader {
    recent: VecDeque<Press>,
}

impl DtmfReader {
    /// Takes a packet of telephone events: RTP timestamp and payload. Returns the key at its first packet: `0` to `9`, `*`, `#`, `A` to
    /// `D`. Other events, such as a hook flash, are ignored.
    pub fn push(&mut self, timestamp: u32, payload: &[u8]) -> Option<char> {
        let &[event, _, high, low, ..] = payload else { return None };
        let key = match event {
            0..=9 => char::from(b'0' + event),
            10 => '*',
            11 => '#',
            12..=15 => char::from(b'A' + event - 12),
            _ => return None,
        };
        let press = Press { event, timestamp, duration: u16::from_be_bytes([high, low]) };
        let known = self.recent.iter_mut().find(|known| known.event == event && known.timestamp == timestamp);
        if let Some(known) = known {
            known.duration = known.duration.max(press.duration);
            return None;
        }
        let continues = |before: &Press| {
            before.event == event
                && before.duration == SEGMENT
                && before.timestamp.wrapping_add(u32::from(SEGMENT)) == timestamp
        };
        let continued = self.recent.iter().any(continues);
        if self.recent.len() == REMEMBERED {
            self.recent.pop_front();
        }
        self.recent.push_back(press);
        (!continued).then_some(key)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use repartee_testkit::random::Random;

    use super::*;

    /// Packets of a press: one every 50 ms, and the last one three times.
    fn press(event: u8, timestamp: u32) -> Vec<(u32, Vec<u8>)> {
        let packet = |duration: u16, ends: bool| {
            let [high, low] = duration.to_be_bytes();
            (timestamp, vec![event, if ends { 0x8a } else { 0x0a }, high, low])
        };
        let mut packets: Vec<_> = (1..=4).map(|number| packet(number * 2_400, false)).collect();
        packets.extend(vec![packet(4 * 2_400, true); 3]);
        packets
    }

    #[test]
    fn every_key_has_its_name() {
        let mut reader = DtmfReader::default();
        let keys = (0..20_u8).filter_map(|event| reader.push(u32::from(event) * 20_000, &[event, 10, 0, 160]));
        assert_eq!(keys.collect::<String>(), "0123456789*#ABCD");
        for broken in [&[][..], &[1], &[1, 2, 3]] {
            assert_eq!(reader.push(1, broken), None);
        }
    }

    #[test]
    fn long_press_in_segments_is_one() {
        let (mut reader, begin) = (DtmfReader::default(), u32::MAX - 5);
        let segment = |number: u32| begin.wrapping_add(number * u32::from(SEGMENT));
        let mut keys = Vec::new();
        for number in 0..3 {
            keys.extend(reader.push(segment(number), &[5, 10, 0, 160]));
            keys.extend(reader.push(segment(number), &[5, 10, 0xff, 0xff]));
        }
        assert_eq!(keys, ['5']);
        // The same key at once again, after a shorter press.
        assert_eq!(reader.push(segment(3).wrapping_add(960), &[5, 10, 0, 160]), Some('5'));
    }

    proptest! {
        /// Each press of which a packet arrives is reported once, in order.
        #[test]
        fn presses_are_reported_once(keys in prop::collection::vec(0_u8..16, 1..40), loss in 0.0..0.8, seed: u64) {
            let mut random = Random::new(seed);
            let (mut reader, mut expected, mut reported) = (DtmfReader::default(), String::new(), String::new());
            let mut timestamp = random.below(1 << 30) as u32 * 4;
            for event in keys {
                let mut name = DtmfReader::default();
                let mut arrived: Vec<_> = press(event, timestamp).into_iter().filter(|_| random.unit() >= loss).collect();
                if !arrived.is_empty() {
                    expected.extend(name.push(0, &[event, 0, 0, 0]));
                    // Packets of one press overtake each other, and some come twice.
                    let (a, b) = (random.below(arrived.len()), random.below(arrived.len()));
                    arrived.swap(a, b);
                    let copy = arrived[random.below(arrived.len())].clone();
                    arrived.push(copy);
                }
                reported.extend(arrived.iter().filter_map(|(timestamp, payload)| reader.push(*timestamp, payload)));
                timestamp = timestamp.wrapping_add(9_600 + random.below(10_000) as u32);
            }
            prop_assert_eq!(reported, expected);
        }
    }
}
