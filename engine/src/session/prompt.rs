//! Prompts of responses and of silent prefill, and eviction of the oldest items.

use std::sync::Arc;

use repartee_engine_api::{EngineUsage, Eviction, SessionError};

use super::active_response::ActiveResponse;
use super::hearing::cut_after;
use super::pending_response::InputPart;
use super::reasoning::ends_with_mark;
use super::{ModelContext, Session};
use crate::audio_input::WindowTarget;
use crate::elements::{AudioRows, Element, Message, MessageKind, MessagePart};
use crate::model::ReasoningTokens;
use crate::stage::{ContextBudget, ResponseParams};

/// Positions that a template writes around a message, about.
const TEMPLATE_POSITIONS: usize = 4;

/// Upper bounds of the text tokens of responses whose request has none.
#[derive(Debug, Clone, Copy)]
pub struct DefaultLimits {
    /// Of a given text.
    pub given: u32,
    /// Of a text that the model writes.
    pub written: u32,
}

/// A response that begins.
pub struct BegunResponse {
    /// Prompt of the response.
    pub elements: Vec<Element>,
    /// Parameters of the response.
    pub params: ResponseParams,
    /// Positions that the prompt takes and may take, if it takes too many and nothing may be evicted.
    pub excess: Option<ContextBudget>,
}

/// Prompt of the items that fit.
struct FittedPrompt {
    elements: Vec<Element>,
    /// As in [`BegunResponse`].
    excess: Option<ContextBudget>,
}

impl Session {
    /// Sets what happens to a history that no longer fits.
    ///
    /// # Errors
    ///
    /// A share that is no number of 0 to 1.
    pub(super) fn set_eviction(&mut self, eviction: Eviction) -> Result<(), SessionError> {
        if let Eviction::Oldest { kept, .. } = eviction
            && !(0.0..=1.0).contains(&kept)
        {
            return Err(SessionError::bad("kept", kept, "a share of 0 to 1"));
        }
        (self.eviction, self.changed) = (eviction, true);
        Ok(())
    }

    /// Begins the pending response in `slot`.
    pub fn begin(&mut self, slot: usize, model: &ModelContext<'_>, limits: DefaultLimits) -> Option<BegunResponse> {
        let pending = if slot == self.slot {
            self.pending_responses.pop_front()?
        } else {
            self.out_of_band.iter_mut().find(|other| other.slot == slot)?.waiting.take()?
        };
        let limit = if pending.request.streamed { limits.given } else { limits.written };
        let most = pending.request.max_tokens.unwrap_or(limit);
        let system = pending.system.as_ref();
        let whole = |elements| FittedPrompt { elements, excess: None };
        let FittedPrompt { elements, excess } = match &pending.input {
            Some(parts) => whole(self.render(model, system, self.messages(parts), None, true)),
            None if pending.request.out_of_band => {
                let complete = self.history.items().iter().filter(|entry| !self.is_unfinished(entry.id));
                whole(self.render(model, system, complete.map(|entry| entry.message.clone()).collect(), None, true))
            }
            None => {
                let end = self.history.position(pending.request.item)?;
                let fixed = self.render(model, system, Vec::new(), None, false).len();
                self.fit(model, most, (fixed, end), |session, from| {
                    session.render(model, system, session.between(from, end), None, true)
                })
            }
        };
        let audio = elements.iter().filter(|element| element.is_audio()).count() as u32;
        let usage = EngineUsage {
            input_text_tokens: model.template.tokens(elements.len() - audio as usize) as u32,
            input_audio_tokens: audio,
            ..EngineUsage::default()
        };
        let held = pending.form.as_ref().and_then(|form| form.get()?.as_ref().ok()).cloned();
        let reasons = |tokens: &ReasoningTokens| ends_with_mark(&elements, tokens, model.tokenizer);
        let closes_reasoning = held.is_some() && model.template.reasoning().is_some_and(reasons);
        let params = ResponseParams {
            held: held.map(|held| held.after_reasoning(closes_reasoning)),
            response: pending.request.response,
            seed: pending.request.seed,
            voice: pending.request.voice.clone().unwrap_or_else(|| model.voices.first().cloned().unwrap_or_default()),
            audio: pending.request.audio,
            streamed: pending.request.streamed,
            tools: pending.tools.clone(),
            form: pending.request.form.clone(),
            max_tokens: most,
            sampling: pending.request.sampling,
        };
        let active =
            ActiveResponse::new(pending, params.clone(), elements.clone(), usage, self.encoder, &self.tools, model);
        if slot == self.slot {
            self.writes_alone = !params.audio;
            self.active = Some(active);
        } else if let Some(other) = self.out_of_band.iter_mut().find(|other| other.slot == slot) {
            other.active = Some(active);
        }
        Some(BegunResponse { elements, params, excess })
    }

