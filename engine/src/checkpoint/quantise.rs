//! Quantisation of checkpoints, in the format that `compressed` reads: `repartee quantize`.
//!
//! Tensors go one by one from the mapped file to the new one, so memory holds only one. Each file is written under a
//! temporary name and renamed when it is complete; config.json comes last. So an interrupted run continues at the
//! unfinished file, and an incomplete folder is no checkpoint.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use repartee_kernels::cpu::pool::Pool;
use repartee_kernels::cpu::quantised::{self, IntegerFormat};
use repartee_kernels::{DType, Packing, WeightFormat, WeightLayout};
use safetensors::Dtype;
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::catalogue::FORMS;
use super::weights::{StoredTensor, Weights};
use super::{CONFIG, Checkpoint, CheckpointError, Source, TensorView};
use crate::weight_policy::WeightPolicy;

/// Number of weights that share a scale.
const GROUP: usize = 32;
/// Parts of names of matrices that are not quantised: lookup tables, routers, vision, and matrices that are loaded in
/// another order.
const KEPT: [&str; 7] = ["embed", "codebook", "mlp.gate.", "shared_expert_gate", "visual", "conv", "norm"];

/// Folders of a checkpoint that are not copied: its training recipe, whose files no model reads.
const NOT_COPIED: &str = "recipe";

/// Error of quantising a checkpoint.
#[derive(Debug, Error)]
pub enum QuantiseError {
    /// The checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// A file cannot be written or copied.
    #[error("{}: {reason}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        reason: io::Error,
    },
    /// The output folder is the input folder.
    #[error("{}: the new checkpoint needs a folder of its own", .0.display())]
    SameFolder(PathBuf),
    /// The checkpoint is quantised already.
    #[error("{0}: is quantised already: take the checkpoint that it was made of")]
    Quantised(String),
    /// The output folder holds a whole checkpoint that was quantised otherwise, or not at all.
    #[error("{}: holds a finished checkpoint of another format: choose another folder, or remove this one", .0.display())]
    OtherFormat(PathBuf),
    /// The policy `bf16` quantises nothing.
    #[error("weights = bf16 leaves everything as it is: choose int8, int4 or mixed")]
    Float,
    /// A matrix has numbers that are NaN or infinite.
    #[error("{0}: holds numbers that are NaN or infinite, which integers cannot stand for")]
    NotFinite(String),
}

/// Progress of the quantisation.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantiseProgress<'a> {
    /// Share of all bytes that were read, 0 to 1.
    pub share: f32,
    /// Name of the file being written.
    pub file: &'a str,
}

/// Sizes of a quantised checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuantiseReport {
    /// Bytes of the tensors that were read.
    pub read: u64,
    /// Bytes of the tensors that were written.
    pub written: u64,
}

/// Output format of a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TensorEncoding {
    Unchanged,
    Integers(IntegerFormat),
}

impl TensorEncoding {
    fn of(policy: WeightPolicy, name: &str, dtype: Dtype, shape: &[usize]) -> Self {
        let is_float = [Dtype::BF16, Dtype::F16, Dtype::F32].contains(&dtype);
        let &[_, inputs] = shape else { return Self::Unchanged };
        let kept = !name.ends_with(".weight") || KEPT.iter().any(|part| name.contains(part));
        if !is_float || kept || !inputs.is_multiple_of(GROUP) {
            return Self::Unchanged;
        }
        let experts = name.contains(".experts.");
        let layout = if experts { WeightLayout::Experts { per_expert: 1 } } else { WeightLayout::Linear };
        IntegerFormat::of(policy.format(layout)).map_or(Self::Unchanged, Self::Integers)
    }
}

fn packing(bits: IntegerFormat) -> Packing {
    match bits {
        IntegerFormat::Eight => Packing::Eight,
        IntegerFormat::Four => Packing::Four,
    }
}

