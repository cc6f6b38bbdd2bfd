//! Realtime against one upload: the same long speech sent in real time, and as one file afterwards. Both are timed from
//! the end of the speech, and both stream their answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use repartee_report::ReportRow;
use serde_json::{Value, json};

use crate::measure::playback::{AnswerPlayback, Playback};
use crate::questions::{self, Question};
use crate::run::LoadRunner;
use crate::sample_rate::RATE;
use crate::scenario::arrivals::Arrivals;
use crate::scenario::{EndOfTurn, Scenario, TransportKind};
use crate::speech::pcm16;
use crate::target::text;

/// Timeout of an answer.
const PATIENCE: Duration = Duration::from_secs(120);
/// Longest line of the stream, in bytes.
const MAX_LINE: usize = 4 << 20;

/// Times of one answer, from the end of the speech.
#[derive(Debug, Clone, Copy)]
struct AnswerTimes {
    first_packet: Duration,
    /// Time until the last sound, divided by the duration of the sound.
    rtf: f64,
}

/// Compares both for each length of speech, in seconds.
///
/// # Errors
/// There are no questions, or an answer fails or is late.
pub async fn compare(bench: &LoadRunner, seconds: &[u32]) -> Result<Vec<ReportRow>> {
    let mut rows = Vec::new();
    for &length in seconds {
        println!("{length} s of speech, spoken in real time");
        let realtime = realtime(bench, speech(bench, length)?).await?;
        println!("{length} s of speech, in one upload");
        let upload = upload(bench, &speech(bench, length)?.utterance.samples).await?;
        let note = format!("{length} s of input; peer: one upload to chat/completions, streamed");
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let ttfp = format!("realtime against one upload, TTFP, {length} s");
        rows.push(ReportRow::lower_is_better(ttfp, ms(realtime.first_packet), ms(upload.first_packet), "ms", &note));
        rows.push(ReportRow::lower_is_better(
            format!("realtime against one upload, RTF, {length} s"),
            realtime.rtf,
            upload.rtf,
            "",
            &note,
        ));
    }
    Ok(rows)
}

/// Returns one utterance of about this length.
fn speech(bench: &LoadRunner, seconds: u32) -> Result<Question> {
    let all = questions::load(&bench.questions, &[])?;
    let mean = all.iter().map(|question| question.utterance.samples.len()).sum::<usize>() / all.len();
    let count = (seconds as usize * RATE as usize).div_ceil(mean.max(1));
    questions::long(&all, count)?.into_iter().next().context("there are no questions")
}

/// Speaks over a websocket in real time, and commits right after.
async fn realtime(bench: &LoadRunner, question: Question) -> Result<AnswerTimes> {
    let mut scenario = Scenario::for_command("soak")?;
    scenario.name = "realtime".to_owned();
    scenario.transport = TransportKind::Websocket;
    scenario.end_of_turn = EndOfTurn::Client;
    scenario.session.clear();
    scenario.arrivals = Arrivals::Poisson { per_s: 0.0 };
    scenario.turns = 1;
    scenario.duration_s = question.utterance.speech_end.as_secs_f64() + 5.0;
    scenario.patience_s = PATIENCE.as_secs_f64();
    let log = bench.run_one(&scenario, question).await?;
    let Some(turn) = log.turns.first() else {
        bail!("the speech was not answered: {}", log.errors.keys().next().map_or("no answer", String::as_str));
    };
    times(turn.ttfp.context("the commit came late")?, &turn.answer)
}

fn times(first_packet: Duration, answer: &AnswerPlayback) -> Result<AnswerTimes> {
    let (first, last) = answer.first_packet.zip(answer.last_packet).context("the answer has no sound")?;
    let made = first_packet + last.saturating_duration_since(first);
    Ok(AnswerTimes { first_packet, rtf: made.as_secs_f64() / answer.duration.as_secs_f64().max(1e-3) })
}

