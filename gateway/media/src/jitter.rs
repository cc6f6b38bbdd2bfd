//! Jitter buffer for the RTP packets of one Opus stream: packets in any order in, packets in order and named losses out.
//!
//! This stream feeds a turn detector and a model, not a playout clock. So a packet that is next in order is released the
//! moment it arrives, and only a *gap* makes the packets behind it wait: for as long as the measured jitter makes it likely
//! that the missing one still comes, never longer than [`MAX_GAP_TIMEOUT`]. Then the loss is
//! recovered from the copy in the packet after it (FEC), or concealed.
//!
//! A sender may also pause: Opus sends no packets in silence (DTX), and a muted microphone may do the same. When the stream
//! stops after silence, more of it is reported step by step, so that a turn can end. When it stops in the middle of
//! sound, the network has stalled: a little is concealed, and then nothing is reported until packets come again, so that no
//! turn ends in mid-word. A muted track may stop like that, too: after [`MAX_STALL`] it is silence.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::opus::packet_duration;

/// Shortest wait for a missing packet, however regular the stream.
const MIN_GAP_TIMEOUT: Duration = Duration::from_millis(10);
/// Longest wait for a missing packet: the bound of the delay that this buffer adds.
pub const MAX_GAP_TIMEOUT: Duration = Duration::from_millis(120);
/// A stream without a gap that has been late for this long beyond its jitter has paused or stalled.
const PAUSE: Duration = Duration::from_millis(60);
/// Longest stall; then the stream counts as paused.
pub const MAX_STALL: Duration = Duration::from_secs(2);
/// How much of a stall is concealed. Concealment has faded out by then.
const STALL_CONCEALMENT: Duration = Duration::from_millis(60);
/// Shortest step in which silence and stalls are reported, so that packets of 2.5 ms do not make a pause much work.
const STEP: Duration = Duration::from_millis(20);
/// Opus packets up to this length are DTX: the sender's encoder heard silence, and sends nothing more of it.
const DTX_BYTES: usize = 2;
/// Packets kept behind a gap; when more arrive, the gap is given up at once.
const DEPTH: usize = 32;
/// Packets kept when nothing is popped; beyond, the oldest are dropped and count as lost.
pub(crate) const CAPACITY: usize = 256;
/// A loss longer than this is skipped: the packet after it follows directly.
const MAX_CONCEALMENT: Duration = Duration::from_millis(400);
/// A sequence number this far ahead or behind is a stray, or the stream has begun anew (RFC 3550, A.1).
const MAX_JUMP: u64 = 1_000;
/// Audio in RTP ticks a second; Opus always counts 48 kHz.
const CLOCK: u64 = 48_000;
/// Mean deviations of the transit time that a missing packet is waited for.
const DEVIATIONS: u32 = 3;
/// The shortest Opus packet, and so the shortest loss.
const SHORTEST: Duration = Duration::from_micros(2500);

/// What the decoder does next. Durations are those of the audio to produce.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JitterAction {
    /// Decode this packet.
    Packet {
        /// Its extended sequence number, strictly increasing.
        sequence: u64,
        /// The RTP payload.
        payload: Bytes,
    },
    /// This packet is lost; recover it from `next`, which itself follows as [`Action::Packet`].
    Fec {
        /// The lost packet's extended sequence number.
        sequence: u64,
        /// The payload after it.
        next: Bytes,
        /// How long the lost packet lasted.
        duration: Duration,
    },
    /// This packet is lost, and so is its copy: conceal it.
    Conceal {
        /// The lost packet's extended sequence number.
        sequence: u64,
        /// How long the lost packet lasted.
        duration: Duration,
    },
    /// Nothing comes although the sender did not pause: conceal it.
    Stall {
        /// For how long.
        duration: Duration,
    },
    /// The sender has paused (DTX, a muted microphone): produce silence.
    Silence {
        /// For how long.
        duration: Duration,
    },
    /// Nothing is due: pop again at `until`, or after the next packet.
    Wait {
        /// When a gap times out, or a pause or a stall is noticed; `None` before the first packet.
        until: Option<Instant>,
    },
}

