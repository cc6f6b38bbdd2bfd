//! Published forms against their own Python tools: `tests/parity/checkpoint_forms/make_fixtures.py` makes the fixtures in `data`, which
//! carry the tools' versions.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::path::{Path, PathBuf};

use repartee_checkpoint::fp8::Fp8Scales;
use repartee_checkpoint::gguf::{GgmlDType, Gguf};
use repartee_checkpoint::grouped::{GroupedFormat, GroupedMatrix};
use repartee_checkpoint::pickle::PickleValue;
use repartee_checkpoint::{FormatError, IntegerPacking, blocks, fp8};
use safetensors::{Dtype, SafeTensors};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

fn data(name: &str) -> Vec<u8> {
    std::fs::read(path(name)).unwrap()
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Widens a tensor of a fixture.
fn numbers(tensor: &safetensors::tensor::TensorView<'_>) -> Vec<f32> {
    let halves = || tensor.data().as_chunks().0.iter();
    match tensor.dtype() {
        Dtype::F32 => floats(tensor.data()),
        Dtype::BF16 => halves().map(|half| half::bf16::from_le_bytes(*half).to_f32()).collect(),
        Dtype::F16 => halves().map(|half| half::f16::from_le_bytes(*half).to_f32()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn blocks_equal_the_packages_numbers() {
    let (file, expected) = (data("blocks.gguf"), data("blocks.expected.safetensors"));
    let (gguf, expected) = (Gguf::read("blocks.gguf", &file).unwrap(), SafeTensors::deserialize(&expected).unwrap());
    assert_eq!(gguf.tensors().len(), 13);
    let mut packed = Vec::new();
    for (name, tensor) in gguf.tensors() {
        let wanted = floats(expected.tensor(name).unwrap().data());
        assert_eq!(tensor.shape, [3, 512], "{name}");
        let (bytes, label) = (&file[tensor.bytes.clone()], ("blocks.gguf", &name[..]));
        let found = blocks::numbers(label, tensor.kind, &tensor.shape, bytes).unwrap();
        assert!(found == wanted, "{name} by candle");
        let Some(matrix) = blocks::pack(label, tensor.kind, [3, 512], bytes).unwrap() else { continue };
        packed.push(tensor.kind);
        let (inexact, numbers) = (is_rounded(tensor.kind), matrix.numbers());
        assert!(inexact || numbers == wanted, "{name} packed");
        // The scale of a group and its minimum are each rounded to eleven bits.
        let groups = numbers.chunks_exact(matrix.group).zip(wanted.chunks_exact(matrix.group));
        for (found, wanted) in groups {
            let (low, high) = wanted.iter().fold((f32::MAX, f32::MIN), |(low, high), n| (low.min(*n), high.max(*n)));
            let most = (high.abs().max(low.abs()) + high - low) * 2.0 / 2048.0;
            assert!(found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() <= most), "{name} rounded");
        }
        let of_file = bytes.len() as f64;
        assert!(matrix.bytes() as f64 <= of_file * growth(tensor.kind), "{name}: {} of {of_file}", matrix.bytes());
    }
    use GgmlDType::{Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0};
    packed.sort_by_key(|kind| format!("{kind:?}"));
    assert_eq!(packed, [Q4K, Q4_0, Q4_1, Q5K, Q5_0, Q5_1, Q6K, Q8_0]);
}

/// True if scales of a format are products.
fn is_rounded(kind: GgmlDType) -> bool {
    kind == GgmlDType::Q6K
}

/// Memory of the packed form against the file's.
fn growth(kind: GgmlDType) -> f64 {
    match kind {
        GgmlDType::Q5_0 | GgmlDType::Q5_1 | GgmlDType::Q5K => 1.7,
        GgmlDType::Q6K => 1.38,
        GgmlDType::Q4K => 1.03,
        _ => 1.0,
    }
}

#[test]
fn metadata_and_lists_are_read() {
    let gguf = Gguf::read("blocks.gguf", &data("blocks.gguf")).unwrap();
    assert_eq!(gguf.architecture(), Some("llama"));
    assert_eq!(gguf.integer(&gguf.own_key("embedding_length")), Some(512));
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    assert_eq!((gguf.text(&key("model")), gguf.text(&key("pre"))), (Some("gpt2"), Some("smollm")));
    assert_eq!(gguf.texts(&key("tokens")).unwrap().unwrap(), ["<|end|>", "a", "b", "ab", "é"]);
    assert_eq!(gguf.integers(&key("token_type")).unwrap().unwrap(), [3, 1, 1, 1, 1]);
    assert_eq!(gguf.numbers(&key("scores")).unwrap().unwrap(), [0.0, -1.0, -2.0, -3.5, -4.0]);
    assert_eq!((gguf.integer(&key("bos_token_id")), gguf.flag(&key("add_bos_token"))), (Some(0), Some(false)));
    assert!(gguf.has(&key("eos_token_id")) && !gguf.has(&key("unknown_token_id")));
    assert_eq!(gguf.texts("absent").unwrap(), None);
    let refusal = gguf.texts(&key("scores")).unwrap_err().to_string();
    assert_eq!(refusal, "blocks.gguf: tokenizer.ggml.scores: is no list of texts: copy the file again");
    assert!(gguf.integers(&key("model")).is_err(), "a text is no list");
}

#[test]
fn pickles_equal_torch() {
    let (file, expected) = (data("values.pt"), data("values.expected.safetensors"));
    let value = PickleValue::read("values.pt", &file).unwrap();
    let expected = SafeTensors::deserialize(&expected).unwrap();
    let tensors = value.tensors();
    let names: std::collections::BTreeSet<&str> = tensors.iter().map(|(name, _)| &name[..]).collect();
    assert_eq!(names, expected.names().into_iter().collect());
    for (name, tensor) in &tensors {
        let wanted = expected.tensor(name).unwrap();
        assert_eq!((tensor.dtype, &tensor.shape[..]), (wanted.dtype(), wanted.shape()), "{name}");
        assert!(*tensor.numbers(&file) == *wanted.data(), "{name}");
        let is_view = ["transposed", "narrow"].contains(&&name[..]);
        assert_eq!(tensor.place().is_none(), is_view, "{name}");
    }
    let token = value.get("Ann").and_then(|ann| ann.get("bos_token"));
    assert_eq!(token, Some(&PickleValue::Integer(151_669)));
    let text = |text: &str| PickleValue::Text(text.to_owned());
    use PickleValue::{Bool, Float, Integer, List, None as Nothing};
    let inner = List(vec![Integer(3), Integer(1 << 40)]);
    let plain = [Integer(1), Integer(-2), Float(2.5), text("text"), Nothing, Bool(true), inner];
    assert_eq!(value.get("plain"), Some(&List(plain.to_vec())));
}

#[test]
fn other_pickles_are_refused_by_name() {
    for (name, expected) in [
        ("module.pt", "module.pt: layer: holds `torch.nn.modules.linear.Linear`, and only tensors and plain values"),
        ("call.pt", "call.pt: more.hook: holds `posix.system`, and only tensors and plain values"),
        ("legacy.pt", "legacy.pt: its archive: has the form of PyTorch before 1.6: load it there"),
        ("blocks.gguf", "blocks.gguf: its archive: this is no file of PyTorch"),
    ] {
        let refusal = PickleValue::read(name, &data(name)).unwrap_err().to_string();
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    assert!(!Path::new("/tmp/this-pickle-ran").exists());
}

/// Tensors of a matrix in a fixture.
struct Stored(Vec<u8>);

impl Stored {
    fn matrix<R>(&self, format: GroupedFormat, use_it: impl FnOnce(GroupedMatrix<'_>, &[f32]) -> R) -> R {
        let all = SafeTensors::deserialize(&self.0).unwrap();
        let (expected, get) = (all.tensor("expected").unwrap(), |name: &str| all.tensor(&format!("m.{name}")).unwrap());
        let matrix = GroupedMatrix {
            file: "model.safetensors",
            name: "m",
            shape: [expected.shape()[0], expected.shape()[1]],
            format,
            integers: get("qweight").data(),
            zeros: get("qzeros").data(),
            scales: get("scales").data(),
            order: all.tensor("m.g_idx").ok().map(|order| order.data()),
        };
        use_it(matrix, &numbers(&expected))
    }
}

const GPTQ: GroupedFormat = GroupedFormat::Gptq { exact_zeros: false };

#[test]
fn grouped_matrices_equal_their_tools() {
    let cases = [
        ("awq_group32", GroupedFormat::Awq, Some((IntegerPacking::Four, true, 32))),
        ("awq_group128", GroupedFormat::Awq, Some((IntegerPacking::Four, true, 128))),
        ("gptq_group32", GPTQ, Some((IntegerPacking::Four, true, 32))),
        ("gptq_group128", GPTQ, Some((IntegerPacking::Four, true, 128))),
        ("gptq_symmetric", GPTQ, Some((IntegerPacking::Four, false, 64))),
        ("gptq_order", GPTQ, None),
        ("gptq_eight", GPTQ, Some((IntegerPacking::Bytes, false, 32))),
        ("gptq_eight_zeros", GPTQ, Some((IntegerPacking::Bytes, true, 32))),
    ];
    for (name, format, form) in cases {
        Stored(data(&format!("{name}.safetensors"))).matrix(format, |matrix, expected| {
            assert!(matrix.numbers().unwrap() == expected, "{name}");
            let packed = matrix.pack().unwrap();
            let found = packed.as_ref().map(|packed| (packed.packing, packed.minimums.is_some(), packed.group));
            assert_eq!(found, form, "{name}");
            let Some(packed) = packed else { return };
            let exact = packed.minimums.is_none();
            for (found, expected) in packed.numbers().iter().zip(expected) {
                // The minimum, up to the largest integer times its scale, is rounded to eleven bits.
                let most = if exact { 0.0 } else { 8.0 / 2048.0 };
                assert!((found - expected).abs() <= most, "{name}: {found} for {expected}");
            }
        });
    }
}

#[test]
fn exact_zeros_are_not_raised() {
    let stored = Stored(data("gptq_group32.safetensors"));
    stored.matrix(GPTQ, |matrix, expected| {
        // The same numbers with every zero raised by one in the file.
        let words = matrix.zeros.as_chunks().0.iter();
        let zeros: Vec<u8> =
            words.flat_map(|word| u32::from_le_bytes(*word).wrapping_add(0x1111_1111).to_le_bytes()).collect();
        let raised = GroupedMatrix { zeros: &zeros, format: GroupedFormat::Gptq { exact_zeros: true }, ..matrix };
        assert!(raised.numbers().unwrap() == expected);
    });
}

#[test]
fn grouped_tensors_that_do_not_fit_are_refused() {
    let stored = Stored(data("gptq_order.safetensors"));
    stored.matrix(GPTQ, |matrix, _| {
        let refusal = |matrix: GroupedMatrix<'_>| matrix.numbers().unwrap_err().to_string();
        let start = "model.safetensors: tensor m: ";
        for (changed, reason) in [
            (GroupedMatrix { integers: &matrix.integers[4..], ..matrix }, "has integers of about"),
            (GroupedMatrix { zeros: &matrix.zeros[4..], ..matrix }, "its qzeros, scales and qweight do not fit"),
            (GroupedMatrix { scales: &matrix.scales[2..], ..matrix }, "its qzeros, scales and qweight do not fit"),
            (GroupedMatrix { scales: &[], ..matrix }, "its qzeros, scales and qweight do not fit"),
            (GroupedMatrix { order: Some(&[0; 4]), ..matrix }, "its g_idx does not have"),
            (GroupedMatrix { order: Some(&[9; 512]), ..matrix }, "its g_idx names a group beyond the 4"),
            (GroupedMatrix { scales: &vec![0x7c; matrix.scales.len()], ..matrix }, "has a scale that is NaN"),
            (GroupedMatrix { shape: [0, 128], ..matrix }, "has the empty shape"),
        ] {
            let refusal = refusal(changed);
            assert!(refusal.starts_with(&format!("{start}{reason}")), "{refusal}");
        }
    });
}

#[test]
fn eight_bit_floats_equal_their_tool() {
    for (name, scale) in [("block", "weight_scale_inv"), ("channel", "weight_scale"), ("tensor", "weight_scale")] {
        let file = data(&format!("fp8_{name}.safetensors"));
        let all = SafeTensors::deserialize(&file).unwrap();
        let expected = all.tensor("expected").unwrap();
        let (weight, scales) = (all.tensor("m.weight").unwrap(), all.tensor(&format!("m.{scale}")).unwrap());
        let numbers = numbers(&scales);
        let shape = [expected.shape()[0], expected.shape()[1]];
        let scales = Fp8Scales { numbers: &numbers, shape: scales.shape(), block: [fp8::BLOCK; 2] };
        let found = fp8::dequantise(("f", "m.weight"), shape, weight.data(), scales).unwrap();
        assert!(found == expected.data(), "{name}");
        let other = Fp8Scales { block: [64, 64], shape: &[3, 3], numbers: &[1.0; 9] };
        let refusal = fp8::dequantise(("f", "m.weight"), shape, weight.data(), other).unwrap_err().to_string();
        assert!(refusal.contains("f: tensor m.weight: ") && refusal.contains("do not make a matrix"), "{refusal}");
    }
}

/// A GGUF file with one tensor of a type and claims of its own.
fn gguf(kind: u32, width: u64, offset: u64, alignment: u32) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut file = [&b"GGUF"[..], &3u32.to_le_bytes(), &1u64.to_le_bytes(), &2u64.to_le_bytes()].concat();
    file.extend([text("general.architecture"), 8u32.to_le_bytes().to_vec(), text("test")].concat());
    file.extend([text("general.alignment"), 4u32.to_le_bytes().to_vec(), alignment.to_le_bytes().to_vec()].concat());
    file.extend([text("blk.0.weight"), 1u32.to_le_bytes().to_vec(), width.to_le_bytes().to_vec()].concat());
    file.extend([&kind.to_le_bytes()[..], &offset.to_le_bytes()].concat());
    file.resize(file.len().next_multiple_of(32) + 64, 0);
    file
}

#[test]
fn torn_and_unknown_gguf_files_are_named() {
    assert_eq!(Gguf::read("a.gguf", &gguf(0, 16, 0, 32)).unwrap().tensors().len(), 1);
    let refusal = |file: &[u8]| Gguf::read("a.gguf", file).unwrap_err().to_string();
    for (file, reason) in [
        (gguf(0, 17, 0, 32), "a.gguf: tensor blk.0.weight: is not whole in the file"),
        (gguf(0, 16, u64::MAX - 64, 32), "a.gguf: tensor blk.0.weight: is not whole in the file"),
        (gguf(0, u64::MAX, 0, 32), "a.gguf: tensor blk.0.weight: F32 cannot have the shape"),
        (gguf(12, 32, 0, 32), "a.gguf: tensor blk.0.weight: Q4K cannot have the shape"),
        (gguf(39, 16, 0, 32), "a.gguf: tensor blk.0.weight: has blocks of the type 39, which are not read"),
        (gguf(0, 16, 0, 0), "a.gguf: general.alignment: is 0"),
        (b"GGUF\x03\0\0\0".to_vec(), "a.gguf: its counts: "),
        (b"GGML".to_vec(), "a.gguf: its first bytes: this is not a GGUF file"),
    ] {
        let refusal = refusal(&file);
        assert!(refusal.starts_with(reason), "{refusal}");
    }
    let whole = data("blocks.gguf");
    for length in (0..whole.len()).step_by(97) {
        assert!(Gguf::read("a.gguf", &whole[..length]).is_err(), "{length} bytes");
    }
}

/// A count or a length that the file does not have is refused before memory is taken for it.
#[test]
fn claims_beyond_the_file_are_refused() {
    let file = gguf(0, 16, 0, 32);
    for at in (4..file.len() - 64).step_by(4) {
        let mut changed = file.clone();
        changed[at..at + 4].fill(0xff);
        let _ = Gguf::read("a.gguf", &changed);
    }
    let mut changed = file;
    changed[8..16].fill(0x7f);
    let refusal = Gguf::read("a.gguf", &changed).unwrap_err().to_string();
    assert!(refusal.contains("tensor_count"), "{refusal}");
}

#[test]
fn changed_pickles_are_read_or_refused() {
    let whole = data("values.pt");
    let mut refused = 0;
    for at in 0..whole.len() {
        for value in [0, 0x8a, 0xff] {
            let mut changed = whole.clone();
            changed[at] = value;
            match PickleValue::read("values.pt", &changed) {
                Ok(value) => value.tensors().iter().for_each(|(_, tensor)| {
                    assert_eq!(tensor.numbers(&changed).len(), tensor.length());
                }),
                Err(FormatError::Refused { .. }) => refused += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(PickleValue::read("values.pt", &whole[..at]).is_err(), "{at} bytes");
    }
    assert!(refused > 1000, "{refused} refused");
}
