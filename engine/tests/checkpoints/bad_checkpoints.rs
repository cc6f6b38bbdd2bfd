//! Errors of refused checkpoints: each names the file, the field or tensor at fault, and the remedy.
//!
//! Each test breaks one thing in a small folder that opens.

#![expect(clippy::unwrap_used, reason = "a test and its helpers fail by panicking")]

use std::fs;
use std::path::Path;

use repartee_engine::internals::qwen3_omni_moe::Config;
use repartee_engine::internals::{Checkpoint, DType, LogMelConfig, Tokenizer, load_model};
use repartee_engine::{CheckpointError, EngineConfig, LoadError, Source};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A valid configuration of the smallest kind.
fn config() -> Value {
    json!({
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "im_start_token_id": 1, "im_end_token_id": 2, "system_token_id": 3, "user_token_id": 4,
        "assistant_token_id": 5, "tts_bos_token_id": 6, "tts_eos_token_id": 7, "tts_pad_token_id": 8,
        "thinker_config": {
            "audio_start_token_id": 9, "audio_token_id": 10, "audio_end_token_id": 11,
            "audio_config": {
                "num_mel_bins": 16, "encoder_layers": 1, "encoder_attention_heads": 2, "encoder_ffn_dim": 16,
                "d_model": 8, "output_dim": 12, "downsample_hidden_size": 4, "n_window_infer": 200,
            },
            "text_config": {
                "vocab_size": 32, "hidden_size": 12, "intermediate_size": 16, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "num_experts": 0,
            },
        },
        "talker_config": {
            "thinker_hidden_size": 12, "accept_hidden_layer": 1, "num_code_groups": 4, "codec_bos_id": 1031,
            "codec_eos_token_id": 1032, "codec_pad_id": 1033, "codec_nothink_id": 1034, "codec_think_bos_id": 1035,
            "codec_think_eos_id": 1036, "speaker_id": {"ann": 1037},
            "text_config": {
                "vocab_size": 1040, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
                "num_attention_heads": 2, "num_key_value_heads": 1, "num_experts": 4, "num_experts_per_tok": 2,
                "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
            },
            "code_predictor_config": {
                "vocab_size": 16, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
                "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4, "num_code_groups": 4,
            },
        },
        "code2wav_config": {
            "codebook_size": 16, "num_quantizers": 4, "hidden_size": 8, "intermediate_size": 16,
            "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2, "decoder_dim": 8,
            "upsampling_ratios": [2], "upsample_rates": [3, 2],
        },
    })
}

/// A safetensors file of zeros.
fn weights(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let size = |dtype: Dtype, shape: &[usize]| shape.iter().product::<usize>() * dtype.bitsize() / 8;
    let zeros: Vec<Vec<u8>> = tensors.iter().map(|(_, dtype, shape)| vec![0; size(*dtype, shape)]).collect();
    let views = tensors
        .iter()
        .zip(&zeros)
        .map(|((name, dtype, shape), zeros)| (*name, TensorView::new(*dtype, shape.to_vec(), zeros).unwrap()));
    safetensors::serialize(views, None).unwrap()
}

/// Writes a folder that opens.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", config().to_string());
    write(
        folder.path(),
        "model.safetensors",
        weights(&[("norm.weight", Dtype::BF16, &[3]), ("ids", Dtype::I64, &[2])]),
    );
    folder
}

fn write(folder: &Path, file: &str, contents: impl AsRef<[u8]>) {
    fs::write(folder.join(file), contents).unwrap();
}

fn open(folder: &Path) -> Result<Checkpoint, CheckpointError> {
    Checkpoint::open(Source::Folder(folder.to_owned()))
}

fn load(folder: &Path) -> Result<Config, CheckpointError> {
    Config::load(&open(folder)?)
}

/// Text of the error, without the temporary folder's name.
#[track_caller]
fn message<T>(folder: &Path, outcome: Result<T, CheckpointError>) -> String {
    let error = outcome.err().expect("this checkpoint must be refused").to_string();
    error.replace(&format!("{}/", folder.display()), "")
}

#[track_caller]
fn assert_starts(message: &str, start: &str) {
    assert!(message.starts_with(start), "found    {message}\nexpected {start}..");
}

