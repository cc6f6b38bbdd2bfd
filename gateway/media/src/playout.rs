//! Playout clock: takes generated audio, returns one 20 ms frame every 20 ms, and tracks the sent position of each item.
//!
//! Responses are generated faster than they play, so the queue holds the audio that barge-in can still drop. Audio belongs to a
//! *generation* (one response; numbers only grow): [`Playout::clear`] drops everything, and later audio of a cleared generation is
//! refused. Only an empty queue sends at once; after that, frames follow each other on a 20 ms grid.
//!
//! Silence at the beginning of a response is skipped, because the caller waits for the sound behind it. The sound then begins
//! once as much of it is queued as the first piece had, so that skipping does not bring an underrun nearer, and never later
//! than if the silence had been played. Positions count what was skipped.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::level::silent_start;
use super::opus::FRAME;

/// Maximum unsent audio; above it [`Playout::is_full`] is true.
pub const MAX_UNSENT: Duration = Duration::from_secs(10);
/// Maximum delay that is made up for by a burst; with a longer delay the grid moves.
const MAX_CATCH_UP: Duration = Duration::from_millis(200);

/// Maximum silence that is skipped at the beginning of a response.
const MAX_SKIPPED: Duration = Duration::from_millis(500);
/// Silence that is kept before the first sound: an onset is softer than what follows.
const LEAD_IN: Duration = Duration::from_millis(10);

/// Maximum pause; playout then resumes by itself.
pub const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Reason of refused audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PushError {
    /// More than [`MAX_UNSENT`] is unsent (backpressure); retry after [`Playout::poll`].
    #[error("more than 10 s of audio are unsent")]
    Full,
    /// The generation was cleared or has ended.
    #[error("the response was cancelled or has ended")]
    Stale,
}

/// Output of [`Playout::poll`].
#[derive(Debug, Clone, PartialEq)]
pub enum PlayoutOutput {
    /// Frame of 20 ms to send.
    Frame(PlayoutFrame),
    /// End of a generation: its last frame, if any, has played.
    Drained {
        /// Number of the response.
        generation: u64,
    },
}

/// Frame of 20 ms of a response.
#[derive(Debug, Clone, PartialEq)]
pub struct PlayoutFrame {
    /// Number of the response.
    pub generation: u64,
    /// Id of the conversation item.
    pub item: u64,
    /// True for the first frame of the generation.
    pub first: bool,
    /// Due time on the grid, not the time of the poll.
    pub due: Instant,
    /// Samples, exactly 20 ms; silence fills up the last frame of an item.
    pub samples: Vec<f32>,
}

/// Item dropped by [`Playout::clear`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClearedItem {
    /// Number of the response.
    pub generation: u64,
    /// Id of the conversation item.
    pub item: u64,
    /// Duration of the audio returned by [`Playout::poll`], and of the silence skipped before it.
    pub played: Duration,
    /// Duration of the dropped audio.
    pub dropped: Duration,
}

/// Queue of one item.
#[derive(Debug)]
struct Track {
    generation: u64,
    item: u64,
    queue: VecDeque<f32>,
    /// Samples returned or skipped, without the padding of the last frame.
    sent: u64,
    /// Samples skipped so far at the beginning of a response.
    skipped: usize,
    /// Time at which the first piece of a response could play, and its number of samples, until it plays.
    first_piece: Option<(Instant, usize)>,
    /// True if no more audio follows.
    complete: bool,
}

impl Track {
    /// Time until which the sound behind skipped silence waits for more; `None` if it waits no more.
    fn waits_until(&self, rate: u32) -> Option<Instant> {
        let (since, piece) = self.first_piece?;
        let waits = !self.complete && self.queue.len() < piece;
        waits.then(|| since + duration_of(self.skipped as u64, rate))
    }
}

/// Playout clock of one caller.
#[derive(Debug)]
pub struct Playout {
    rate: u32,
    frame_samples: usize,
    /// Tracks in playing order; the first one is current. A track stays until its last frame has played.
    tracks: VecDeque<Track>,
    /// Newest ended or cleared generation: its audio and that of earlier ones is refused.
    closed: Option<u64>,
    /// Newest generation with a returned frame.
    begun: Option<u64>,
    /// End of the last returned frame; `None` before the first.
    busy_until: Option<Instant>,
    /// True during an underrun: the current response had no frame when one was due.
    starving: bool,
    /// Start of a pause; audio stays in the queue meanwhile.
    paused: Option<Instant>,
    /// True after a pause: the next frame starts a new grid.
    resumed: bool,
    underruns: u64,
    /// Number of queued samples in all tracks.
    queued: usize,
}

impl Playout {
    /// Creates an empty clock for samples at `rate`, a multiple of 50 Hz.
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

