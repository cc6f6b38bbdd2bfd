//! Tensors of CTranslate2's `model.bin`, for the models of Whisper, by the names that transformers gives them.
//!
//! The file lists variables: name, shape, number format, numbers. CTranslate2 joins the matrices of an attention's queries,
//! keys and values by their rows; a joined variable is given as its parts, in place.

use std::collections::BTreeMap;
use std::ops::Range;

use safetensors::Dtype;

use crate::error::FormatError;

/// Name of the file in a checkpoint's folder.
pub const FILE: &str = "model.bin";

/// Version of the file's form that is read.
const VERSION: u32 = 6;
/// Name of Whisper's list of variables, with its length and its end in front of it and behind it.
const SPEC: &[u8] = b"\x0c\0WhisperSpec\0";
/// Most variables; Whisper large has some 900.
const MAX_VARIABLES: u32 = 1 << 16;
/// Most axes of a variable.
const MAX_AXES: u8 = 4;
/// Advice of errors.
const AGAIN: &str = "convert the model again, by ct2-transformers-converter with --quantization float16";

/// Tensor of the file, in row-major order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ctranslate2Tensor {
    /// Number format of its elements: one of F32, I8, I16, I32, F16 and BF16.
    pub dtype: Dtype,
    /// Sizes of the axes, outermost first.
    pub shape: Vec<usize>,
    /// Place of its bytes in the file.
    pub place: Range<usize>,
}

/// True for the first bytes of a file of this form.
pub fn is_model(bytes: &[u8]) -> bool {
    // The version is an integer of four bytes. The name of the model's kind follows, its length in two bytes before it.
    let [_, 0, 0, 0, length, 0, rest @ ..] = bytes else { return false };
    rest.get(..usize::from(*length)).is_some_and(|name| name.ends_with(b"Spec\0"))
}

/// Reads the tensors of Whisper. `file` is the label of errors.
///
/// # Errors
/// The file is of another form, model or version, is cut off, or has a bias of keys, which Whisper lacks.
pub fn read_whisper(file: &str, bytes: &[u8]) -> Result<BTreeMap<String, Ctranslate2Tensor>, FormatError> {
    let mut reader = Reader { file, bytes, at: 0 };
    let version = reader.word()?;
    if version != VERSION {
        let message = format!("is {version}, and {VERSION} is read: {AGAIN}");
        return Err(FormatError::refused(file, "version", message));
    }
    if !bytes[reader.at..].starts_with(SPEC) {
        let message = "the model is no Whisper, the only one that is served in CTranslate2's form";
        return Err(FormatError::refused(file, "specification", message));
    }
    reader.take(SPEC.len())?;
    let _revision = reader.word()?;
    let count = reader.word()?;
    if count > MAX_VARIABLES {
        let message = format!("are {count}, and at most {MAX_VARIABLES} are read: copy the file again");
        return Err(FormatError::refused(file, "variables", message));
    }
    let mut tensors = BTreeMap::new();
    for _ in 0..count {
        let (name, tensor) = reader.variable()?;
        let parts = transformers_names(&name);
        let rows = tensor.shape.first().copied().unwrap_or(0);
        if parts.len() > 1 && !rows.is_multiple_of(parts.len()) {
            let message = format!("has {rows} rows, no multiple of its {} parts: {AGAIN}", parts.len());
            return Err(FormatError::refused(file, name, message));
        }
        let (each, share) = (tensor.place.len() / parts.len().max(1), rows / parts.len().max(1));
        for (index, part) in parts.into_iter().enumerate() {
            let start = tensor.place.start + index * each;
            let place = start..start + each;
            if part.ends_with("k_proj.bias") {
                if bytes[place].iter().any(|byte| *byte != 0) {
                    let message = format!("keys have a bias, which no Whisper has: {AGAIN}");
                    return Err(FormatError::refused(file, name, message));
                }
                continue;
            }
            let mut shape = tensor.shape.clone();
            if let Some(rows) = shape.first_mut() {
                *rows = share;
            }
            tensors.insert(part, Ctranslate2Tensor { dtype: tensor.dtype, shape, place });
        }
    }
    Ok(tensors)
}

