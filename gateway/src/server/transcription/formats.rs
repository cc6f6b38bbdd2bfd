//! Bodies of answers: objects, subtitles, plain text.

use serde_json::{Value, json};

use super::languages;
use super::request::{TranscriptTask, TranscriptionPlan};
use super::segments::{TranscriptSegment, seconds};
use super::transcript::{Transcript, TranscriptUsage};

/// Usage on the wire: tokens where the model counts them, else the duration.
pub(super) fn usage(transcript: &Transcript) -> Value {
    match transcript.usage {
        TranscriptUsage::Tokens { .. } => token_usage(transcript).unwrap_or_default(),
        TranscriptUsage::Duration => json!({"type": "duration", "seconds": transcript.duration.as_secs_f64().ceil()}),
    }
}

/// Usage in tokens; `None` if the model counts none.
pub(super) fn token_usage(transcript: &Transcript) -> Option<Value> {
    let TranscriptUsage::Tokens { text, audio, output } = transcript.usage else { return None };
    let input = text + audio;
    Some(json!({
        "type": "tokens",
        "input_tokens": input,
        "input_token_details": {"text_tokens": text, "audio_tokens": audio},
        "output_tokens": output,
        "total_tokens": input + output,
    }))
}

/// Name of the language of a text.
fn language(plan: &TranscriptionPlan, transcript: &Transcript) -> String {
    match (plan.task, &transcript.language) {
        (TranscriptTask::Translate, _) => "english".to_owned(),
        (TranscriptTask::Transcribe, Some(code)) => languages::name_of(code).unwrap_or(code).to_owned(),
        (TranscriptTask::Transcribe, None) => "unknown".to_owned(),
    }
}

/// Answer of the format `json`.
pub(super) fn json_body(plan: &TranscriptionPlan, transcript: &Transcript) -> Value {
    let mut body = json!({"text": transcript.text});
    if plan.task == TranscriptTask::Transcribe {
        body["usage"] = usage(transcript);
    }
    body
}

/// Answer of the format `verbose_json`.
pub(super) fn verbose_body(plan: &TranscriptionPlan, transcript: &Transcript) -> Value {
    let task = if plan.task == TranscriptTask::Translate { "translate" } else { "transcribe" };
    let mut body = json!({
        "task": task,
        "language": language(plan, transcript),
        "duration": seconds(transcript.duration),
        "text": transcript.text,
    });
    if plan.segments {
        body["segments"] = json!(transcript.segments);
    }
    if plan.words {
        body["words"] = json!(transcript.words);
    }
    if plan.task == TranscriptTask::Transcribe {
        body["usage"] = json!({"type": "duration", "seconds": transcript.duration.as_secs_f64().ceil()});
    }
    body
}

/// Hours, minutes, seconds and milliseconds of a time in seconds.
fn clock(time: f64, point: char) -> String {
    let ms = (time * 1_000.0).round() as u64;
    let (s, ms) = (ms / 1_000, ms % 1_000);
    format!("{:02}:{:02}:{:02}{point}{ms:03}", s / 3_600, s / 60 % 60, s % 60)
}

/// Text of a cue: one line without the mark of times.
fn cue(segment: &TranscriptSegment) -> String {
    segment.text.split_whitespace().collect::<Vec<_>>().join(" ").replace("-->", "->")
}

/// Answer of the format `srt`.
pub(super) fn srt(segments: &[TranscriptSegment]) -> String {
    let cues = segments.iter().zip(1..).map(|(segment, number)| {
        format!("{number}\n{} --> {}\n{}\n\n", clock(segment.start, ','), clock(segment.end, ','), cue(segment))
    });
    cues.collect()
}

/// Answer of the format `vtt`.
pub(super) fn vtt(segments: &[TranscriptSegment]) -> String {
    let cues = segments.iter().map(|segment| {
        let text = cue(segment).replace('&', "&amp;").replace('<', "&lt;");
        format!("{} --> {}\n{text}\n\n", clock(segment.start, '.'), clock(segment.end, '.'))
    });
    std::iter::once("WEBVTT\n\n".to_owned()).chain(cues).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::segments::segments;
    use super::*;

    #[test]
    fn subtitles_have_times_and_one_line_each() {
        let span = |from: u64, to: u64| Duration::from_millis(from)..Duration::from_millis(to);
        let mut all = segments(0, &span(0, 1_234), "a --> b", None);
        all.extend(segments(1, &span(3_600_000, 3_661_500), "x < y\n& z", None));
        let expected = "1\n00:00:00,000 --> 00:00:01,234\na -> b\n\n2\n01:00:00,000 --> 01:01:01,500\nx < y & z\n\n";
        assert_eq!(srt(&all), expected);
        let expected =
            "WEBVTT\n\n00:00:00.000 --> 00:00:01.234\na -> b\n\n01:00:00.000 --> 01:01:01.500\nx &lt; y &amp; z\n\n";
        assert_eq!(vtt(&all), expected);
        assert_eq!((srt(&[]), vtt(&[])), (String::new(), "WEBVTT\n\n".to_owned()));
    }
}
