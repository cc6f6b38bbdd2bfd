//! Sections of a configuration file, read field by field.
//!
//! Each read names the field, its value if the file lacks it or has `null`, and the allowed values. So no number leaves
//! a file without a bound. Errors name the file, the path of the field and the allowed values.

use std::collections::BTreeMap;
use std::fmt::{Debug, Display};

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::limits::{ENTRIES, FACTOR, FRAME, HEAD_DIM, HEADS, Limit, WIDTH};
use crate::checkpoint::{BadValue, CONFIG, Checkpoint, CheckpointError};

/// A JSON file of a checkpoint.
#[derive(Debug)]
pub struct ConfigFile {
    label: String,
    json: Value,
    /// Names of fields in the file, where they are others, by path.
    names: BTreeMap<String, String>,
}

impl ConfigFile {
    /// Wraps the contents of a file.
    pub fn new(label: impl Into<String>, json: Value) -> Self {
        Self { label: label.into(), json, names: BTreeMap::new() }
    }

    /// Reads config.json of any family.
    pub fn config(checkpoint: &Checkpoint) -> Result<Self, CheckpointError> {
        Ok(Self { names: checkpoint.field_names(), ..Self::new(checkpoint.label(CONFIG), checkpoint.config()?) })
    }

    /// Reads config.json of a family, whose first architecture must be one of `names`; the error names the first.
    pub fn of_family(checkpoint: &Checkpoint, names: &[&str]) -> Result<Self, CheckpointError> {
        let found = checkpoint.architecture()?;
        if names.contains(&&found[..]) {
            return Self::config(checkpoint);
        }
        let known = names.first().copied().unwrap_or_default().to_owned();
        Err(CheckpointError::UnknownArchitecture { file: checkpoint.label(CONFIG), found, known })
    }

    /// Reads another file; if it is missing, every field takes its default.
    pub fn optional(checkpoint: &Checkpoint, file: &str) -> Result<Self, CheckpointError> {
        let json = checkpoint.json_file(file)?.unwrap_or_else(|| Value::Object(Map::new()));
        Ok(Self::new(checkpoint.label(file), json))
    }

    /// Top level of the file.
    pub fn top(&self) -> Result<ConfigSection<'_>, CheckpointError> {
        ConfigSection { file: self, path: String::new(), fields: None }.opened(&self.json)
    }
}

/// An object of a configuration file. A missing optional section has no fields.
#[derive(Debug, Clone)]
pub struct ConfigSection<'a> {
    file: &'a ConfigFile,
    path: String,
    fields: Option<&'a Map<String, Value>>,
}

impl<'a> ConfigSection<'a> {
    /// Section in the field `field`, which the file must have.
    pub fn section(&self, field: &str) -> Result<Self, CheckpointError> {
        let found = self.fields.and_then(|fields| fields.get(field));
        let missing = || self.wrong(self.path.clone(), format!("missing field `{field}`"));
        self.below(field).opened(found.ok_or_else(missing)?)
    }

    /// Section in the field `field`; without it, a section without fields.
    pub fn optional_section(&self, field: &str) -> Result<Self, CheckpointError> {
        match self.fields.and_then(|fields| fields.get(field)) {
            None | Some(Value::Null) => Ok(self.below(field)),
            Some(found) => self.below(field).opened(found),
        }
    }

    fn below(&self, field: &str) -> Self {
        Self { file: self.file, path: self.field_path(field), fields: None }
    }

    fn opened(self, value: &'a Value) -> Result<Self, CheckpointError> {
        match value {
            Value::Object(fields) => Ok(Self { fields: Some(fields), ..self }),
            other => Err(self.wrong(self.path.clone(), format!("invalid type: {other}, expected a section"))),
        }
    }

    /// True if the section has no fields, or is not there.
    pub fn is_empty(&self) -> bool {
        self.fields.is_none_or(Map::is_empty)
    }

    /// Path of a field of this section, from the top of the file.
    fn field_path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Name of a field in the file, by its path.
    fn name_in_file(&self, path: String) -> String {
        self.file.names.get(&path).cloned().unwrap_or(path)
    }

    fn wrong(&self, field: String, message: String) -> CheckpointError {
        let field = if field.is_empty() { "top level".to_owned() } else { self.name_in_file(field) };
        CheckpointError::WrongField { file: self.file.label.clone(), field, message }
    }

    /// Value of a field; `None` if the file lacks it or has `null`. Every number must be checked.
    pub fn get<T: DeserializeOwned>(&self, field: &str) -> Result<Option<T>, CheckpointError> {
        let Some(value) = self.fields.and_then(|fields| fields.get(field)).filter(|value| !value.is_null()) else {
            return Ok(None);
        };
        serde_path_to_error::deserialize(value).map(Some).map_err(|error| {
            let path = match error.path().to_string() {
                whole if whole == "." => self.field_path(field),
                item if item.starts_with('[') => format!("{}{item}", self.field_path(field)),
                entry => format!("{}.{entry}", self.field_path(field)),
            };
            self.wrong(path, error.into_inner().to_string())
        })
    }