/// Names that transformers gives the parts of a variable, which have equally many rows; none for a variable that it lacks.
fn transformers_names(variable: &str) -> Vec<String> {
    names(variable).unwrap_or_default()
}

fn names(variable: &str) -> Option<Vec<String>> {
    let (side, rest) = variable.split_once('/')?;
    let (block, end) = rest.rsplit_once('/')?;
    let end = match end {
        "weight" | "gamma" | "encodings" => "weight",
        "bias" | "beta" => "bias",
        _ => return None,
    };
    if !["encoder", "decoder"].contains(&side) {
        return None;
    }
    let one = |name: &str| Some(vec![format!("model.{side}.{name}.{end}")]);
    match block {
        "conv1" | "conv2" | "layer_norm" => return one(block),
        "embeddings" => return one("embed_tokens"),
        "position_encodings" => return one("embed_positions"),
        "projection" => return Some(vec![format!("proj_out.{end}")]),
        _ => {}
    }
    let (layer, module) = block.split_once('/')?;
    let layer: usize = layer.strip_prefix("layer_")?.parse().ok()?;
    let parts: &[&str] = match module {
        "self_attention/linear_0" => &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "self_attention/linear_1" => &["self_attn.out_proj"],
        "self_attention/layer_norm" => &["self_attn_layer_norm"],
        "attention/linear_0" => &["encoder_attn.q_proj"],
        "attention/linear_1" => &["encoder_attn.k_proj", "encoder_attn.v_proj"],
        "attention/linear_2" => &["encoder_attn.out_proj"],
        "attention/layer_norm" => &["encoder_attn_layer_norm"],
        "ffn/linear_0" => &["fc1"],
        "ffn/linear_1" => &["fc2"],
        "ffn/layer_norm" => &["final_layer_norm"],
        _ => return None,
    };
    Some(parts.iter().map(|part| format!("model.{side}.layers.{layer}.{part}.{end}")).collect())
}