/// Quantises the checkpoint in `folder` by `policy` and writes it to `out`. Complete files of an earlier run are kept.
///
/// # Errors
///
/// The checkpoint cannot be read or is quantised already, `out` holds another finished checkpoint, or a file cannot be written.
pub fn quantise(
    folder: &Path,
    out: &Path,
    policy: WeightPolicy,
    threads: usize,
    mut progress: impl FnMut(QuantiseProgress<'_>),
) -> Result<QuantiseReport, QuantiseError> {
    if policy == WeightPolicy::Bf16 {
        return Err(QuantiseError::Float);
    }
    let checkpoint = Checkpoint::open(Source::Folder(folder.to_owned()))?;
    if checkpoint.quantisation.is_some() {
        return Err(QuantiseError::Quantised(checkpoint.label(CONFIG)));
    }
    let at = |path: &Path| {
        let path = path.to_owned();
        move |reason| QuantiseError::File { path, reason }
    };
    fs::create_dir_all(out).map_err(at(out))?;
    if fs::canonicalize(folder).ok() == fs::canonicalize(out).ok() {
        return Err(QuantiseError::SameFolder(out.to_owned()));
    }
    if !may_continue(out, policy) {
        return Err(QuantiseError::OtherFormat(out.to_owned()));
    }
    let pool = Pool::new(threads).map_err(at(out))?;
    let weights = &checkpoint.weights;
    let (all, mut read) = (weights.bytes().max(1) as f64, 0);
    let (mut map, mut size, mut kept) = (BTreeMap::new(), 0, Vec::new());
    for (file, name) in weights.file_names() {
        let name = &safetensors_name(name);
        let tensors: Vec<Written> =
            weights.names_in(file).map(|tensor| Written::new(weights, tensor, policy)).collect();
        for Written { source, kind, parts } in &tensors {
            if *kind == TensorEncoding::Unchanged {
                kept.extend(source.strip_suffix(".weight").map(str::to_owned));
            }
            for (tensor, _, _, bytes) in parts {
                map.insert(tensor.clone(), name.to_owned());
                size += bytes;
            }
        }
        let whole = out.join(name);
        let (header, length) = header(&tensors);
        if fs::metadata(&whole).is_ok_and(|found| found.len() == length) {
            read += tensors.iter().map(|tensor| size_of_tensor(weights, tensor.source)).sum::<u64>();
            continue;
        }
        let partial = out.join(format!("{name}.partial"));
        let mut writer = BufWriter::with_capacity(1 << 20, File::create(&partial).map_err(at(&partial))?);
        writer.write_all(&header).map_err(at(&partial))?;
        for tensor in &tensors {
            progress(QuantiseProgress { share: (read as f64 / all) as f32, file: name });
            tensor.write(weights, &pool, &mut writer).map_err(|error| match error {
                WriteError::Io(reason) => QuantiseError::File { path: partial.clone(), reason },
                WriteError::NotFinite => QuantiseError::NotFinite(tensor.source.to_owned()),
                WriteError::Checkpoint(error) => error.into(),
            })?;
            read += size_of_tensor(weights, tensor.source);
        }
        let file = writer.into_inner().map_err(|error| at(&partial)(error.into_error()))?;
        file.sync_all().map_err(at(&partial))?;
        fs::rename(&partial, &whole).map_err(at(&whole))?;
    }
    let names: Vec<String> = weights.file_names().map(|(_, name)| name.to_owned()).collect();
    copy_rest(folder, out, &names)?;
    if weights.file_names().count() > 1 {
        let index = json!({"metadata": {"total_size": size}, "weight_map": map});
        write_json(&out.join(FORMS[0].index), &index)?;
    }
    let mut config = checkpoint.config.clone().unwrap_or_else(|| json!({}));
    config["quantization_config"] = description(policy, &kept);
    write_json(&out.join(CONFIG), &config)?;
    progress(QuantiseProgress { share: 1.0, file: CONFIG });
    Ok(QuantiseReport { read: weights.bytes(), written: size })
}

/// True if `out` holds no finished checkpoint, or one of this policy.
fn may_continue(out: &Path, policy: WeightPolicy) -> bool {
    let Ok(config) = fs::read(out.join(CONFIG)) else { return true };
    let groups = "config_groups";
    serde_json::from_slice::<Value>(&config)
        .is_ok_and(|config| config["quantization_config"][groups] == description(policy, &[])[groups])
}

/// A tensor and its output tensors: name, format, shape, bytes.
struct Written<'a> {
    source: &'a str,
    kind: TensorEncoding,
    parts: Vec<(String, Dtype, Vec<usize>, u64)>,
}

