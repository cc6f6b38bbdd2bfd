//! Parity of the encoders of recordings with onnxruntime on the same small files, and of the speaker's spectrogram with Kaldi's.

use std::path::Path;

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::cosyvoice3::{
    CamPlus, HostRows, NamedTensor, SpeechTokenizer, campplus, kaldi_mel, speech_tokenizer,
};
use repartee_engine_testkit::{Expected, difference};
use repartee_kernels::cpu::Cpu;

use super::TOLERANCE;

/// Name of the fixture.
const ENCODERS: &str = "cosyvoice3_encoders";
const SPEAKER: &str = "campplus.onnx";
const SPEECH: &str = "speech_tokenizer_v3.onnx";

/// Output of an encoder with the given tensors.
type Read<'a> = &'a dyn Fn(&[NamedTensor]) -> Vec<f32>;

fn file(name: &str) -> Vec<u8> {
    std::fs::read(super::checkpoint().join(name)).unwrap()
}

fn rows(expected: &Expected, name: &str) -> HostRows {
    let (data, shape) = expected.tensor(name);
    HostRows { width: shape[1], data }
}

fn checkpoint(tensors: &[NamedTensor]) -> Checkpoint {
    Checkpoint::converted(Path::new("test.onnx"), tensors.iter().cloned())
}

/// Embedding of the fixture's spectrogram.
fn embedding(tensors: &[NamedTensor], expected: &Expected) -> Vec<f32> {
    let ops = Cpu::default();
    CamPlus::load(&ops, &checkpoint(tensors)).unwrap().forward(&ops, &rows(expected, "speaker.mel"))
}

/// Rows of the fixture's spectrogram, and their codes.
fn encoded(tensors: &[NamedTensor], expected: &Expected) -> (Vec<f32>, Vec<u32>) {
    let ops = Cpu::default();
    let tokenizer = SpeechTokenizer::load(&ops, &checkpoint(tensors)).unwrap();
    let encoded = tokenizer.encode(&ops, &rows(expected, "speech.mel"));
    let codes = tokenizer.quantize(&ops, &encoded);
    (encoded.data, codes)
}

#[test]
fn encoders_equal_onnxruntime() {
    let expected = Expected::load(ENCODERS);
    let ours = embedding(&campplus::tensors(&file(SPEAKER)).unwrap(), &expected);
    let found = difference(&ours, &expected.tensor("speaker.embedding").0);
    println!("embedding: {found:.1e}");
    assert!(found < TOLERANCE, "{found}");
    let (ours, codes) = encoded(&speech_tokenizer::tensors(&file(SPEECH)).unwrap(), &expected);
    let found = difference(&ours, &expected.tensor("speech.hidden").0);
    println!("rows: {found:.1e}");
    assert!(found < TOLERANCE, "{found}");
    assert_eq!(codes, expected.ids("speech.codes").0);
}

#[test]
fn speaker_spectrogram_equals_kaldi() {
    let expected = Expected::load(ENCODERS);
    let (samples, (levels, shape)) = (expected.tensor("fbank.samples").0, expected.tensor("fbank.mel"));
    assert_eq!(kaldi_mel::frames(samples.len()), shape[0]);
    let found = difference(&kaldi_mel::spectrogram(&samples, shape[1]), &levels);
    println!("spectrogram: {found:.1e}");
    assert!(found < TOLERANCE, "{found}");
}

#[test]
fn every_zeroed_tensor_of_an_encoder_is_noticed() {
    let expected = Expected::load(ENCODERS);
    let speech = |tensors: &[NamedTensor]| {
        // The projection moves the codes alone.
        let (rows, codes) = encoded(tensors, &expected);
        rows.into_iter().chain(codes.into_iter().map(|code| code as f32)).collect()
    };
    let speaker = |tensors: &[NamedTensor]| embedding(tensors, &expected);
    let all: [(Option<Vec<NamedTensor>>, Read<'_>); 2] =
        [(campplus::tensors(&file(SPEAKER)), &speaker), (speech_tokenizer::tensors(&file(SPEECH)), &speech)];
    for (tensors, output) in all {
        let tensors = tensors.unwrap();
        let whole = output(&tensors);
        let mut noticed = 0;
        // A layer without a bias has zeros.
        for at in (0..tensors.len()).filter(|&at| tensors[at].2.iter().any(|number| *number != 0.0)) {
            let mut changed = tensors.clone();
            changed[at].2.fill(0.0);
            let found = difference(&output(&changed), &whole);
            assert!(found > 10.0 * TOLERANCE, "{} is not noticed: {found}", changed[at].0);
            noticed += 1;
        }
        println!("{noticed} of {} tensors", tensors.len());
        assert!(noticed > tensors.len() / 2);
    }
}

#[test]
fn other_layers_are_refused() {
    let (speaker, speech) = (file(SPEAKER), file(SPEECH));
    assert!(campplus::tensors(&speech).is_none() && speech_tokenizer::tensors(&speaker).is_none());
    for cut in [0, 1, 100, speaker.len() / 2, speaker.len() - 1] {
        assert!(campplus::tensors(&speaker[..cut]).is_none(), "{cut} bytes");
    }
    // A tensor of another size, or none.
    let all = speech_tokenizer::tensors(&speech).unwrap();
    for at in 0..all.len() {
        let (mut short, mut absent) = (all.clone(), all.clone());
        short[at].1[0] -= 1;
        let left = short[at].1.iter().product();
        short[at].2.truncate(left);
        absent.remove(at);
        for tensors in [short, absent] {
            let loaded = SpeechTokenizer::load(&Cpu::default(), &checkpoint(&tensors));
            assert!(loaded.is_err(), "{}", all[at].0);
        }
    }
}