    /// Adds audio to an item of a response. Audio of a new item ends the previous item.
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
            self.tracks.push_back(Track {
                generation,
                item,
                queue: VecDeque::new(),
                sent: 0,
                skipped: 0,
                first_piece: None,
                complete: false,
            });
        }
        if let Some(track) = self.tracks.back_mut() {
            track.queue.extend(samples);
            self.queued += samples.len();
        }
        Ok(())
    }

    /// Marks the end of a response: [`PlayoutOutput::Drained`] follows after its last frame. A response without audio ends at once,
    /// without a report.
    pub fn end(&mut self, generation: u64) {
        if self.tracks.back().is_some_and(|track| track.generation == generation) {
            self.complete_all();
        }
        self.closed = self.closed.max(Some(generation));
    }

    /// Drops all queued audio, and refuses later audio of these responses.
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

    /// Drops the queued audio of one generation, and refuses its later audio. Other generations continue.
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

    /// Pauses playout from `now` until [`Self::resume`], for [`MAX_PAUSE`] at most. Returns false, without effect, if nothing
    /// plays or playout is already paused.
    pub fn pause(&mut self, now: Instant) -> bool {
        let plays = self.tracks.front().is_some_and(|track| self.begun == Some(track.generation));
        let pauses = plays && self.paused.is_none();
        if pauses {
            self.paused = Some(now);
        }
        pauses
    }

    /// Resumes with the frame after the last returned one.
    pub fn resume(&mut self) {
        self.resumed |= self.paused.take().is_some();
    }

    /// Returns the output due at `now`; call again until it returns `None`, then at [`Self::next_deadline`] or after a push.
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
        if !self.may_begin(now) {
            return None;
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
            // Underrun: a started response has no frame that is due.
            if self.begun == Some(current.generation) && !self.starving {
                self.starving = true;
                self.underruns += 1;
            }
            return None;
        }
        let taken = current.queue.len().min(frame_samples);
        let mut samples: Vec<f32> = current.queue.drain(..taken).collect();
        samples.resize(frame_samples, 0.0);
        current.sent += (taken + std::mem::take(&mut current.skipped)) as u64;
        current.first_piece = None;
        self.queued -= taken;
        let first = self.begun != Some(current.generation);
        self.begun = Some(current.generation);
        // On the grid for consecutive frames; a new grid from `now` after a gap or a long time without a poll.
        let due = match self.busy_until {
            Some(until) if !self.starving && !self.resumed && !first && now - until <= MAX_CATCH_UP => until,
            _ => now,
        };
        self.busy_until = Some(due + FRAME);
        (self.starving, self.resumed) = (false, false);
        Some(PlayoutOutput::Frame(PlayoutFrame {
            generation: current.generation,
            item: current.item,
            first,
            due,
            samples,
        }))
    }

    /// Skips silence at the beginning of the current response; true if its sound may play, or is over.
    fn may_begin(&mut self, now: Instant) -> bool {
        // A piece may have no samples: the resampler still holds them.
        let has_sound = |track: &&mut Track| self.begun != Some(track.generation) && !track.queue.is_empty();
        let Some(track) = self.tracks.front_mut().filter(has_sound) else { return true };
        let samples = |time: Duration| (time.as_micros() * u128::from(self.rate) / 1_000_000) as usize;
        let (most, kept) = (samples(MAX_SKIPPED), samples(LEAD_IN));
        track.first_piece.get_or_insert((now, track.queue.len()));
        let silent = silent_start(track.queue.make_contiguous()).saturating_sub(kept);
        let skipped = silent.min(most.saturating_sub(track.skipped));
        track.queue.drain(..skipped);
        track.skipped += skipped;
        self.queued -= skipped;
        track.waits_until(self.rate).is_none_or(|until| now >= until)
    }

    /// Time of the next due [`Self::poll`] without a further push; may be in the past. A poll at that time moves it forward,
    /// so a driver that sleeps until then never spins.
    pub fn next_deadline(&self) -> Option<Instant> {
        let current = self.tracks.front()?;
        if let Some(since) = self.paused {
            return Some(since + MAX_PAUSE);
        }
        let playable = current.complete || current.queue.len() >= self.frame_samples;
        let about_to_starve = self.begun == Some(current.generation) && !self.starving;
        let next = self.busy_until.max(current.waits_until(self.rate));
        if playable || about_to_starve { next } else { None }
    }

    /// Returns the current response and item, and the duration of the audio sent of the item.
    pub fn current(&self) -> Option<(u64, u64, Duration)> {
        self.tracks.front().map(|track| (track.generation, track.item, duration_of(track.sent, self.rate)))
    }

    /// Time from the end of the last frame to `now`. Zero before the first frame.
    pub fn quiet_for(&self, now: Instant) -> Duration {
        self.busy_until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until))
    }

    /// Duration of the queued audio.
    fn unsent(&self) -> Duration {
        duration_of(self.queued as u64, self.rate)
    }

    /// True if more than [`MAX_UNSENT`] is unsent; then pushes are refused.
    pub fn is_full(&self) -> bool {
        self.unsent() > MAX_UNSENT
    }

    /// Number of underruns: a started response had no frame when one was due.
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