enum WriteError {
    Io(io::Error),
    NotFinite,
    Checkpoint(CheckpointError),
}

impl From<io::Error> for WriteError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl<'a> Written<'a> {
    fn new(weights: &'a Weights, source: &'a str, policy: WeightPolicy) -> Self {
        let dtype = weights.dtype(source).unwrap_or(Dtype::U8);
        let shape = weights.shape(source).unwrap_or_default();
        let kind = TensorEncoding::of(policy, source, dtype, shape);
        let parts = match (kind, shape) {
            (TensorEncoding::Integers(bits), &[out, inputs]) => {
                let (row, groups) = (packing(bits).row_bytes(inputs), inputs / GROUP);
                vec![
                    (format!("{source}_packed"), Dtype::I32, vec![out, row / 4], (out * row) as u64),
                    (format!("{source}_scale"), Dtype::BF16, vec![out, groups], (out * groups * 2) as u64),
                    (format!("{source}_shape"), Dtype::I64, vec![2], 16),
                ]
            }
            _ => vec![(source.to_owned(), dtype, shape.to_vec(), size_of_tensor(weights, source))],
        };
        Self { source, kind, parts }
    }

    /// Writes the output tensors one after the other.
    fn write(&self, weights: &Weights, pool: &Pool, to: &mut impl Write) -> Result<(), WriteError> {
        let StoredTensor { shape, bytes, .. } = weights.raw(self.source).map_err(WriteError::Checkpoint)?;
        let (TensorEncoding::Integers(bits), &[out, inputs]) = (self.kind, shape) else {
            return Ok(to.write_all(&bytes)?);
        };
        let TensorView { dtype, bytes, .. } = weights.get(self.source, shape).map_err(WriteError::Checkpoint)?;
        let (integers, scales) = quantised(pool, bits, (out, inputs), dtype, &bytes)?;
        to.write_all(&integers)?;
        to.write_all(&scales)?;
        for size in [out, inputs] {
            to.write_all(&(size as i64).to_le_bytes())?;
        }
        Ok(())
    }
}

fn size_of_tensor(weights: &Weights, name: &str) -> u64 {
    weights.raw(name).map_or(0, |tensor| tensor.bytes.len() as u64)
}

/// Quantises a matrix; returns its integers and its scales as stored.
fn quantised(
    pool: &Pool,
    bits: IntegerFormat,
    (out, inputs): (usize, usize),
    dtype: DType,
    bytes: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), WriteError> {
    /// Number of rows that one thread takes at a time.
    const ROWS: usize = 64;
    let packing = packing(bits);
    let (row_bytes, row_scales) = (packing.row_bytes(inputs), inputs / GROUP * 2);
    let (mut integers, mut scales) = (vec![0; out * row_bytes], vec![0; out * row_scales]);
    let rows = integers.chunks_mut(ROWS * row_bytes).zip(scales.chunks_mut(ROWS * row_scales));
    let mut parts: Vec<_> = rows.map(|(integers, scales)| (integers, scales, true)).collect();
    pool.for_each(&mut parts, |part, (integers, scales, finite)| {
        let mut numbers = vec![0.0; inputs];
        let rows = integers.chunks_mut(row_bytes).zip(scales.chunks_mut(row_scales));
        for (row, (integers, scales)) in (part * ROWS..).zip(rows) {
            dtype.widen_into(&bytes[row * inputs * dtype.size()..], &mut numbers);
            for (group, (numbers, scale)) in numbers.as_chunks().0.iter().zip(scales.chunks_mut(2)).enumerate() {
                let Ok((bits_of_scale, group_integers)) = quantised::quantise_group(bits, numbers) else {
                    *finite = false;
                    return;
                };
                scale.copy_from_slice(&bits_of_scale.to_le_bytes());
                for (i, integer) in group_integers.into_iter().enumerate() {
                    packing.put(integers, group * GROUP + i, integer);
                }
            }
        }
    });
    let finite = parts.iter().all(|(_, _, finite)| *finite);
    if finite { Ok((integers, scales)) } else { Err(WriteError::NotFinite) }
}

