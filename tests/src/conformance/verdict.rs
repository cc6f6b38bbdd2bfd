//! Checks of a finished conversation, the same for every client.

use anyhow::{Context, Result, bail, ensure};
use repartee_engine_api::Command;
use serde_json::Value;

use super::scenario::{AwaitedPart, ClientAnswer, ClientReport, Scenario};
use super::voice::{self, ReceiverTolerance};

/// Upper bound of silence at the end of a turn plus padding before it, in any client's turn detection.
const LONGEST_SILENCE_MS: u64 = 1_000;

/// The side that owns the playout clock, and so reports a truncation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlayoutSide {
    /// The client: it plays the websocket's sound, and truncates the item.
    Client,
    /// The server: it plays to this receiver, over WebRTC.
    Server(ReceiverTolerance),
}

/// Records of one conversation.
#[derive(Debug)]
pub struct Conversation<'a> {
    /// Planned turns and answers.
    pub scenario: &'a Scenario,
    /// Report of the client.
    pub report: &'a ClientReport,
    /// Events that the server sent.
    pub events: &'a [Value],
    /// Commands that the engine received.
    pub commands: &'a [Command],
    /// Owner of the playout clock.
    pub clock: PlayoutSide,
    /// Error codes that the client is known to provoke and ignore.
    pub provoked: &'a [&'a str],
}

/// Required events: the check must fail if one of them is missing.
const INDISPENSABLE: [&str; 10] = [
    "session.created",
    "session.updated",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "response.created",
    "response.content_part.added",
    "response.output_audio.done",
    "response.output_item.done",
    "response.done",
    "conversation.item.truncated",
];

