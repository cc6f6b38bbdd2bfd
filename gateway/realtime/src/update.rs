//! `session.update`: applies a patch to the configuration, and tells the engine and the transport.

use repartee_engine_api::Command;
use repartee_protocol::session::SessionEvent;
use repartee_protocol::{ErrorBody, ServerEvent};
use serde_json::Value;

use super::interface::{AudioSettings, Effect};
use super::session::RealtimeSession;
use super::{config, tools};

impl RealtimeSession {
    /// Serves `session.update`.
    pub(super) fn update(&mut self, patch: &Value) -> Result<(), ErrorBody> {
        self.reconfigure(patch)?;
        self.configure();
        self.send(ServerEvent::SessionUpdated(SessionEvent { session: self.config.clone() }));
        // Warnings are sent once: the next update has its own.
        self.config.repartee.warnings.clear();
        Ok(())
    }

    /// Applies a configuration update and sends the changes to the engine.
    pub(super) fn reconfigure(&mut self, patch: &Value) -> Result<(), ErrorBody> {
        let next = config::updated(&self.config, patch, &self.setup.model)?;
        self.check_kind(next.kind)?;
        let old = std::mem::replace(&mut self.config, next);
        if patch.get("reasoning").is_some_and(|reasoning| !reasoning.is_null()) {
            self.effects.push(Effect::Unsupported("session.reasoning"));
        }
        let transcription = patch.pointer("/audio/input/transcription").is_some_and(|asked| !asked.is_null());
        if transcription && self.config.audio.input.transcription.is_none() {
            self.effects.push(Effect::Unsupported("session.audio.input.transcription"));
        }
        if config::drops_tools(patch, &self.setup.model) {
            self.effects.push(Effect::Unsupported(tools::DROPPED));
        }
        if self.config.instructions != old.instructions {
            self.command(Command::SetInstructions(self.config.instructions.clone()));
        }
        if self.config.truncation != old.truncation {
            self.command(Command::SetEviction(config::eviction(self.config.truncation)));
        }
        let engine_tools =
            tools::allowed(tools::functions(&self.config.tools, "session.tools")?, &self.config.tool_choice);
        if engine_tools != self.engine_tools {
            self.engine_tools.clone_from(&engine_tools);
            if self.setup.model.tools {
                self.command(Command::SetTools(engine_tools));
            }
        }
        Ok(())
    }

    /// Tells turn detection and the input buffer the settings.
    pub(super) fn configure(&mut self) {
        let input = &self.config.audio.input;
        let speculative = self.speculates();
        let turns = input.turn_detection.as_ref().map(|turns| config::turn_settings(turns, speculative));
        let idle_ms = self.idle_timeout_ms().unwrap_or(0);
        self.input.set_preroll(turns.as_ref().map_or(0, |turns| turns.prefix_padding_ms), idle_ms);
        let input = &self.config.audio.input;
        let noise_reduction = input.noise_reduction.map(|reduction| reduction.kind);
        self.effects.push(Effect::Configure(AudioSettings { input: input.format, turns, noise_reduction }));
    }
}