#[test]
fn an_unspoilt_folder_opens() {
    let folder = folder();
    let checkpoint = open(folder.path()).unwrap();
    assert_eq!(checkpoint.name(), folder.path().file_name().unwrap().to_str().unwrap());
    assert_eq!(checkpoint.tensor_names().collect::<Vec<_>>(), ["ids", "norm.weight"]);
    let tensor = checkpoint.tensor("norm.weight", &[3]).unwrap();
    assert_eq!((tensor.dtype, tensor.shape, &*tensor.bytes), (DType::Bf16, [3].as_slice(), [0; 6].as_slice()));
    let config = Config::load(&checkpoint).unwrap();
    assert_eq!(config.code2wav.samples_per_frame(), 12);
    let generation = config.generation(&checkpoint).unwrap();
    assert_eq!((generation.eos_token_ids, generation.thinker.temperature), (vec![2], 0.0));
    assert_eq!((generation.talker.temperature, generation.code_predictor.top_p), (0.9, 0.8));
}

#[test]
fn embedded_files_open_like_a_folder() {
    let config: &'static [u8] = config().to_string().into_bytes().leak();
    let weights: &'static [u8] = weights(&[("a", Dtype::F32, &[1])]).leak();
    let files: &'static [(&'static str, &'static [u8])] =
        vec![("config.json", config), ("model.safetensors", weights)].leak();
    let checkpoint = Checkpoint::open(Source::Embedded { name: "demo", files }).unwrap();
    assert_eq!(checkpoint.name(), "demo");
    assert_eq!(*checkpoint.tensor("a", &[1]).unwrap().bytes, [0; 4]);
    Config::load(&checkpoint).unwrap();
    let missing = checkpoint.bytes("tokenizer.json").unwrap_err().to_string();
    assert_starts(&missing, "demo/tokenizer.json: file missing");
}

#[test]
fn missing_folders_and_files_are_named() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path();
    let absent = open(&path.join("nowhere")).unwrap_err().to_string();
    assert!(absent.ends_with("nowhere: no such folder: name a folder that holds config.json and model.safetensors"));
    let published = open(Path::new("no-such-owner/a-checkpoint")).unwrap_err().to_string();
    assert!(published.contains("`hf download no-such-owner/a-checkpoint --local-dir a-checkpoint`"), "{published}");
    let claimed = |path| match load_model(&open(path)?, &EngineConfig::default()) {
        Err(LoadError::Checkpoint(error)) => Err(error),
        Err(error) => panic!("{error}"),
        Ok(_) => Ok(()),
    };
    assert_starts(&message(path, claimed(path)), "config.json: file missing");
    write(path, "config.json", config().to_string());
    assert_starts(&message(path, claimed(path)), "model.safetensors: file missing");
}

#[test]
fn invalid_json_is_named_with_its_place() {
    let folder = folder();
    write(folder.path(), "config.json", &config().to_string()[..100]);
    assert_starts(&message(folder.path(), open(folder.path())), "config.json: not JSON (EOF while parsing");
    write(folder.path(), "config.json", "{} {}");
    assert_starts(&message(folder.path(), open(folder.path())), "config.json: not JSON (trailing characters");
    write(folder.path(), "config.json", "3");
    assert_starts(&message(folder.path(), load(folder.path())), "config.json: top level: invalid type");
}

#[test]
fn wrongly_typed_fields_are_named_by_path() {
    let text = "/thinker_config/text_config/num_attention_heads";
    for (pointer, value, expected) in [
        (text, json!("four"), "config.json: thinker_config.text_config.num_attention_heads: invalid type: string"),
        (text, json!(-4), "config.json: thinker_config.text_config.num_attention_heads: invalid value: integer `-4`"),
        ("/talker_config/speaker_id/ann", json!(0.5), "config.json: talker_config.speaker_id.ann: invalid type"),
        (
            "/code2wav_config/upsample_rates/1",
            json!({}),
            "config.json: code2wav_config.upsample_rates[1]: invalid type",
        ),
        ("/code2wav_config", Value::Null, "config.json: code2wav_config: invalid type: null"),
    ] {
        let folder = folder();
        let mut config = config();
        *config.pointer_mut(pointer).unwrap() = value;
        write(folder.path(), "config.json", config.to_string());
        assert_starts(&message(folder.path(), load(folder.path())), expected);
    }
}

