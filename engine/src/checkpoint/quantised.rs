//! Quantised checkpoints: the mark that says how matrices are stored, and the matrices.

use std::borrow::Cow;

use repartee_checkpoint::fp8::{self, Fp8Scales};
use repartee_checkpoint::grouped::{GroupedFormat, GroupedMatrix};
use repartee_checkpoint::marks::{self, FIELD, MARK_FILES, QuantisationMark};
use repartee_kernels::DType;
use safetensors::Dtype;
use serde_json::Value;

use super::files::{CONFIG, Files};
use super::tensor_data::{TensorData, TensorView};
use super::weights::{StoredTensor, Weights};
use super::{CheckpointError, compressed, gguf};

/// Quantisation of a checkpoint, as its files say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantisation {
    /// Integers or eight-bit floats in the formats of `compressed-tensors`.
    Compressed {
        /// Outputs and inputs of a block of eight-bit floats.
        block: [usize; 2],
    },
    /// AWQ or GPTQ.
    Grouped(GroupedFormat),
    /// Eight-bit floats.
    Fp8 {
        /// Outputs and inputs of a block.
        block: [usize; 2],
    },
    /// Blocks of a GGUF file.
    Gguf,
}

impl Quantisation {
    /// Reads the mark in config.json or in a file of its own; `None` for a checkpoint that is not quantised.
    pub(super) fn find(files: &Files, config: Option<&Value>) -> Result<Option<Self>, CheckpointError> {
        if let Some(found) = config.and_then(|config| config.get(FIELD)).filter(|found| !found.is_null()) {
            let file = files.label(CONFIG);
            return Ok(Some(match marks::read(&file, &format!("{FIELD}."), found, "")? {
                QuantisationMark::Grouped(format) => Self::Grouped(format),
                QuantisationMark::Fp8 { block } => Self::Fp8 { block },
                QuantisationMark::Other => {
                    let block = compressed::read_mark(found);
                    let block = block.map_err(|value| CheckpointError::BadValue { file, value })?;
                    Self::Compressed { block }
                }
            }));
        }
        for (name, method) in MARK_FILES {
            let Some(found) = files.json::<Value>(name)? else { continue };
            match marks::read(&files.label(name), "", &found, method)? {
                QuantisationMark::Grouped(format) => return Ok(Some(Self::Grouped(format))),
                QuantisationMark::Fp8 { block } => return Ok(Some(Self::Fp8 { block })),
                QuantisationMark::Other => {}
            }
        }
        Ok(None)
    }

    /// Name of the form.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Compressed { .. } => "compressed-tensors",
            Self::Grouped(GroupedFormat::Awq) => "AWQ",
            Self::Grouped(GroupedFormat::Gptq { .. }) => "GPTQ",
            Self::Fp8 { .. } => "FP8",
            Self::Gguf => "GGUF",
        }
    }

    fn block(self) -> [usize; 2] {
        match self {
            Self::Compressed { block } | Self::Fp8 { block } => block,
            Self::Grouped(_) | Self::Gguf => [fp8::BLOCK; 2],
        }
    }
}

/// Matrix `name` of a quantised checkpoint, and the loss of its conversion; `None` if it is not stored in a form of its
/// own.
pub(super) fn matrix<'a>(
    weights: &'a Weights,
    quantisation: Quantisation,
    name: &'a str,
    expected: &'a [usize],
) -> Result<Option<(TensorData<'a>, Option<&'static str>)>, CheckpointError> {
    if quantisation == Quantisation::Gguf {
        return gguf::matrix::matrix(weights, name, expected);
    }
    if let Quantisation::Grouped(format) = quantisation
        && let Some(module) = name.strip_suffix(".weight")
        && weights.has(&format!("{module}.qweight"))
    {
        return grouped(weights, format, module, expected).map(Some);
    }
    if weights.dtype(name) == Some(Dtype::F8_E4M3) {
        let loss = Some("matrices of FP8 are dequantised and rounded to bfloat16");
        return Ok(Some((eight_bit_floats(weights, quantisation.block(), name, expected)?, loss)));
    }
    if matches!(quantisation, Quantisation::Compressed { .. })
        && let Some(matrix) = compressed::matrix(weights, name, expected)?
    {
        return Ok(Some((TensorData::Packed(matrix), None)));
    }
    Ok(None)
}

