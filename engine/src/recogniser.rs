//! Interface of a recogniser: a model that hears audio items as text which grows while the sound arrives.
//!
//! A recogniser keeps state by slot, one recognition in each. The scheduler opens a slot, pushes sound as far as the
//! recogniser takes it, runs the units of work that it offers, and collects hypotheses; at the end of the sound it asks
//! for the final one. One unit of work is bounded in cost, an encoder run over one window or one decode step, so that
//! the planner can stop between two of them. Decoding a growing turn again is the recogniser's own affair: its work is
//! bounded by the length of the turn.

use repartee_engine_api::{HearingInfo, SessionError, TextDelay, TranscriptDetails};

use crate::stage::{BatchEntry, RunnableRows};

/// Hints for one audio item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HearingOptions {
    /// Language of the sound, as the caller names it; `None` if unknown.
    pub language: Option<String>,
    /// Further hints, such as the spelling of names; empty for none.
    pub prompt: String,
    /// True if nobody waits for text before the end, because all of the sound is there: hypotheses before the final one
    /// are needed only where the sound is too long for one.
    pub complete: bool,
    /// True for an English translation in place of the text.
    pub translate: bool,
    /// True if the final hypothesis of complete sound has details.
    pub detailed: bool,
    /// Certainty that text waits for before it stays, for recognisers that can wait.
    pub delay: TextDelay,
}

/// Text heard so far in one audio item.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Hypothesis {
    /// All of the text so far; white space at its ends is dropped by the reader.
    pub text: String,
    /// Length in bytes of the part of `text` that later hypotheses repeat unchanged, on a character boundary; best at
    /// the end of a word. It never shrinks. After [`Recogniser::resume`] earlier hypotheses may come again, and the final
    /// one is void.
    pub stable: usize,
    /// True if the sound has ended and the text is complete; then all of it is stable.
    pub is_final: bool,
    /// Language that the recogniser found; `None` if it does not tell languages apart.
    pub language: Option<String>,
    /// Details of the final text of a recording.
    pub details: Option<Box<TranscriptDetails>>,
}

/// Hypotheses of a step, in order: (slot, hypothesis). An error ends the recognition; a fatal one ends the session.
pub type HypothesisOutbox = Vec<(usize, Result<Hypothesis, SessionError>)>;

/// A model that hears, with the state of every slot.
///
/// The final text of a slot depends on its samples and options alone: not on their split into pushes, on ticks between
/// them, on other slots, or on ends that were withdrawn. So hypotheses are made at places of the sound that the samples
/// determine, never at places that time or load determine.
pub trait Recogniser: Send {
    /// Name of the recogniser, for errors, settings and measurements.
    fn name(&self) -> &'static str;

    /// Sampling rate of the sound, in Hz.
    fn rate(&self) -> u32;

    /// Languages, times and translation of the recogniser.
    fn info(&self) -> HearingInfo {
        HearingInfo::default()
    }

    /// Number of slots.
    fn slots(&self) -> usize;

    /// Begins a recognition in a slot that is free.
    fn open(&mut self, slot: usize, options: &HearingOptions);

    /// Offers sound of the open slot: mono samples in -1..1. Returns the number of samples taken from the front; the
    /// rest is offered again after more work. A slot without runnable work takes at least one sample.
    fn push(&mut self, slot: usize, samples: &[f32]) -> usize;

    /// Ends the sound of the slot. Its last hypothesis is final.
    fn end(&mut self, slot: usize);

    /// Withdraws the end of the slot, before or after its final hypothesis: more sound may follow, and the recognition
    /// continues as if it had never ended.
    fn resume(&mut self, slot: usize);

    /// Resets the slot and frees its resources; nothing happens to a free one.
    fn free(&mut self, slot: usize);

    /// Units of work of one kind that the slot can advance now; none while it waits for sound, and after the final
    /// hypothesis.
    fn runnable_rows(&self, slot: usize) -> RunnableRows;

    /// Upper bound of one slot's units in one step.
    fn max_rows(&self) -> usize;

    /// Launches a step of several slots as one batch; the kinds of their units may differ. If it panics, each slot is
    /// launched again alone: until [`Recogniser::collect`] the state of a slot is as before.
    fn launch(&mut self, work: &[BatchEntry]);

    /// Waits for the launched step and gives the hypotheses that it made: at most one for each slot.
    fn collect(&mut self, out: &mut HypothesisOutbox);

    /// Advances several slots as one batch.
    fn step(&mut self, work: &[BatchEntry], out: &mut HypothesisOutbox) {
        self.launch(work);
        self.collect(out);
    }

    /// Number of open slots.
    fn held(&self) -> usize;

    /// Ends a period of the recogniser's memory; see [`Stage::end_idle_period`](crate::stage::Stage::end_idle_period).
    fn end_idle_period(&mut self) -> bool {
        false
    }

    /// Gives a bounded part of the idle memory back to the system; false if there is none.
    fn give_back_idle(&mut self) -> bool {
        false
    }

    /// Launches every decode step once, for no slot, so that a device that captures steps has captured them.
    fn prepare(&mut self) {}

    /// Number of steps launched without a captured graph; see
    /// [`Ops::eager_steps`](repartee_kernels::Ops::eager_steps).
    fn eager_steps(&self) -> Option<u64> {
        None
    }
}
