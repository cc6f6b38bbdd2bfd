//! Weight files of a checkpoint: a single file, the shards that an index names, or numbered parts without an index.

use std::collections::BTreeMap;

use repartee_checkpoint::ctranslate2;
use serde::Deserialize;

use super::CheckpointError;
use super::files::Files;

/// Names of the weight files in one form.
pub(super) struct WeightNames {
    /// File that maps tensors to shards.
    pub(super) index: &'static str,
    /// Files that hold all tensors; the first one is meant where none is there.
    pub(super) single: &'static [&'static str],
    /// Beginning and end of the name of a numbered part, `model-00001-of-00004.safetensors`.
    part: (&'static str, &'static str),
}

/// Forms in the order of preference.
pub(super) const FORMS: [WeightNames; 2] = [
    WeightNames {
        index: "model.safetensors.index.json",
        single: &["model.safetensors"],
        part: ("model-", ".safetensors"),
    },
    WeightNames {
        index: "pytorch_model.bin.index.json",
        single: &["pytorch_model.bin", "model.pt", "model.pth"],
        part: ("pytorch_model-", ".bin"),
    },
];

/// Ending of a single file with a name of its own.
const OWN_NAME: &str = ".pth";

/// Weight files of a checkpoint.
pub(super) enum Catalogue {
    /// Shards of an index, by the names of tensors.
    Index {
        /// Name of the index.
        file: &'static str,
        /// Shard of each tensor.
        shards: BTreeMap<String, String>,
    },
    /// Files without an index; all their tensors are read. None for a checkpoint without weights.
    Files(Vec<String>),
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl Catalogue {
    /// Finds the weight files. An index wins over a single file beside it, safetensors over pickles, and both over
    /// CTranslate2's file.
    pub(super) fn find(files: &Files) -> Result<Self, CheckpointError> {
        for form in &FORMS {
            if let Some(Index { weight_map: shards }) = files.json(form.index)? {
                for stray in form.single.iter().filter(|single| files.has(single)) {
                    if !shards.values().any(|shard| shard == stray) {
                        tracing::warn!(
                            ignored = files.label(stray),
                            index = form.index,
                            "the index does not name this file"
                        );
                    }
                }
                return Ok(Self::Index { file: form.index, shards });
            }
            if let Some(single) = form.single.iter().find(|single| files.has(single)) {
                return Ok(Self::Files(vec![(*single).to_owned()]));
            }
            let parts = parts(files, form.part)?;
            if !parts.is_empty() {
                return Ok(Self::Files(parts));
            }
        }
        if files.has(ctranslate2::FILE) {
            return Ok(Self::Files(vec![ctranslate2::FILE.to_owned()]));
        }
        // A publisher's own name, such as kokoro-v1_0.pth, if nothing else can be meant.
        let own: Vec<String> = files.names()?.into_iter().filter(|name| name.ends_with(OWN_NAME)).collect();
        Ok(Self::Files(if own.len() == 1 { own } else { Vec::new() }))
    }
}

/// Numbered parts; fails if one is missing.
fn parts(files: &Files, (begin, end): (&str, &str)) -> Result<Vec<String>, CheckpointError> {
    let number = |name: &str| {
        let (number, count) = name.strip_prefix(begin)?.strip_suffix(end)?.split_once("-of-")?;
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        (digits(number) && digits(count)).then(|| Some((number.parse().ok()?, count.parse().ok()?, count.len())))?
    };
    let found: Vec<(String, (u32, u32, usize))> =
        files.names()?.into_iter().filter_map(|name| number(&name).map(|number| (name, number))).collect();
    let Some((_, (_, count, width))) = found.first() else { return Ok(Vec::new()) };
    // No more than one too many is looked for.
    for missing in 1..=*count {
        if !found.iter().any(|(_, (number, ..))| *number == missing) {
            let file = files.label(&format!("{begin}{missing:0width$}-of-{count:0width$}{end}"));
            return Err(CheckpointError::MissingPart { file });
        }
    }
    Ok(found.into_iter().map(|(name, _)| name).collect())
}
