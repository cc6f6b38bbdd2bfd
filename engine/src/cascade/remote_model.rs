//! A language model behind a server as a model of the engine.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use repartee_engine_api::{RemoteAnswer, RemoteEnd, RemoteEvent, RemoteRequest, RemoteThinker, WakeSignal};

use super::remote_stage::RemotePart;
use super::remote_vocabulary::{RemoteTemplate, tokenizer};
use crate::device::Device;
use crate::models::load_error::LoadError;
use crate::models::parts::pipeline::{Assembly, ModelFrame, Pipeline};

/// Language model behind a server, as the part of a cascade that thinks.
#[derive(Debug, Clone)]
pub struct RemoteModel {
    /// Name that `ModelInfo` shows.
    pub name: String,
    /// The language model.
    pub thinker: Arc<dyn RemoteThinker>,
    /// Sentence that a spoken response says in place of a failed answer; `None` for an error.
    pub fallback: Option<String>,
}

impl RemoteModel {
    /// Makes it the parts of a model; `wake` wakes the engine when text arrives.
    ///
    /// # Errors
    ///
    /// None can occur: its tokenizer is fixed.
    pub fn assemble<O: Device>(self, ops: &O, wake: WakeSignal) -> Result<Assembly<O>, LoadError> {
        let part = RemotePart { thinker: self.thinker, wake, fallback: self.fallback };
        Ok(Pipeline::new(ops).stage(part).with(ModelFrame {
            tokenizer: tokenizer()?,
            template: Box::new(RemoteTemplate::new()),
            voices: Box::new(Vec::new()),
            codec: None,
            // The server has a limit of its own.
            max_tokens: Some(u32::MAX),
        }))
    }
}

/// Language model that answers by itself until the engine is warm, so that a start needs no server.
pub struct Rehearsal {
    thinker: Arc<dyn RemoteThinker>,
    warm: AtomicBool,
}

impl Rehearsal {
    /// Puts itself in front of a language model.
    pub fn new(thinker: Arc<dyn RemoteThinker>) -> Arc<Self> {
        Arc::new(Self { thinker, warm: AtomicBool::new(false) })
    }

    /// Passes every request on from now on.
    pub fn end(&self) {
        self.warm.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Rehearsal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.thinker.fmt(f)
    }
}

impl RemoteThinker for Rehearsal {
    fn ask(&self, request: RemoteRequest, wake: WakeSignal) -> Box<dyn RemoteAnswer> {
        if self.warm.load(Ordering::Acquire) {
            return self.thinker.ask(request, wake);
        }
        let text = RemoteEvent::Text("one two three".to_owned());
        Box::new(GivenAnswer(vec![RemoteEvent::Finished(RemoteEnd::Stop), text]))
    }
}

/// Answer that is there at once; its events are in reverse order.
struct GivenAnswer(Vec<RemoteEvent>);

impl RemoteAnswer for GivenAnswer {
    fn poll(&mut self) -> Option<RemoteEvent> {
        self.0.pop()
    }
}
