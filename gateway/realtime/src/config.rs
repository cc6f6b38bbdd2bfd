//! `session.update`: accepts the settings of stock clients and maps them to the model's capabilities, with a warning for
//! each difference.

use repartee_engine_api::{Eviction, ModelInfo};
use repartee_media::endpointing;
use repartee_media::tempo::SPEEDS;
use repartee_media::{resample, vad::TurnSettings};
use repartee_protocol::beta::renew_session;
use repartee_protocol::merge::{differences, merge, strip_nulls};
use repartee_protocol::session::{
    AudioFormat, Eagerness, MaxTokens, Modality, ServerVad, Session, SessionKind, TurnDetection,
};
use repartee_protocol::truncation::{Retention, Truncation};
use repartee_protocol::{ErrorBody, ErrorKind};
use serde_json::{Value, json};

use super::echo::json_bytes;
use super::encodable::check_text;
use super::tools;

/// Maximum prefix padding in ms; it bounds the preroll.
const MAX_PREFIX_MS: u32 = 5_000;
/// Maximum `silence_duration_ms` of `server_vad`.
const MAX_SILENCE_MS: u32 = 60_000;
/// Range of the idle timeout in ms, as in the published reference.
const IDLE_MS: std::ops::RangeInclusive<u32> = 5_000..=30_000;
/// Silence before a speculation starts, in ms.
const PAUSE_MS: u64 = 200;
/// Range of `repartee.slice_ms`.
const ANSWERED_SLICE_MS: std::ops::RangeInclusive<u32> = 100..=10_000;
/// Maximum length of instructions, in bytes.
pub(super) const MAX_INSTRUCTIONS: usize = 256 << 10;
/// Range of `max_output_tokens`, as in the published reference.
const OUTPUT_TOKENS: std::ops::RangeInclusive<u32> = 1..=4_096;
/// Maximum lengths of a transcription's language and prompt, in bytes.
const MAX_LANGUAGE: usize = 64;
const MAX_PROMPT: usize = 4 << 10;
/// Maximum size of the fields that the server returns as sent (`tools` and `tool_choice`), in bytes.
const MAX_ECHOED: usize = 256 << 10;

/// Returns the initial configuration of a session with `patch` applied.
///
/// # Errors
///
/// The patch is invalid, or the model does not support it.
pub fn initial_session(id: &str, model: &ModelInfo, patch: &Value) -> Result<Session, ErrorBody> {
    updated(&initial(id, SessionKind::Realtime, model), patch, model)
}

/// Returns the default configuration of a new session.
pub(super) fn initial(id: &str, kind: SessionKind, model: &ModelInfo) -> Session {
    // A model that only hears serves transcription sessions alone.
    let kind = if model.answers { kind } else { SessionKind::Transcription };
    let instructions = if kind == SessionKind::Realtime { model.instructions.clone() } else { String::new() };
    let mut config = Session { kind, id: id.to_owned(), instructions, ..Session::default() };
    config.audio.input.turn_detection = Some(TurnDetection::ServerVad(ServerVad::default()));
    apply_capabilities(&mut config, model);
    config
}

/// Returns `config` with `patch` applied. An error changes nothing.
pub(super) fn updated(config: &Session, patch: &Value, model: &ModelInfo) -> Result<Session, ErrorBody> {
    if !patch.is_object() {
        return Err(ErrorBody::invalid(ErrorKind::InvalidValue, "`session` is an object").with_param("session"));
    }
    let mut patch = patch.clone();
    let renamed = renew_session(&mut patch);
    let patch = &patch;
    let mut merged = to_value(config)?;
    // A change of the session type starts from the defaults of the new type.
    if let Some(kind) = patch.get("type").and_then(|kind| serde_json::from_value(kind.clone()).ok())
        && kind != config.kind
    {
        merged = to_value(&initial(&config.id, kind, model))?;
    }
    merge(&mut merged, patch);
    strip_nulls(&mut merged);
    let mut next: Session =
        serde_path_to_error::deserialize(merged).map_err(|error| ErrorBody::from_path(&error, "session"))?;
    // `null` asks for the default.
    if patch.get("instructions").is_some_and(Value::is_null) && next.kind == SessionKind::Realtime {
        next.instructions.clone_from(&model.instructions);
    }
    check(&next, model)?;
    if next.kind == SessionKind::Transcription && !model.transcribes {
        let message = format!(
            "`{}` cannot transcribe, so a transcription session would do nothing: load a checkpoint that can \
             (`engine.transcribes`), or use a session of the type `realtime`",
            model.name
        );
        return Err(ErrorBody::invalid(ErrorKind::TranscriptionUnavailable, message).with_param("session.type"));
    }
    if next.kind == SessionKind::Realtime && !model.answers {
        let message = format!("`{}` only transcribes: use a session of the type `transcription`", model.name);
        return Err(ErrorBody::invalid(ErrorKind::TranscriptionSession, message).with_param("session.type"));
    }
    next.id.clone_from(&config.id);
    next.expires_at = config.expires_at;
    next.repartee.warnings.clear();
    apply_capabilities(&mut next, model);
    let mut effective = to_value(&next)?;
    // Serialization omits a default extension, but the patch may request the defaults explicitly.
    effective["repartee"] = json!(next.repartee);
    next.repartee.warnings = renamed;
    next.repartee.warnings.extend(differences(patch, &effective, "session"));
    if drops_tools(patch, model) {
        next.repartee.warnings.retain(|warning| !warning.starts_with("session.tools "));
        next.repartee.warnings.push(tools::DROPPED.to_owned());
    }
    Ok(next)
}

