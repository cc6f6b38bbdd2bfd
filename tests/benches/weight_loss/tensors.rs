//! Quantisation errors of single tensors.

use std::collections::BTreeMap;

use repartee_engine::WeightPolicy;
use repartee_engine::internals::{Checkpoint, DType};
use repartee_kernels::cpu::quantised::{IntegerFormat, QuantisedWeight};
use repartee_kernels::{WeightFormat, WeightLayout};
use repartee_report::ReportRow;

/// Sums over the tensors of one kind.
#[derive(Default)]
struct Kind {
    bytes: usize,
    squares: f64,
    errors: f64,
    worst: (f64, String),
}

/// Returns the layout of a tensor: experts or linear; `None` for tensors that are not quantised.
fn layout(name: &str, shape: &[usize]) -> Option<WeightLayout> {
    let routes = name.ends_with("mlp.gate.weight") || name.ends_with("shared_expert_gate.weight");
    let looked_up = name.contains("embed") || name.contains("codebook") || name.contains(".visual.");
    if shape.len() != 2 || routes || looked_up {
        return None;
    }
    Some(if name.contains(".experts.") { WeightLayout::Experts { per_expert: 1 } } else { WeightLayout::Linear })
}

/// Returns the error of each kind of matrices, and of all, in percent. `name` is the policy's.
pub fn rows(checkpoint: &Checkpoint, policy: WeightPolicy, name: &str) -> Vec<ReportRow> {
    let mut kinds: BTreeMap<String, Kind> = BTreeMap::new();
    for tensor_name in checkpoint.tensor_names() {
        let Some(shape) = checkpoint.shape(tensor_name) else { continue };
        let Some(layout) = layout(tensor_name, shape) else { continue };
        let tensor = checkpoint.tensor(tensor_name, shape).unwrap();
        let numbers: Vec<f32> = match tensor.dtype {
            DType::Bf16 => {
                let wide = |&bits| f32::from_bits(u32::from(u16::from_le_bytes(bits)) << 16);
                tensor.bytes.as_chunks().0.iter().map(wide).collect()
            }
            DType::F32 => tensor.bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect(),
            DType::F16 => panic!("{tensor_name} is of float16, which this benchmark does not read"),
        };
        let part = tensor_name.split('.').take(2).collect::<Vec<_>>().join(".");
        let is_expert = matches!(layout, WeightLayout::Experts { .. });
        let [part, all] = if is_expert {
            [format!("{part}, experts"), "all experts".to_owned()]
        } else {
            [part, "all others".to_owned()]
        };
        let squares: f64 = numbers.iter().map(|&number| f64::from(number).powi(2)).sum();
        let (bytes, errors) = match policy.format(layout) {
            WeightFormat::Float => (tensor.bytes.len(), 0.0),
            WeightFormat::Int8 => errors(IntegerFormat::Eight, &numbers, shape),
            WeightFormat::Int4 => errors(IntegerFormat::Four, &numbers, shape),
        };
        let relative = share(errors, squares);
        for kind in [part, all] {
            let kind = kinds.entry(kind).or_default();
            kind.bytes += bytes;
            kind.squares += squares;
            kind.errors += errors;
            if relative > kind.worst.0 {
                kind.worst = (relative, tensor_name.to_owned());
            }
        }
    }
    let row = |(kind, Kind { bytes, squares, errors, worst }): (String, Kind)| {
        let note = format!("{} KiB; at worst {:.2} % {}", bytes >> 10, worst.0 * 100.0, worst.1);
        ReportRow::without_peer(format!("error_{name} {kind}"), share(errors, squares) * 100.0, "%", note.trim_end())
    };
    kinds.into_iter().map(row).collect()
}

/// Returns the root of the quotient; 0 without errors.
fn share(errors: f64, squares: f64) -> f64 {
    if errors == 0.0 { 0.0 } else { (errors / squares).sqrt() }
}

/// Returns the bytes of the quantised matrix, and the sum of its squared errors.
fn errors(bits: IntegerFormat, numbers: &[f32], shape: &[usize]) -> (usize, f64) {
    let mut rows = numbers.chunks_exact(shape[1]);
    let fill = |row: &mut [f32]| row.copy_from_slice(rows.next().unwrap());
    let weight = QuantisedWeight::new(bits, shape[0], shape[1], fill).unwrap();
    let error = |(at, &number): (usize, &f32)| f64::from(weight.number(at / shape[1], at % shape[1]) - number).powi(2);
    (weight.bytes(), numbers.iter().enumerate().map(error).sum())
}
