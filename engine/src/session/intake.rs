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
const INLINE_TEXT: usize = 2048;
/// Bytes of longer texts that one tick tokenises, in one session: a few milliseconds.
const TEXT_PIECE: usize = 4096;
/// Audio of one session that passes the front end in one tick, in ms.
const AUDIO_PIECE_MS: usize = 1000;

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
    /// Next command, once its long texts are tokenised. With `turn` this session may tokenise a piece; doing so clears
    /// it.
    pub fn take_in(&mut self, model: &ModelContext<'_>, turn: &mut bool) -> Intake {
        if self.text_intake.is_none() {
            let Some(command) = self.next_command() else { return Intake::Empty };
            let command = self.split_audio(command, model);
            let texts = self.texts_of(&command, model);
            if texts.iter().map(String::len).sum::<usize>() <= INLINE_TEXT {
                return Intake::Ready(command, EncodedTexts::new());
            }
            if !model.tokenizer.encodes_pieces() {
                return match texts.iter().any(|text| text.len() > MAX_STRETCH) {
                    true => Intake::Refused(command, text_error(&TextError::TooLong)),
                    false => Intake::Ready(command, EncodedTexts::new()),
                };
            }
            self.text_intake = Some(Box::new(TextIntake::new(command, texts, model.tokenizer.encoder())));
        }
        let Some(mut intake) = self.text_intake.take() else { return Intake::Empty };
        let budget = if std::mem::take(turn) { TEXT_PIECE } else { 0 };
        match intake.advance(budget) {
            Ok(false) => {
                self.text_intake = Some(intake);
                // Commands that may overtake do so.
                self.next_command().map_or(Intake::Busy, |command| Intake::Ready(command, EncodedTexts::new()))
            }
            Ok(true) => Intake::Ready(intake.command, intake.done),
            Err(error) => Intake::Refused(intake.command, error),
        }
    }

    /// True while a long text is being tokenised.
    pub fn tokenises(&self) -> bool {
        self.text_intake.is_some()
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
