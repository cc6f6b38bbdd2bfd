//! Text that a recogniser hears in the session's audio: it stands in the history like text that the caller wrote.
//!
//! While audio is open, its words that stay are prefilled silently. At the end of the audio the rest follows with the
//! final hypothesis, and a response waits for it as it waits for encoded windows. A speculation ends the audio on trial:
//! if it is aborted, the audio continues as if it had not ended.

use std::time::Instant;

use repartee_engine_api::{EngineUsage, Event, FinishReason, ItemId, Listen, ResponseId, SessionError, Transcribe};

use super::context::text_error;
use super::followed_text::FollowedText;
use super::heard_text::HeardText;
use super::limits::{MAX_BACKGROUND, MAX_HEARD_ITEMS};
use super::recognitions::Recognition;
use super::{ModelContext, Session};
use crate::audio_input::{EncoderTimes, WindowTarget};
use crate::elements::{Element, ElementValue, Message, MessageKind};
use crate::recogniser::{HearingOptions, Hypothesis, Recogniser};

impl Session {
    /// Sets hints for the open audio, or the next one, and asks for its text as it grows.
    pub(super) fn listen(&mut self, listen: Listen, model: &ModelContext<'_>) {
        if !model.hears_text {
            return;
        }
        let Listen { item, language, prompt, translate, recorded, delay } = listen;
        let options = HearingOptions { language, prompt, complete: recorded, translate, detailed: recorded, delay };
        if !self.recognitions.relabel(&options, item) {
            self.next_hearing = Some((options, item));
        }
    }

    /// Passes a slice of the open audio to the recogniser; `first` for the first slice.
    pub(super) fn hear(&mut self, samples: &[f32], first: bool, model: &ModelContext<'_>) {
        if first {
            let (options, label) = self.next_hearing.take().unzip();
            let encoder = model.tokenizer.encodes_pieces().then(|| model.tokenizer.encoder());
            self.recognitions.open(options.unwrap_or_default(), label, encoder);
        }
        let early = !self.real_time.admit(model.duration(samples.len()), model.now);
        self.recognitions.append(samples, early);
    }

    /// Brings the recogniser up to date; true if anything was done.
    pub fn feed(&mut self, recogniser: &mut dyn Recogniser, now: Instant) -> bool {
        let Self { recognitions, real_time, slot, .. } = self;
        recognitions.feed(recogniser, *slot, |sound| real_time.admit(sound, now))
    }

    /// Records that the recogniser worked on the session's audio.
    pub fn note_hearing(&mut self) {
        self.stalled = None;
    }

