//! Voices of the folder `voices`: styles by the number of phonemes, as published tensors (`NAME.pt`) or as plain numbers
//! (`NAME.bin`, f32 little-endian).

use repartee_checkpoint::pickle::PickleValue;
use repartee_kernels::DType;
use safetensors::Dtype;

use super::config::Config;
use crate::checkpoint::{Checkpoint, CheckpointError};

/// Folder of the voices.
const FOLDER: &str = "voices";
/// Voice that is listed first, if it exists.
const DEFAULT: &str = "af_heart";
/// Most rows of a voice; published ones have 510.
const MOST_ROWS: usize = 4096;
/// Most voices; 54 are published.
const MOST_VOICES: usize = 512;
/// Speeds that the name of a voice may end in, as `NAME/SPEED`.
const SPEEDS: [(&str, f32); 4] = [("0.8", 0.8), ("1.2", 1.2), ("1.5", 1.5), ("2.0", 2.0)];

/// A voice of the folder.
#[derive(Debug, Clone, PartialEq)]
struct VoiceStyle {
    name: String,
    /// Rows of styles, the first for one phoneme.
    rows: Vec<f32>,
}

/// All voices, the default one first.
#[derive(Debug, Clone, PartialEq)]
pub struct VoiceStyles {
    voices: Vec<VoiceStyle>,
    width: usize,
}

impl VoiceStyles {
    /// Reads the voices.
    ///
    /// # Errors
    /// There is none, or a file is no table of styles.
    pub fn load(checkpoint: &Checkpoint, config: &Config) -> Result<Self, CheckpointError> {
        let folder = checkpoint.part(FOLDER)?;
        let width = config.style_width();
        let mut voices = Vec::new();
        for file in folder.file_names()? {
            let Some((name, form)) = file.rsplit_once('.').filter(|(_, form)| ["pt", "bin"].contains(form)) else {
                continue;
            };
            let (bytes, label) = (folder.bytes(&file)?, folder.label(&file));
            let rows = if form == "pt" { published(&label, &bytes)? } else { Some(DType::F32.widen(&bytes)) };
            let fits = |rows: &Vec<f32>| {
                (1..=MOST_ROWS * width).contains(&rows.len())
                    && rows.len().is_multiple_of(width)
                    && rows.iter().all(|number| number.is_finite())
            };
            let wanted = format!("it is no table of styles: rows of {width} numbers, at most {MOST_ROWS} of them");
            let wrong = || CheckpointError::WrongField { file: label, field: "top level".to_owned(), message: wanted };
            voices.push(VoiceStyle { name: name.to_owned(), rows: rows.filter(fits).ok_or_else(wrong)? });
            if voices.len() == MOST_VOICES {
                break;
            }
        }
        if voices.is_empty() {
            return Err(CheckpointError::FileMissing { file: folder.label(&format!("{DEFAULT}.pt")) });
        }
        voices.sort_by(|a, b| (a.name != DEFAULT, &a.name).cmp(&(b.name != DEFAULT, &b.name)));
        Ok(Self { voices, width })
    }

    /// Names of the voices.
    pub fn names(&self) -> Vec<&str> {
        self.voices.iter().map(|voice| &voice.name[..]).collect()
    }

    /// Names that a request may have: each voice alone, and with each speed.
    pub fn requests(&self) -> Vec<String> {
        let alone = self.voices.iter().map(|voice| voice.name.clone());
        let paced = self.voices.iter().flat_map(|voice| SPEEDS.map(|(speed, _)| format!("{}/{speed}", voice.name)));
        alone.chain(paced).collect()
    }

    /// Style of a voice for a number of phonemes: the default voice for an unknown one, the last row for longer texts.
    pub fn style(&self, name: &str, phonemes: usize) -> &[f32] {
        let voice = self.voices.iter().find(|voice| voice.name == name).unwrap_or(&self.voices[0]);
        let rows = voice.rows.len() / self.width;
        &voice.rows[phonemes.clamp(1, rows) * self.width - self.width..][..self.width]
    }
}

/// Voice and speed of a requested name.
pub fn requested(name: &str) -> (&str, f32) {
    let paced = name
        .rsplit_once('/')
        .and_then(|(name, speed)| SPEEDS.iter().find(|(known, _)| *known == speed).map(|&(_, speed)| (name, speed)));
    paced.unwrap_or((name, 1.0))
}

/// True for a voice that speaks British English: the first letter of a name says the language.
pub fn is_british(name: &str) -> bool {
    name.starts_with('b')
}

/// Numbers of a published voice; `None` if it is no tensor of floating-point numbers.
fn published(label: &str, file: &[u8]) -> Result<Option<Vec<f32>>, CheckpointError> {
    let PickleValue::Tensor(tensor) = PickleValue::read(label, file)? else { return Ok(None) };
    let dtype = match tensor.dtype {
        Dtype::F32 => DType::F32,
        Dtype::BF16 => DType::Bf16,
        Dtype::F16 => DType::F16,
        _ => return Ok(None),
    };
    Ok(Some(dtype.widen(&tensor.numbers(file))))
}
