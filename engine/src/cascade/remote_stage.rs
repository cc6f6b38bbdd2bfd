//! Stage of a language model behind a server: sends the conversation, and gives the text as it arrives. It computes
//! nothing, so the planner has no rows of it.

use std::sync::Arc;

use repartee_engine_api::{
    EngineUsage, RemoteAnswer, RemoteEnd, RemoteEvent, RemoteFailure, RemoteRequest, RemoteThinker, RemoteUsage,
    SessionError, WakeSignal,
};

use super::remote_messages::messages;
use super::remote_vocabulary::{RemoteTemplate, bytes, call_ids};
use crate::device::Device;
use crate::elements::Element;
use crate::model::PromptTemplate as _;
use crate::models::parts::memory::SlotBytes;
use crate::models::parts::pipeline::{Placement, StagePart};
use crate::stage::{
    BatchEntry, ContextBudget, EdgeKind, Outbox, ResponseParams, RunnableRows, Stage, StageEnd, StageItem,
};

/// Name of the stage.
const STAGE: &str = "remote_thinker";
/// Most items of one slot in one tick, the events of a caller counted below.
const MAX_ITEMS: usize = 16;
/// Most events for the caller of one slot in one tick. A piece of text is one, a call two: its name and its arguments.
const MAX_EVENTS: usize = 4;
/// Most bytes of one piece of text.
const MAX_PIECE: usize = 4096;
/// Divisor of the context: a quarter is reserved for a response, or less if its limit is lower.
const RESERVED_SHARE: usize = 4;

/// The stage before the slots are known.
pub struct RemotePart {
    /// The language model.
    pub thinker: Arc<dyn RemoteThinker>,
    /// Signal of the engine that text has arrived.
    pub wake: WakeSignal,
    /// Sentence that a spoken response says in place of a failed answer; `None` for an error.
    pub fallback: Option<String>,
}

impl<O: Device> StagePart<O> for RemotePart {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn slot_bytes(&self, _: usize) -> SlotBytes {
        SlotBytes::default()
    }

    fn place(self: Box<Self>, at: Placement<'_, O>) -> Box<dyn Stage> {
        let slots = (0..at.slots.total()).map(|_| None).collect();
        Box::new(RemoteStage { part: *self, context: at.slots.context, slots })
    }
}

/// The stage with the answer of each slot.
struct RemoteStage {
    part: RemotePart,
    /// Tokens of a prompt and its response together.
    context: usize,
    slots: Vec<Option<OpenAnswer>>,
}

/// Answer on its way.
struct OpenAnswer {
    remote: Box<dyn RemoteAnswer>,
    /// True if the response is spoken.
    audio: bool,
    /// Text that arrived and was not given yet.
    rest: String,
    /// Last character of the text so far.
    last: Option<char>,
    /// True once a call has begun.
    called: bool,
    /// Event that ends the answer, once it has come.
    end: Option<RemoteEvent>,
}

impl RemoteStage {
    fn ask(&mut self, slot: usize, elements: &[Element], params: ResponseParams, out: &mut Outbox) {
        let request = RemoteRequest {
            messages: messages(elements),
            tools: params.tools.to_vec(),
            form: params.form.clone(),
            max_tokens: (params.max_tokens < u32::MAX).then_some(params.max_tokens),
            sampling: params.sampling,
        };
        // The answer before it is cancelled first.
        self.slots[slot] = None;
        let remote = self.part.thinker.ask(request, self.part.wake.clone());
        let (rest, audio) = (String::new(), params.audio);
        self.slots[slot] = Some(OpenAnswer { remote, audio, rest, last: None, called: false, end: None });
        // Later stages prepare while the server thinks.
        out.push((slot, StageItem::Begin(params)));
    }
}