fn refused(weights: &Weights, tensor: &str, reason: impl Into<String>) -> CheckpointError {
    let (file, tensor, reason) = (weights.file_of(tensor), tensor.to_owned(), reason.into());
    CheckpointError::RefusedTensor { file, tensor, reason }
}

fn matrix_shape(weights: &Weights, tensor: &str, expected: &[usize]) -> Result<[usize; 2], CheckpointError> {
    expected.try_into().map_err(|_| refused(weights, tensor, "only matrices are served in this form"))
}

/// Matrix of AWQ or GPTQ.
fn grouped<'a>(
    weights: &'a Weights,
    format: GroupedFormat,
    module: &str,
    expected: &'a [usize],
) -> Result<(TensorData<'a>, Option<&'static str>), CheckpointError> {
    let name = |part: &str| format!("{module}.{part}");
    let shape @ [out, inputs] = matrix_shape(weights, &name("qweight"), expected)?;
    // Tensor of a part, of this type and with this size along one axis.
    let part = |part: &str, dtype: Dtype, (axis, size): (usize, usize)| {
        let name = name(part);
        let StoredTensor { dtype: found, shape: sizes, bytes } = weights.raw(&name)?;
        if found != dtype {
            return Err(refused(weights, &name, format!("is stored as {found:?}, and must be {dtype:?}")));
        }
        match sizes.get(axis) {
            Some(&found) if found != size => {
                let reason = format!("has the shape {sizes:?}, and the model's matrix is {shape:?}");
                Err(refused(weights, &name, reason))
            }
            _ => Ok(bytes),
        }
    };
    let axis = if format == GroupedFormat::Awq { (0, inputs) } else { (1, out) };
    let integers = part("qweight", Dtype::I32, axis)?;
    let (zeros, scales) = (part("qzeros", Dtype::I32, (2, 0))?, part("scales", Dtype::F16, (1, out))?);
    let order = if weights.has(&name("g_idx")) { Some(part("g_idx", Dtype::I32, (0, inputs))?) } else { None };
    let (file, order) = (weights.file_of(&name("qweight")), order.as_deref());
    let (integers, zeros, scales) = (&*integers, &*zeros, &*scales);
    let matrix = GroupedMatrix { file: &file, name: module, shape, format, integers, zeros, scales, order };
    if let Some(packed) = matrix.pack()? {
        let loss = packed.minimums.as_ref().map(|_| "zero points are kept as minimums, rounded to half precision");
        return Ok((TensorData::Repacked(packed), loss));
    }
    let numbers: Vec<u8> = matrix.numbers()?.iter().flat_map(|number| number.to_le_bytes()).collect();
    let view = TensorView { dtype: DType::F32, shape: expected, bytes: Cow::Owned(numbers) };
    let loss = "matrices in activation order are dequantised, and quantised again as engine.weights says";
    Ok((TensorData::Stored(view), Some(loss)))
}

/// Matrix of eight-bit floats, as bfloat16.
fn eight_bit_floats<'a>(
    weights: &'a Weights,
    block: [usize; 2],
    name: &str,
    expected: &'a [usize],
) -> Result<TensorData<'a>, CheckpointError> {
    let StoredTensor { shape: found, bytes, .. } = weights.raw(name)?;
    if found != expected {
        let (file, tensor, expected) = (weights.file_of(name), name.to_owned(), expected.to_vec());
        return Err(CheckpointError::WrongShape { file, tensor, expected, found: found.to_vec() });
    }
    let shape = matrix_shape(weights, name, expected)?;
    let names = [format!("{name}_scale_inv"), format!("{name}_scale")];
    let scale = names.iter().find(|scale| weights.has(scale));
    let scale = scale.ok_or_else(|| refused(weights, name, format!("its scales {} are missing", names[1])))?;
    let StoredTensor { dtype, shape: scale_shape, bytes: scales } = weights.raw(scale)?;
    let dtype = match dtype {
        Dtype::F32 => DType::F32,
        Dtype::BF16 => DType::Bf16,
        Dtype::F16 => DType::F16,
        other => return Err(refused(weights, scale, format!("scales of {other:?} are not read"))),
    };
    let scales = Fp8Scales { numbers: &dtype.widen(&scales), shape: scale_shape, block };
    let bytes = fp8::dequantise((&weights.file_of(name), name), shape, &bytes, scales)?;
    Ok(TensorData::Stored(TensorView { dtype: DType::Bf16, shape: expected, bytes: Cow::Owned(bytes) }))
}
