//! The playout clock: generated audio in, one 20 ms frame every 20 ms out, and the sent cursor of each item.
//!
//! Responses are generated faster than they play, so the queue here is what a caller can still interrupt. Audio belongs to a
//! *generation* (one response; numbers only grow): [`Playout::clear`] drops everything, and whatever arrives later of a
//! cleared generation is refused. Only an empty queue sends at once; from then on frames follow each other on a grid.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::opus::FRAME;

/// Unsent audio beyond which [`Playout::is_full`] holds.
pub const MAX_UNSENT: Duration = Duration::from_secs(10);
/// Frames overdue by more than this do not leave in a burst; the grid moves instead.
const MAX_CATCH_UP: Duration = Duration::from_millis(200);

/// How long a pause lasts at most: by itself it ends then.
pub const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Why audio was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PushError {
    /// More than [`LIMIT`] is unsent; try again after [`Playout::poll`].
    #[error("more than 10 s of audio are unsent")]
    Full,
    /// The generation was cleared or has ended.
    #[error("the response was cancelled or has ended")]
    Stale,
}

/// What [`Playout::poll`] returns.
#[derive(Debug, Clone, PartialEq)]
pub enum PlayoutOutput {
    /// 20 ms of audio to send.
    Frame(PlayoutFrame),
    /// The last frame of this generation, if it had any, has been played: it is over.
    Drained {
        /// The response.
        generation: u64,
    },
}

/// 20 ms of a response.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayoutFrame {
    /// The response.
    pub generation: u64,
    /// The item of the conversation.
    pub item: u64,
    /// Whether it is the generation's first.
    pub first: bool,
    /// When it was to be played: the grid, not the moment at which somebody polled.
    pub due: Instant,
    /// Exactly 20 ms; the last frame of an item is filled up with silence.
    pub samples: Vec<f32>,
}

/// An item that [`Playout::clear`] cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearedItem {
    /// The response.
    pub generation: u64,
    /// The item of the conversation.
    pub item: u64,
    /// How much of it was handed out.
    pub played: Duration,
    /// How much was dropped.
    pub dropped: Duration,
}

/// One item's queue.
#[derive(Debug)]
struct Track {
    generation: u64,
    item: u64,
    queue: VecDeque<f32>,
    /// Samples handed out, without the filling of the last frame.
    sent: u64,
    /// Nothing will be added.
    complete: bool,
}

/// The playout clock of one caller.
#[derive(Debug)]
pub struct Playout {
    rate: u32,
    frame_samples: usize,
    /// In the order of playing; the first one is current. Tracks stay until their last frame is over.
    tracks: VecDeque<Track>,
    /// The newest generation that has ended or was cleared: it and all before are refused.
    closed: Option<u64>,
    /// The newest generation of which a frame was handed out.
    begun: Option<u64>,
    /// When the frame handed out last is over; `None` before the first.
    busy_until: Option<Instant>,
    /// The current response had no frame when one was due.
    starving: bool,
    /// Since when nothing is handed out. What would have been handed out stays in the queue.
    paused: Option<Instant>,
    /// A pause has ended: the next frame begins a new grid.
    resumed: bool,
    underruns: u64,
    /// Queued samples of all tracks.
    queued: usize,
}

impl Playout {
    /// An empty clock for samples at `rate`, a multiple of 50 Hz.
    pub fn new(rate: u32) -> Self {
        Self {
            rate,
            frame_samples: (u128::from(rate) * FRAME.as_millis() / 1_000) as usize,
            tracks: VecDeque::new(),
            closed: None,
            begun: None,
            busy_until: None,
            starving: false,
            paused: None,
            resumed: false,
            underruns: 0,
            queued: 0,
        }
    }

    /// Adds audio to an item of a response. Audio of a new item ends the item before.
    pub fn push(&mut self, generation: u64, item: u64, samples: &[f32]) -> Result<(), PushError> {
        let newest = self.tracks.back().map(|track| track.generation);
        if self.closed.is_some_and(|closed| generation <= closed) || newest.is_some_and(|newest| generation < newest) {
            return Err(PushError::Stale);
        }
        if self.is_full() {
            return Err(PushError::Full);
        }
        if self.tracks.back().is_none_or(|track| (track.generation, track.item) != (generation, item)) {
            self.complete_all();
            self.tracks.push_back(Track { generation, item, queue: VecDeque::new(), sent: 0, complete: false });
        }
        if let Some(track) = self.tracks.back_mut() {
            track.queue.extend(samples);
            self.queued += samples.len();
        }
        Ok(())
    }

    /// Marks the end of a response: once all of it has played, [`Output::Drained`] is due. A response without audio is over at
    /// once and reports nothing.
    pub fn end(&mut self, generation: u64) {
        if self.tracks.back().is_some_and(|track| track.generation == generation) {
            self.complete_all();
        }
        self.closed = self.closed.max(Some(generation));
    }