impl OpenAnswer {
    /// Next item of the response; `None` if nothing has arrived.
    fn next(&mut self, fallback: Option<&str>) -> Option<StageItem> {
        if self.rest.is_empty() && self.end.is_none() {
            match self.remote.poll()? {
                RemoteEvent::Text(text) => self.rest = text,
                RemoteEvent::Progress => {}
                RemoteEvent::CallBegun => {
                    self.called = true;
                    return Some(StageItem::TextPause);
                }
                RemoteEvent::Call { name, arguments } => {
                    self.called = true;
                    let ids = call_ids(&name, &arguments);
                    return Some(StageItem::Call { name, arguments, ids });
                }
                RemoteEvent::Usage(RemoteUsage { input_tokens, cached_tokens, output_tokens }) => {
                    return Some(StageItem::Usage(EngineUsage {
                        input_text_tokens: input_tokens,
                        cached_tokens,
                        output_text_tokens: output_tokens,
                        ..EngineUsage::default()
                    }));
                }
                RemoteEvent::Failed(failure) => self.fail(failure, fallback),
                end @ RemoteEvent::Finished(_) => self.end = Some(end),
            }
        }
        if self.rest.is_empty() {
            return Some(match &self.end {
                Some(RemoteEvent::Finished(RemoteEnd::Length)) => StageItem::End(StageEnd::Length),
                Some(RemoteEvent::Failed(RemoteFailure { kind, message })) => {
                    StageItem::Fail(SessionError::Thinker { kind: *kind, message: message.clone() })
                }
                Some(_) => StageItem::End(StageEnd::Stop),
                None => StageItem::Progress,
            });
        }
        let mut end = MAX_PIECE.min(self.rest.len());
        while !self.rest.is_char_boundary(end) {
            end -= 1;
        }
        let after = self.rest.split_off(end);
        let text = std::mem::replace(&mut self.rest, after);
        self.last = text.chars().next_back();
        let ids = bytes(&text).collect();
        Some(StageItem::Text { text, ids })
    }

    /// Ends a failed answer: with the fallback sentence if it is spoken, else with the error. A call that has begun may
    /// lack arguments, and must not be made.
    fn fail(&mut self, failure: RemoteFailure, fallback: Option<&str>) {
        match fallback.filter(|_| self.audio && !self.called) {
            Some(sentence) => {
                let cut = match self.last {
                    None => "",
                    Some(last) if last.is_whitespace() => "",
                    Some('.' | '!' | '?' | ':' | ';' | '\u{2026}') => " ",
                    Some(_) => "\u{2026} ",
                };
                self.rest = format!("{cut}{sentence}");
                self.end = Some(RemoteEvent::Finished(RemoteEnd::Stop));
            }
            None => self.end = Some(RemoteEvent::Failed(failure)),
        }
    }
}

impl Stage for RemoteStage {
    fn name(&self) -> &'static str {
        STAGE
    }

    fn input_kind(&self) -> EdgeKind {
        EdgeKind::Prompt
    }

    fn output_kind(&self) -> EdgeKind {
        EdgeKind::Text
    }

    fn accept(&mut self, slot: usize, item: StageItem, out: &mut Outbox) {
        match item {
            StageItem::Prompt { elements, response: Some(params), .. } => self.ask(slot, &elements, params, out),
            StageItem::Abort => {
                self.slots[slot] = None;
                out.push((slot, StageItem::Abort));
            }
            // Nothing is prefilled.
            _ => {}
        }
    }

    fn arrived(&mut self, slot: usize, out: &mut Outbox) -> bool {
        let Some(open) = &mut self.slots[slot] else { return false };
        let mut events = 0;
        for at in 0..MAX_ITEMS {
            if events + 2 > MAX_EVENTS {
                break;
            }
            let Some(item) = open.next(self.part.fallback.as_deref()) else { return at > 0 };
            events += match &item {
                StageItem::Text { .. } => 1,
                StageItem::Call { .. } => 2,
                _ => 0,
            };
            let ended = matches!(item, StageItem::End(_) | StageItem::Fail(_));
            out.push((slot, item));
            if ended {
                self.slots[slot] = None;
                break;
            }
        }
        true
    }

    fn runnable_rows(&self, _: usize) -> RunnableRows {
        RunnableRows::NONE
    }

    fn max_rows(&self) -> usize {
        1
    }

    /// An item of text counts for two events.
    fn max_items(&self) -> usize {
        MAX_EVENTS / 2
    }

    fn launch(&mut self, _: &[BatchEntry], _: &mut Outbox) {}

    fn free(&mut self, slot: usize) {
        self.slots[slot] = None;
    }

    fn is_replayable(&self) -> bool {
        false
    }

    fn context_budget(&self, prompt: &[Element], max_tokens: usize) -> Option<ContextBudget> {
        let reserved = (self.context / RESERVED_SHARE).min(max_tokens);
        Some(ContextBudget { used: RemoteTemplate::new().tokens(prompt.len()), limit: self.context - reserved })
    }
}
