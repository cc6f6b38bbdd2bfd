//! Intake of large commands in pieces: each tick tokenises a bounded part of a long text and passes a bounded part of
//! complete audio through the front end. The session's own commands wait meanwhile; other sessions do not.

use repartee_engine_api::{Command, MessageContent, Respond, ResponseInput, SessionError, SlicePolicy};

use super::context::text_error;
use super::messages::{content_text, system_text};
use super::text_intake::{EncodedTexts, TextIntake};
use super::transcribe::instruction;
use super::{ModelContext, Session};
use crate::text::{MAX_STRETCH, TextError};

/// Upper bound of text bytes of a command that is executed at once.
const INLINE_TEXT: usize = 1024;
/// Bytes of text that one tick tokenises, of all sessions together, and of one session.
const TEXT_OF_TICK: usize = 2048;
const TEXT_OF_SESSION: usize = 1024;
/// Ids that a text keeps at most, as a multiple of the context. A longer text fits into no prompt, so the rest of it is
/// neither tokenised nor kept.
const KEPT_CONTEXTS: usize = 4;
/// Bytes that a text counts at least: a short one costs as much as some letters more.
const LEAST_TEXT: usize = 32;
/// Audio of one session that passes the front end in one tick, in ms.
const AUDIO_PIECE_MS: usize = 1000;

/// Bytes of text that may still be tokenised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextAllowance {
    left: usize,
    /// True while nothing was spent. Then one command of any size may be executed, so that none starves.
    whole: bool,
}

impl TextAllowance {
    /// Allowance of all sessions in a tick.
    pub fn of_tick() -> Self {
        Self { left: TEXT_OF_TICK, whole: true }
    }

    /// Allowance of the next session, out of that of the tick.
    pub fn of_session(self) -> Self {
        Self { left: self.left.min(TEXT_OF_SESSION), ..self }
    }

    /// Subtracts what a session spent, whose allowance fell from `before` to `after`.
    pub fn spend(&mut self, before: Self, after: Self) {
        *self = Self { left: self.left.saturating_sub(before.left - after.left), whole: false };
    }

    /// Takes the bytes of a text; false if too few are left.
    fn take(&mut self, bytes: usize) -> bool {
        let bytes = bytes.max(LEAST_TEXT);
        let takes = self.whole || bytes <= self.left;
        if takes {
            *self = Self { left: self.left.saturating_sub(bytes), whole: false };
        }
        takes
    }
}

/// Next command of a session.
pub enum Intake {
    /// No command waits.
    Empty,
    /// The next command needs more ticks.
    Busy,
    /// A command to execute, and the ids of its long texts.
    Ready(Command, EncodedTexts),
    /// A command whose texts cannot be encoded.
    Refused(Command, SessionError),
}

impl Session {
    /// Next command, once its long texts are tokenised. Text counts against the allowance; a command that finds too
    /// little waits.
    pub fn take_in(&mut self, model: &ModelContext<'_>, allowance: &mut TextAllowance) -> Intake {
        self.behind = false;
        if self.text_intake.is_none() {
            let Some(command) = self.next_command() else { return Intake::Empty };
            let command = self.split_audio(command, model);
            let texts = self.texts_of(&command, model);
            if texts.is_empty() {
                return Intake::Ready(command, EncodedTexts::new());
            }
            let bytes = texts.iter().map(String::len).sum::<usize>();
            if (bytes <= INLINE_TEXT || !model.tokenizer.encodes_pieces()) && !allowance.take(bytes) {
                self.held_commands.push_front(command);
                self.behind = true;
                return Intake::Busy;
            }
            if bytes <= INLINE_TEXT {
                return Intake::Ready(command, EncodedTexts::new());
            }
            if !model.tokenizer.encodes_pieces() {
                return match texts.iter().any(|text| text.len() > MAX_STRETCH) {
                    true => Intake::Refused(command, text_error(&TextError::TooLong)),
                    false => Intake::Ready(command, EncodedTexts::new()),
                };
            }
            let most = model.context.saturating_mul(KEPT_CONTEXTS);
            self.text_intake = Some(Box::new(TextIntake::new(command, texts, model.tokenizer.encoder(), most)));
        }
        let Some(mut intake) = self.text_intake.take() else { return Intake::Empty };
        let left = intake.advance(allowance.left);
        match left.map(|(done, left)| {
            *allowance = TextAllowance { left, whole: allowance.whole && left == allowance.left };
            done
        }) {
            Ok(false) => {
                self.text_intake = Some(intake);
                self.behind = true;
                // Commands that may overtake do so.
                self.next_command().map_or(Intake::Busy, |command| Intake::Ready(command, EncodedTexts::new()))
            }
            Ok(true) => Intake::Ready(intake.command, intake.done),
            Err(error) => Intake::Refused(intake.command, error),
        }
    }