/// Builds the header of a safetensors file with these tensors; returns it and the length of the whole file.
fn header(tensors: &[Written<'_>]) -> (Vec<u8>, u64) {
    let mut entries = Map::new();
    let mut end = 0;
    for (name, dtype, shape, bytes) in tensors.iter().flat_map(|tensor| &tensor.parts) {
        let entry = json!({"dtype": format!("{dtype:?}"), "shape": shape, "data_offsets": [end, end + bytes]});
        entries.insert(name.clone(), entry);
        end += bytes;
    }
    let mut text = Value::Object(entries).to_string();
    text.push_str(&" ".repeat(text.len().next_multiple_of(8) - text.len()));
    let header = [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let length = header.len() as u64 + end;
    (header, length)
}

/// Builds the `quantization_config` of config.json.
fn description(policy: WeightPolicy, kept: &[String]) -> Value {
    let group = |targets: &str, format: WeightFormat| {
        let bits = if format == WeightFormat::Int4 { 4 } else { 8 };
        json!({
            "targets": [targets], "input_activations": null, "output_activations": null,
            "weights": {"num_bits": bits, "type": "int", "symmetric": true, "strategy": "group", "group_size": GROUP,
                        "dynamic": false, "actorder": null, "observer": "minmax", "observer_kwargs": {}},
        })
    };
    let experts = policy.format(WeightLayout::Experts { per_expert: 1 });
    let others = policy.format(WeightLayout::Linear);
    let mut groups = Map::new();
    if experts != others {
        groups.insert("group_0".to_owned(), group(r"re:.*\.experts\..*", experts));
    }
    groups.insert(format!("group_{}", groups.len()), group("Linear", others));
    json!({
        "quant_method": "compressed-tensors", "format": "pack-quantized", "quantization_status": "compressed",
        "config_groups": groups, "ignore": kept, "kv_cache_scheme": null,
    })
}

/// Name of the written file for a weight file; pickles become safetensors.
fn safetensors_name(name: &str) -> String {
    if name.ends_with(".safetensors") {
        return name.to_owned();
    }
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    format!("{}.safetensors", stem.replace("pytorch_model", "model"))
}

/// Copies everything but this folder's weight files, config.json and recipe, with subfolders.
fn copy_rest(from: &Path, to: &Path, weights: &[String]) -> Result<(), QuantiseError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |reason| QuantiseError::File { path, reason }
    };
    for entry in fs::read_dir(from).map_err(at(from))? {
        let path = entry.map_err(at(from))?.path();
        let Some(name) = path.file_name() else { continue };
        let is_weights = path.extension().is_some_and(|extension| extension == "safetensors")
            || weights.iter().any(|file| name == &file[..])
            || FORMS.iter().any(|form| name == form.index);
        if is_weights || name == CONFIG || name == NOT_COPIED {
            continue;
        }
        copy(&path, &to.join(name))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), QuantiseError> {
    let at = |reason| QuantiseError::File { path: from.to_owned(), reason };
    if !from.is_dir() {
        return fs::copy(from, to).map(|_| ()).map_err(at);
    }
    fs::create_dir_all(to).map_err(at)?;
    for entry in fs::read_dir(from).map_err(at)? {
        let entry = entry.map_err(at)?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

fn write_json(path: &Path, value: &Value) -> Result<(), QuantiseError> {
    fs::write(path, format!("{value:#}\n")).map_err(|reason| QuantiseError::File { path: path.to_owned(), reason })
}
