//! Checkpoints in other published forms: pickles, FP8, AWQ and GPTQ. The fixtures are those of
//! `tests/parity/checkpoint_forms/make_fixtures.py`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use repartee_engine::internals::weights::Weights;
use repartee_engine::internals::{Checkpoint, DType, TensorData};
use repartee_engine::quantise::quantise;
use repartee_engine::{EngineConfig, Source, WeightPolicy};
use repartee_engine_api::{Command, Respond, Role};
use repartee_engine_testkit::driven::{Response, serve, submit};
use repartee_engine_testkit::folder;
use repartee_engine_testkit::forms::{FORMS, checkpoint, edit_config, mark};
use repartee_kernels::Ops as _;
use repartee_kernels::cpu::Cpu;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A matrix of the thinker that every quantised form has.
const MATRIX: &str = "thinker.audio_tower.layers.0.fc1.weight";
const SHAPE: [usize; 2] = [64, 32];

fn open(folder: &Path) -> Checkpoint {
    Checkpoint::open(Source::Folder(folder.to_owned())).unwrap()
}

/// The fixture as it is stored.
fn stored() -> PathBuf {
    folder("omni25").join("checkpoint")
}

fn config() -> EngineConfig {
    EngineConfig { sessions: 1, out_of_band: 0, session_tokens: 512, ..EngineConfig::default() }
}

fn answer(folder: &Path) -> Response {
    answer_with(folder, &config())
}

fn answer_with(folder: &Path, config: &EngineConfig) -> Response {
    let mut engine = serve(folder, config);
    let session = engine.open();
    submit(&session, Command::text(1, Role::User, "one two three"));
    engine.respond(&session, Respond { seed: 7, ..Respond::new(1, 2) }).unwrap()
}