/// Counts since the buffer was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JitterStats {
    /// Packets released, copies included.
    pub released: u64,
    /// Lost packets that came as a copy within a later one.
    pub copied: u64,
    /// Lost packets for which the next one was at hand.
    pub recovered: u64,
    /// Lost packets that were concealed.
    pub concealed: u64,
    /// Packets lost in gaps too long to fill.
    pub skipped: u64,
    /// Packets that came after they had been given up; dropped.
    pub late: u64,
    /// Packets that came twice; dropped.
    pub duplicate: u64,
    /// Packets that arrived out of order but in time.
    pub reordered: u64,
    /// Packets that are not Opus or have a stray sequence number; dropped.
    pub invalid: u64,
    /// Silence reported.
    pub silence: Duration,
    /// Concealed because nothing came.
    pub stalled: Duration,
}

#[derive(Debug)]
struct Buffered {
    timestamp: u64,
    payload: Bytes,
    duration: Duration,
    arrival: Instant,
    /// It came within a later packet; the packet itself may still come.
    copy: bool,
}

/// Position in the stream: everything before it has been released or reported as lost.
#[derive(Debug, Clone, Copy)]
struct Cursor {
    /// Extended sequence number of the next packet.
    sequence: u64,
    /// Extended timestamp of the next packet, silence reported so far included.
    timestamp: u64,
    /// When the next packet is expected to arrive.
    due: Instant,
    /// Duration of the packet before.
    duration: Duration,
    /// How much of a stall was concealed since that packet.
    stalled: Duration,
}

/// The jitter buffer of one RTP stream.
#[derive(Debug, Default)]
pub struct JitterBuffer {
    packets: BTreeMap<u64, Buffered>,
    cursor: Option<Cursor>,
    /// Whether a stream that stops now has paused: what was released last is silence.
    paused: bool,
    /// Highest extended sequence number and its timestamp, the reference for extending the next ones.
    newest: Option<(u64, u64)>,
    /// The sequence number that would confirm a new beginning of the stream.
    probation: Option<u16>,
    /// The last packet's arrival and timestamp, for the jitter.
    transit: Option<(Instant, u64)>,
    /// Mean deviation of the transit time, RFC 3550 6.4.1.
    jitter: Duration,
    stats: JitterStats,
}

