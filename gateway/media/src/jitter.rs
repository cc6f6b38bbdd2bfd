//! Jitter buffer for the RTP packets of one stream of Opus or G.711: orders packets and reports losses.
//!
//! The stream feeds a turn detector and a model, not a playout clock. So the next packet in order is released on arrival, and
//! only a *gap* delays the packets behind it. The wait depends on the measured jitter, and is at most [`MAX_GAP_TIMEOUT`].
//! Then the loss is recovered from the copy in the next packet (FEC), or concealed.
//!
//! A sender may also pause: Opus sends no packets in silence (DTX), and neither may a muted microphone. If the stream stops
//! after silence, the buffer reports more silence in steps, so that a turn can end. If it stops within sound, the network has
//! stalled: the buffer conceals a short time, and then reports nothing until packets arrive, so that no turn ends in mid-word.
//! A muted track may also stop within sound: after [`MAX_STALL`] the buffer reports silence. On a network that delivers in clumps
//! the buffer waits for the next clump first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use super::jitter_stats::JitterStats;
use super::lateness::Lateness;
use super::packet_format::PacketFormat;
use super::rtp_clock::{duration_to_ticks, signed_micros, tick_micros, ticks_to_duration};
use super::rtp_steps::TimestampSteps;

/// Minimum wait for a missing packet.
const MIN_GAP_TIMEOUT: Duration = Duration::from_millis(10);
/// Maximum wait for a missing packet: the bound of the delay that this buffer adds.
pub const MAX_GAP_TIMEOUT: Duration = Duration::from_millis(120);
/// Minimum delay of the next packet, beyond the jitter, from which the stream counts as paused or stalled.
const PAUSE: Duration = Duration::from_millis(60);
/// Maximum stall; after it the stream counts as paused.
pub const MAX_STALL: Duration = Duration::from_secs(2);
/// Concealed part of a stall. Concealment has faded out by then.
const STALL_CONCEALMENT: Duration = Duration::from_millis(60);
/// Minimum step of reported silence and stalls, so that packets of 2.5 ms do not make a pause expensive.
const STEP: Duration = Duration::from_millis(20);
/// Maximum number of packets behind a gap; more end the wait at once. Half a second of the shortest packets: a clump.
const DEPTH: usize = 200;
/// Maximum number of buffered packets; beyond it the oldest are dropped and count as lost.
pub(crate) const CAPACITY: usize = 256;
/// Maximum concealed loss; a longer loss is skipped, and the next packet follows directly.
const MAX_CONCEALMENT: Duration = Duration::from_millis(400);
/// Maximum jump of sequence numbers; a larger one is a stray packet or a restarted stream (RFC 3550, A.1).
const MAX_JUMP: u64 = 1_000;
/// Wait for a missing packet, in mean deviations of the transit time.
const DEVIATIONS: u32 = 3;
/// Shortest Opus packet, and so the shortest loss.
const SHORTEST: Duration = Duration::from_micros(2500);

/// Next action of the decoder. Durations are those of the audio to produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JitterAction {
    /// Decode a packet.
    Packet {
        /// Extended sequence number, strictly increasing.
        sequence: u64,
        /// RTP payload of the packet.
        payload: Bytes,
    },
    /// Recover a lost packet from `next`, which follows as [`JitterAction::Packet`].
    Fec {
        /// Extended sequence number of the lost packet.
        sequence: u64,
        /// Payload of the next packet.
        next: Bytes,
        /// Duration of the lost packet.
        duration: Duration,
    },
    /// Conceal a lost packet without a copy.
    Conceal {
        /// Extended sequence number of the lost packet.
        sequence: u64,
        /// Duration of the lost packet.
        duration: Duration,
    },
    /// Conceal a network stall: no packets arrive, but the sender did not pause.
    Stall {
        /// Duration of the concealment.
        duration: Duration,
    },
    /// Produce silence: the sender has paused (DTX, a muted microphone).
    Silence {
        /// Duration of the silence.
        duration: Duration,
        /// True for time that has passed without a packet, false for what the sender's timestamps say.
        elapsed: bool,
    },
    /// Pop again at `until`, or after the next packet.
    Wait {
        /// Time of a gap timeout, or of the detection of a pause or a stall; `None` before the first packet.
        until: Option<Instant>,
    },
}

#[derive(Debug)]
struct Buffered {
    timestamp: u64,
    /// Opus; empty for a number without audio.
    payload: Bytes,
    duration: Duration,
    arrival: Instant,
    /// True if it arrived as a copy in a later packet; the packet itself may still arrive.
    copy: bool,
}

