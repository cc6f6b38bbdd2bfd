//! `repartee ask`: one turn without a server.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

mod common;

use repartee::ask::{AskError, ask};
use repartee::media::pcm::from_i16;
use repartee::testing::{FRAME_SAMPLES, OUTPUT_RATE, Script, ScriptedEngine, voice};
use repartee::wav::WavError;

fn write(path: &std::path::Path, spec: hound::WavSpec, frames: usize) {
    let mut writer = hound::WavWriter::create(path, spec).unwrap();
    for frame in 0..frames {
        for _ in 0..spec.channels {
            let sample = (frame as f32 * 0.1).sin() * 0.3;
            match spec.sample_format {
                hound::SampleFormat::Float => writer.write_sample(sample).unwrap(),
                hound::SampleFormat::Int => {
                    writer.write_sample((sample * 2f32.powi(i32::from(spec.bits_per_sample) - 1)) as i32).unwrap();
                }
            }
        }
    }
    writer.finalize().unwrap();
}

#[tokio::test]
async fn a_wav_of_any_kind_is_answered_with_one_that_plays() {
    let folder = tempfile::tempdir().unwrap();
    let (question, answer) = (folder.path().join("question.wav"), folder.path().join("answer.wav"));
    let int = hound::SampleFormat::Int;
    for (channels, sample_rate, bits_per_sample, sample_format) in [
        (1, 16_000, 16, int),
        (2, 44_100, 16, int),
        (1, 8_000, 8, int),
        (6, 48_000, 24, int),
        (2, 96_000, 32, hound::SampleFormat::Float),
    ] {
        let spec = hound::WavSpec { channels, sample_rate, bits_per_sample, sample_format };
        write(&question, spec, sample_rate as usize);
        let mut printed = Vec::new();
        let engine = ScriptedEngine::new(Script::default());
        let answered = ask(&*engine, &question, &answer, &mut printed).await.unwrap();
        assert_eq!(answered.transcript, "I heard 1000 ms.", "{spec:?}");
        assert_eq!(printed, b"I heard 1000 ms.\n");
        assert!(answered.first_sound.unwrap() <= answered.took && answered.rtf().is_some());

        let mut reader = hound::WavReader::open(&answer).unwrap();
        let written = reader.spec();
        assert_eq!((written.channels, written.sample_rate, written.bits_per_sample), (1, OUTPUT_RATE, 16));
        let samples: Vec<f32> = reader.samples::<i16>().map(|sample| from_i16(sample.unwrap())).collect();
        assert_eq!(samples.len(), 5 * FRAME_SAMPLES);
        assert!((0..5).flat_map(voice).zip(&samples).all(|(a, b)| (a - b).abs() < 1e-3));
    }
}

#[tokio::test]
async fn what_is_no_question_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (question, answer) = (folder.path().join("question.wav"), folder.path().join("answer.wav"));
    let engine = ScriptedEngine::new(Script::default());
    let ask = async || ask(&*engine, &question, &answer, &mut Vec::new()).await.unwrap_err();

    let missing = ask().await;
    assert!(matches!(missing, AskError::Read { .. }));
    assert!(missing.to_string().contains("question.wav"), "{missing}");

    std::fs::write(&question, "RIFF of nonsense").unwrap();
    assert!(matches!(ask().await, AskError::Sound { error: WavError::Format(_), .. }));

    let sample_format = hound::SampleFormat::Int;
    let spec = hound::WavSpec { channels: 1, sample_rate: 16_000, bits_per_sample: 16, sample_format };
    write(&question, spec, 0);
    assert!(matches!(ask().await, AskError::Sound { error: WavError::Empty, .. }));

    write(&question, hound::WavSpec { sample_rate: 4_000, ..spec }, 4_000);
    assert!(ask().await.to_string().contains("8000 to 48000"));
    assert!(!answer.exists());
}