    /// Drops everything that was not handed out, and refuses what is still to come of these responses.
    pub fn clear(&mut self) -> Vec<ClearedItem> {
        self.closed = self.closed.max(self.tracks.back().map(|track| track.generation));
        self.queued = 0;
        self.starving = false;
        self.paused = None;
        let rate = self.rate;
        self.tracks
            .drain(..)
            .map(|track| ClearedItem {
                generation: track.generation,
                item: track.item,
                played: duration_of(track.sent, rate),
                dropped: duration_of(track.queue.len() as u64, rate),
            })
            .collect()
    }

    /// Drops what was not handed out of one generation, and refuses what is still to come of it. The others play on.
    pub fn clear_generation(&mut self, generation: u64) {
        if self.tracks.back().is_some_and(|track| track.generation == generation) {
            self.closed = self.closed.max(Some(generation));
        }
        if self.tracks.front().is_some_and(|track| track.generation == generation) {
            self.starving = false;
            self.paused = None;
        }
        let dropped = self.tracks.iter().filter(|track| track.generation == generation);
        self.queued -= dropped.map(|track| track.queue.len()).sum::<usize>();
        self.tracks.retain(|track| track.generation != generation);
    }

    /// Hands out nothing from `now` until [`Self::resume`], for [`LONGEST_PAUSE`] at most. Returns whether something was playing that
    /// is paused now; otherwise nothing happens.
    pub fn pause(&mut self, now: Instant) -> bool {
        let plays = self.tracks.front().is_some_and(|track| self.begun == Some(track.generation));
        let pauses = plays && self.paused.is_none();
        if pauses {
            self.paused = Some(now);
        }
        pauses
    }

    /// Goes on with the frame after the last one that was handed out.
    pub fn resume(&mut self) {
        self.resumed |= self.paused.take().is_some();
    }

    /// What is due at `now`; call again until it returns `None`, then at [`Self::next_deadline`] or after a push.
    pub fn poll(&mut self, now: Instant) -> Option<PlayoutOutput> {
        if self.busy_until.is_some_and(|until| now < until) {
            return None;
        }
        if let Some(since) = self.paused {
            if now < since + MAX_PAUSE {
                return None;
            }
            self.resume();
        }
        let frame_samples = self.frame_samples;
        let current = self.tracks.front_mut()?;
        if current.queue.is_empty() && current.complete {
            let generation = current.generation;
            self.tracks.pop_front();
            let more = self.tracks.front().is_some_and(|next| next.generation == generation);
            return if more { self.poll(now) } else { Some(PlayoutOutput::Drained { generation }) };
        }
        if current.queue.len() < frame_samples && !current.complete {
            // A response has begun and the frame that is due now does not exist.
            if self.begun == Some(current.generation) && !self.starving {
                self.starving = true;
                self.underruns += 1;
            }
            return None;
        }
        let taken = current.queue.len().min(frame_samples);
        let mut samples: Vec<f32> = current.queue.drain(..taken).collect();
        samples.resize(frame_samples, 0.0);
        current.sent += taken as u64;
        self.queued -= taken;
        let first = self.begun != Some(current.generation);
        self.begun = Some(current.generation);
        // On the grid while frames follow each other; after a gap or a long time without a poll, from `now` on.
        let due = match self.busy_until {
            Some(until) if !self.starving && !self.resumed && !first && now - until <= MAX_CATCH_UP => until,
            _ => now,
        };
        self.busy_until = Some(due + FRAME);
        (self.starving, self.resumed) = (false, false);
        Some(PlayoutOutput::Frame(PlayoutFrame { generation: current.generation, item: current.item, first, due, samples }))
    }

    /// When [`Self::poll`] has something to do without a further push; may lie in the past. Polling at that moment moves
    /// it on, so a driver that sleeps until then never spins.
    pub fn next_deadline(&self) -> Option<Instant> {
        let current = self.tracks.front()?;
        if let Some(since) = self.paused {
            return Some(since + MAX_PAUSE);
        }
        let playable = current.complete || current.queue.len() >= self.frame_samples;
        let about_to_starve = self.begun == Some(current.generation) && !self.starving;
        if playable || about_to_starve { self.busy_until } else { None }
    }

    /// The response and item that play or wait for their audio, and the sent cursor.
    pub fn current(&self) -> Option<(u64, u64, Duration)> {
        self.tracks.front().map(|track| (track.generation, track.item, duration_of(track.sent, self.rate)))
    }

    /// For how long nothing has been playing by `now`, since the last frame was over. Zero before the first.
    pub fn quiet_for(&self, now: Instant) -> Duration {
        self.busy_until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until))
    }

    /// Audio that was not handed out yet.
    fn unsent(&self) -> Duration {
        duration_of(self.queued as u64, self.rate)
    }

    /// Whether so much is unsent that nothing more is taken.
    pub fn is_full(&self) -> bool {
        self.unsent() > MAX_UNSENT
    }

    /// How often a response that had begun had no frame when one was due.
    pub fn underruns(&self) -> u64 {
        self.underruns
    }

    fn complete_all(&mut self) {
        for track in &mut self.tracks {
            track.complete = true;
        }
    }
}

fn duration_of(samples: u64, rate: u32) -> Duration {
    Duration::from_micros(samples * 1_000_000 / u64::from(rate.max(1)))
}

#[cfg(test)]
#[path = "playout_tests.rs"]
mod tests;
