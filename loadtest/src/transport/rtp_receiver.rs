//! RTP receiver of a caller: jitter buffer, loss concealment and the caller's own Opus decoder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use opus::{Channels, Decoder};

use crate::measure::playback::Playback;
use crate::sample_rate::RATE;

/// RTP clock rate of Opus, in Hz.
const TICKS: u64 = 48_000;
/// RTP clock ticks per sample at [`RATE`].
const TICKS_PER_SAMPLE: u64 = TICKS / RATE as u64;
/// Samples of the longest packet, 120 ms.
const LONGEST: usize = RATE as usize * 120 / 1_000;
/// RTP clock ticks in 20 ms, the assumed duration of a lost packet.
const PACKET_TICKS: u64 = TICKS / 50;
/// Longest wait for a missing packet: a browser's jitter buffer.
pub const BUFFER: Duration = Duration::from_millis(60);
/// Most packets that wait behind a missing one.
const MAX_WAITING: usize = 64;
/// Most consecutive concealed packets; a longer loss leaves a hole.
const MAX_CONCEALED: u64 = 10;

/// Packet counts of a call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PacketCounts {
    /// Packets that arrived, in total.
    pub received: u64,
    /// Packets that never arrived, or arrived after their sound was due.
    pub lost: u64,
    /// Packets that arrived after their sound was due, or were duplicates.
    pub late_or_duplicate: u64,
    /// Packets that arrived after one with a higher sequence number.
    pub reordered: u64,
    /// Packets that the decoder rejected.
    pub corrupt: u64,
}

/// A buffered packet.
#[derive(Debug)]
struct Packet {
    ticks: u64,
    payload: Arc<[u8]>,
    arrival: Instant,
}

/// Jitter buffer and Opus decoder.
#[derive(Debug)]
pub struct RtpReceiver {
    decoder: Decoder,
    waiting: BTreeMap<u64, Packet>,
    /// Sequence number and time stamp of the packet that is due.
    next: Option<(u64, u64)>,
    highest: u64,
    counts: PacketCounts,
}

impl RtpReceiver {
    /// Creates a receiver before the first packet.
    ///
    /// # Errors
    /// The decoder cannot be created.
    pub fn new() -> Result<Self> {
        Ok(Self {
            decoder: Decoder::new(RATE, Channels::Mono)?,
            waiting: BTreeMap::new(),
            next: None,
            highest: 0,
            counts: PacketCounts::default(),
        })
    }

    /// Returns the current packet counts.
    pub fn counts(&self) -> PacketCounts {
        self.counts
    }

    /// Buffers a packet with its extended sequence number and time stamp.
    pub fn push(&mut self, number: u64, ticks: u64, payload: Arc<[u8]>, arrival: Instant) {
        self.counts.received += 1;
        self.counts.reordered += u64::from(number < self.highest);
        self.highest = self.highest.max(number);
        let useless = self.next.is_some_and(|(next, _)| number < next) || self.waiting.contains_key(&number);
        if useless {
            self.counts.late_or_duplicate += 1;
        } else {
            self.waiting.insert(number, Packet { ticks, payload, arrival });
        }
    }

    /// Plays packets in order, and conceals those missing for longer than [`BUFFER`].
    pub fn play(&mut self, now: Instant, playback: &mut Playback) {
        while let Some((&number, packet)) = self.waiting.first_key_value() {
            let (next, due) = *self.next.get_or_insert((number, packet.ticks));
            if number > next {
                if now.saturating_duration_since(packet.arrival) < BUFFER && self.waiting.len() < MAX_WAITING {
                    return;
                }
                self.conceal(number - next, due, playback);
            }
            let Some((number, packet)) = self.waiting.pop_first() else { return };
            let length = self.decode(&packet.payload, false).map_or(PACKET_TICKS, |samples| {
                playback.push(packet.ticks / TICKS_PER_SAMPLE, &samples, packet.arrival, false);
                samples.len() as u64 * TICKS_PER_SAMPLE
            });
            self.next = Some((number + 1, packet.ticks + length));
        }
    }

