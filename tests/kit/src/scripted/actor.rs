//! One session of the scripted engine: handles commands and sends the scripted events.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use repartee_engine_api::{
    Command, EngineUsage, Event, FinishReason, ItemId, LatencyStamps, MessageContent, Respond, ResponseId,
    ResponseInput, SessionPeer, Tool, Transcribe,
};
use tokio::sync::{Semaphore, watch};

use super::script::{FRAME_SAMPLES, INPUT_RATE, OUTPUT_RATE, Script, ScriptedResponse};
use super::voice::voice_at;

/// State of one session.
pub(super) struct ScriptedSession {
    peer: SessionPeer,
    script: Script,
    log: Arc<watch::Sender<Vec<Command>>>,
    frames: Arc<watch::Sender<u64>>,
    /// Samples of the open audio item.
    input: usize,
    /// Open speculation: its response, and the samples of its turn.
    speculation: Option<(ResponseId, usize)>,
    /// Functions offered by the session.
    tools: Vec<Tool>,
    /// Text of the next response.
    reply: String,
    /// True once a function has returned its result.
    called: bool,
    /// Queued responses of the conversation.
    pending: VecDeque<Respond>,
    /// Queued out-of-band responses, which go first.
    out_of_band: VecDeque<Respond>,
    /// Queued transcripts, which go before them.
    transcripts: VecDeque<Transcribe>,
    /// Number of begun responses of the conversation, without aborted speculations.
    responses: usize,
    /// Duration of each turn, in ms.
    turns: BTreeMap<ItemId, usize>,
    /// Texts for speech synthesis, by response.
    texts: BTreeMap<ResponseId, StreamedText>,
}

/// A text that arrives in pieces.
#[derive(Debug, Default)]
struct StreamedText {
    /// Words not spoken yet.
    words: VecDeque<String>,
    ended: bool,
}

impl ScriptedSession {
    /// Creates the session at the engine's end of `peer`. It records commands in `log` and counts sent frames in
    /// `frames`.
    pub(super) fn new(
        peer: SessionPeer,
        script: Script,
        log: Arc<watch::Sender<Vec<Command>>>,
        frames: Arc<watch::Sender<u64>>,
    ) -> Self {
        Self {
            peer,
            script,
            log,
            frames,
            input: 0,
            speculation: None,
            tools: Vec::new(),
            reply: String::new(),
            called: false,
            pending: VecDeque::new(),
            out_of_band: VecDeque::new(),
            transcripts: VecDeque::new(),
            responses: 0,
            turns: BTreeMap::new(),
            texts: BTreeMap::new(),
        }
    }

    /// Follows the script until the session's handle is dropped.
    pub(super) async fn run(mut self) {
        while let Some(command) = self.receive().await {
            self.handle(command);
            loop {
                if self.respond_out_of_band().await.is_none() {
                    return;
                }
                let Some(respond) = self.pending.pop_front() else { break };
                if self.respond(&respond).await.is_none() {
                    return;
                }
            }
        }
    }

    fn handle(&mut self, command: Command) {
        match command {
            Command::Append(samples) => self.input += samples.len(),
            Command::Clear => self.input = 0,
            Command::Commit { item } => self.commit(item),
            Command::BeginSpeculation { item, respond } => {
                self.speculation = Some((respond.response, self.input));
                self.commit(item);
                self.pending.push_back(respond);
            }
            Command::CommitSpeculation { response } => {
                self.end_speculation(response);
            }
            Command::AbortSpeculation { response } => {
                if let Some(input) = self.end_speculation(response) {
                    self.input += input;
                    let begun = self.pending.iter().all(|respond| respond.response != response);
                    self.responses -= usize::from(begun);
                    self.pending.retain(|respond| respond.response != response);
                }
            }
            Command::Insert { content, .. } => self.reply = self.reply_to(content),
            Command::SetTools(tools) => self.tools = tools,
            Command::StreamText { response, text } => {
                let words = text.split_inclusive(' ').map(str::to_owned);
                self.texts.entry(response).or_default().words.extend(words);
            }
            Command::EndText { response } => self.texts.entry(response).or_default().ended = true,
            Command::Respond(respond) if respond.out_of_band => self.out_of_band.push_back(respond),
            Command::Transcribe(_) if self.script.withholds_transcripts => {}
            Command::Transcribe(request) => self.transcripts.push_back(request),
            Command::Respond(respond) => self.pending.push_back(respond),
            _ => {}
        }
    }