/// Position in the stream: all packets before it were released or reported as lost.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// Extended sequence number of the next packet.
    sequence: u64,
    /// Extended timestamp of the next packet, including the silence reported so far.
    timestamp: u64,
    /// Expected arrival of the next packet.
    due: Instant,
    /// Duration of the previous packet.
    duration: Duration,
    /// Concealment of a stall since the previous packet.
    stalled: Duration,
}

/// Jitter buffer of one RTP stream.
#[derive(Debug, Default)]
pub struct JitterBuffer {
    format: PacketFormat,
    packets: BTreeMap<u64, Buffered>,
    cursor: Option<Cursor>,
    /// True if the last released packet is silence: a stream that stops now has paused.
    paused: bool,
    /// Highest extended sequence number and its timestamp: the reference for extending the next ones.
    newest: Option<(u64, u64)>,
    /// Sequence number that would confirm a restart of the stream.
    probation: Option<u16>,
    /// Arrival and timestamp of the last packet, for the jitter.
    transit: Option<(Instant, u64)>,
    /// Mean deviation of the transit time, RFC 3550 6.4.1.
    jitter: Duration,
    steps: TimestampSteps,
    lateness: Lateness,
    /// Arrival of the packet after the last released one, if the network delays both alike.
    expected: Option<Instant>,
    stats: JitterStats,
}

impl JitterBuffer {
    /// Creates an empty buffer of Opus.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty buffer of another format.
    pub fn of(format: PacketFormat) -> Self {
        Self { format, ..Self::default() }
    }

    /// Adds a packet on arrival: RTP sequence number, RTP timestamp (48 kHz) and payload.
    pub fn push(&mut self, sequence: u16, timestamp: u32, payload: Bytes, arrival: Instant) {
        let Some(duration) = self.format.duration(&payload) else {
            self.stats.invalid += 1;
            return;
        };
        let Some(extended) = self.extend_sequence(sequence) else {
            self.stats.invalid += 1;
            return;
        };
        let ticks = self.extend_timestamp(timestamp);
        self.update_jitter(arrival, ticks);
        let first = Cursor { sequence: extended, timestamp: ticks, due: arrival, duration, stalled: Duration::ZERO };
        let cursor = *self.cursor.get_or_insert(first);
        if extended < cursor.sequence {
            self.stats.late += 1;
            return;
        }
        if let Some(held) = self.packets.get_mut(&extended) {
            self.stats.duplicate += u64::from(!held.copy);
            held.copy = false;
            return;
        }
        match self.newest {
            Some((newest, _)) if extended < newest => self.stats.reordered += 1,
            _ => self.newest = Some((extended, ticks)),
        }
        self.insert(extended, Buffered { timestamp: ticks, payload, duration, arrival, copy: false });
    }

    /// Adds a copy of an earlier packet that arrived in the last pushed packet (see [`super::red`]), with the sequence number and
    /// the timestamp of the earlier one. Ignored if that packet is not missing.
    pub fn push_redundant(&mut self, sequence: u16, timestamp: u32, payload: Bytes, arrival: Instant) {
        let (Some((newest, _)), Some(cursor)) = (self.newest, self.cursor) else { return };
        let Some(duration) = self.format.duration(&payload) else {
            self.stats.invalid += 1;
            return;
        };
        let behind = u64::from((newest as u16).wrapping_sub(sequence));
        let Some(extended) = newest.checked_sub(behind).filter(|_| (1..=MAX_JUMP).contains(&behind)) else { return };
        if extended < cursor.sequence || self.packets.contains_key(&extended) {
            return;
        }
        let ticks = self.extend_timestamp(timestamp);
        // A sender with another numbering of copies would misplace sound.
        let after = self.packets.range(extended..).next().is_some_and(|(_, next)| ticks < next.timestamp);
        let before = self.packets.range(..extended).next_back().is_none_or(|(_, last)| last.timestamp < ticks);
        if after && before {
            self.insert(extended, Buffered { timestamp: ticks, payload, duration, arrival, copy: true });
        }
    }

    /// Adds a packet that has a number of this stream and no audio: padding alone, a telephone event, another payload type. It is
    /// not lost, and delays nothing.
    pub fn push_empty(&mut self, sequence: u16, arrival: Instant) {
        let (Some((newest, timestamp)), Some(cursor)) = (self.newest, self.cursor) else { return };
        let step = i64::from(sequence.wrapping_sub(newest as u16) as i16);
        let Some(extended) = newest.checked_add_signed(step).filter(|_| step.unsigned_abs() <= MAX_JUMP) else {
            return;
        };
        if extended < cursor.sequence || self.packets.contains_key(&extended) {
            return;
        }
        self.newest = Some((newest.max(extended), timestamp));
        let (payload, duration) = (Bytes::new(), Duration::ZERO);
        self.insert(extended, Buffered { timestamp, payload, duration, arrival, copy: false });
    }

