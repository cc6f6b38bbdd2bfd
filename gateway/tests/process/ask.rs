//! `repartee ask` and `repartee say`: one turn, or one text, without a server.

use std::time::Duration;

use repartee::cli::ask::{AskError, Question, ask};
use repartee::cli::say::{SayError, say};
use repartee::cli::speech::WavTarget;
use repartee_media::sound_file::{SoundFileError, decode};
use repartee_testkit::scripted::{FRAME_SAMPLES, OUTPUT_RATE, Script, ScriptedEngine};
use repartee_testkit::wav::{SampleEncoding, WavFormat, encode};

/// Wav file of a tone of `frames` samples.
fn question(format: WavFormat, frames: u32) -> Vec<u8> {
    let samples: Vec<f32> = (0..frames).map(|frame| (frame as f32 * 0.1).sin() * 0.3).collect();
    encode(&samples, format)
}

#[tokio::test]
async fn any_wav_gets_a_playable_answer() {
    let folder = tempfile::tempdir().unwrap();
    let (path, answer) = (folder.path().join("question.wav"), folder.path().join("answer.wav"));
    for (channels, rate, encoding) in [
        (1, 16_000, SampleEncoding::Int(16)),
        (2, 44_100, SampleEncoding::Int(16)),
        (1, 8_000, SampleEncoding::Int(8)),
        (6, 48_000, SampleEncoding::Int(24)),
        (2, 96_000, SampleEncoding::Float),
    ] {
        let format = WavFormat { channels, rate, encoding };
        std::fs::write(&path, question(format, rate)).unwrap();
        let mut printed = Vec::new();
        let engine = ScriptedEngine::new(Script::default());
        let (question, target) = (Question::File(path.clone()), WavTarget::File(answer.clone()));
        let answered = ask(&*engine, &question, Some(&target), &mut printed).await.unwrap();
        assert_eq!(answered.transcript, "I heard 1000 ms.", "{format:?}");
        assert_eq!(printed, b"I heard 1000 ms.\n");
        assert!(answered.times.first_sound.unwrap() <= answered.times.took && answered.times.rtf().is_some());

        let written = std::fs::read(&answer).unwrap();
        // The header's channel count is one, and its sample size 16 bits.
        assert_eq!((&written[22..24], &written[34..36]), (&[1, 0][..], &[16, 0][..]));
        let wav = decode(&written[..], Duration::from_secs(1)).unwrap();
        assert_eq!((wav.rate, wav.samples.len()), (OUTPUT_RATE, 5 * FRAME_SAMPLES));
        let samples = wav.samples;
        let expected = (0..5).flat_map(repartee_testkit::scripted::voice);
        assert!(samples.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3));
    }
}

#[tokio::test]
async fn a_bad_question_is_a_typed_error() {
    let folder = tempfile::tempdir().unwrap();
    let (path, answer) = (folder.path().join("question.wav"), folder.path().join("answer.wav"));
    let engine = ScriptedEngine::new(Script::default());
    let target = WavTarget::File(answer.clone());
    let ask = async || ask(&*engine, &Question::File(path.clone()), Some(&target), &mut Vec::new()).await.unwrap_err();

    let missing = ask().await;
    assert!(matches!(missing, AskError::Read { .. }));
    assert!(missing.to_string().contains("question.wav"), "{missing}");

    std::fs::write(&path, "RIFF of nonsense").unwrap();
    assert!(matches!(ask().await, AskError::Sound { error: SoundFileError::Container { .. }, .. }));

    let format = WavFormat { channels: 1, rate: 16_000, encoding: SampleEncoding::Int(16) };
    std::fs::write(&path, question(format, 0)).unwrap();
    assert!(matches!(ask().await, AskError::Sound { error: SoundFileError::Empty, .. }));

    std::fs::write(&path, question(WavFormat { rate: 4_000, ..format }, 4_000)).unwrap();
    assert!(ask().await.to_string().contains("8000 to 384000"));

    // To silence a model answers anything.
    std::fs::write(&path, encode(&[0.0005; 48_000], format)).unwrap();
    assert!(matches!(ask().await, AskError::Silent { .. }));
    assert!(!answer.exists());
}

#[tokio::test]
async fn text_without_a_file_is_answered_in_text() {
    let engine = ScriptedEngine::new(Script::default());
    let asked = |text: &str| Question::Text(text.to_owned());
    let mut printed = Vec::new();
    let answered = ask(&*engine, &asked("Hello?\n"), None, &mut printed).await.unwrap();
    assert_eq!(answered.times.first_sound, None, "nobody hears it");
    assert_eq!(String::from_utf8(printed).unwrap().trim_end(), answered.transcript);
    let empty = ask(&*engine, &asked(" \n"), None, &mut Vec::new()).await.unwrap_err();
    assert!(matches!(empty, AskError::Empty), "{empty}");
}

#[tokio::test]
async fn a_text_of_any_sentences_is_said() {
    for reads_clauses in [false, true] {
        let engine = ScriptedEngine::new(Script { reads_clauses, ..Script::default() });
        let said = say(&*engine, "One two three. Four five!", Some("bob"), None).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("said.wav");
        said.speech.write(&WavTarget::File(path.clone())).unwrap();
        let wav = decode(&std::fs::read(path).unwrap()[..], Duration::from_secs(1)).unwrap();
        // A frame a word.
        assert_eq!((wav.rate, wav.samples.len(), said.cut), (OUTPUT_RATE, 5 * FRAME_SAMPLES, 0));
    }
    let engine = ScriptedEngine::new(Script::default());
    let refused = async |text: &str, voice| say(&*engine, text, voice, None).await.unwrap_err();
    let unknown = refused("Hello.", Some("eve")).await;
    assert_eq!(unknown.to_string(), "there is no voice `eve`: choose one of ada, bob");
    assert!(matches!(refused("…", None).await, SayError::Empty));
    assert!(matches!(refused(&"a ".repeat(40_000), None).await, SayError::TooLong(80_000)));
}
