//! Properties of every family, written once. A [`Subject`] builds a family's model and its requests; each property is a
//! function over one.
//!
//! - [`subjects`], [`toy`]: the families
//! - [`conversations`]: any cut of the input, any hand-off, chunk and batch
//! - [`aborts`]: abort at any tick
//! - [`rewinds`]: an edited history equals a fresh one
//! - [`interleavings`]: random commands of several sessions equal serial runs

pub mod aborts;
pub mod conversations;
pub mod interleavings;
pub mod rewinds;
pub mod subjects;
pub mod toy;

use repartee_engine::EngineConfig;
use repartee_engine::internals::Model;
use repartee_engine_api::{Command, EngineUsage, Respond, SessionHandle};

use super::driven::{Driven, Response, drive, submit};

/// Sizes of the next pieces of an input.
pub type Splitter<'a> = &'a mut dyn FnMut() -> usize;

/// A family under test.
pub trait Subject: Sync {
    /// Builds its model under these settings, on a pool of [`EngineConfig::threads`]: without it the tests of threads
    /// compare nothing.
    fn model(&self, config: &EngineConfig) -> Model;
    /// Names of its stages, in order.
    fn stages(&self) -> &'static [&'static str];
    /// Samples of one of three turns; `None` without audio input.
    fn audio(&self, turn: usize) -> Option<Vec<f32>>;
    /// Commands that make one of three turns the user item `item`.
    fn input(&self, turn: usize, item: u64, cut: Splitter<'_>) -> Vec<Command>;
    /// Commands that request a response.
    fn request(&self, respond: Respond, _cut: Splitter<'_>) -> Vec<Command> {
        vec![Command::Respond(respond)]
    }
    /// True if its responses have audio; otherwise its requests ask for text.
    fn has_audio_output(&self) -> bool {
        true
    }
    /// Parameters of a response begun by a speculation.
    fn speculative(&self, respond: Respond) -> Respond {
        Respond { audio: respond.audio && self.has_audio_output(), ..respond }
    }
    /// True if it generates its text; false if it speaks a given text.
    fn writes(&self) -> bool {
        true
    }
    /// Number of a cancelled response's leading text tokens to keep, so that later prompts equal those of a response
    /// that was never longer. If speech stays in the prompt, tokens whose frames are not all made do not count.
    fn spoken_tokens(&self, usage: EngineUsage) -> u32 {
        usage.output_text_tokens
    }
}

/// Leaves an input uncut.
pub fn whole() -> impl FnMut() -> usize {
    || usize::MAX
}

/// Settings of small engines.
pub fn config() -> EngineConfig {
    EngineConfig { sessions: 4, out_of_band: 2, session_tokens: 2048, ..EngineConfig::default() }
}

/// Instructions of several cache blocks.
pub const INSTRUCTIONS: &str = "be brief and kind and speak as the one who calls speaks, whatever that may be";

/// Engine of a family, with the actions of a caller.
pub struct Bed<'a, S: Subject> {
    /// The family under test.
    pub subject: &'a S,
    /// Its engine, ticked by the test.
    pub engine: Driven,
}

impl<'a, S: Subject> Bed<'a, S> {
    /// Builds the engine of a subject.
    pub fn new(subject: &'a S, config: &EngineConfig) -> Self {
        Self { subject, engine: drive(subject.model(config), config) }
    }

    /// Submits a turn as a user item.
    pub fn input(&mut self, session: &SessionHandle, turn: usize, item: u64) {
        submit_all(session, self.subject.input(turn, item, &mut whole()));
    }

    /// Requests a response.
    pub fn request(&mut self, session: &SessionHandle, respond: Respond) {
        submit_all(session, self.subject.request(respond, &mut whole()));
    }

    /// Requests a response and reads it to its end.
    pub fn respond(&mut self, session: &SessionHandle, respond: Respond) -> Response {
        let response = respond.response;
        self.request(session, respond);
        self.engine.listen(session, response).unwrap()
    }

    /// Ends a session and checks that it leaves nothing behind.
    #[track_caller]
    pub fn close(&mut self, session: SessionHandle) {
        drop(session);
        assert_eq!(self.engine.left_behind(), (0, 0), "sessions and resources that are left");
    }
}

/// Submits several commands in order.
pub fn submit_all(session: &SessionHandle, commands: Vec<Command>) {
    commands.into_iter().for_each(|command| submit(session, command));
}

/// Request of response `number` with the item `1000 + number`.
pub fn respond(number: u64) -> Respond {
    Respond { max_tokens: Some(9), seed: 1, ..Respond::new(number, 1000 + number) }
}

/// Asserts that two responses are equal; `what` names the comparison.
#[track_caller]
pub fn assert_same(a: &Response, b: &Response, what: &str) {
    assert_eq!(a.text, b.text, "{what}");
    assert!(a.output() == b.output(), "{what}: the same text, but other samples or another prompt");
}