#[test]
fn a_missing_section_is_named() {
    let folder = folder();
    let mut config = config();
    config["thinker_config"].as_object_mut().unwrap().remove("audio_config");
    write(folder.path(), "config.json", config.to_string());
    assert_starts(
        &message(folder.path(), load(folder.path())),
        "config.json: thinker_config: missing field `audio_config`",
    );
}

#[test]
fn an_unknown_architecture_is_named() {
    let folder = folder();
    write(folder.path(), "config.json", r#"{"architectures": ["LlamaForCausalLM"]}"#);
    assert_eq!(
        message(folder.path(), load(folder.path())),
        "config.json: architectures: `LlamaForCausalLM` is not supported: choose a checkpoint of \
         Qwen3OmniMoeForConditionalGeneration"
    );
    write(folder.path(), "config.json", "{}");
    assert_starts(&message(folder.path(), load(folder.path())), "config.json: architectures: no architecture is named");
}

#[test]
fn a_text_only_checkpoint_is_refused() {
    let folder = folder();
    let mut config = config();
    config.as_object_mut().unwrap().remove("talker_config");
    config["enable_audio_output"] = json!(false);
    write(folder.path(), "config.json", config.to_string());
    assert_starts(
        &message(folder.path(), load(folder.path())),
        "config.json: enable_audio_output: false is not allowed",
    );
}

#[test]
fn unsupported_values_are_named_with_allowed_ones() {
    for (section, field, value, expected) in [
        ("", "im_end_token_id", json!(32), "32 is not allowed: must be below the vocabulary's size, which is 32"),
        ("", "tts_pad_token_id", json!(99), "99 is not allowed: must be below"),
        ("thinker_config", "audio_token_id", json!(400), "400 is not allowed: must be below"),
        ("thinker_config.audio_config", "n_window", json!(100), "100 is not allowed: must be 50"),
        (
            "thinker_config.audio_config",
            "n_window_infer",
            json!(150),
            "150 is not allowed: must be a positive multiple",
        ),
        ("thinker_config.audio_config", "d_model", json!(9), "9 is not allowed: must be a positive multiple"),
        ("thinker_config.audio_config", "activation_function", json!("relu"), "relu is not allowed: must be gelu"),
        ("thinker_config.audio_config", "output_dim", json!(16), "16 is not allowed: must be positive and equal to"),
        ("thinker_config.text_config", "hidden_size", json!(0), "0 is not allowed: must be at least 1"),
        (
            "thinker_config.text_config",
            "num_attention_heads",
            json!(3),
            "3 is not allowed: must be a positive multiple",
        ),
        ("thinker_config.text_config", "num_key_value_heads", json!(0), "0 is not allowed: must be at least 1"),
        ("thinker_config.text_config", "decoder_sparse_step", json!(0), "0 is not allowed: must be at least 1"),
        ("thinker_config.text_config", "hidden_act", json!("gelu"), "gelu is not allowed: must be silu"),
        ("thinker_config.text_config", "attention_bias", json!(true), "true is not allowed: must be false"),
        ("talker_config.text_config", "attention_bias", json!(true), "true is not allowed: must be false"),
        ("talker_config.code_predictor_config", "attention_bias", json!(true), "true is not allowed: must be false"),
        ("code2wav_config", "attention_bias", json!(true), "true is not allowed: must be false"),
        ("talker_config", "accept_hidden_layer", json!(3), "3 is not allowed: must be at most 2"),
        ("talker_config", "codec_eos_token_id", json!(2000), "2000 is not allowed: must be below"),
        ("talker_config", "speaker_id", json!({}), "{} is not allowed: must be at least one voice"),
        ("talker_config", "thinker_hidden_size", json!(13), "13 is not allowed: must be positive and equal to"),
        ("talker_config.text_config", "vocab_size", json!(1024), "1024 is not allowed: must be above 1024"),
        ("talker_config.text_config", "num_experts_per_tok", json!(5), "5 is not allowed: must be 1 to 4"),
        ("talker_config.text_config", "shared_expert_intermediate_size", json!(null), "none is not allowed"),
        (
            "talker_config.code_predictor_config",
            "num_code_groups",
            json!(5),
            "5 is not allowed: must be positive and equal",
        ),
        ("talker_config.code_predictor_config", "vocab_size", json!(17), "17 is not allowed: must be at most 16"),
        ("code2wav_config", "num_quantizers", json!(8), "8 is not allowed: must be positive and equal to"),
        ("code2wav_config", "upsample_rates", json!([]), "[] is not allowed: must be at least one factor"),
        ("code2wav_config", "upsample_rates", json!([3, 0]), "[3, 0] is not allowed: must be factors of 1 to 64"),
        ("code2wav_config", "decoder_dim", json!(6), "6 is not allowed: must be a positive multiple of 2 to the power"),
    ] {
        let folder = folder();
        let mut config = config();
        config.pointer_mut(&pointer(section)).unwrap()[field] = value;
        write(folder.path(), "config.json", config.to_string());
        let at = if section.is_empty() { field.to_owned() } else { format!("{section}.{field}") };
        assert_starts(&message(folder.path(), load(folder.path())), &format!("config.json: {at}: {expected}"));
    }
}

/// Turns `a.b` into a JSON pointer.
fn pointer(section: &str) -> String {
    section.split('.').filter(|part| !part.is_empty()).map(|part| format!("/{part}")).collect()
}

#[test]
fn scaled_rope_is_refused_under_both_names() {
    for (name, kind) in [("rope_parameters", "rope_type"), ("rope_scaling", "type")] {
        let folder = folder();
        let mut config = config();
        config["thinker_config"]["text_config"][name] = json!({kind: "yarn"});
        write(folder.path(), "config.json", config.to_string());
        assert_starts(
            &message(folder.path(), load(folder.path())),
            &format!("config.json: thinker_config.text_config.{name}.{kind}: yarn is not allowed: must be default"),
        );
    }
}

#[test]
fn corrupt_weight_files_are_named() {
    let folder = folder();
    let path = folder.path();
    let whole = fs::read(path.join("model.safetensors")).unwrap();
    let start = "model.safetensors: truncated or corrupt safetensors (";
    for cut in [0, 5, 30, whole.len() - 1] {
        write(path, "model.safetensors", &whole[..cut]);
        assert_starts(&message(path, open(path)), start);
    }
    write(path, "model.safetensors", [whole.as_slice(), b"more"].concat());
    assert_starts(&message(path, open(path)), start);
    let mut garbled = whole.clone();
    garbled[8] = b'!';
    write(path, "model.safetensors", garbled);
    assert_starts(&message(path, open(path)), &format!("{start}the header is not JSON"));
}

#[test]
fn shards_are_read_and_missing_ones_named() {
    let folder = folder();
    let path = folder.path();
    fs::remove_file(path.join("model.safetensors")).unwrap();
    let index = |second: &str| json!({"weight_map": {"a": "one.safetensors", "b": second}}).to_string();
    write(path, "one.safetensors", weights(&[("a", Dtype::F16, &[2])]));
    write(path, "model.safetensors.index.json", index("two.safetensors"));
    assert_starts(
        &message(path, open(path)),
        "model.safetensors.index.json: weight_map: shard `two.safetensors` (of tensor b) is missing",
    );

    write(path, "two.safetensors", weights(&[("c", Dtype::F32, &[1])]));
    assert_starts(
        &message(path, open(path)),
        "model.safetensors.index.json: weight_map: tensor b is not in its shard `two.safetensors`",
    );

    write(path, "two.safetensors", weights(&[("b", Dtype::F32, &[1])]));
    let checkpoint = open(path).unwrap();
    assert_eq!(checkpoint.tensor("a", &[2]).unwrap().dtype, DType::F16);
    assert_eq!(checkpoint.tensor("b", &[1]).unwrap().dtype, DType::F32);
    assert_starts(&message(path, checkpoint.tensor("z", &[1])), "model.safetensors.index.json: tensor z is missing");

    // A shard must be in its index's folder, not anywhere on the machine.
    write(path, "model.safetensors.index.json", index("../two.safetensors"));
    assert_starts(&message(path, open(path)), "model.safetensors.index.json: weight_map: shard `../two.safetensors`");
    write(path, "model.safetensors.index.json", r#"{"weight_map": {"a": 3}}"#);
    assert_starts(&message(path, open(path)), "model.safetensors.index.json: weight_map.a: invalid type");
}

#[test]
fn missing_or_mismatched_tensors_are_named() {
    let folder = folder();
    let path = folder.path();
    let checkpoint = open(path).unwrap();
    assert_starts(
        &message(path, checkpoint.tensor("thinker.lm_head.weight", &[1])),
        "model.safetensors: tensor thinker.lm_head.weight is missing",
    );
    assert_starts(
        &message(path, checkpoint.tensor("norm.weight", &[4, 1])),
        "model.safetensors: tensor norm.weight has shape [3], expected [4, 1]",
    );
    assert_starts(&message(path, checkpoint.tensor("ids", &[2])), "model.safetensors: tensor ids has dtype I64: only");
}

#[test]
fn bad_generation_configs_are_named() {
    let folder = folder();
    let path = folder.path();
    let load = || {
        let checkpoint = open(path)?;
        Config::load(&checkpoint)?.generation(&checkpoint)
    };
    for (written, expected) in [
        (json!({"eos_token_id": "x"}), "generation_config.json: eos_token_id: "),
        (json!({"eos_token_id": [2, 77]}), "generation_config.json: eos_token_id: [2, 77] is not allowed"),
        (json!({"eos_token_id": []}), "generation_config.json: eos_token_id: [] is not allowed"),
        (json!({"talker_top_p": 1.5}), "generation_config.json: talker_top_p: 1.5 is not allowed: must be above 0"),
        (json!({"repetition_penalty": 0}), "generation_config.json: repetition_penalty: 0 is not allowed"),
        (json!({"talker_top_k": -1}), "generation_config.json: talker_top_k: invalid value: integer `-1`"),
    ] {
        write(path, "generation_config.json", written.to_string());
        assert_starts(&message(path, load()), expected);
    }
    let sampled = json!({"eos_token_id": [2, 1], "do_sample": true, "temperature": 0.7, "talker_do_sample": false});
    write(path, "generation_config.json", sampled.to_string());
    let generation = load().unwrap();
    assert_eq!(generation.eos_token_ids, [2, 1]);
    assert_eq!((generation.thinker.temperature, generation.thinker.top_k), (0.7, 50));
    assert_eq!((generation.talker.temperature, generation.talker.repetition_penalty), (0.0, 1.05));
    assert_eq!(generation.code_predictor.temperature, 0.0, "greedy when the talker is");
}

#[test]
fn mismatched_feature_extractors_are_named() {
    let folder = folder();
    let path = folder.path();
    let load = |bins| LogMelConfig::load(&open(path)?, bins);
    assert_eq!(load(128).unwrap(), LogMelConfig::default(), "without the file the reference's values hold");
    let file = "preprocessor_config.json";
    write(path, file, r#"{"feature_size": 80, "hop_length": 160, "dither": 0.0}"#);
    assert_eq!(load(80).unwrap().feature_size, 80);
    assert_starts(&message(path, load(128)), &format!("{file}: feature_size: 80 is not allowed: must be 128"));
    write(path, file, r#"{"n_fft": 399}"#);
    assert_starts(&message(path, load(128)), &format!("{file}: n_fft: 399 is not allowed: must be an even number"));
}

#[test]
fn unfit_tokenizers_are_named() {
    let folder = folder();
    let path = folder.path();
    let load = |rows| Tokenizer::load(&open(path)?, rows);
    assert_starts(&message(path, load(3)), "tokenizer.json: file missing");
    write(path, "tokenizer.json", "{}");
    assert_starts(&message(path, load(3)), "tokenizer.json: not a tokenizer (");
    let file = json!({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 7}, "merges": []}});
    write(path, "tokenizer.json", file.to_string());
    assert_eq!(load(8).unwrap().token_id("c"), Some(7));
    assert_starts(
        &message(path, load(7)),
        "tokenizer.json: id of `c`: 7 is not allowed: must be below the model's vocab_size",
    );
}