impl JitterBuffer {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a packet as it arrives: RTP sequence number, RTP timestamp (48 kHz) and payload.
    pub fn push(&mut self, sequence: u16, timestamp: u32, payload: Bytes, arrival: Instant) {
        let Ok(duration) = packet_duration(&payload) else {
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

    /// Takes a copy of an earlier packet that came within the packet pushed last (see [`super::red`]), with the number and the
    /// timestamp of the earlier one. It counts only where that one is missing.
    pub fn push_redundant(&mut self, sequence: u16, timestamp: u32, payload: Bytes, arrival: Instant) {
        let (Some((newest, _)), Some(cursor)) = (self.newest, self.cursor) else { return };
        let Ok(duration) = packet_duration(&payload) else {
            self.stats.invalid += 1;
            return;
        };
        let behind = u64::from((newest as u16).wrapping_sub(sequence));
        let Some(extended) = newest.checked_sub(behind).filter(|_| (1..=MAX_JUMP).contains(&behind)) else { return };
        if extended < cursor.sequence || self.packets.contains_key(&extended) {
            return;
        }
        let ticks = self.extend_timestamp(timestamp);
        // A sender that counts otherwise than we do would put sound where it does not belong.
        let after = self.packets.range(extended..).next().is_some_and(|(_, next)| ticks < next.timestamp);
        let before = self.packets.range(..extended).next_back().is_none_or(|(_, last)| last.timestamp < ticks);
        if after && before {
            self.insert(extended, Buffered { timestamp: ticks, payload, duration, arrival, copy: true });
        }
    }

    fn insert(&mut self, extended: u64, packet: Buffered) {
        self.packets.insert(extended, packet);
        if self.packets.len() > CAPACITY {
            self.packets.pop_first();
        }
    }

    /// What is due at `now`; call again until it returns [`Action::Wait`].
    pub fn pop(&mut self, now: Instant) -> JitterAction {
        let Some(cursor) = self.cursor else { return JitterAction::Wait { until: None } };
        match self.packets.first_key_value() {
            None => self.pause(cursor, now),
            Some((&sequence, _)) if sequence == cursor.sequence => self.release(cursor),
            Some((&sequence, _)) => self.gap(cursor, sequence, now),
        }
    }

    /// Says that the packet released last is silence: if nothing follows it, the sender has paused. DTX packets need no word.
    pub fn mark_silent(&mut self) {
        self.paused = true;
    }

    /// How long a missing packet is waited for once one after it has arrived.
    fn gap_timeout(&self) -> Duration {
        (self.jitter * DEVIATIONS).clamp(MIN_GAP_TIMEOUT, MAX_GAP_TIMEOUT)
    }

    /// Counts since the buffer was made.
    pub fn stats(&self) -> JitterStats {
        self.stats
    }

    /// Releases the next packet in order.
    fn release(&mut self, cursor: Cursor) -> JitterAction {
        // `pop` saw it; the empty case is a pause.
        let Some((sequence, packet)) = self.packets.pop_first() else { return JitterAction::Wait { until: None } };
        // The sender's timestamps advanced without a lost packet: it paused. Silence not yet reported is due now.
        let silent = ticks_to_duration(packet.timestamp.saturating_sub(cursor.timestamp));
        // Nothing was reported during what looked like a stall.
        let unreported = if cursor.stalled.is_zero() || self.paused { Duration::ZERO } else { MAX_STALL };
        if !silent.is_zero() && silent <= MAX_CONCEALMENT + unreported {
            self.cursor = Some(Cursor { timestamp: packet.timestamp, ..cursor });
            self.packets.insert(sequence, packet);
            return self.silence(silent);
        }
        self.cursor = Some(Cursor {
            sequence: sequence + 1,
            timestamp: packet.timestamp + duration_to_ticks(packet.duration),
            due: packet.arrival + packet.duration,
            duration: packet.duration,
            stalled: Duration::ZERO,
        });
        self.paused = packet.payload.len() <= DTX_BYTES;
        self.stats.released += 1;
        self.stats.copied += u64::from(packet.copy);
        JitterAction::Packet { sequence, payload: packet.payload }
    }

    /// Handles a gap before `available`, the first packet that is here.
    fn gap(&mut self, cursor: Cursor, available: u64, now: Instant) -> JitterAction {
        let missing = available - cursor.sequence;
        let (deadline, next) = match self.packets.values().map(|packet| packet.arrival).min() {
            Some(first) => (first + self.gap_timeout(), &self.packets[&available]),
            None => return JitterAction::Wait { until: None },
        };
        if now < deadline && self.packets.len() < DEPTH {
            return JitterAction::Wait { until: Some(deadline) };
        }
        let lost = ticks_to_duration(next.timestamp.saturating_sub(cursor.timestamp));
        if lost > MAX_CONCEALMENT || missing as u128 > MAX_CONCEALMENT.as_millis() / 10 {
            self.stats.skipped += missing;
            self.cursor = Some(Cursor { sequence: available, timestamp: next.timestamp, ..cursor });
            return self.pop(now);
        }
        // The lost packets were most likely as long as their neighbour; timestamps that say otherwise are made up for
        // as a pause when the next packet is released.
        let sequence = cursor.sequence;
        let duration = cursor.duration.min(lost.max(SHORTEST));
        self.cursor = Some(Cursor {
            sequence: sequence + 1,
            timestamp: cursor.timestamp + duration_to_ticks(duration),
            due: cursor.due + duration,
            ..cursor
        });
        if missing == 1 {
            self.stats.recovered += 1;
            JitterAction::Fec { sequence, next: next.payload.clone(), duration }
        } else {
            self.stats.concealed += 1;
            JitterAction::Conceal { sequence, duration }
        }
    }

    /// Handles an empty buffer.
    fn pause(&mut self, cursor: Cursor, now: Instant) -> JitterAction {
        let noticed = cursor.due + self.gap_timeout() + PAUSE;
        if now < noticed {
            return JitterAction::Wait { until: Some(noticed) };
        }
        if !self.paused {
            return self.stall(cursor, now);
        }
        let step = cursor.duration.max(STEP);
        let timestamp = cursor.timestamp + duration_to_ticks(step);
        self.cursor = Some(Cursor { timestamp, due: cursor.due + step, ..cursor });
        self.silence(step)
    }

    /// Handles a stream that has stopped in the middle of sound.
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
        // A muted track, or nobody is there any more.
        self.paused = true;
        let cursor = Cursor { due: cursor.due + cursor.stalled, ..cursor };
        self.cursor = Some(cursor);
        self.pause(cursor, now)
    }

    fn silence(&mut self, duration: Duration) -> JitterAction {
        self.stats.silence += duration;
        JitterAction::Silence { duration }
    }

    /// RFC 3550 6.4.1, in time instead of ticks.
    fn update_jitter(&mut self, arrival: Instant, ticks: u64) {
        if let Some((before, before_ticks)) = self.transit.replace((arrival, ticks)) {
            let (received, sent) = (signed_micros(arrival, before), tick_micros(ticks) - tick_micros(before_ticks));
            let deviation = Duration::from_micros((received - sent).unsigned_abs());
            // A pause or a stall is no jitter.
            if deviation <= MAX_GAP_TIMEOUT * 2 {
                self.jitter = (self.jitter * 15 + deviation) / 16;
            }
        }
    }

    /// The sequence number without wrapping; `None` for a stray one.
    fn extend_sequence(&mut self, sequence: u16) -> Option<u64> {
        // Begins above zero, so that packets from before the first one have numbers too.
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
        // Two in a row: the stream was restarted. Numbers continue above the old ones.
        self.probation = None;
        self.packets.clear();
        (self.newest, self.transit, self.cursor) = (None, None, None);
        let behind = (sequence.wrapping_sub(newest as u16)) as u64;
        Some(newest + if behind == 0 { 1 << 16 } else { behind })
    }

    /// The timestamp without wrapping.
    fn extend_timestamp(&self, timestamp: u32) -> u64 {
        match self.newest {
            None => (1 << 32) + u64::from(timestamp),
            Some((_, newest)) => newest.saturating_add_signed(i64::from(timestamp.wrapping_sub(newest as u32) as i32)),
        }
    }
}

fn ticks_to_duration(ticks: u64) -> Duration {
    // More than a day is more than any caller compares with, and never overflows.
    Duration::from_micros(ticks.min(CLOCK * 86_400) * 1_000_000 / CLOCK)
}

fn duration_to_ticks(duration: Duration) -> u64 {
    duration.as_micros() as u64 * CLOCK / 1_000_000
}

fn tick_micros(ticks: u64) -> i64 {
    // Extended timestamps stay far below 2^40 in the lifetime of a call.
    (u128::from(ticks) * 1_000_000 / u128::from(CLOCK)) as i64
}

fn signed_micros(a: Instant, b: Instant) -> i64 {
    let magnitude = a.max(b).duration_since(a.min(b)).as_micros() as i64;
    if a >= b { magnitude } else { -magnitude }
}

#[cfg(test)]
#[path = "jitter_tests.rs"]
mod tests;