    /// Prompt for silent prefill; `None` if it has not changed since the last call, an in-band response is active or
    /// pending, or it takes too many positions and nothing may be evicted.
    pub fn silent_prompt(&mut self, model: &ModelContext<'_>) -> Option<Vec<Element>> {
        let waits = self.behind || self.active.is_some() || !self.pending_responses.is_empty();
        if waits || !std::mem::take(&mut self.changed) {
            return None;
        }
        // The prompt ends before the first item that is not fully encoded.
        let half = self.unencoded().filter_map(|target| match target {
            WindowTarget::Item(item) => Some((self.history.position(item)?, item)),
            _ => None,
        });
        let half = half.min();
        let end = half.map_or(self.history.items().len(), |(end, _)| end);
        // The next response may ask for any number of tokens.
        let fixed = self.render(model, self.system.as_ref(), Vec::new(), None, false).len();
        let fitted = self.fit(model, u32::MAX, (fixed, end), |session, from| {
            let mut messages = session.between(from, end);
            // Text that is being heard ends the prompt, without what closes a message.
            let growing = session.growing_ids(half.map(|(_, item)| item));
            if !growing.is_empty() {
                messages.push(Message::text(MessageKind::User, growing.to_vec()));
                let mut elements = session.render(model, session.system.as_ref(), messages, None, false);
                cut_after(&mut elements, growing);
                return elements;
            }
            let open = session.audio_input.as_ref().filter(|_| half.is_none() && !model.hears_text);
            let open = open.map(|audio_input| &audio_input.encoded[..]);
            session.render(model, session.system.as_ref(), messages, open, false)
        });
        fitted.excess.is_none().then_some(fitted.elements)
    }

    /// Prompt that the session waits to have rendered: true if a response waits for it, false for silent prefill;
    /// `None` if there is none. While texts wait to be tokenised, silent prefill waits too.
    pub fn wants_prompt(&self) -> Option<bool> {
        if !self.startable().is_empty() {
            return Some(true);
        }
        let waits = self.behind || self.active.is_some() || !self.pending_responses.is_empty();
        (self.changed && !waits).then_some(false)
    }

    /// About the number of positions of the session's prompt, for the time that rendering takes.
    pub fn prompt_size(&self) -> usize {
        self.history.items().iter().map(|entry| size(&entry.message)).sum()
    }