/// Reader of the file, from its beginning.
struct Reader<'a> {
    file: &'a str,
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FormatError> {
        let taken = self.at.checked_add(count).and_then(|end| self.bytes.get(self.at..end));
        let cut = || FormatError::refused(self.file, "end", "the file is cut off: copy it again");
        let taken = taken.ok_or_else(cut)?;
        self.at += count;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, FormatError> {
        Ok(self.take(1)?[0])
    }

    fn word(&mut self) -> Result<u32, FormatError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Reads a text, whose length counts the zero at its end.
    fn text(&mut self) -> Result<String, FormatError> {
        let length = self.take(2)?;
        let length = u16::from_le_bytes([length[0], length[1]]);
        let text = self.take(usize::from(length))?;
        let text = text.strip_suffix(b"\0").and_then(|text| std::str::from_utf8(text).ok());
        text.map(str::to_owned)
            .ok_or_else(|| FormatError::refused(self.file, "name of a variable", "is no text: copy the file again"))
    }

    fn variable(&mut self) -> Result<(String, Ctranslate2Tensor), FormatError> {
        let name = self.text()?;
        let file = self.file;
        let axes = self.byte()?;
        if axes > MAX_AXES {
            return Err(FormatError::refused(file, name, format!("has {axes} axes: copy the file again")));
        }
        let shape = (0..axes).map(|_| Ok(self.word()? as usize)).collect::<Result<Vec<_>, FormatError>>()?;
        let (dtype, size) = match self.byte()? {
            0 => (Dtype::F32, 4),
            1 => (Dtype::I8, 1),
            2 => (Dtype::I16, 2),
            3 => (Dtype::I32, 4),
            4 => (Dtype::F16, 2),
            5 => (Dtype::BF16, 2),
            other => {
                let message = format!("has numbers of the unknown format {other}: {AGAIN}");
                return Err(FormatError::refused(file, name, message));
            }
        };
        let length = self.word()? as usize;
        let expected = shape.iter().try_fold(size, |product: usize, size| product.checked_mul(*size));
        if expected != Some(length) {
            let message =
                format!("has {length} bytes, which is not what its shape {shape:?} says: copy the file again");
            return Err(FormatError::refused(file, name, message));
        }
        let start = self.at;
        self.take(length)?;
        Ok((name, Ctranslate2Tensor { dtype, shape, place: start..start + length }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a text.
    fn text(text: &str) -> Vec<u8> {
        let length = u16::try_from(text.len() + 1).unwrap();
        [&length.to_le_bytes()[..], text.as_bytes(), b"\0"].concat()
    }

    /// Bytes of a file with these variables: name, shape, code of the number format, numbers.
    fn model(variables: &[(&str, &[u32], u8, &[u8])]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        bytes.extend(text("WhisperSpec"));
        bytes.extend([3u32, u32::try_from(variables.len()).unwrap()].map(u32::to_le_bytes).concat());
        for (name, shape, dtype, numbers) in variables {
            bytes.extend(text(name));
            bytes.push(u8::try_from(shape.len()).unwrap());
            bytes.extend(shape.iter().flat_map(|size| size.to_le_bytes()));
            bytes.push(*dtype);
            bytes.extend(u32::try_from(numbers.len()).unwrap().to_le_bytes());
            bytes.extend_from_slice(numbers);
        }
        // No aliases.
        bytes.extend(0u32.to_le_bytes());
        bytes
    }

    const JOINED: &str = "decoder/layer_1/self_attention/linear_0";

    #[test]
    fn joined_matrices_are_given_as_parts() {
        let weight: Vec<u8> = (0..12).collect();
        let bytes = model(&[
            ("encoder/num_heads", &[], 2, &[1, 0]),
            (&format!("{JOINED}/weight"), &[3, 2], 4, &weight),
            (&format!("{JOINED}/bias"), &[3], 4, &[1, 2, 0, 0, 3, 4]),
            ("decoder/embeddings/weight", &[1, 2], 1, &[7, 8]),
        ]);
        assert!(is_model(&bytes));
        let tensors = read_whisper("model.bin", &bytes).unwrap();
        let numbers = |name: &str| bytes[tensors[name].place.clone()].to_vec();
        let part = |part: &str| format!("model.decoder.layers.1.self_attn.{part}");
        for (at, name) in ["q_proj.weight", "k_proj.weight", "v_proj.weight"].into_iter().enumerate() {
            assert_eq!(numbers(&part(name)), weight[4 * at..4 * at + 4]);
            assert_eq!(tensors[&part(name)].shape, [1, 2]);
        }
        assert_eq!((numbers(&part("q_proj.bias")), numbers(&part("v_proj.bias"))), (vec![1, 2], vec![3, 4]));
        assert_eq!(tensors["model.decoder.embed_tokens.weight"].dtype, Dtype::I8);
        assert_eq!(tensors.len(), 6, "keys have no bias, and the number of heads is no tensor");
    }

    #[test]
    fn malformed_files_are_refused() {
        let whole = model(&[(&format!("{JOINED}/bias"), &[3], 4, &[1, 2, 0, 0, 3, 4])]);
        let refusal = |bytes: &[u8]| read_whisper("model.bin", bytes).unwrap_err().to_string();
        for end in 0..whole.len() - 4 {
            let refused = refusal(&whole[..end]);
            assert!(refused.starts_with("model.bin: ") && refused.contains(": "), "{refused}");
        }
        let keys = model(&[(&format!("{JOINED}/bias"), &[3], 4, &[1, 2, 0, 1, 3, 4])]);
        assert!(refusal(&keys).contains("keys have a bias"), "{}", refusal(&keys));
        let rows = model(&[(&format!("{JOINED}/bias"), &[2], 4, &[1, 2, 0, 0])]);
        assert!(refusal(&rows).contains("2 rows"), "{}", refusal(&rows));
        let other = model(&[("encoder/conv1/bias", &[2], 9, &[1, 2])]);
        assert!(refusal(&other).contains("unknown format 9"), "{}", refusal(&other));
        let long = model(&[("encoder/conv1/bias", &[u32::MAX, u32::MAX, u32::MAX], 0, &[])]);
        assert!(refusal(&long).contains("0 bytes"), "{}", refusal(&long));
        let mut old = whole.clone();
        old[0] = 5;
        assert!(refusal(&old).contains("version: is 5"), "{}", refusal(&old));
        let mut translator = whole;
        translator[6] = b'X';
        assert!(refusal(&translator).contains("no Whisper"), "{}", refusal(&translator));
    }
}
