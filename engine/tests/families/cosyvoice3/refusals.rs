//! Refused folders of CosyVoice3: errors name the file and the field.

use repartee_engine::internals::{Checkpoint, load_model};
use repartee_engine::{EngineConfig, Source};
use repartee_engine_testkit::speech::copy;

use super::checkpoint;

/// Error of a folder after a change.
fn refused(change: impl Fn(&std::path::Path)) -> String {
    let copy = copy(&checkpoint());
    change(copy.path());
    let checkpoint = Checkpoint::open(Source::Folder(copy.path().to_path_buf())).unwrap();
    load_model(&checkpoint, &EngineConfig::default()).map(|_| ()).unwrap_err().to_string()
}

#[test]
fn wrong_fields_are_named() {
    for (from, to, field) in [
        ("mix_ratio: [5, 15]", "mix_ratio: [5]", "llm.mix_ratio"),
        ("    vocab_size: 64", "    vocab_size: 65", "flow.vocab_size"),
        ("solver: 'euler'", "solver: 'midpoint'", "solver"),
        ("n_fft: 16", "n_fft: 18", "hift.istft_params.n_fft"),
        ("sampling_rate: !ref <sample_rate>", "sampling_rate: 22050", "sample_rate"),
        ("static_chunk_size: !ref <chunk_size> * <token_mel_ratio>", "static_chunk_size: 51", "static_chunk_size"),
        ("    hop_size: 480", "    hop_size: 441", "feat_extractor.hop_size"),
        ("llm_input_size: 32", "llm_input_size: 64", "llm_input_size"),
        ("llm: !new:cosyvoice.llm.llm.CosyVoice3LM", "llm: !python/object:os.system", "line"),
    ] {
        let error = refused(|folder| {
            let path = folder.join("cosyvoice3.yaml");
            let text = std::fs::read_to_string(&path).unwrap();
            assert!(text.contains(from), "{from}");
            std::fs::write(path, text.replacen(from, to, 1)).unwrap();
        });
        assert!(error.contains("cosyvoice3.yaml") && error.contains(field), "{to}: {error}");
    }
}

#[test]
fn missing_files_are_named() {
    for file in ["llm.pt", "flow.pt", "hift.pt", "spk2info.pt", "CosyVoice-BlankEN/config.json"] {
        let error = refused(|folder| std::fs::remove_file(folder.join(file)).unwrap());
        assert!(error.contains(file), "{file}: {error}");
    }
}

#[test]
fn files_of_another_kind_are_refused() {
    let swapped = refused(|folder| {
        std::fs::copy(folder.join("flow.pt"), folder.join("hift.pt")).unwrap();
    });
    assert!(swapped.contains("hift.pt") && swapped.contains("ups.0"), "{swapped}");
    let voices = refused(|folder| {
        std::fs::copy(folder.join("flow.pt"), folder.join("spk2info.pt")).unwrap();
    });
    assert!(voices.contains("spk2info.pt") && voices.contains("flow_embedding"), "{voices}");
    let cut = refused(|folder| {
        let path = folder.join("llm.pt");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    });
    assert!(cut.contains("llm.pt"), "{cut}");
    for (file, like) in [("campplus.onnx", "speech_tokenizer_v3.onnx"), ("speech_tokenizer_v3.onnx", "campplus.onnx")] {
        let other = refused(|folder| {
            std::fs::copy(folder.join(like), folder.join(file)).unwrap();
        });
        assert!(other.contains(file) && other.contains("copy the published file"), "{other}");
    }
}

#[test]
fn folders_without_encoders_clone_nothing() {
    for file in ["campplus.onnx", "speech_tokenizer_v3.onnx"] {
        let copy = copy(&checkpoint());
        std::fs::remove_file(copy.path().join(file)).unwrap();
        let checkpoint = Checkpoint::open(Source::Folder(copy.path().to_path_buf())).unwrap();
        let model = load_model(&checkpoint, &EngineConfig::default()).unwrap();
        assert_eq!((model.voices.recording_rate(), model.voices.names().len()), (None, 2), "{file}");
    }
}

#[test]
fn newer_language_models_are_found() {
    let copy = copy(&checkpoint());
    std::fs::rename(copy.path().join("llm.pt"), copy.path().join("llm.rl.pt")).unwrap();
    let checkpoint = Checkpoint::open(Source::Folder(copy.path().to_path_buf())).unwrap();
    load_model(&checkpoint, &EngineConfig::default()).unwrap();
}
