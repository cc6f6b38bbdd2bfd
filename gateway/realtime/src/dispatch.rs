//! Dispatch of a session's inputs and of client events.

use std::time::Instant;

use repartee_media::vad::TurnEvent;
use repartee_protocol::input_audio::KeyReceived;
use repartee_protocol::session::SessionKind;
use repartee_protocol::{ClientEvent, ErrorBody, ErrorKind, ServerEvent};

use super::interface::{Effect, SessionInput};
use super::item_audio::ItemAudio;
use super::session::RealtimeSession;
use super::transcription_session;

impl RealtimeSession {
    /// Handles an input at `now`; returns the effects in order.
    pub fn handle(&mut self, input: SessionInput, now: Instant) -> Vec<Effect> {
        match input {
            SessionInput::Client(message) => {
                if let Err(error) = self.client(message.event, now) {
                    self.send_error(error.with_event_id(message.event_id));
                }
                self.item_audio = ItemAudio::default();
            }
            SessionInput::ItemAudio(audio) => self.item_audio = audio,
            SessionInput::Refused(error) => self.send_error(error),
            SessionInput::Audio(samples) => self.audio(&samples, now),
            SessionInput::Key { key, received_at } => {
                self.send(ServerEvent::KeyReceived(KeyReceived { event: key.to_string(), received_at }));
            }
            SessionInput::Turn(TurnEvent::SpeechStarted { audio_start_ms }) => self.speech_started(audio_start_ms),
            SessionInput::Turn(TurnEvent::PossibleBargeIn { .. }) => self.pause_playout(),
            SessionInput::Turn(TurnEvent::BargeInDismissed { .. }) => self.effects.push(Effect::ResumePlayout),
            SessionInput::Turn(TurnEvent::Paused { audio_end_ms }) => self.begin_speculation(audio_end_ms, now),
            SessionInput::Turn(TurnEvent::Resumed { .. }) => self.abort_speculation(),
            SessionInput::Turn(TurnEvent::SpeechStopped { audio_end_ms }) => self.speech_stopped(audio_end_ms, now),
            SessionInput::Decision(decision) => self.tell_decision(decision),
            SessionInput::Engine(event) => self.engine_event(event, now),
            SessionInput::PendingEvent => self.process_pending_event(now),
            SessionInput::DeadlineReached => self.time(now),
            SessionInput::EngineEnded => {
                self.send_error(ErrorBody::server(ErrorKind::Internal, "the engine has ended this session"));
                self.effects.push(Effect::Close);
            }
            SessionInput::Playout(report) => self.playout(report, now),
        }
        std::mem::take(&mut self.effects)
    }

    fn client(&mut self, event: ClientEvent, now: Instant) -> Result<(), ErrorBody> {
        if !matches!(
            event,
            ClientEvent::InputAppend(_)
                | ClientEvent::ItemRetrieve(_)
                | ClientEvent::TextAppend(_)
                | ClientEvent::TextDone(_)
        ) {
            // A speculation assumes an unchanged conversation.
            self.abort_speculation();
        }
        if self.config.kind == SessionKind::Transcription {
            transcription_session::check(&event)?;
        }
        match event {
            ClientEvent::SessionUpdate(update) => self.update(&update.session),
            // The caller of this crate decodes the audio and passes `SessionInput::Audio`.
            ClientEvent::InputAppend(_) => Ok(()),
            ClientEvent::InputCommit => self.commit_input(),
            ClientEvent::InputClear => {
                self.clear_input();
                Ok(())
            }
            ClientEvent::OutputClear => self.clear_output(),
            ClientEvent::ItemCreate(create) => self.create_item(create),
            ClientEvent::ItemDelete(item) => self.delete_item(item),
            ClientEvent::ItemRetrieve(item) => self.retrieve_item(&item),
            ClientEvent::ItemTruncate(truncate) => self.truncate_item(&truncate),
            ClientEvent::ResponseCreate(create) => self.create_response(create, now),
            ClientEvent::ResponseCancel(cancel) => self.cancel_response(cancel.response_id.as_deref()),
            ClientEvent::TextAppend(append) => self.append_text(append, now),
            ClientEvent::TextDone(done) => self.end_text(&done),
        }
    }
}