/// True if the patch has tools, and the model calls none.
pub(super) fn drops_tools(patch: &Value, model: &ModelInfo) -> bool {
    !model.tools && patch.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty())
}

fn to_value(config: &Session) -> Result<Value, ErrorBody> {
    serde_json::to_value(config).map_err(|error| ErrorBody::server(ErrorKind::Internal, error.to_string()))
}

/// Rejects values that are invalid for every model.
fn check(config: &Session, model: &ModelInfo) -> Result<(), ErrorBody> {
    let refuse =
        |param: &str, message: String| Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param));
    for (param, format) in [
        ("session.audio.input.format.rate", config.audio.input.format),
        ("session.audio.output.format.rate", config.audio.output.format),
    ] {
        check_rate(format, param)?;
    }
    if let Some(TurnDetection::ServerVad(vad)) = &config.audio.input.turn_detection {
        let at = "session.audio.input.turn_detection";
        if !(0.0..=1.0).contains(&vad.threshold) {
            return refuse(&format!("{at}.threshold"), format!("a threshold is 0 to 1, got {}", vad.threshold));
        }
    }
    // Twice the bytes as JSON, so that the event that repeats them is below 1 MiB.
    if config.instructions.len() > MAX_INSTRUCTIONS || json_bytes(&config.instructions) > 2 * MAX_INSTRUCTIONS {
        return refuse("session.instructions", format!("instructions hold at most {MAX_INSTRUCTIONS} bytes"));
    }
    check_text(&config.instructions, model, || "session.instructions".into())?;
    let echoed = config.tools.iter().chain([&config.tool_choice]).map(|value| value.to_string().len()).sum::<usize>();
    if echoed > MAX_ECHOED {
        return refuse("session.tools", format!("tools hold at most {MAX_ECHOED} bytes"));
    }
    check_max_tokens(config.max_output_tokens, "session.max_output_tokens")?;
    if let Some(transcription) = &config.audio.input.transcription {
        let at = "session.audio.input.transcription";
        for (field, value, limit) in
            [("language", &transcription.language, MAX_LANGUAGE), ("prompt", &transcription.prompt, MAX_PROMPT)]
        {
            if value.as_ref().is_some_and(|value| value.len() > limit) {
                return refuse(&format!("{at}.{field}"), format!("`{field}` has at most {limit} bytes"));
            }
        }
    }
    if let Some(ms) = config.repartee.slice_ms.filter(|ms| !ANSWERED_SLICE_MS.contains(ms)) {
        let (least, most) = (ANSWERED_SLICE_MS.start(), ANSWERED_SLICE_MS.end());
        return refuse("session.repartee.slice_ms", format!("a slice is {least} to {most} ms, got {ms}"));
    }
    check_truncation(config.truncation)?;
    tools::check_choice(&config.tool_choice, &config.tools, model, "session.tool_choice")?;
    tools::functions(&config.tools, "session.tools").map(drop)
}

/// Rejects a share that is none, and a limit that no item fits.
fn check_truncation(truncation: Truncation) -> Result<(), ErrorBody> {
    let refuse = |field: &str, message: String| {
        let param = format!("session.truncation.{field}");
        Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
    };
    let Truncation::Retention(Retention { retention_ratio: ratio, token_limits, .. }) = truncation else {
        return Ok(());
    };
    if !(0.0..=1.0).contains(&ratio) {
        return refuse("retention_ratio", format!("a share is 0 to 1, got {ratio}"));
    }
    match token_limits.and_then(|limits| limits.post_instructions) {
        Some(0) => refuse("token_limits.post_instructions", "a limit is at least 1 token".to_owned()),
        _ => Ok(()),
    }
}