    /// Takes the next hypothesis of the audio that is being heard in a slot of the recogniser.
    ///
    /// # Errors
    ///
    /// If it takes back text that was stable, which is a defect of the recogniser.
    pub fn heard(
        &mut self,
        slot: usize,
        mut hypothesis: Hypothesis,
        times: EncoderTimes,
        model: &ModelContext<'_>,
    ) -> Result<(), &'static str> {
        let Some(current) = self.recognitions.current(slot) else { return Ok(()) };
        let before = &current.growing;
        trim(&mut hypothesis)?;
        // Both are trimmed, so they begin with the same word.
        let stays = &before.text[..before.stable];
        let stable = &hypothesis.text[..hypothesis.stable];
        if !hypothesis.is_final && stable.len() < stays.len() && stays.starts_with(stable) {
            // It comes again after an end that was withdrawn.
            return Ok(());
        }
        if !hypothesis.text.starts_with(stays) {
            return Err("it took back text that was stable");
        }
        let target = current.target;
        if hypothesis.is_final {
            self.encoder = Some(times);
            current.text = Some(HeardText { text: hypothesis.text, details: hypothesis.details });
            self.heard_all(target, model);
            return Ok(());
        }
        let news = (&hypothesis.text, hypothesis.stable) != (&before.text, before.stable);
        let grown = current.grow(hypothesis);
        if !news {
            return Ok(());
        }
        let (text, stable, label) = (current.growing.text.clone(), current.growing.stable, current.label);
        if grown {
            let ids = current.ids().to_vec();
            self.changed = true;
            self.place_text(target, ids);
        }
        if let Some(item) = label.filter(|_| target == WindowTarget::Open || self.is_speculative(target)) {
            self.emit(Event::InputText { response: None, item, text: text.clone(), stable });
        }
        for FollowedText { response, item } in self.following(target) {
            self.emit(Event::InputText { response: Some(response), item, text: text.clone(), stable });
        }
        Ok(())
    }

    /// Places the whole text of a target.
    fn heard_all(&mut self, target: WindowTarget, model: &ModelContext<'_>) {
        let Some(recognition) = self.recognitions.find(target) else { return };
        let text = recognition.text.as_ref().map_or("", |heard| &heard.text);
        let encoded = model.tokenizer.encode(text);
        let ids = encoded.unwrap_or_else(|error| {
            let ids = recognition.ids().to_vec();
            self.fail(None, text_error(&error));
            ids
        });
        self.changed = true;
        self.place_text(target, ids);
        // The text of a speculation is final with its commit.
        if !self.is_speculative(target) {
            self.finish_hearing(target, model);
        }
    }

    /// Ends the recognition of a target if its text is complete: reports it, and makes way for the next one.
    pub(super) fn finish_hearing(&mut self, target: WindowTarget, model: &ModelContext<'_>) {
        if self.recognitions.find(target).is_none_or(|recognition| recognition.text.is_none()) {
            return;
        }
        let Some(Recognition { text: Some(heard), .. }) = self.recognitions.take(target) else { return };
        for FollowedText { response, item } in self.following(target) {
            self.report_heard(response, item, heard.clone());
        }
        let WindowTarget::Item(item) = target else { return };
        self.followed.retain(|followed| followed.item != item);
        self.history.set_heard(item, heard);
        // Without responses no prompt evicts items.
        if model.stages.is_empty() && self.history.items().len() > MAX_HEARD_ITEMS {
            self.history.evict_oldest();
        }
    }

    /// Reports a whole transcript and its end.
    fn report_heard(&self, response: ResponseId, item: ItemId, HeardText { text, details }: HeardText) {
        let stable = text.len();
        self.emit(Event::InputText { response: Some(response), item, text, stable });
        if let Some(details) = details {
            self.emit(Event::InputDetails { response, item, details });
        }
        let usage = EngineUsage::default();
        self.emit(Event::SegmentFinished { response, reason: FinishReason::Stop, usage });
    }

    /// Transcribes an item that a recogniser hears: follows its text, or reports it if it is complete.
    pub(super) fn follow(&mut self, request: &Transcribe) -> Result<(), SessionError> {
        let Transcribe { response, item, .. } = *request;
        if self.is_live(response) {
            return Err(SessionError::bad("response", response, "an id that no unfinished response has"));
        }
        if !self.history.contains(item) {
            return Err(SessionError::UnknownItem(item));
        }
        if let Some(heard) = self.history.heard(item) {
            let heard = heard.clone();
            self.report_heard(response, item, heard);
            return Ok(());
        }
        let Some(growing) = self.recognitions.find(WindowTarget::Item(item)) else {
            return Err(SessionError::bad("item", item, "an item with audio"));
        };
        let background = self.out_of_band.iter().filter(|other| other.is_background()).count();
        if self.followed.len() + background >= MAX_BACKGROUND {
            return Err(SessionError::TooManyResponses { limit: MAX_BACKGROUND });
        }
        let Hypothesis { text, stable, .. } = growing.growing.clone();
        self.followed.push(FollowedText { response, item });
        if !text.is_empty() {
            self.emit(Event::InputText { response: Some(response), item, text, stable });
        }
        Ok(())
    }

    /// Cancels the transcripts that `which` selects.
    pub(super) fn cancel_followed(&mut self, which: impl Fn(&FollowedText) -> bool) {
        let (gone, stay) = self.followed.drain(..).partition(which);
        self.followed = stay;
        let gone: Vec<FollowedText> = gone;
        for FollowedText { response, .. } in gone {
            let (reason, usage) = (FinishReason::Cancelled, EngineUsage::default());
            self.emit(Event::SegmentFinished { response, reason, usage });
        }
    }

    /// Transcripts that follow a target.
    fn following(&self, target: WindowTarget) -> Vec<FollowedText> {
        self.followed.iter().filter(|followed| target == WindowTarget::Item(followed.item)).copied().collect()
    }

    fn is_speculative(&self, target: WindowTarget) -> bool {
        self.speculation.as_ref().is_some_and(|speculation| target == WindowTarget::Item(speculation.item))
    }

    /// Sets the text heard so far as the content of its item.
    fn place_text(&mut self, target: WindowTarget, ids: Vec<u32>) {
        let message = Message::text(MessageKind::User, ids);
        match target {
            WindowTarget::Open => {}
            WindowTarget::Item(item) => {
                if let Some(held) = self.history.get_mut(item) {
                    *held = message;
                }
            }
            WindowTarget::Input(audio) => {
                if let Some(held) = self.input_message(audio) {
                    *held = message;
                }
            }
        }
    }

    /// Ids heard so far in `item`, or in the open audio; empty if none is being heard.
    pub(super) fn growing_ids(&self, item: Option<ItemId>) -> &[u32] {
        let target = item.map_or(WindowTarget::Open, WindowTarget::Item);
        self.recognitions.find(target).map_or(&[], Recognition::ids)
    }
}

/// Drops white space at the ends of a hypothesis, and at the end of what is stable.
fn trim(hypothesis: &mut Hypothesis) -> Result<(), &'static str> {
    let Hypothesis { text, stable, is_final, .. } = hypothesis;
    let stays =
        if *is_final { &text[..] } else { text.get(..*stable).ok_or("its stable text ends within a character")? };
    *stable = stays.trim().len();
    *text = text.trim().to_owned();
    Ok(())
}

/// Cuts a prompt after the last place of `ids`, so that more text can follow them. A prompt without them stays.
pub(super) fn cut_after(elements: &mut Vec<Element>, ids: &[u32]) {
    let is = |element: &Element, id: u32| matches!(element.value, ElementValue::Token(token) if token == id);
    let at =
        elements.windows(ids.len().max(1)).rposition(|part| part.iter().zip(ids).all(|(element, &id)| is(element, id)));
    if let Some(at) = at {
        elements.truncate(at + ids.len());
    }
}
