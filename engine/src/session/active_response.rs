//! A response being generated.

use std::time::{Duration, Instant};

use repartee_engine_api::{AnswerForm, EngineUsage, Respond, Tool};

use super::ModelContext;
use super::input_transcript::InputTranscript;
use super::pending_response::PendingResponse;
use super::reasoning::ReasoningReader;
use super::streamed_text::StreamedText;
use super::tool_calls::ToolCallReader;
use crate::audio_input::EncoderTimes;
use crate::deadline::Urgency;
use crate::elements::Element;
use crate::stage::ResponseParams;
use crate::text::TextStream;

/// A response being generated.
pub struct ActiveResponse {
    /// Request of the caller.
    pub request: Respond,
    /// Transcript that it writes; `None` for a response.
    pub(super) transcript: Option<InputTranscript>,
    /// Parameters that the stages got with the prompt.
    pub(super) params: ResponseParams,
    /// Text that streams in, if the response takes any.
    pub(super) streamed: Option<StreamedText>,
    /// Prompt, kept for a replay.
    pub(super) prompt: Vec<Element>,
    /// Time at which the engine took the request.
    pub(super) accepted: Instant,
    /// Start of the encoder's last step over its input.
    pub(super) encoding: Instant,
    /// Time at which the first stage got the prompt.
    pub(super) begun: Instant,
    /// Start of the step that gave the first token.
    pub(super) prefilled: Option<Instant>,
    /// Time of the first token.
    pub(super) first_token: Option<Instant>,
    /// Time of the first codec frame.
    pub(super) first_frame: Option<Instant>,
    /// Filter of reasoning text; `None` if the response has none.
    pub(super) reasoning: Option<ReasoningReader>,
    /// Number of ids of text that came without tokens.
    pub(super) written: usize,
    pub(super) text: TextStream,
    /// Parser of tool calls within the text.
    pub(super) calls: ToolCallReader,
    /// True if a tool call came after the last spoken text.
    pub(super) called: bool,
    /// Events sent to the caller.
    pub(super) sent: EventCounts,
    /// Events made of the stages' output since the begin or the replay. During a replay it is behind `sent`.
    pub(super) produced: EventCounts,
    /// Duration of the audio sent.
    pub(super) duration: Duration,
    /// Playback position, and its time.
    pub(super) played: Option<(Duration, Instant)>,
    pub(super) usage: EngineUsage,
    /// Time of a stage's last output for it.
    pub(super) progressed: Instant,
}

/// Numbers of events by kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct EventCounts {
    pub texts: u64,
    pub frames: u64,
}

/// Filter of the reasoning text of a response; `None` for a given text, and for a model without any.
fn reasoning_reader(params: &ResponseParams, prompt: &[Element], model: &ModelContext<'_>) -> Option<ReasoningReader> {
    let tokens = model.template.reasoning().filter(|_| !params.streamed)?;
    // The template has valid marks.
    ReasoningReader::new(tokens, model.tokenizer, prompt).ok()
}

impl ActiveResponse {
    pub(super) fn new(
        pending: PendingResponse,
        params: ResponseParams,
        prompt: Vec<Element>,
        usage: EngineUsage,
        encoder: Option<EncoderTimes>,
        tools: &[Tool],
        model: &ModelContext<'_>,
    ) -> Self {
        let reasoning = reasoning_reader(&params, &prompt, model);
        let offered = pending.request.tools.as_deref().unwrap_or(tools);
        // A text of JSON is no call, whatever it looks like.
        let is_json = matches!(params.form, AnswerForm::JsonObject | AnswerForm::JsonSchema(_));
        let names = offered.iter().filter(|_| !is_json).map(|tool| tool.name.clone()).collect();
        let waited = encoder.filter(|times| times.ended > pending.accepted);
        Self {
            request: pending.request,
            transcript: pending.transcript_of.map(InputTranscript::new),
            streamed: pending.streamed,
            params,
            prompt,
            accepted: pending.accepted,
            encoding: waited.map_or(model.now, |times| times.began),
            begun: model.now,
            prefilled: None,
            first_token: None,
            first_frame: None,
            reasoning,
            written: 0,
            text: model.tokenizer.stream(),
            calls: ToolCallReader::new(model.template.tools().and_then(|tools| tools.call_tokens()), names),
            called: false,
            sent: EventCounts::default(),
            produced: EventCounts::default(),
            duration: Duration::ZERO,
            played: None,
            usage,
            progressed: model.now,
        }
    }

    /// Forgets the output so far, before the response is generated again.
    pub(super) fn restart(&mut self, model: &ModelContext<'_>) {
        self.produced = EventCounts::default();
        self.reasoning = reasoning_reader(&self.params, &self.prompt, model);
        self.text = model.tokenizer.stream();
        self.calls.restart();
        self.called = false;
        self.usage.output_text_tokens = 0;
        self.usage.output_audio_frames = 0;
        if let Some(streamed) = &mut self.streamed {
            streamed.rewind();
        }
    }

    /// Urgency of further output.
    pub(super) fn urgency(&self) -> Urgency {
        if self.request.background {
            return Urgency::Background { since: self.accepted };
        }
        match self.played {
            Some((position, at)) => Urgency::Playing { runs_out: at + self.duration.saturating_sub(position) },
            None if !self.params.audio && self.first_token.is_some() => Urgency::Text { since: self.progressed },
            None => Urgency::First { since: self.accepted },
        }
    }

    /// Start of the wait for the next output, or for the caller's text if the stages may wait for it.
    pub(super) fn waits_since(&self) -> Instant {
        let text = self.streamed.as_ref().filter(|streamed| streamed.is_open()).map(|streamed| streamed.since);
        text.map_or(self.progressed, |since| since.max(self.progressed))
    }

    /// Counts one more event of a kind; true if it was not sent before a replay.
    pub(super) fn is_new(produced: &mut u64, sent: &mut u64) -> bool {
        *produced += 1;
        let new = *produced > *sent;
        *sent = (*sent).max(*produced);
        new
    }
}
