//! The encoder in the tick loop: windows of input audio, some units of work in each tick. What an encoder keeps of a window
//! that it has begun stays with the window, so whatever happens to its audio happens to it too.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Scheduler;
use super::faults::internal;
use crate::audio_input::{EncoderTimes, PendingWindow};
use crate::deadline::ScheduledRows;
use crate::elements::AudioRows;
use crate::model::{Encoder, Hearing};
use crate::session::Session;

/// A window that the encoder advances in this tick.
pub(super) struct TakenWindow {
    slot: usize,
    window: PendingWindow,
    /// Units of its work.
    units: usize,
}

/// A window after the encoder's step.
pub(super) struct Encoded {
    slot: usize,
    window: PendingWindow,
    outcome: EncodingOutcome,
}

enum EncodingOutcome {
    Rows(AudioRows),
    Unfinished,
    Panicked,
}

/// Units of a window that are left.
fn units_left(encoder: &dyn Encoder, window: &PendingWindow) -> usize {
    encoder.units(&window.input()).saturating_sub(window.progress.units).max(1)
}

/// Advances windows; those of one unit as a batch. After a panic each window is retried alone.
pub(super) fn encode(encoder: &mut dyn Encoder, mut taken: Vec<TakenWindow>) -> Vec<Encoded> {
    let small: Vec<usize> = (0..taken.len()).filter(|&at| encoder.units(&taken[at].window.input()) == 1).collect();
    let mut outcomes: Vec<EncodingOutcome> = taken.iter().map(|_| EncodingOutcome::Panicked).collect();
    let batch = |encoder: &mut dyn Encoder, of: &[usize]| {
        let inputs: Vec<_> = of.iter().map(|&at| taken[at].window.input()).collect();
        catch_unwind(AssertUnwindSafe(|| encoder.encode(&inputs))).ok()
    };
    let rows: Vec<Option<AudioRows>> = match if small.is_empty() { Some(Vec::new()) } else { batch(encoder, &small) } {
        Some(rows) => rows.into_iter().map(Some).collect(),
        None => small.chunks(1).map(|one| batch(encoder, one).and_then(|mut rows| rows.pop())).collect(),
    };
    for (&at, rows) in small.iter().zip(rows) {
        outcomes[at] = rows.map_or(EncodingOutcome::Panicked, EncodingOutcome::Rows);
    }
    for (at, TakenWindow { window, units, .. }) in taken.iter_mut().enumerate().filter(|(at, _)| !small.contains(at)) {
        let mut progress = std::mem::take(&mut window.progress);
        let input = window.input();
        let advanced = catch_unwind(AssertUnwindSafe(|| encoder.advance(&input, &mut progress, *units)));
        window.progress = progress;
        outcomes[at] = match advanced {
            Ok(Some(rows)) => EncodingOutcome::Rows(rows),
            Ok(None) => EncodingOutcome::Unfinished,
            Err(_) => EncodingOutcome::Panicked,
        };
    }
    let both = taken.into_iter().zip(outcomes);
    both.map(|(TakenWindow { slot, window, .. }, outcome)| Encoded { slot, window, outcome }).collect()
}

impl Scheduler {
    /// Units of work that the encoder could do for a session, at most `most`; and true if their audio came faster than real
    /// time.
    pub(super) fn encoder_units(&self, session: &Session, most: usize) -> (usize, bool) {
        let Some(Hearing::Rows(audio)) = &self.model.hearing else { return (0, false) };
        let (mut units, early) = (0, session.encodes_early());
        for window in session.next_windows() {
            units += units_left(audio.encoder.as_ref(), window);
            if units >= most {
                break;
            }
        }
        (units.min(most), early)
    }

    /// Takes windows that wait for the encoder.
    pub(super) fn take_windows(&mut self, shares: &[ScheduledRows]) -> Vec<TakenWindow> {
        let mut taken = Vec::new();
        let Self { model, sessions, .. } = self;
        let Some(Hearing::Rows(audio)) = &model.hearing else { return taken };
        for share in shares {
            let Some(session) = sessions.get_mut(&share.slot) else { continue };
            let mut left = share.rows;
            while left > 0
                && let Some(window) = session.pending_windows.pop_front()
            {
                let units = units_left(audio.encoder.as_ref(), &window).min(left);
                left -= units;
                taken.push(TakenWindow { slot: share.slot, window, units });
            }
        }
        taken
    }

    /// Gives encoded windows to their sessions, and puts those back that are not complete. Ends a session whose window could not
    /// be encoded.
    pub(super) fn place_encoded(&mut self, encoded: Vec<Encoded>) {
        let times = EncoderTimes { began: self.step_began, ended: (self.clock)() };
        for Encoded { slot, window, outcome } in encoded {
            match (outcome, self.sessions.get_mut(&slot)) {
                (EncodingOutcome::Rows(rows), Some(session)) => session.place_window(&window, rows, times),
                (EncodingOutcome::Unfinished, Some(session)) => session.continue_window(window),
                (EncodingOutcome::Panicked, _) => self.fail(slot, internal("encoder")),
                (_, None) => {}
            }
        }
    }
}
