//! Times the encoders of CosyVoice3's recordings on one thread, as the server runs them.
//!
//! `cargo bench -p repartee-engine --bench cloning -- FOLDER [SECONDS]` reads `campplus.onnx` and `speech_tokenizer_v3.onnx` of the
//! folder (those of `tests/parity/cosyvoice3/make_encoders.py FOLDER` have the published dimensions) and prints a line of JSON: the
//! shapes of a recording of so many seconds (10), the seconds of loading and of each encoder, and the resident memory.
#![allow(clippy::unwrap_used)] // A panic is this benchmark's report.

use std::path::{Path, PathBuf};
use std::time::Instant;

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::cosyvoice3::{
    CamPlus, HostRows, NamedTensor, SpeechTokenizer, campplus, speech_tokenizer,
};
use repartee_kernels::cpu::Cpu;
use repartee_kernels::random::normal;
use serde_json::json;

/// Frames of a second of both spectrograms.
const FRAMES: usize = 100;
/// Frames that the speaker's spectrogram lacks at the end of a recording.
const CUT: usize = 2;

fn open(folder: &Path, file: &str, tensors: fn(&[u8]) -> Option<Vec<NamedTensor>>) -> Checkpoint {
    let path = folder.join(file);
    Checkpoint::converted(&path, tensors(&std::fs::read(&path).unwrap()).expect("the layers of the published file"))
}

/// Random mel frames.
fn frames(width: usize, count: usize) -> HostRows {
    HostRows { width, data: (0..(width * count) as u64).map(|at| normal(1, 0, at, 0)).collect() }
}

/// Bytes of the process in memory.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        println!("name a folder with the encoders of CosyVoice3");
        return;
    };
    let seconds: usize = arguments.next().map_or(10, |seconds| seconds.parse().expect("a number of seconds"));
    let (ops, begun) = (Cpu::default(), Instant::now());
    let speaker = CamPlus::load(&ops, &open(&folder, "campplus.onnx", campplus::tensors)).unwrap();
    let tokens = open(&folder, "speech_tokenizer_v3.onnx", speech_tokenizer::tensors);
    let speech = SpeechTokenizer::load(&ops, &tokens).unwrap();
    drop(tokens);
    let loading = begun.elapsed().as_secs_f64();
    let mel = frames(speech.bins(), seconds * FRAMES);
    let levels = frames(speaker.bins(), seconds * FRAMES - CUT);
    // The first run takes memory from the system.
    let timed = |run: &dyn Fn() -> usize| {
        let made = run();
        let begun = Instant::now();
        assert_eq!(run(), made);
        (made, begun.elapsed().as_secs_f64())
    };
    let (codes, of_speech) = timed(&|| speech.quantize(&ops, &speech.encode(&ops, &mel)).len());
    let (numbers, of_speaker) = timed(&|| speaker.forward(&ops, &levels).len());
    let found = json!({
        "seconds": seconds,
        "mel": [mel.count(), mel.width],
        "codes": codes,
        "levels": [levels.count(), levels.width],
        "speaker": numbers,
        "loading_s": loading,
        "codes_s": of_speech,
        "speaker_s": of_speaker,
        "resident_mb": resident().map(|bytes| bytes / 1_000_000),
    });
    println!("{found}");
}