impl Conversation<'_> {
    /// Checks the conversation; fails with the first fault. Then checks itself: without any of the required events it
    /// must fail.
    pub fn judge(&self) -> Result<()> {
        self.verdict()?;
        for kind in INDISPENSABLE {
            let events: Vec<_> = self.events.iter().filter(|event| event["type"] != kind).cloned().collect();
            let judged = Conversation { events: &events, ..*self }.verdict();
            ensure!(judged.is_err(), "a conversation without {kind} would have passed");
        }
        Ok(())
    }

    /// Checks a function call: the client's function was called, and its result was answered aloud.
    pub fn judge_call(&self) -> Result<()> {
        self.judge_errors()?;
        let function = self.scenario.function.as_ref().context("there is no function")?;
        let written = function.arguments.concat();
        let called: Value = serde_json::from_str(&written)?;
        ensure!(self.report.calls == [called], "called with {:?}", self.report.calls);
        let pieces = self.of("response.function_call_arguments.delta").filter_map(|event| event["delta"].as_str());
        ensure!(pieces.collect::<String>() == written, "the arguments came otherwise");
        let done = self.of("response.function_call_arguments.done").next().context("the arguments have no end")?;
        ensure!(done["arguments"] == written && done["call_id"].is_string(), "{done}");
        let answered = self.of("conversation.item.added").find(|event| event["item"]["type"] == "function_call_output");
        ensure!(answered.is_some_and(|event| event["item"]["call_id"] == done["call_id"]), "answered by {answered:?}");

        let done: Vec<_> = self.of("response.done").map(|event| &event["response"]).collect();
        let [call, answer] = done[..] else { bail!("{} answers came to an end", done.len()) };
        ensure!(call["output"][0]["type"] == "function_call" && call["status"] == "completed", "{call}");
        let made = answer["output"][0]["content"][0]["transcript"].as_str().context("the answer has no transcript")?;
        ensure!(made.contains(function.result), "the answer is {made:?}");
        let [seen] = &self.report.answers[..] else { bail!("the client saw {} answers", self.report.answers.len()) };
        ensure!(seen.transcript == made, "the client has {:?}, not {made:?}", seen.transcript);
        self.judge_sound(0, seen, true)
    }

    fn judge_errors(&self) -> Result<()> {
        ensure!(self.report.errors.is_empty(), "the client complains: {:?}", self.report.errors);
        let is_provoked = |event: &&Value| self.provoked.iter().any(|code| event["error"]["code"] == *code);
        let errors: Vec<_> = self.of("error").filter(|event| !is_provoked(event)).collect();
        ensure!(errors.is_empty(), "the server complains: {errors:?}");
        Ok(())
    }

    fn verdict(&self) -> Result<()> {
        self.judge_errors()?;
        ensure!(self.kinds().next() == Some("session.created"), "the first event is {:?}", self.kinds().next());
        ensure!(self.of("session.updated").next().is_some(), "no session.updated");

        let answers = self.scenario.turns.len();
        let done: Vec<_> = self.of("response.done").map(|event| &event["response"]).collect();
        ensure!(done.len() == answers, "{} answers came to an end, not {answers}", done.len());
        ensure!(self.report.answers.len() == answers, "the client saw {} answers", self.report.answers.len());
        for (index, response) in done.iter().enumerate() {
            self.judge_turn(index, response).with_context(|| format!("turn {index}"))?;
        }
        Ok(())
    }

    fn judge_turn(&self, index: usize, response: &Value) -> Result<()> {
        let turn = &self.scenario.turns[index];
        let seen = &self.report.answers[index];
        self.judge_life(response)?;

        let made =
            response["output"][0]["content"][0]["transcript"].as_str().context("the answer has no transcript")?;
        match turn.answer.text {
            Some(text) => ensure!(made == text, "the transcript is {made:?}, not {text:?}"),
            None => self.check_input(index, made)?,
        }

        let status = response["status"].as_str().unwrap_or_default();
        let reason = response["status_details"]["reason"].as_str();
        let item = response["output"][0]["id"].as_str().context("the answer has no item")?;
        match turn.until {
            AwaitedPart::Finished => {
                ensure!(status == "completed" && !seen.interrupted, "{status}, by the client {}", seen.interrupted);
                ensure!(seen.transcript == made, "the client has {:?}, not {made:?}", seen.transcript);
                self.judge_sound(index, seen, true)
            }
            AwaitedPart::Held => {
                ensure!(status == "cancelled" && reason == Some("turn_detected"), "{status} {reason:?}");
                ensure!(seen.interrupted, "the client does not know that it was interrupted");
                ensure!(made.starts_with(seen.transcript.trim_end()), "the client has {:?}", seen.transcript);
                self.judge_sound(index, seen, false)
            }
            AwaitedPart::Playing => {
                ensure!(status == "completed", "{status}");
                ensure!(seen.interrupted, "the client does not know that it was interrupted");
                self.judge_sound(index, seen, false)?;
                self.judge_truncated(item, made, turn.answer.milliseconds())
            }
        }
    }

    /// Checks that the events of a response arrived in order.
    fn judge_life(&self, response: &Value) -> Result<()> {
        let id = response["id"].as_str().context("the response has no id")?;
        let about = |event: &&Value| event["response_id"] == id || event["response"]["id"] == id;
        let kinds: Vec<_> = self.events.iter().filter(about).filter_map(|event| event["type"].as_str()).collect();
        let mut left = kinds.iter();
        let sounds: &[&str] = match self.clock {
            PlayoutSide::Client => &["response.output_audio.delta"],
            PlayoutSide::Server(_) => &[],
        };
        let before = ["response.created", "response.output_item.added", "response.content_part.added"];
        let after = [
            "response.output_audio.done",
            "response.output_audio_transcript.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.done",
        ];
        for kind in before.iter().chain(sounds).chain(&after) {
            ensure!(left.any(|seen| seen == kind), "{kind} is missing or late in {kinds:?}");
        }
        if self.clock != PlayoutSide::Client {
            ensure!(kinds.contains(&"output_audio_buffer.started"), "no output_audio_buffer.started in {kinds:?}");
            let ends = ["output_audio_buffer.stopped", "output_audio_buffer.cleared"];
            ensure!(kinds.iter().filter(|kind| ends.contains(kind)).count() == 1, "played to no end: {kinds:?}");
        }
        Ok(())
    }

    /// Checks that the engine got the turn that the server cut out, except for some silence at its end: a speculation
    /// may begin before the end.
    fn check_input(&self, index: usize, made: &str) -> Result<()> {
        let nth = |kind: &str, field: &str| {
            let event = self.of(kind).nth(index).with_context(|| format!("no {kind}"))?;
            event[field].as_u64().with_context(|| format!("no {field} in {event}"))
        };
        let start = nth("input_audio_buffer.speech_started", "audio_start_ms")?;
        let end = nth("input_audio_buffer.speech_stopped", "audio_end_ms")?;
        let cut = end.checked_sub(start).context("a turn ends before it begins")?;
        let heard = made.strip_prefix("I heard ").and_then(|rest| rest.strip_suffix(" ms."));
        let heard: u64 = heard.with_context(|| format!("the transcript is {made:?}"))?.parse()?;
        ensure!(heard <= cut && cut - heard < LONGEST_SILENCE_MS, "{heard} ms of a turn of {cut} ms were heard");
        let spoken = self.scenario.turns[index].spoken_ms;
        ensure!(heard > spoken / 2 && heard < spoken + LONGEST_SILENCE_MS, "{heard} ms of {spoken} ms were heard");
        Ok(())
    }

    /// Checks that the client's sound is the generated sound: all of it if `whole`, or its beginning.
    fn judge_sound(&self, index: usize, seen: &ClientAnswer, whole: bool) -> Result<()> {
        let answer = &self.scenario.turns[index].answer;
        let sound = std::fs::read(&seen.sound).with_context(|| seen.sound.display().to_string())?;
        let (length_ms, made_ms) = (sound.len() as u64 * 1_000 / 48_000, answer.milliseconds());
        ensure!(!sound.is_empty(), "there was no sound");
        match self.clock {
            PlayoutSide::Client => {
                let made = answer.sound();
                ensure!(made.starts_with(&sound), "{length_ms} ms of sound are not the beginning of what was made");
                ensure!(!whole || sound.len() == made.len(), "{length_ms} ms of {made_ms} ms came");
            }
            PlayoutSide::Server(receiver) => voice::judge(&sound, whole.then_some(made_ms), made_ms, receiver)?,
        }
        Ok(())
    }

    /// Checks that the item was truncated on the wire, and that the engine got the remaining words.
    fn judge_truncated(&self, item: &str, text: &str, made_ms: u64) -> Result<()> {
        let cut = self.of("conversation.item.truncated").find(|event| event["item_id"] == item);
        let cut_ms = cut.and_then(|event| event["audio_end_ms"].as_u64());
        ensure!(cut_ms.is_some_and(|ms| ms > 0 && ms < made_ms), "cut at {cut_ms:?} ms of {made_ms} ms");
        let kept: Vec<_> = self.commands.iter().filter_map(kept_text).collect();
        let is_beginning = |kept: &&str| !kept.is_empty() && kept.len() < text.len() && text.starts_with(kept);
        ensure!(kept.iter().any(is_beginning), "the engine keeps {kept:?}");
        Ok(())
    }

    fn kinds(&self) -> impl Iterator<Item = &str> {
        self.events.iter().filter_map(|event| event["type"].as_str())
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }
}

fn kept_text(command: &Command) -> Option<&str> {
    match command {
        Command::Truncate { text, .. } => Some(text),
        _ => None,
    }
}