/// Uploads all samples in one request, and reads the streamed answer.
async fn upload(bench: &LoadRunner, samples: &[f32]) -> Result<AnswerTimes> {
    let content =
        json!([{"type": "input_audio", "input_audio": {"data": STANDARD.encode(wav(samples)), "format": "wav"}}]);
    let body = json!({
        "model": "default", "stream": true, "modalities": ["text", "audio"], "audio": {"format": "pcm16"},
        "messages": [{"role": "user", "content": content}],
    });
    let body = body.to_string();
    let begun = Instant::now();
    let answered = async {
        let response = bench.target.post("/chat/completions", "application/json", body.into(), 0).await?;
        let status = response.status();
        if !status.is_success() {
            bail!("chat/completions: {} {}", status.as_u16(), crate::target::error_code(&text(response).await?));
        }
        let (mut body, mut playback, mut position) = (response.into_body(), Playback::new(Duration::ZERO), 0);
        let mut waiting = Vec::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            let arrival = Instant::now();
            waiting.extend_from_slice(&data);
            while let Some(end) = waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = waiting.drain(..=end).collect();
                let samples = sound(&String::from_utf8_lossy(&line))?;
                playback.push(position, &samples, arrival, false);
                position += samples.len() as u64;
            }
            if waiting.len() > MAX_LINE {
                bail!("a line of the stream is longer than {MAX_LINE} bytes");
            }
        }
        Ok(playback.take_answer())
    };
    let answer = tokio::time::timeout(PATIENCE, answered).await.context("the upload was not answered in time")??;
    let first = answer.first_packet.context("the answer has no sound")?;
    times(first - begun, &answer)
}

/// Decodes the sound in a line of the stream; empty for lines without sound.
fn sound(line: &str) -> Result<Vec<f32>> {
    let Some(data) = line.trim().strip_prefix("data:").map(str::trim).filter(|data| *data != "[DONE]") else {
        return Ok(Vec::new());
    };
    let value: Value = serde_json::from_str(data).context("the stream is not JSON")?;
    match value["choices"][0]["delta"]["audio"]["data"].as_str() {
        Some(data) => Ok(crate::speech::from_pcm16(&STANDARD.decode(data).context("the sound is not base64")?)),
        None => Ok(Vec::new()),
    }
}

/// Returns a mono wav file of 16-bit samples at [`RATE`].
fn wav(samples: &[f32]) -> Vec<u8> {
    let data = pcm16(samples);
    let size = data.len() as u32;
    let mut file = Vec::with_capacity(data.len() + 44);
    file.extend_from_slice(b"RIFF");
    file.extend_from_slice(&(size + 36).to_le_bytes());
    file.extend_from_slice(b"WAVEfmt \x10\0\0\0\x01\0\x01\0");
    file.extend_from_slice(&RATE.to_le_bytes());
    file.extend_from_slice(&(RATE * 2).to_le_bytes());
    file.extend_from_slice(b"\x02\0\x10\0data");
    file.extend_from_slice(&size.to_le_bytes());
    file.extend_from_slice(&data);
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wav_reads_back() {
        let samples = [0.0, 0.5, -0.5, 0.25];
        let mut read = hound::WavReader::new(std::io::Cursor::new(wav(&samples))).unwrap();
        assert_eq!(read.spec().sample_rate, RATE);
        let found: Vec<f32> = read.samples::<i16>().map(|sample| f32::from(sample.unwrap()) / 32_767.0).collect();
        assert!(found.iter().zip(samples).all(|(found, sample)| (found - sample).abs() < 1e-4), "{found:?}");
    }

    #[test]
    fn sound_is_found_in_the_stream() {
        let data = STANDARD.encode(pcm16(&[0.5, -0.5]));
        let line = format!("data: {{\"choices\": [{{\"delta\": {{\"audio\": {{\"data\": \"{data}\"}}}}}}]}}\n");
        assert_eq!(sound(&line).unwrap().len(), 2);
        for silent in ["\n", "data: [DONE]\n", ": comment\n", "data: {\"choices\": []}\n"] {
            assert_eq!(sound(silent).unwrap().len(), 0, "{silent}");
        }
        assert!(sound("data: {").is_err());
    }
}