    fn insert(&mut self, extended: u64, packet: Buffered) {
        self.packets.insert(extended, packet);
        if self.packets.len() > CAPACITY {
            self.packets.pop_first();
        }
    }

    /// Returns the action due at `now`; call again until it returns [`JitterAction::Wait`].
    pub fn pop(&mut self, now: Instant) -> JitterAction {
        loop {
            let Some(cursor) = self.cursor else { return JitterAction::Wait { until: None } };
            match self.packets.first_key_value() {
                None => return self.pause(cursor, now),
                Some((&sequence, packet)) if sequence == cursor.sequence && packet.payload.is_empty() => {
                    self.packets.pop_first();
                    self.steps.skip(sequence);
                    self.cursor = Some(Cursor { sequence: sequence + 1, ..cursor });
                }
                Some((&sequence, _)) if sequence == cursor.sequence => return self.release(cursor),
                Some((&sequence, _)) => return self.gap(cursor, sequence, now),
            }
        }
    }

    /// Marks the last released packet as silence: if no packet follows it, the sender has paused. Not needed for DTX packets.
    pub fn mark_silent(&mut self) {
        self.paused = true;
    }

    /// Wait for a missing packet after a later one has arrived.
    fn gap_timeout(&self) -> Duration {
        (self.jitter * DEVIATIONS).clamp(MIN_GAP_TIMEOUT, MAX_GAP_TIMEOUT)
    }

    /// Returns statistics since the creation of the buffer.
    pub fn stats(&self) -> JitterStats {
        self.stats
    }

    /// Releases the next packet in order.
    fn release(&mut self, cursor: Cursor) -> JitterAction {
        // Not empty: `pop` has checked.
        let Some((sequence, packet)) = self.packets.pop_first() else { return JitterAction::Wait { until: None } };
        // Timestamps advanced without a lost packet: the sender paused. Unreported silence is due now.
        let silent = ticks_to_duration(packet.timestamp.saturating_sub(cursor.timestamp));
        // Nothing was reported during an apparent stall.
        let unreported = if cursor.stalled.is_zero() || self.paused { Duration::ZERO } else { MAX_STALL };
        if !silent.is_zero() && silent <= MAX_CONCEALMENT + unreported {
            self.cursor = Some(Cursor { timestamp: packet.timestamp, ..cursor });
            self.packets.insert(sequence, packet);
            return self.silence(silent, false);
        }
        let ticks = duration_to_ticks(packet.duration);
        let due = packet.arrival + packet.duration;
        let continues = self.steps.release(sequence, packet.timestamp, ticks);
        if let Some(expected) = self.expected.replace(due).filter(|_| continues) {
            self.lateness.note(packet.arrival.saturating_duration_since(expected), packet.arrival);
        }
        self.cursor = Some(Cursor {
            sequence: sequence + 1,
            timestamp: packet.timestamp + ticks + self.steps.surplus(),
            due,
            duration: packet.duration,
            stalled: Duration::ZERO,
        });
        self.paused = self.format.begins_pause(&packet.payload);
        self.stats.released += 1;
        self.stats.copied += u64::from(packet.copy);
        JitterAction::Packet { sequence, payload: packet.payload }
    }

    /// Handles a gap before `available`, the first buffered packet.
    fn gap(&mut self, cursor: Cursor, available: u64, now: Instant) -> JitterAction {
        let missing = available - cursor.sequence;
        let deadline = match self.packets.values().map(|packet| packet.arrival).min() {
            Some(first) => first + self.gap_timeout(),
            None => return JitterAction::Wait { until: None },
        };
        if now < deadline && self.packets.len() < DEPTH {
            return JitterAction::Wait { until: Some(deadline) };
        }
        // The first audio behind the gap has its timestamp.
        let next = self.packets.values().find(|packet| !packet.payload.is_empty());
        let unknown = duration_to_ticks(cursor.duration).saturating_mul(missing);
        let timestamp = next.map_or(cursor.timestamp.saturating_add(unknown), |next| next.timestamp);
        let copy = self.packets.get(&available).map(|next| next.payload.clone()).filter(|payload| !payload.is_empty());
        let lost = ticks_to_duration(timestamp.saturating_sub(cursor.timestamp));
        if lost > MAX_CONCEALMENT || missing as u128 > MAX_CONCEALMENT.as_millis() / 10 {
            self.stats.skipped += missing;
            self.cursor = Some(Cursor { sequence: available, timestamp, ..cursor });
            return self.pop(now);
        }
        // Assumes that lost packets were as long as their neighbour; a difference to the timestamps becomes a pause when
        // the next packet is released.
        let sequence = cursor.sequence;
        let duration = cursor.duration.min(lost.max(SHORTEST));
        self.cursor = Some(Cursor {
            sequence: sequence + 1,
            timestamp: cursor.timestamp + duration_to_ticks(duration) + self.steps.surplus(),
            due: cursor.due + duration,
            ..cursor
        });
        match copy.filter(|_| missing == 1) {
            Some(next) => {
                self.stats.recovered += 1;
                JitterAction::Fec { sequence, next, duration }
            }
            None => {
                self.stats.concealed += 1;
                JitterAction::Conceal { sequence, duration }
            }
        }
    }

