//! The header of a safetensors file.

use safetensors::tensor::Metadata;
use safetensors::{SafeTensorError, SafeTensors};

use super::CheckpointError;

/// Most bytes of a header: some 100,000 tensors, each of which takes many times its text in memory.
const MOST_BYTES: u64 = 16 << 20;

/// Reads the header of a safetensors file; returns the place that its offsets count from, and the tensors.
pub fn safetensors_header(label: &str, bytes: &[u8]) -> Result<(usize, Metadata), CheckpointError> {
    let corrupt = |message| CheckpointError::CorruptWeights { file: label.to_owned(), message };
    if let Some(length) =
        bytes.first_chunk().map(|length| u64::from_le_bytes(*length)).filter(|length| *length > MOST_BYTES)
    {
        return Err(corrupt(format!("its header has {length} bytes, and at most {MOST_BYTES} are read")));
    }
    let (header, metadata) = SafeTensors::read_metadata(bytes).map_err(|error| corrupt(describe(error)))?;
    // The header's length stands in eight bytes before it. `read_metadata` has checked that the offsets are inside the
    // file and agree with dtype and shape.
    Ok((size_of::<u64>() + header, metadata))
}

fn describe(error: SafeTensorError) -> String {
    match error {
        SafeTensorError::HeaderTooSmall | SafeTensorError::InvalidHeaderLength => {
            "the file ends within its header".to_owned()
        }
        SafeTensorError::MetadataIncompleteBuffer => {
            "the header promises another number of bytes than the file has".to_owned()
        }
        SafeTensorError::InvalidHeaderDeserialization(error) => format!("the header is not JSON: {error}"),
        other => other.to_string(),
    }
}
