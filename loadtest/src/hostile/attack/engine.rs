//! Attacks on the engine: prompts, speech and answers that a server has to work for.

use std::io::Write as _;

use anyhow::Result;

use super::victim::{TEXT, Victim, drain, frame, list};

const JSON: &str = "application/json";

/// Eight prompts of 3,800 tokens, within the context.
pub fn long_prompts(victim: &Victim) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    let content = format!(r#"[{{"type":"input_text","text":"{}"}}]"#, "one two ".repeat(1_900));
    let item = format!(r#"{{"type":"message","role":"user","content":{content}}}"#);
    let create = frame(TEXT, format!(r#"{{"type":"conversation.item.create","item":{item}}}"#).as_bytes());
    let respond = frame(TEXT, br#"{"type":"response.create"}"#);
    victim.repeat(8, |victim, _| {
        let mut socket = victim.websocket()?;
        drain(&socket)?;
        socket.write_all(&create)?;
        socket.write_all(&respond)?;
        victim.hold();
        Ok(())
    });
    Ok(())
}

fn chat(victim: &Victim, messages: &str, tokens: u32) -> Result<()> {
    let body = format!(r#"{{"messages":[{messages}],"modalities":["text"],"max_tokens":{tokens}}}"#);
    victim.post("/v1/chat/completions", JSON, body.as_bytes()).map(drop)
}

/// Prompts of 2,000 messages.
pub fn short_prompts(victim: &Victim) -> Result<()> {
    let messages = list(r#"{"role":"user","content":"hi"}"#, 2_000);
    victim.repeat(4, |victim, _| chat(victim, &messages, 3));
    Ok(())
}

/// Thirty texts of 4,090 letters, read aloud.
pub fn speech(victim: &Victim) -> Result<()> {
    let text = "one two three four five. ".repeat(163);
    let body = format!(r#"{{"input":"{text}","voice":"alloy","response_format":"pcm"}}"#);
    victim.repeat(30, |victim, _| {
        let socket = victim.send("/v1/audio/speech", JSON, body.as_bytes())?;
        drain(&socket)?;
        victim.hold();
        Ok(())
    });
    Ok(())
}

/// Answers in text that go on as long as they may.
pub fn text_answers(victim: &Victim) -> Result<()> {
    let message = r#"{"role":"user","content":"Please count from one to five."}"#;
    victim.repeat(24, |victim, _| chat(victim, message, 1_000));
    Ok(())
}