/// Float copy of a checkpoint: every matrix with the numbers that its form stands for.
fn widened(form: &Path) -> tempfile::TempDir {
    let copy = repartee_engine_testkit::speech::copy(&stored());
    let (model, opened) = (copy.path().join("model.safetensors"), open(form));
    let file = fs::read(&model).unwrap();
    let whole = SafeTensors::deserialize(&file).unwrap();
    let mut changed = BTreeMap::new();
    for (name, tensor) in whole.tensors() {
        if let [_, _] = tensor.shape() {
            let (dtype, bytes) = match opened.numbers(&name, tensor.shape()).unwrap() {
                TensorData::Stored(view) if view.dtype == DType::Bf16 => (Dtype::BF16, view.bytes.to_vec()),
                data => (Dtype::F32, numbers(&data).iter().flat_map(|number| number.to_le_bytes()).collect()),
            };
            changed.insert(name, (dtype, tensor.shape().to_vec(), bytes));
        } else {
            changed.insert(name, (tensor.dtype(), tensor.shape().to_vec(), tensor.data().to_vec()));
        }
    }
    let views = changed
        .iter()
        .map(|(name, (dtype, shape, bytes))| (name.clone(), TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs::write(&model, safetensors::serialize(views, None).unwrap()).unwrap();
    copy
}

fn numbers(data: &TensorData<'_>) -> Vec<f32> {
    match data {
        TensorData::Stored(view) => view.dtype.widen(&view.bytes),
        TensorData::Packed(tensor) => tensor.numbers(),
        TensorData::Repacked(matrix) => matrix.numbers(),
        TensorData::Drawn(_) => panic!("drawn"),
    }
}

#[test]
fn pickles_answer_as_safetensors_do() {
    let (pickles, expected) = (checkpoint("pickles"), answer(&stored()));
    assert!(!expected.samples.is_empty());
    assert!(answer(pickles.path()).output() == expected.output());
    // Without the index all parts are read.
    fs::remove_file(pickles.path().join("pytorch_model.bin.index.json")).unwrap();
    assert!(answer(pickles.path()).output() == expected.output());
}

#[test]
fn eight_bit_floats_answer_as_their_numbers_do() {
    let form = checkpoint("fp8");
    let wide = widened(form.path());
    let found = answer(form.path());
    assert!(!found.samples.is_empty());
    assert!(found.output() == answer(wide.path()).output());
    let opened = open(form.path());
    assert!(opened.numbers(MATRIX, &SHAPE).unwrap() != open(&stored()).numbers(MATRIX, &SHAPE).unwrap());
}

#[test]
fn integers_of_awq_and_gptq_stay_integers() {
    for form in ["awq", "gptq"] {
        let copy = checkpoint(form);
        let opened = open(copy.path());
        let data = opened.numbers(MATRIX, &SHAPE).unwrap();
        assert!(matches!(&data, TensorData::Repacked(matrix) if matrix.minimums.is_some()), "{form}");
        let file = fs::read(stored().join("model.safetensors")).unwrap();
        let stored = SafeTensors::deserialize(&file).unwrap().tensor(MATRIX).unwrap().data().to_vec();
        let (found, first) = (numbers(&data), DType::Bf16.widen(&stored));
        let error = |found: &[f32]| found.iter().zip(&first).map(|(a, b)| (a - b).powi(2)).sum::<f32>();
        assert!(error(&found) < 0.02 * error(&vec![0.0; first.len()]), "{form}: {}", error(&found));
        let answered = answer(copy.path());
        assert!(!answered.samples.is_empty() && answered.samples.iter().all(|sample| sample.is_finite()), "{form}");
        // The mark may stand in a file of its own.
        edit_config(&copy, |config| drop(config.as_object_mut().unwrap().remove("quantization_config")));
        let file = if form == "awq" { "quant_config.json" } else { "quantize_config.json" };
        let mut settings: Value = mark(form);
        settings.as_object_mut().unwrap().remove("quant_method");
        fs::write(copy.path().join(file), settings.to_string()).unwrap();
        assert!(answer(copy.path()).output() == answered.output(), "{form}");
    }
}

/// The product of unit rows is the matrix: eight bits of a row hold a single 1.
#[test]
fn products_take_the_packed_numbers() {
    for form in ["awq", "gptq"] {
        let copy = checkpoint(form);
        let (ops, opened) = (Cpu::default(), open(copy.path()));
        let [out, inputs] = SHAPE;
        let matrix = numbers(&opened.numbers(MATRIX, &SHAPE).unwrap());
        let weight = Weights::new(&ops, &opened).linear(MATRIX, out, inputs).unwrap();
        let units = (0..inputs * inputs).map(|at| if at / inputs == at % inputs { 1.0 } else { 0.0 }).collect();
        let product = ops.linear(&ops.tensor(units, inputs), &weight, None);
        let product = ops.read(&product);
        let largest = matrix.iter().fold(0.0f32, |largest, number| largest.max(number.abs()));
        for (at, found) in product.iter().enumerate() {
            let expected = matrix[at % out * inputs + at / out];
            assert!((found - expected).abs() < 1e-3 * largest, "{form}: {found} for {expected}");
        }
    }
}

#[test]
fn unconverted_tensors_stay_in_the_file() {
    for form in FORMS {
        let copy = checkpoint(form);
        let opened = open(copy.path());
        let TensorData::Stored(view) = opened.numbers("thinker.lm_head.weight", &[300, 48]).unwrap() else {
            panic!("{form}")
        };
        assert!(matches!(view.bytes, std::borrow::Cow::Borrowed(_)), "{form}");
    }
}

#[test]
fn variants_that_are_not_read_are_named() {
    for (form, field, value, expected) in [
        ("awq", "version", "gemv", "quantization_config.version: gemv is not read: must be gemm"),
        (
            "gptq",
            "checkpoint_format",
            "marlin",
            "quantization_config.checkpoint_format: marlin is not read: must be gptq",
        ),
        ("fp8", "fmt", "e5m2", "quantization_config.fmt: e5m2 is not read: must be e4m3"),
        (
            "fp8",
            "weight_block_size",
            "128",
            "quantization_config.weight_block_size: 128 is not read: must be two positive",
        ),
        (
            "fp8",
            "quant_method",
            "exl2",
            "quantization_config.quant_method: exl2 is not allowed: must be compressed-tensors, awq",
        ),
    ] {
        let copy = checkpoint(form);
        edit_config(&copy, |config| config["quantization_config"][field] = value.into());
        let error = Checkpoint::open(Source::Folder(copy.path().to_owned())).unwrap_err().to_string();
        assert!(error.contains(&format!("config.json: {expected}")), "{error}");
    }
}

/// Puts a tensor of zeros in place of a form's own.
fn refusal(form: &str, tensor: &str, dtype: Dtype, shape: &[usize]) -> String {
    let copy = checkpoint(form);
    let model = copy.path().join("model.safetensors");
    let file = fs::read(&model).unwrap();
    let whole = SafeTensors::deserialize(&file).unwrap();
    let zeros = vec![0; shape.iter().product::<usize>() * dtype.bitsize() / 8];
    let mut tensors: BTreeMap<String, TensorView<'_>> = whole.tensors().into_iter().collect();
    tensors.insert(tensor.to_owned(), TensorView::new(dtype, shape.to_vec(), &zeros).unwrap());
    let changed = safetensors::serialize(tensors, None).unwrap();
    fs::write(&model, changed).unwrap();
    open(copy.path()).numbers(MATRIX, &SHAPE).unwrap_err().to_string()
}

#[test]
fn tensors_that_do_not_fit_are_named() {
    let module = MATRIX.strip_suffix(".weight").unwrap();
    for (form, part, dtype, shape, expected) in [
        ("awq", "qweight", Dtype::I32, &[64, 4][..], "has the shape [64, 4], and the model's matrix is [64, 32]"),
        ("awq", "scales", Dtype::BF16, &[1, 64], "is stored as BF16, and must be F16"),
        ("gptq", "qweight", Dtype::I32, &[3, 64], "has integers of about"),
        ("gptq", "g_idx", Dtype::I64, &[32], "is stored as I64, and must be I32"),
        ("fp8", "weight_scale_inv", Dtype::F32, &[2, 2], "do not make a matrix"),
        ("fp8", "weight_scale_inv", Dtype::F64, &[1, 1], "scales of F64 are not read"),
    ] {
        let error = refusal(form, &format!("{module}.{part}"), dtype, shape);
        assert!(error.contains("model.safetensors: tensor ") && error.contains(expected), "{error}");
    }
}

#[test]
fn pickles_are_quantised_into_safetensors() {
    let (pickles, out) = (checkpoint("pickles"), tempfile::tempdir().unwrap());
    quantise(pickles.path(), out.path(), WeightPolicy::Int8, 1, |_| {}).unwrap();
    let files: Vec<_> = fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!files.iter().any(|file| file.to_string_lossy().contains("pytorch")), "{files:?}");
    let config = EngineConfig { weights: WeightPolicy::Int8, ..config() };
    assert!(answer_with(out.path(), &config).output() == answer_with(pickles.path(), &config).output());
}