    /// True if the section has a field, and not null in it.
    pub fn has(&self, field: &str) -> bool {
        self.fields.is_some_and(|fields| fields.get(field).is_some_and(|value| !value.is_null()))
    }

    /// Name of the first of these fields that the section has; without any, the first name.
    pub fn first_of<'n>(&self, names: &[&'n str]) -> &'n str {
        let first = names.iter().copied().find(|name| self.has(name));
        first.unwrap_or_else(|| names.first().copied().unwrap_or_default())
    }

    /// Error of a field with a value that is not allowed.
    pub fn refusal(&self, field: &str, value: impl Display, allowed: &str) -> CheckpointError {
        let field = self.name_in_file(self.field_path(field));
        let value = BadValue { field, value: value.to_string(), allowed: allowed.to_owned() };
        CheckpointError::BadValue { file: self.file.label.clone(), value }
    }

    /// Fails unless `holds`.
    pub fn check(&self, field: &str, value: impl Display, holds: bool, allowed: &str) -> Result<(), CheckpointError> {
        if holds { Ok(()) } else { Err(self.refusal(field, value, allowed)) }
    }

    /// Value of a field, `absent` without it, which must satisfy `holds`.
    pub fn value<T: DeserializeOwned + Display + Copy>(
        &self,
        field: &str,
        absent: T,
        holds: impl FnOnce(T) -> bool,
        allowed: &str,
    ) -> Result<T, CheckpointError> {
        let value = self.get(field)?.unwrap_or(absent);
        self.check(field, value, holds(value), allowed)?;
        Ok(value)
    }

    /// Size within `limit`.
    pub fn size(&self, field: &str, absent: usize, limit: Limit) -> Result<usize, CheckpointError> {
        self.value(field, absent, |size| limit.contains(&size), &shown(&limit))
    }

    /// Size within `limit`, if the file has the field.
    pub fn optional_size(&self, field: &str, limit: Limit) -> Result<Option<usize>, CheckpointError> {
        self.get(field)?.map(|size| self.size(field, size, limit)).transpose()
    }

    /// True or false, both of which are allowed.
    pub fn switch(&self, field: &str, absent: bool) -> Result<bool, CheckpointError> {
        Ok(self.get(field)?.unwrap_or(absent))
    }

    /// Refuses a field with another value than `allowed`, the one that is supported and the default.
    pub fn only(&self, field: &str, allowed: impl Into<Value>) -> Result<(), CheckpointError> {
        let (allowed, text) =
            (allowed.into(), |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
        let found = self.get(field)?.unwrap_or_else(|| allowed.clone());
        self.check(field, text(&found), found == allowed, &text(&allowed))
    }

    /// Even size within `limit`.
    pub fn even(&self, field: &str, absent: usize, limit: Limit) -> Result<usize, CheckpointError> {
        let allowed = format!("even and positive, at most {}", limit.end());
        self.value(field, absent, |size| limit.contains(&size) && size.is_multiple_of(2), &allowed)
    }

    /// Size within `limit` that is a multiple of another field's value.
    pub fn multiple(
        &self,
        field: &str,
        absent: usize,
        limit: Limit,
        (by, divisor): (&str, usize),
    ) -> Result<usize, CheckpointError> {
        let allowed = format!("a positive multiple of {by}, which is {divisor}, and at most {}", limit.end());
        let holds = |size: usize| size > 0 && limit.contains(&size) && size.is_multiple_of(divisor.max(1));
        self.value(field, absent, holds, &allowed)
    }

    /// Size that equals another field's value.
    pub fn equal(&self, field: &str, absent: usize, (other, wanted): (&str, usize)) -> Result<usize, CheckpointError> {
        self.value(field, absent, |size| size == wanted, &format!("positive and equal to {other}, which is {wanted}"))
    }

    /// List of sizes, each within `limit`.
    pub fn sizes(&self, field: &str, absent: &[usize], limit: Limit) -> Result<Vec<usize>, CheckpointError> {
        let allowed = format!("a list of {ENTRIES} numbers at most, each {}", shown(&limit));
        let holds = |sizes: &[usize]| sizes.len() <= ENTRIES && sizes.iter().all(|size| limit.contains(size));
        self.list(field, absent, holds, &allowed)
    }

    /// List that satisfies `holds`.
    pub fn list<T: DeserializeOwned + Debug + Clone>(
        &self,
        field: &str,
        absent: &[T],
        holds: impl FnOnce(&[T]) -> bool,
        allowed: &str,
    ) -> Result<Vec<T>, CheckpointError> {
        let list = self.get::<Vec<T>>(field)?.unwrap_or_else(|| absent.to_vec());
        self.check(field, format!("{list:?}"), holds(&list), allowed)?;
        Ok(list)
    }

    /// Factors of upsampling. Their product, the rows made of one row, is at most the length of a frame.
    pub fn factors(&self, field: &str, absent: &[usize]) -> Result<Vec<usize>, CheckpointError> {
        let holds = |factors: &[usize]| {
            let product = factors.iter().try_fold(1_usize, |product, &factor| product.checked_mul(factor));
            factors.len() <= ENTRIES
                && factors.iter().all(|factor| FACTOR.contains(factor))
                && product.is_some_and(|product| FRAME.contains(&product))
        };
        let allowed = format!("factors of {} to {}, together at most {}", FACTOR.start(), FACTOR.end(), FRAME.end());
        self.list(field, absent, holds, &allowed)
    }

    /// Width that each entry of another field's list halves.
    pub fn halvable(&self, field: &str, absent: usize, (by, entries): (&str, usize)) -> Result<usize, CheckpointError> {
        let allowed = format!("a positive multiple of 2 to the power of {entries}, the number of {by}");
        let unit = u32::try_from(entries).ok().and_then(|entries| 1_usize.checked_shl(entries));
        let holds = |size: usize| WIDTH.contains(&size) && unit.is_some_and(|unit| size.is_multiple_of(unit));
        self.value(field, absent, holds, &format!("{allowed}, at most {}", WIDTH.end()))
    }

    /// Id below the size of a vocabulary.
    pub fn id(&self, field: &str, absent: u32, vocabulary: usize) -> Result<u32, CheckpointError> {
        self.value(field, absent, |id| is_id(id, vocabulary), &below(vocabulary))
    }

    /// Id below the size of a vocabulary, if the file has the field.
    pub fn optional_id(&self, field: &str, vocabulary: usize) -> Result<Option<u32>, CheckpointError> {
        self.get(field)?.map(|id| self.id(field, id, vocabulary)).transpose()
    }

    /// Ids by name, below the size of a vocabulary.
    pub fn ids(&self, field: &str, vocabulary: usize) -> Result<BTreeMap<String, u32>, CheckpointError> {
        let ids = self.get::<BTreeMap<String, u32>>(field)?.unwrap_or_default();
        let known = |(name, id): (&String, &u32)| {
            self.check(&format!("{field}.{name}"), id, is_id(*id, vocabulary), &below(vocabulary))
        };
        ids.iter().try_for_each(known)?;
        Ok(ids)
    }

    /// Query heads, key and value heads, and the width of a head, which allows rotation. Without `head_dim` the query
    /// heads share `hidden_size` evenly, unless `absent` has a width.
    pub fn attention(
        &self,
        hidden_size: usize,
        absent: (usize, usize, Option<usize>),
    ) -> Result<(usize, usize, usize), CheckpointError> {
        let kv_heads = self.size("num_key_value_heads", absent.1, HEADS)?;
        let heads = self.multiple("num_attention_heads", absent.0, HEADS, ("num_key_value_heads", kv_heads))?;
        // Rotation pairs the halves of a head.
        Ok((heads, kv_heads, self.even("head_dim", absent.2.unwrap_or(hidden_size / heads), HEAD_DIM)?))
    }

    /// Number added to a variance in norms.
    pub fn epsilon(&self, field: &str, absent: f64) -> Result<f64, CheckpointError> {
        self.value(field, absent, |epsilon| epsilon > 0.0 && epsilon < 1.0, "between 0 and 1")
    }

    /// Base of the rotary wavelengths, without scaling. Fields in the reference's order: those of `rope_scaling`, of
    /// `rope_parameters`, outside both. Without vision the three indices of a position are equal, so M-RoPE, whose
    /// older type is `mrope`, rotates as plain positions.
    pub fn rope_theta(&self, absent: f64) -> Result<f64, CheckpointError> {
        let table = self.optional_section(self.first_of(&["rope_scaling", "rope_parameters"]))?;
        let kind = table.first_of(&["rope_type", "type"]);
        let found = table.get::<String>(kind)?.unwrap_or_else(|| "default".to_owned());
        table.check(kind, &found, ["default", "mrope"].contains(&&found[..]), "default: wavelengths are not scaled")?;
        table.value("partial_rotary_factor", 1.0, |factor| factor == 1.0, "1")?;
        let at = if table.get::<f64>("rope_theta")?.is_some() { &table } else { self };
        at.value("rope_theta", absent, |theta| theta.is_finite() && theta > 1.0, "above 1")
    }
}

fn shown(limit: &Limit) -> String {
    match limit.start() {
        0 => format!("at most {}", limit.end()),
        least => format!("at least {least} and at most {}", limit.end()),
    }
}

fn is_id(id: u32, vocabulary: usize) -> bool {
    usize::try_from(id).is_ok_and(|id| id < vocabulary)
}

fn below(vocabulary: usize) -> String {
    format!("below the vocabulary's size, which is {vocabulary}")
}
