//! A family whose language model is outside of the engine: a function of the conversation in the generic suite, a script
//! of the test elsewhere. With the small Qwen3-TTS as its voice it is a cascade.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use repartee_engine::internals::{Checkpoint, FamilyVariant, Model, join_voice, qwen3_tts, worker_pool};
use repartee_engine::{EngineConfig, RemoteModel, Source};
use repartee_engine_api::{
    Command, RemoteAnswer, RemoteEnd, RemoteEvent, RemoteRequest, RemoteThinker, RemoteUsage, Respond, Role, WakeSignal,
};
use repartee_kernels::cpu::Cpu;

use crate::folder;
use crate::generic::{Splitter, Subject};

/// Words of the answers. Each is one token of four bytes, the size that estimates assume.
const WORDS: [&str; 8] = ["the ", "dog ", "and ", "you ", "who ", "are ", "for ", "man "];
/// Words of an answer without a limit.
const LENGTH: usize = 14;

/// Language model whose answer is a function of the conversation.
#[derive(Debug)]
struct Wordy;

impl RemoteThinker for Wordy {
    fn ask(&self, request: RemoteRequest, _: WakeSignal) -> Box<dyn RemoteAnswer> {
        let conversation = format!("{:?}", request.messages);
        let word = |index: usize| {
            let mut hash = DefaultHasher::new();
            (&conversation, index).hash(&mut hash);
            WORDS[(hash.finish() % WORDS.len() as u64) as usize]
        };
        let limit = request.max_tokens.map_or(usize::MAX, |limit| limit as usize);
        let (words, end) = if limit < LENGTH { (limit, RemoteEnd::Length) } else { (LENGTH, RemoteEnd::Stop) };
        let mut events: VecDeque<_> = (0..words).map(|index| RemoteEvent::Text(word(index).to_owned())).collect();
        // Progress has no effect.
        events.push_front(RemoteEvent::Progress);
        let input_tokens = conversation.len() as u32 / 4;
        events.push_back(RemoteEvent::Usage(RemoteUsage {
            input_tokens,
            cached_tokens: 0,
            output_tokens: words as u32,
        }));
        events.push_back(RemoteEvent::Finished(end));
        Box::new(Arrived(events))
    }
}

/// Answer that has arrived.
struct Arrived(VecDeque<RemoteEvent>);

impl RemoteAnswer for Arrived {
    fn poll(&mut self) -> Option<RemoteEvent> {
        self.0.pop_front()
    }
}

/// Builds the model of a language model outside of the engine, with a voice or as text.
pub fn model(thinker: Arc<dyn RemoteThinker>, fallback: Option<&str>, voice: bool, config: &EngineConfig) -> Model {
    let pool = worker_pool(config.threads());
    let cpu = Cpu::default().on(pool.clone());
    let remote = RemoteModel { name: "remote".to_owned(), thinker, fallback: fallback.map(str::to_owned) };
    let think = remote.assemble(&cpu, WakeSignal::new().0).unwrap();
    let parts = if voice {
        let voice = Checkpoint::open(Source::Folder(folder("tts_custom").join("checkpoint"))).unwrap();
        join_voice(think, qwen3_tts::assemble(cpu, &voice, FamilyVariant("tts"), config).unwrap(), &config.spoken_text)
            .unwrap()
    } else {
        think
    };
    let model = parts.build(config).unwrap();
    model.check().unwrap();
    Model { pool, ..model }
}

/// User message of a turn.
fn message(turn: usize, item: u64) -> Vec<Command> {
    vec![Command::text(item, Role::User, ["where are you from", "and what do you do", "tell me more"][turn])]
}

/// The family under the generic suite, with text alone.
pub struct RemoteText;

impl Subject for RemoteText {
    fn model(&self, config: &EngineConfig) -> Model {
        model(Arc::new(Wordy), None, false, config)
    }

    fn stages(&self) -> &'static [&'static str] {
        &["remote_thinker"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn has_audio_output(&self) -> bool {
        false
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        message(turn, item)
    }

    fn request(&self, respond: Respond, _: Splitter<'_>) -> Vec<Command> {
        vec![Command::Respond(Respond { audio: false, ..respond })]
    }
}

/// The family with a voice under the generic suite.
pub struct RemoteCascade;

impl Subject for RemoteCascade {
    fn model(&self, config: &EngineConfig) -> Model {
        model(Arc::new(Wordy), None, true, config)
    }

    fn stages(&self) -> &'static [&'static str] {
        &["remote_thinker", "voice_text", "reader", "talker", "code2wav"]
    }

    fn audio(&self, _: usize) -> Option<Vec<f32>> {
        None
    }

    fn input(&self, turn: usize, item: u64, _: Splitter<'_>) -> Vec<Command> {
        message(turn, item)
    }
}

/// Language model whose answers the test gives. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct ScriptedThinker {
    /// Requests so far.
    pub requests: Arc<Mutex<Vec<RemoteRequest>>>,
    /// Events for the answer that is open; the next answer goes on with them.
    pub events: Arc<Mutex<VecDeque<RemoteEvent>>>,
    /// Number of answers that were not dropped yet.
    pub open: Arc<AtomicUsize>,
}

impl ScriptedThinker {
    /// Adds events behind those that are not taken yet.
    pub fn say(&self, events: impl IntoIterator<Item = RemoteEvent>) {
        self.events.lock().unwrap().extend(events);
    }

    /// Adds a text and its end.
    pub fn answer(&self, text: &str) {
        self.say([RemoteEvent::Text(text.to_owned()), RemoteEvent::Finished(RemoteEnd::Stop)]);
    }

    /// The last request.
    pub fn request(&self) -> RemoteRequest {
        self.requests.lock().unwrap().last().unwrap().clone()
    }

    /// Number of answers that were not dropped yet.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

impl RemoteThinker for ScriptedThinker {
    fn ask(&self, request: RemoteRequest, _: WakeSignal) -> Box<dyn RemoteAnswer> {
        self.requests.lock().unwrap().push(request);
        self.open.fetch_add(1, Ordering::SeqCst);
        Box::new(ScriptedAnswer(self.clone()))
    }
}

/// Answer of a [`ScriptedThinker`].
struct ScriptedAnswer(ScriptedThinker);

impl RemoteAnswer for ScriptedAnswer {
    fn poll(&mut self) -> Option<RemoteEvent> {
        self.0.events.lock().unwrap().pop_front()
    }
}

impl Drop for ScriptedAnswer {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}