    /// True while texts wait to be tokenised.
    pub fn is_behind(&self) -> bool {
        self.behind
    }

    /// Cuts a long slice after its first second; the rest becomes the next commands.
    fn split_audio(&mut self, command: Command, model: &ModelContext<'_>) -> Command {
        let (mut samples, front_end) = match (command, model.front_end) {
            (Command::Append(samples), Some(front_end)) => (samples, front_end),
            (command, _) => return command,
        };
        let piece = front_end.rate() as usize * AUDIO_PIECE_MS / 1000;
        // A slice that does not fit is refused whole.
        let fits = model.audio_limit().is_ok_and(|limit| self.open_samples() + samples.len() <= limit);
        if fits && samples.len() > piece {
            let rest: Vec<_> = samples[piece..].chunks(piece).map(|rest| Command::Append(rest.to_vec())).collect();
            rest.into_iter().rev().for_each(|rest| self.held_commands.push_front(rest));
            samples.truncate(piece);
        }
        Command::Append(samples)
    }

    /// Texts that a command encodes, as the model's template writes them.
    fn texts_of(&self, command: &Command, model: &ModelContext<'_>) -> Vec<String> {
        let tools = model.template.tools();
        let content = |content: &MessageContent| content_text(content, tools).ok().flatten();
        let overrides = |request: &Respond| {
            (request.instructions.is_some() || request.tools.is_some()).then(|| {
                let instructions = request.instructions.as_ref().unwrap_or(&self.instructions);
                system_text(instructions, request.tools.as_deref().unwrap_or(&self.tools), tools).ok()
            })
        };
        match command {
            Command::Insert { content: inserted, .. } => content(inserted).into_iter().collect(),
            Command::SetInstructions(text) => system_text(text, &self.tools, tools).into_iter().collect(),
            Command::SetTools(offered) => system_text(&self.instructions, offered, tools).into_iter().collect(),
            Command::Respond(request) | Command::BeginSpeculation { respond: request, .. } => {
                let own = request.input.iter().flatten().filter_map(|part| match part {
                    ResponseInput::Content(part) => content(part),
                    ResponseInput::Item(_) => None,
                });
                overrides(request).flatten().into_iter().chain(own).collect()
            }
            Command::Transcribe(request) if !model.hears_text => vec![instruction(request)],
            Command::SetSlicePolicy(SlicePolicy::EachSlice { respond, .. }) => {
                overrides(respond).flatten().into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Passes a piece of the oldest complete audio through the front end; false if there is none.
    pub fn read_sound(&mut self, model: &ModelContext<'_>) -> bool {
        if self.has_many_windows() {
            return false;
        }
        let Some(sound) = self.pending_sounds.front_mut() else { return false };
        let piece = model.front_end.map_or(0, |front_end| front_end.rate() as usize * AUDIO_PIECE_MS / 1000);
        let before = self.pending_windows.len();
        let read = model.duration(sound.read(piece, &mut self.pending_windows));
        if (sound.is_read() || piece == 0)
            && let Some(sound) = self.pending_sounds.pop_front()
        {
            sound.finish(&mut self.pending_windows);
        }
        self.meter_audio(read, before, model.now);
        true
    }
}
