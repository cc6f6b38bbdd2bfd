//! Audio items that a recogniser hears. It hears one live item of a session at a time, the oldest first, and one item of
//! complete audio, so that neither waits for the other; what comes after them waits as sound.

use std::collections::VecDeque;
use std::time::Duration;

use repartee_engine_api::ItemId;

use super::heard_text::HeardText;
use crate::audio_input::WindowTarget;
use crate::recogniser::{HearingOptions, Hypothesis, Recogniser};
use crate::text::{TextEncoder, TextError};

/// Sound offered to the recogniser in one tick, in ms.
const PIECE_MS: usize = 1000;

/// Sound that the recogniser has not taken yet.
#[derive(Default)]
struct PendingSamples {
    samples: Vec<f32>,
    /// Number of samples at the front that were taken.
    taken: usize,
}

impl PendingSamples {
    fn left(&self) -> &[f32] {
        &self.samples[self.taken..]
    }

    fn extend(&mut self, samples: &[f32]) {
        self.samples.extend_from_slice(samples);
    }

    /// Removes samples from the front; each is moved once on average.
    fn take(&mut self, count: usize) {
        self.taken += count.min(self.left().len());
        if self.taken * 2 >= self.samples.len() {
            self.samples.drain(..self.taken);
            self.taken = 0;
        }
    }
}

/// Ids of the text that stays, as far as they are certain.
struct StableIds {
    encoder: TextEncoder,
    /// Bytes of the text that the encoder has.
    read: usize,
    ids: Vec<u32>,
}

impl StableIds {
    /// Reads `text`, which begins with all that was read so far; true if ids were added.
    fn grow(&mut self, text: &str) -> Result<bool, TextError> {
        let more = text.get(self.read..).unwrap_or_default();
        let ids = self.encoder.push(more)?;
        self.read = text.len();
        let grown = !ids.is_empty();
        self.ids.extend(ids);
        Ok(grown)
    }
}

/// An audio item that is being heard, or waits for it.
pub(super) struct Recognition {
    /// Number within the session.
    number: u64,
    /// Owner of the text.
    pub target: WindowTarget,
    options: HearingOptions,
    /// Id under which the text of the open audio is reported, if the caller asked for it.
    pub label: Option<ItemId>,
    samples: PendingSamples,
    /// Number of the end, if no more sound follows.
    end: Option<u64>,
    /// True if the last of the sound came faster than real time.
    early: bool,
    /// Last hypothesis before the end.
    pub growing: Hypothesis,
    /// Text of the final hypothesis.
    pub text: Option<HeardText>,
    /// Ids of the growing text; `None` if the vocabulary encodes whole texts alone.
    stable: Option<StableIds>,
}

impl Recognition {
    /// Adds the next hypothesis; true if more of its text stays than before.
    pub fn grow(&mut self, hypothesis: Hypothesis) -> bool {
        let stays = hypothesis.text.get(..hypothesis.stable).unwrap_or_default().trim_start();
        let grown = self.stable.as_mut().map_or(Ok(false), |stable| stable.grow(stays));
        self.growing = hypothesis;
        // Text that is encoded at the end alone is late, but not lost.
        grown.unwrap_or_else(|_| self.stable.take().is_some())
    }

    /// Ids of the text that stays.
    pub fn ids(&self) -> &[u32] {
        self.stable.as_ref().map_or(&[], |stable| &stable.ids)
    }
}

/// Recogniser's slot of a queue.
#[derive(Clone, Copy)]
struct QueueSlot {
    slot: usize,
    /// Number of the recognition in it; `None` before it is opened.
    number: Option<u64>,
    /// Number of the end that the recogniser knows of.
    end: Option<u64>,
}

impl QueueSlot {
    fn new(slot: usize) -> Self {
        Self { slot, number: None, end: None }
    }
}

/// Recognitions that run one after another.
#[derive(Default)]
struct RecognitionQueue {
    items: VecDeque<Recognition>,
    slot: Option<QueueSlot>,
}

impl RecognitionQueue {
    /// Recognition in the queue's slot.
    fn current(&mut self) -> Option<&mut Recognition> {
        let number = self.slot?.number?;
        self.items.front_mut().filter(|front| front.number == number)
    }

    /// Frees the slot if its audio is gone; returns it.
    fn release(&mut self, recogniser: &mut dyn Recogniser) -> Option<usize> {
        let next = self.items.front().map(|front| front.number);
        let QueueSlot { slot, .. } = self.slot.take_if(|held| match held.number {
            Some(number) => next != Some(number),
            None => next.is_none(),
        })?;
        recogniser.free(slot);
        Some(slot)
    }