    /// Renders a prompt of the items before index `end` that leaves every stage space for a response of `max_tokens` text
    /// tokens. If it is longer, the oldest items are evicted as the session's policy says. The last item stays, so a prompt
    /// can still be too long. The first `fixed` positions are the instructions. `render` returns the prompt without the
    /// items before an index.
    fn fit(
        &mut self,
        model: &ModelContext<'_>,
        max_tokens: u32,
        (fixed, end): (usize, usize),
        render: impl Fn(&Self, usize) -> Vec<Element>,
    ) -> FittedPrompt {
        let (kept, own) = match self.eviction {
            Eviction::Oldest { kept, most } => (kept, most),
            Eviction::Nothing => (1.0, None),
        };
        let budgets = |elements: &[Element]| -> Vec<ContextBudget> {
            let stages = model.stages.iter().filter_map(|stage| stage.context_budget(elements, max_tokens as usize));
            let own =
                own.map(|most| ContextBudget { used: elements.len(), limit: fixed.saturating_add(most as usize) });
            stages.chain(own).collect()
        };
        let elements = render(self, 0);
        let used = budgets(&elements);
        let excess = used.iter().find(|budget| budget.used > budget.limit).copied();
        let most = end.saturating_sub(1);
        if self.eviction == Eviction::Nothing {
            return FittedPrompt { elements, excess };
        }
        if most == 0 || excess.is_none() {
            return FittedPrompt { elements, excess: None };
        }
        let freed = |limit: usize| limit - (limit.saturating_sub(fixed) as f64 * (1.0 - kept)) as usize;
        // About the part of the prompt that has to go, of the stage that has least space.
        let part = |ContextBudget { used, limit }: &ContextBudget| 1.0 - freed(*limit) as f64 / (*used).max(1) as f64;
        let part = used.iter().map(part).fold(0.0, f64::max);
        let whole: usize = self.history.items()[..end].iter().map(|entry| size(&entry.message)).sum();
        let mut gone = 0;
        let guess = self.history.items()[..end].iter().take_while(|entry| {
            let goes = (gone as f64) < part * whole as f64;
            gone += size(&entry.message);
            goes
        });
        let mut found = (0, elements);
        let count = least_that(guess.count(), most, |count| {
            found = (count, render(self, count));
            budgets(&found.1).iter().all(|budget| budget.used <= freed(budget.limit))
        });
        // Rendered before the eviction, which moves what `end` and `render` count from.
        let elements = if found.0 == count { found.1 } else { render(self, count) };
        for oldest in self.history.evict(count) {
            self.drop_audio(oldest);
        }
        FittedPrompt { elements, excess: None }
    }

    fn between(&self, from: usize, end: usize) -> Vec<Message> {
        let items = self.history.items();
        items[from.min(end)..end.min(items.len())].iter().map(|entry| entry.message.clone()).collect()
    }

    /// Messages of a response's own input, without items that were deleted since.
    fn messages(&self, parts: &[InputPart]) -> Vec<Message> {
        let message = |part: &InputPart| match part {
            InputPart::Item(item) => self.history.get(*item).cloned(),
            InputPart::Own(_, message) => Some(message.clone()),
        };
        parts.iter().filter_map(message).collect()
    }

    fn render(
        &self,
        model: &ModelContext<'_>,
        system: Option<&Vec<u32>>,
        messages: Vec<Message>,
        open: Option<&[Arc<AudioRows>]>,
        respond: bool,
    ) -> Vec<Element> {
        let system = system.into_iter().map(|ids| Message::text(MessageKind::System, ids.clone()));
        model.template.render(&system.chain(messages).collect::<Vec<_>>(), open, respond)
    }
}

/// About the number of positions of a message.
fn size(message: &Message) -> usize {
    let part = |part: &MessagePart| match part {
        MessagePart::Text(ids) => ids.len(),
        MessagePart::Audio(windows) => windows.iter().map(|window| window.count).sum(),
        MessagePart::Speech(codes) => codes.len(),
    };
    TEMPLATE_POSITIONS + message.parts.iter().map(part).sum::<usize>()
}

/// Returns the least number of 1 to `most` for which `enough` holds, or `most` if none is found below it. Asks near
/// `guess` first; a right guess takes two questions. From one number on, `enough` must hold for all.
fn least_that(guess: usize, most: usize, mut enough: impl FnMut(usize) -> bool) -> usize {
    // Not enough, and enough or the last one.
    let (mut low, mut high) = (0, most);
    let (mut next, mut step) = (guess, 1);
    while high > low + 1 {
        let asked = next.clamp(low + 1, high - 1);
        if enough(asked) {
            high = asked;
            next = asked.saturating_sub(step);
        } else {
            low = asked;
            next = asked + step;
        }
        step *= 2;
        if next <= low || next >= high {
            next = low + (high - low) / 2;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_number_is_found_from_any_guess() {
        for most in 1..40 {
            for least in 1..=most + 1 {
                for guess in 0..most + 2 {
                    let mut asked = 0;
                    let found = least_that(guess, most, |count| {
                        asked += 1;
                        assert!(count >= 1 && count < most);
                        count >= least
                    });
                    assert_eq!(found, least.min(most), "{guess} of {most}");
                    assert!(asked <= 12, "{asked} questions for {least} of {most} from {guess}");
                    assert!(guess != least || asked <= 2, "{asked} questions with a right guess");
                }
            }
        }
    }
}