    fn commit(&mut self, item: ItemId) {
        let ms = self.input * 1_000 / INPUT_RATE as usize;
        self.turns.insert(item, ms);
        self.reply = format!("I heard {ms} ms.");
        self.input = 0;
    }

    /// Closes the speculation of `response`. Returns the samples of its turn; `None` if another or none is open.
    fn end_speculation(&mut self, response: ResponseId) -> Option<usize> {
        let (_, input) = self.speculation.take_if(|(open, _)| *open == response)?;
        Some(input)
    }

    fn reply_to(&mut self, content: MessageContent) -> String {
        match content {
            MessageContent::Text { text, .. } => format!("You wrote: {text}"),
            MessageContent::Audio(samples) => format!("I heard {} ms.", samples.len() * 1_000 / INPUT_RATE as usize),
            MessageContent::ToolCall { name, .. } => format!("I called {name}."),
            MessageContent::ToolResult(result) => {
                self.called = true;
                format!("The tool says: {result}")
            }
        }
    }

    /// Makes all queued transcripts and out-of-band responses; `None` once the caller is gone.
    async fn respond_out_of_band(&mut self) -> Option<()> {
        while let Some(Transcribe { response, item, .. }) = self.transcripts.pop_front() {
            let text = format!("words of {} ms", self.turns.get(&item).copied().unwrap_or(0));
            let stable = text.len();
            self.send(Event::InputText { response: Some(response), item, text, stable }).await?;
            self.send(Event::SegmentFinished { response, reason: FinishReason::Stop, usage: EngineUsage::default() })
                .await?;
        }
        while let Some(respond) = self.out_of_band.pop_front() {
            let response = respond.response;
            if respond.streamed {
                self.read_aloud(response).await?;
                continue;
            }
            let text = match respond.input {
                Some(inputs) => {
                    let mut contents = inputs.into_iter().filter_map(|input| match input {
                        ResponseInput::Content(content) => Some(content),
                        ResponseInput::Item(_) => None,
                    });
                    contents.next_back().map_or_else(|| "You gave me nothing.".into(), |content| self.reply_to(content))
                }
                None => self.reply.clone(),
            };
            self.send(Event::Text { response, text }).await?;
            for frame in 0..if respond.audio { self.script.frames } else { 0 } {
                self.send(Event::Audio { response, frame, samples: samples(&self.script, frame), stamps: None })
                    .await?;
            }
            self.send(Event::SegmentFinished { response, reason: FinishReason::Stop, usage: EngineUsage::default() })
                .await?;
        }
        Some(())
    }

    /// Calls the script's function if this response is offered it. Returns true if it did; `None` once the caller is
    /// gone.
    async fn call(&mut self, respond: &Respond) -> Option<bool> {
        let tools = respond.tools.as_ref().unwrap_or(&self.tools);
        let Some((name, pieces)) = self.script.call.clone() else { return Some(false) };
        if self.called || !tools.iter().any(|tool| tool.name == name) {
            return Some(false);
        }
        let response = respond.response;
        self.send(Event::ToolCall { response, call: 0, name }).await?;
        for arguments in pieces {
            self.send(Event::ToolArguments { response, call: 0, arguments }).await?;
        }
        Some(true)
    }

    async fn receive(&self) -> Option<Command> {
        let command = self.peer.commands.recv_async().await.ok()?;
        self.log.send_modify(|log| log.push(command.clone()));
        Some(command)
    }