    /// Passes sound of the first recognition to the slot, the end of it or its withdrawal. Returns the duration of sound
    /// that was taken; `None` if nothing was done.
    fn feed(&mut self, recogniser: &mut dyn Recogniser) -> Option<Duration> {
        let (front, held) = (self.items.front_mut()?, self.slot.as_mut()?);
        let mut moved = false;
        if held.number.is_none() {
            recogniser.open(held.slot, &front.options);
            held.number = Some(front.number);
            moved = true;
        }
        // An end may have been withdrawn and come again meanwhile.
        if held.end.is_some() && held.end != front.end {
            recogniser.resume(held.slot);
            held.end = None;
            moved = true;
        }
        let (mut taken, rate) = (0, recogniser.rate() as usize);
        let left = front.samples.left();
        if !left.is_empty() {
            taken = recogniser.push(held.slot, &left[..left.len().min(rate * PIECE_MS / 1000)]);
            front.samples.take(taken);
            moved |= taken > 0;
        }
        if front.end != held.end && front.samples.left().is_empty() {
            recogniser.end(held.slot);
            held.end = front.end;
            moved = true;
        }
        moved.then(|| duration(taken, rate))
    }
}

fn duration(samples: usize, rate: usize) -> Duration {
    Duration::from_secs_f64(samples as f64 / rate.max(1) as f64)
}

/// Recognitions of one session.
#[derive(Default)]
pub struct Recognitions {
    /// Audio that was appended while the caller spoke.
    live: RecognitionQueue,
    /// Audio that came as a whole.
    complete: RecognitionQueue,
    /// Number of recognitions and ends so far.
    count: u64,
    /// Sampling rate, in Hz; 0 before the recogniser was fed.
    rate: usize,
}

impl Recognitions {
    /// Creates a recognition without sound. `encoder` follows its growing text.
    fn create(&mut self, target: WindowTarget, options: HearingOptions, encoder: Option<TextEncoder>) -> Recognition {
        self.count += 1;
        Recognition {
            number: self.count,
            target,
            options,
            label: None,
            samples: PendingSamples::default(),
            end: None,
            early: false,
            growing: Hypothesis::default(),
            text: None,
            stable: encoder.map(|encoder| StableIds { encoder, read: 0, ids: Vec::new() }),
        }
    }

    fn queues(&self) -> [&RecognitionQueue; 2] {
        [&self.live, &self.complete]
    }

    fn all(&self) -> impl Iterator<Item = &Recognition> {
        self.live.items.iter().chain(&self.complete.items)
    }

    /// Opens the recognition of the open audio, with the id under which its text is reported.
    pub(super) fn open(&mut self, options: HearingOptions, label: Option<ItemId>, encoder: Option<TextEncoder>) {
        let opened = self.create(WindowTarget::Open, options, encoder);
        self.live.items.push_back(Recognition { label, ..opened });
    }

    /// Appends sound to the open audio; `early` if it came faster than real time.
    pub(super) fn append(&mut self, samples: &[f32], early: bool) {
        if let Some(open) = self.find_live(WindowTarget::Open) {
            open.samples.extend(samples);
            open.early = early;
        }
    }

    /// Adds complete audio.
    pub(super) fn add_complete(&mut self, target: WindowTarget, samples: Vec<f32>) {
        let options = HearingOptions { complete: true, ..HearingOptions::default() };
        let added = self.create(target, options, None);
        let (samples, end) = (PendingSamples { samples, taken: 0 }, Some(added.number));
        self.complete.items.push_back(Recognition { samples, end, ..added });
    }

    /// Sets hints and label of the open audio; false if none is open. Hints come too late once sound was heard.
    pub(super) fn relabel(&mut self, options: &HearingOptions, label: ItemId) -> bool {
        let heard = self.live.slot.and_then(|held| held.number);
        let Some(open) = self.find_live(WindowTarget::Open) else { return false };
        open.label = Some(label);
        if heard != Some(open.number) {
            open.options.clone_from(options);
        }
        true
    }

    /// Ends the open audio and gives it to an item; returns the ids heard so far.
    pub(super) fn end(&mut self, item: ItemId) -> Vec<u32> {
        self.count += 1;
        let end = Some(self.count);
        let Some(open) = self.find_live(WindowTarget::Open) else { return Vec::new() };
        (open.target, open.end) = (WindowTarget::Item(item), end);
        open.ids().to_vec()
    }