/// Policy of the engine for a conversation that exceeds the context.
pub(super) fn eviction(truncation: Truncation) -> Eviction {
    match truncation {
        Truncation::Auto(_) => Eviction::default(),
        Truncation::Disabled(_) => Eviction::Nothing,
        Truncation::Retention(Retention { retention_ratio: kept, token_limits, .. }) => {
            Eviction::Oldest { kept, most: token_limits.and_then(|limits| limits.post_instructions) }
        }
    }
}

/// Rejects token limits out of range.
pub(super) fn check_max_tokens(limit: MaxTokens, param: &str) -> Result<(), ErrorBody> {
    match limit.count().filter(|count| !OUTPUT_TOKENS.contains(count)) {
        None => Ok(()),
        Some(count) => {
            let (least, most) = (OUTPUT_TOKENS.start(), OUTPUT_TOKENS.end());
            let message = format!("max_output_tokens is {least} to {most}, or \"inf\", got {count}");
            Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
        }
    }
}

/// Rejects sample rates out of range.
pub(super) fn check_rate(format: AudioFormat, param: &str) -> Result<(), ErrorBody> {
    if resample::RATES.contains(&format.rate()) {
        return Ok(());
    }
    let message = format!("sample rates are 8000 to 48000 Hz, got {}", format.rate());
    Err(ErrorBody::invalid(ErrorKind::InvalidValue, message).with_param(param))
}

/// Replaces requested settings by those that the model supports.
fn apply_capabilities(config: &mut Session, model: &ModelInfo) {
    config.model.clone_from(&model.name);
    config.tracing = None;
    config.prompt = None;
    config.reasoning = None;
    config.include = None;
    if config.kind == SessionKind::Transcription {
        serve_transcription(config);
    }
    match &mut config.audio.input.transcription {
        Some(transcription) if model.transcribes => {
            transcription.model = Some(model.name.clone());
            // Text of other models comes at the end of a turn.
            transcription.delay = transcription.delay.filter(|_| model.hears_text);
        }
        other => *other = None,
    }
    let speed = &mut config.audio.output.speed;
    *speed = if model.audio_output { speed.clamp(*SPEEDS.start(), *SPEEDS.end()) } else { 1.0 };
    config.tools.retain(|tool| model.tools && tools::is_function(tool));
    let voice = &mut config.audio.output.voice;
    if !model.voices.contains(voice) {
        voice.clone_from(&model.default_voice);
    }
    // Both modalities together mean audio, which includes a transcript.
    let asked = config.output_modalities.is_empty() || config.output_modalities.contains(&Modality::Audio);
    config.output_modalities = vec![if asked && model.audio_output { Modality::Audio } else { Modality::Text }];
    if let Some(TurnDetection::ServerVad(vad)) = &mut config.audio.input.turn_detection {
        vad.idle_timeout_ms = vad.idle_timeout_ms.map(|ms| ms.clamp(*IDLE_MS.start(), *IDLE_MS.end()));
        vad.prefix_padding_ms = vad.prefix_padding_ms.min(MAX_PREFIX_MS);
        vad.silence_duration_ms = vad.silence_duration_ms.min(MAX_SILENCE_MS);
    }
}

/// Enables transcription, and disables responses, interruption and the idle timeout.
fn serve_transcription(config: &mut Session) {
    config.audio.input.transcription.get_or_insert_default();
    match &mut config.audio.input.turn_detection {
        Some(TurnDetection::ServerVad(vad)) => {
            vad.create_response = false;
            vad.interrupt_response = false;
            vad.idle_timeout_ms = None;
        }
        Some(TurnDetection::SemanticVad(vad)) => {
            vad.create_response = false;
            vad.interrupt_response = false;
        }
        None => {}
    }
}

/// Converts wire settings to those of the turn detector.
pub(super) fn turn_settings(detection: &TurnDetection, speculative: bool) -> TurnSettings {
    let settings = match detection {
        TurnDetection::ServerVad(vad) => TurnSettings {
            threshold: vad.threshold as f32,
            prefix_padding_ms: vad.prefix_padding_ms.into(),
            silence_duration_ms: vad.silence_duration_ms.into(),
            ..TurnSettings::default()
        },
        TurnDetection::SemanticVad(vad) => {
            let eagerness = match vad.eagerness {
                Eagerness::Low => endpointing::Eagerness::Low,
                Eagerness::Medium | Eagerness::Auto => endpointing::Eagerness::Medium,
                Eagerness::High => endpointing::Eagerness::High,
            };
            TurnSettings { eagerness: Some(eagerness), ..TurnSettings::default() }
        }
    };
    TurnSettings { pause_ms: Some(PAUSE_MS).filter(|_| speculative && detection.creates_response()), ..settings }
}