    /// Handles an empty buffer.
    fn pause(&mut self, cursor: Cursor, now: Instant) -> JitterAction {
        // A clump may be a little later than those before.
        let late = self.lateness.expected();
        let noticed = cursor.due + self.gap_timeout() + PAUSE.max(late + late / 8);
        if now < noticed {
            return JitterAction::Wait { until: Some(noticed) };
        }
        if !self.paused {
            return self.stall(cursor, now);
        }
        let step = cursor.duration.max(STEP);
        let timestamp = cursor.timestamp + duration_to_ticks(step);
        self.cursor = Some(Cursor { timestamp, due: cursor.due + step, ..cursor });
        self.silence(step, true)
    }

    /// Handles a stream that stopped within sound.
    fn stall(&mut self, cursor: Cursor, now: Instant) -> JitterAction {
        if cursor.stalled < STALL_CONCEALMENT {
            let duration = cursor.duration.max(STEP);
            let timestamp = cursor.timestamp + duration_to_ticks(duration);
            self.cursor = Some(Cursor { timestamp, stalled: cursor.stalled + duration, ..cursor });
            self.stats.stalled += duration;
            return JitterAction::Stall { duration };
        }
        let given_up = cursor.due + MAX_STALL;
        if now < given_up {
            return JitterAction::Wait { until: Some(given_up) };
        }
        // A muted track, or the sender is gone.
        self.paused = true;
        let cursor = Cursor { due: cursor.due + cursor.stalled, ..cursor };
        self.cursor = Some(cursor);
        self.pause(cursor, now)
    }

    fn silence(&mut self, duration: Duration, elapsed: bool) -> JitterAction {
        self.stats.silence += duration;
        JitterAction::Silence { duration, elapsed }
    }

    /// Updates the jitter as in RFC 3550 6.4.1, in time instead of ticks.
    fn update_jitter(&mut self, arrival: Instant, ticks: u64) {
        if let Some((before, before_ticks)) = self.transit.replace((arrival, ticks)) {
            let (received, sent) = (signed_micros(arrival, before), tick_micros(ticks) - tick_micros(before_ticks));
            let deviation = Duration::from_micros((received - sent).unsigned_abs());
            // A pause or a stall does not count as jitter.
            if deviation <= MAX_GAP_TIMEOUT * 2 {
                self.jitter = (self.jitter * 15 + deviation) / 16;
            }
        }
    }

    /// Extends the sequence number beyond wrapping; `None` for a stray one.
    fn extend_sequence(&mut self, sequence: u16) -> Option<u64> {
        // Starts above zero, so that packets before the first one have numbers too.
        let Some((newest, _)) = self.newest else { return Some((1 << 16) + u64::from(sequence)) };
        let step = i64::from(sequence.wrapping_sub(newest as u16) as i16);
        let extended = newest.checked_add_signed(step)?;
        if step.unsigned_abs() <= MAX_JUMP {
            self.probation = None;
            return Some(extended);
        }
        if self.probation.replace(sequence.wrapping_add(1)) != Some(sequence) {
            return None;
        }
        // Two consecutive packets: the stream was restarted. Numbers continue above the old ones.
        self.probation = None;
        self.packets.clear();
        (self.newest, self.transit, self.cursor, self.expected) = (None, None, None, None);
        self.steps = TimestampSteps::default();
        let behind = (sequence.wrapping_sub(newest as u16)) as u64;
        Some(newest + if behind == 0 { 1 << 16 } else { behind })
    }

    /// Extends the timestamp beyond wrapping.
    fn extend_timestamp(&self, timestamp: u32) -> u64 {
        match self.newest {
            None => (1 << 32) + u64::from(timestamp),
            Some((_, newest)) => newest.saturating_add_signed(i64::from(timestamp.wrapping_sub(newest as u32) as i32)),
        }
    }
}

#[cfg(test)]
#[path = "jitter_tests.rs"]
mod tests;