    /// Withdraws the end of an item's audio: it is open again, and more sound follows.
    pub(super) fn reopen(&mut self, item: ItemId, samples: &[f32]) {
        if let Some(again) = self.find_live(WindowTarget::Item(item)) {
            (again.target, again.end, again.text) = (WindowTarget::Open, None, None);
            again.samples.extend(samples);
        }
    }

    /// Drops the recognition of a target, if any.
    pub(super) fn remove(&mut self, target: WindowTarget) {
        for queue in [&mut self.live, &mut self.complete] {
            queue.items.retain(|recognition| recognition.target != target);
        }
    }

    /// Recognition of a target.
    pub(super) fn find(&self, target: WindowTarget) -> Option<&Recognition> {
        self.all().find(|recognition| recognition.target == target)
    }

    fn find_live(&mut self, target: WindowTarget) -> Option<&mut Recognition> {
        self.live.items.iter_mut().find(|recognition| recognition.target == target)
    }

    fn queue_of(&mut self, slot: usize) -> Option<&mut RecognitionQueue> {
        let mut queues = [&mut self.live, &mut self.complete].into_iter();
        queues.find(|queue| queue.slot.is_some_and(|held| held.slot == slot))
    }

    /// Recognition in a slot of the recogniser.
    pub(super) fn current(&mut self, slot: usize) -> Option<&mut Recognition> {
        self.queue_of(slot)?.current()
    }

    /// Removes the recognition of a target.
    pub(super) fn take(&mut self, target: WindowTarget) -> Option<Recognition> {
        let mut queues = [&mut self.live, &mut self.complete].into_iter();
        queues.find_map(|queue| {
            let at = queue.items.iter().position(|recognition| recognition.target == target)?;
            queue.items.remove(at)
        })
    }

    /// Owners of the audio whose text is not complete.
    pub(super) fn unheard(&self) -> impl Iterator<Item = WindowTarget> {
        self.all().filter(|recognition| recognition.text.is_none()).map(|recognition| recognition.target)
    }

    /// Number of recognitions.
    pub(super) fn len(&self) -> usize {
        self.queues().map(|queue| queue.items.len()).into_iter().sum()
    }

    /// Number of recognitions of complete audio.
    pub(super) fn complete(&self) -> usize {
        self.complete.items.len()
    }

    /// Duration of live audio that the recogniser has not taken.
    pub(super) fn waiting(&self) -> Duration {
        let samples = self.live.items.iter().map(|recognition| recognition.samples.left().len()).sum();
        duration(samples, self.rate)
    }

    /// True if the sound being heard in a slot came faster than real time.
    pub fn is_early(&self, slot: usize) -> bool {
        let queue = self.queues().into_iter().find(|queue| queue.slot.is_some_and(|held| held.slot == slot));
        queue.and_then(|queue| queue.items.front()).is_some_and(|front| front.early)
    }

    /// Frees the slots whose audio is gone: the session's own, and the one for complete audio, which is returned.
    pub fn release(&mut self, recogniser: &mut dyn Recogniser) -> Option<usize> {
        self.live.release(recogniser);
        self.complete.release(recogniser)
    }

    /// True if complete audio waits for a slot.
    pub fn wants_slot(&self) -> bool {
        self.complete.slot.is_none() && !self.complete.items.is_empty()
    }

    /// Gives a slot to the complete audio.
    pub fn assign(&mut self, slot: usize) {
        self.complete.slot = Some(QueueSlot::new(slot));
    }

    /// Passes sound to the recogniser; live audio goes to `slot`. `admit` tells of complete audio if it is within real
    /// time. True if anything was done.
    pub fn feed(&mut self, recogniser: &mut dyn Recogniser, slot: usize, admit: impl FnOnce(Duration) -> bool) -> bool {
        self.rate = recogniser.rate() as usize;
        if self.live.slot.is_none() && !self.live.items.is_empty() {
            self.live.slot = Some(QueueSlot::new(slot));
        }
        let mut moved = self.live.feed(recogniser).is_some();
        if let Some(sound) = self.complete.feed(recogniser) {
            moved = true;
            if !sound.is_zero() {
                let early = !admit(sound);
                self.complete.items.iter_mut().take(1).for_each(|front| front.early = early);
            }
        }
        moved
    }
}