    /// Makes one response; `None` once the caller is gone.
    async fn respond(&mut self, respond: &Respond) -> Option<()> {
        let response = respond.response;
        if let Some(error) = self.script.failure.clone() {
            return self.send(Event::Failed { response: Some(response), error }).await;
        }
        if respond.streamed {
            return self.read_aloud(response).await;
        }
        let scripted = self.script.responses.get(self.responses).cloned();
        let scripted =
            scripted.unwrap_or(ScriptedResponse { text: None, frames: self.script.frames, hold_after_frames: None });
        self.responses += 1;
        let accepted = Instant::now();
        let calls = self.call(respond).await?;
        if !calls {
            for piece in scripted.text.unwrap_or_else(|| self.reply.clone()).split_inclusive(' ') {
                self.send(Event::Text { response, text: piece.to_owned() }).await?;
            }
        }
        let first_token = Instant::now();
        let (mut frame, mut cancelled) = (0, false);
        let frames = if respond.audio && !calls { scripted.frames } else { 0 };
        while frame < frames && !cancelled {
            let gate = self.script.gate.clone();
            let permit = async {
                if scripted.hold_after_frames == Some(frame) {
                    std::future::pending::<()>().await;
                }
                passed(gate.as_deref()).await;
            };
            tokio::select! {
                biased;
                command = self.receive() => {
                    let command = command?;
                    cancelled = match &command {
                        Command::Cancel { response: named } | Command::AbortSpeculation { response: named } => {
                            *named == response
                        }
                        _ => false,
                    };
                    self.handle(command);
                    self.respond_out_of_band().await?;
                }
                () = permit => {
                    let now = Instant::now();
                    let stamps = LatencyStamps {
                        accepted,
                        encoding: accepted,
                        begun: accepted,
                        prefilled: accepted,
                        first_token,
                        first_frame: now,
                        first_samples: now,
                    };
                    let samples = samples(&self.script, frame);
                    self.send(Event::Audio { response, frame, samples, stamps: (frame == 0).then_some(stamps) }).await?;
                    self.frames.send_modify(|frames| *frames += 1);
                    frame += 1;
                }
            }
        }
        let reason = if cancelled { FinishReason::Cancelled } else { FinishReason::Stop };
        let usage = EngineUsage {
            input_text_tokens: 10,
            input_audio_tokens: 20,
            cached_tokens: 5,
            output_text_tokens: 4,
            output_audio_frames: u32::try_from(frame).unwrap_or(u32::MAX),
        };
        self.send(Event::SegmentFinished { response, reason, usage }).await
    }

    /// Speaks streamed text, one frame per word; `None` once the caller is gone.
    async fn read_aloud(&mut self, response: ResponseId) -> Option<()> {
        let (mut frame, mut cancelled) = (0, false);
        while !cancelled {
            let StreamedText { words, ended } = self.texts.entry(response).or_default();
            // A lone space between two pieces of text is not a word.
            if words.front().is_some_and(|word| word.trim().is_empty()) {
                let space = words.pop_front()?;
                self.send(Event::Text { response, text: space }).await?;
                continue;
            }
            let waits = words.is_empty();
            if waits && *ended {
                break;
            }
            let gate = self.script.gate.clone();
            tokio::select! {
                biased;
                command = self.receive() => {
                    let command = command?;
                    cancelled = matches!(command, Command::Cancel { response: named } if named == response);
                    self.handle(command);
                }
                () = passed(gate.as_deref()), if !waits => {
                    let text = self.texts.get_mut(&response)?.words.pop_front()?;
                    self.send(Event::Text { response, text }).await?;
                    self.send(Event::Audio { response, frame, samples: samples(&self.script, frame), stamps: None }).await?;
                    self.frames.send_modify(|frames| *frames += 1);
                    frame += 1;
                }
            }
        }
        let said = u32::try_from(frame).unwrap_or(u32::MAX);
        let usage = EngineUsage { output_text_tokens: said, output_audio_frames: said, ..EngineUsage::default() };
        let ended = if self.script.cuts_speech { FinishReason::Length } else { FinishReason::Stop };
        let reason = if cancelled { FinishReason::Cancelled } else { ended };
        self.send(Event::SegmentFinished { response, reason, usage }).await
    }

    async fn send(&self, event: Event) -> Option<()> {
        self.peer.events.send_async(event).await.ok()
    }
}

/// Waits for a permit of the gate. A closed gate blocks nothing.
async fn passed(gate: Option<&Semaphore>) {
    match gate {
        Some(gate) => drop(gate.acquire().await.map(tokio::sync::SemaphorePermit::forget)),
        None => tokio::task::yield_now().await,
    }
}

/// Returns the samples of frame `index` of a response.
fn samples(script: &Script, index: u64) -> Vec<f32> {
    let Some(sound) = &script.sound else { return voice_at(index, script.output_rate) };
    let length = FRAME_SAMPLES * script.output_rate as usize / OUTPUT_RATE as usize;
    let mut samples: Vec<f32> = sound.iter().skip(index as usize * length).take(length).copied().collect();
    samples.resize(length, 0.0);
    samples
}