    /// Conceals `missing` packets before the first buffered one. The last of them is decoded from that packet's FEC
    /// copy, if any.
    fn conceal(&mut self, missing: u64, due: u64, playback: &mut Playback) {
        self.counts.lost += missing;
        let Some((_, packet)) = self.waiting.first_key_value() else { return };
        let (payload, arrival, until) = (packet.payload.clone(), packet.arrival, packet.ticks);
        // If the time stamps skip more than the packets lasted, the sender omitted silence (DTX).
        let packets = missing.min(MAX_CONCEALED).min(until.saturating_sub(due) / PACKET_TICKS);
        for index in 0..packets {
            let is_last = index + 1 == missing;
            let source: &[u8] = if is_last { &payload } else { &[] };
            if let Some(samples) = self.decode(source, is_last) {
                playback.push((due + index * PACKET_TICKS) / TICKS_PER_SAMPLE, &samples, arrival, true);
            }
        }
    }

    /// Decodes a packet; with `copy`, its FEC copy of the previous packet; an empty payload is concealed.
    fn decode(&mut self, payload: &[u8], copy: bool) -> Option<Vec<f32>> {
        let made_up = copy || payload.is_empty();
        let mut samples = vec![0.0; if made_up { (PACKET_TICKS / TICKS_PER_SAMPLE) as usize } else { LONGEST }];
        match self.decoder.decode_float(payload, &mut samples, copy) {
            Ok(length) => {
                samples.truncate(length);
                Some(samples)
            }
            Err(_) => {
                self.counts.corrupt += 1;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use opus::{Application, Encoder};

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const FRAME: usize = RATE as usize / 50;

    /// Returns `count` packets of a tone.
    fn tone(count: usize) -> Vec<Arc<[u8]>> {
        let mut encoder = Encoder::new(RATE, Channels::Mono, Application::Voip).unwrap();
        encoder.set_inband_fec(true).unwrap();
        encoder.set_packet_loss_perc(10).unwrap();
        let sample = |i: usize| 0.3 * (i as f32 * 0.1).sin();
        (0..count)
            .map(|n| {
                let frame: Vec<f32> = (n * FRAME..(n + 1) * FRAME).map(sample).collect();
                encoder.encode_vec_float(&frame, 1_000).unwrap().into()
            })
            .collect()
    }

    /// Receives packets in the given order, one every 20 ms.
    fn receive(order: &[u64]) -> (PacketCounts, crate::measure::playback::AnswerPlayback) {
        let (packets, start) = (tone(50), Instant::now());
        let (mut receiver, mut playback) = (RtpReceiver::new().unwrap(), Playback::new(BUFFER));
        for (slot, number) in order.iter().enumerate() {
            let arrival = start + 20 * MS * slot as u32;
            // Sequence numbers begin anywhere.
            receiver.push(number + 70_000, number * PACKET_TICKS, packets[*number as usize].clone(), arrival);
            receiver.play(arrival, &mut playback);
        }
        receiver.play(start + 5_000 * MS, &mut playback);
        (receiver.counts(), playback.take_answer())
    }

    #[test]
    fn packets_in_order_are_all_played() {
        let (counts, answer) = receive(&(0..50).collect::<Vec<_>>());
        assert_eq!(counts, PacketCounts { received: 50, ..PacketCounts::default() });
        assert_eq!((answer.duration, answer.gaps.len(), answer.concealed), (1_000 * MS, 0, Duration::ZERO));
    }

    #[test]
    fn swapped_and_doubled_packets_are_put_right() {
        let mut order: Vec<u64> = (0..50).collect();
        order.swap(20, 21);
        order.insert(31, 30);
        let (counts, answer) = receive(&order);
        assert_eq!(
            counts,
            PacketCounts { received: 51, late_or_duplicate: 1, reordered: 1, ..PacketCounts::default() }
        );
        assert_eq!((answer.duration, answer.concealed), (1_000 * MS, Duration::ZERO));
    }

    #[test]
    fn lost_packets_are_made_up() {
        let order: Vec<u64> = (0..50).filter(|n| ![10, 20, 21].contains(n)).collect();
        let (counts, answer) = receive(&order);
        assert_eq!((counts.lost, answer.concealed, answer.duration), (3, 60 * MS, 1_000 * MS));
        assert!(answer.gaps.iter().all(|gap| gap.cause != crate::measure::playback::GapCause::Hole), "{answer:?}");
    }

    #[test]
    fn bytes_that_are_no_opus_are_counted() {
        let (mut receiver, mut playback) = (RtpReceiver::new().unwrap(), Playback::new(BUFFER));
        let now = Instant::now();
        receiver.push(1, 0, Arc::from([0xff_u8, 0xff, 0xff].as_slice()), now);
        receiver.play(now, &mut playback);
        assert_eq!(receiver.counts().corrupt, 1);
    }
}
