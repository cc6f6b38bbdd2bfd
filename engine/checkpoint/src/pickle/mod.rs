//! PyTorch's files (`.pt`, `.pth`, `.bin`): dictionaries, lists, plain values and tensors. Nothing in them runs.
//!
//! - `archive`: the zip archive, whose entries lie in the mapped file as they are
//! - `interpreter`: candle's interpreter of pickles, within bounds
//! - [`tensor`]: tensors and their bytes
//!
//! A pickle can name any function of Python and ask for a call. Here a name is only compared: tensors and ordered
//! dictionaries are read, everything else is refused by its name.

mod archive;
mod interpreter;
pub mod tensor;

use candle_core::pickle::Object;

use self::archive::Archive;
pub(crate) use self::archive::MAGIC;
pub use self::tensor::PickleTensor;
use crate::error::FormatError;

/// Value of a pickle.
#[derive(Debug, Clone, PartialEq)]
pub enum PickleValue {
    /// Python's `None`, which files have in place of an absent value.
    None,
    /// Python's `True` or `False`.
    Bool(bool),
    /// Integer of at most 64 bits.
    Integer(i64),
    /// Number in double precision.
    Float(f64),
    /// Text, always UTF-8.
    Text(String),
    /// List or tuple.
    List(Vec<Self>),
    /// Dictionary, in the order of the file as far as candle keeps it.
    Dict(Vec<(Self, Self)>),
    /// Tensor, as a place in the file.
    Tensor(PickleTensor),
}

impl PickleValue {
    /// Reads a whole file; `file` is its name in errors. Tensors are places in `bytes`.
    ///
    /// # Errors
    /// The file is no archive of PyTorch, is truncated, or holds anything but tensors and plain values.
    pub fn read(file: &str, bytes: &[u8]) -> Result<Self, FormatError> {
        let archive = Archive::open(file, bytes)?;
        let object = interpreter::run(file, archive.pickle())?;
        Reader { file, archive: &archive }.value("", object)
    }

    /// Value under a key of a dictionary; `None` if there is none.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Dict(entries) = self else { return None };
        entries.iter().find(|(name, _)| matches!(name, Self::Text(name) if name == key)).map(|(_, value)| value)
    }

    /// Tensors of a dictionary and of the dictionaries in it, with their keys joined by dots.
    pub fn tensors(&self) -> Vec<(String, &PickleTensor)> {
        let mut tensors = Vec::new();
        self.collect("", &mut tensors);
        tensors
    }

    fn collect<'a>(&'a self, prefix: &str, tensors: &mut Vec<(String, &'a PickleTensor)>) {
        match self {
            Self::Tensor(tensor) => tensors.push((prefix.to_owned(), tensor)),
            Self::Dict(entries) => {
                for (key, value) in entries {
                    let Self::Text(key) = key else { continue };
                    value.collect(&joined(prefix, key), tensors);
                }
            }
            _ => {}
        }
    }
}

fn joined(prefix: &str, key: &str) -> String {
    if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") }
}

/// Turns candle's objects into values.
struct Reader<'a> {
    file: &'a str,
    archive: &'a Archive,
}

impl Reader<'_> {
    /// Reads the value under the keys `at`, joined by dots.
    fn value(&self, at: &str, object: Object) -> Result<PickleValue, FormatError> {
        Ok(match object {
            Object::None => PickleValue::None,
            Object::Bool(flag) => PickleValue::Bool(flag),
            Object::Int(integer) => PickleValue::Integer(integer.into()),
            Object::Long(integer) => PickleValue::Integer(integer),
            Object::Float(number) => PickleValue::Float(number),
            Object::Unicode(text) => PickleValue::Text(text),
            Object::Tuple(items) | Object::List(items) => {
                let items =
                    items.into_iter().enumerate().map(|(i, item)| self.value(&joined(at, &i.to_string()), item));
                PickleValue::List(items.collect::<Result<_, _>>()?)
            }
            Object::Dict(entries) => {
                // candle takes the entries of a batch from its end.
                let entries = entries.into_iter().rev().map(|(key, value)| {
                    let below = if let Object::Unicode(key) = &key { joined(at, key) } else { at.to_owned() };
                    Ok((self.value(at, key)?, self.value(&below, value)?))
                });
                PickleValue::Dict(entries.collect::<Result<_, FormatError>>()?)
            }
            Object::Reduce { callable, args } => self.reduced(at, *callable, *args)?,
            Object::Class { module_name, class_name } => return Err(self.foreign(at, &module_name, &class_name)),
            Object::Build { callable, .. } => return Err(self.foreign_object(at, &callable)),
            Object::PersistentLoad(_) => return Err(self.refused(at, "is a storage without a tensor")),
            Object::Mark => return Err(self.refused(at, "ends within a list: copy the file again")),
        })
    }

    /// Reads a call: of a tensor's constructor, or of a parameter's around one.
    fn reduced(&self, at: &str, callable: Object, args: Object) -> Result<PickleValue, FormatError> {
        let Object::Class { module_name, class_name } = &callable else {
            return Err(self.foreign_object(at, &callable));
        };
        let Object::Tuple(mut args) = args else { return Err(self.refused(at, "is a call without arguments")) };
        match (&module_name[..], &class_name[..]) {
            ("torch._utils", "_rebuild_tensor_v2") => {
                let tensor = PickleTensor::rebuilt(self.archive, args).map_err(|reason| self.refused(at, &reason))?;
                Ok(PickleValue::Tensor(tensor))
            }
            ("torch._utils", "_rebuild_parameter") if !args.is_empty() => self.value(at, args.swap_remove(0)),
            ("torch", "Size") if args.len() == 1 => self.value(at, args.swap_remove(0)),
            (module, class) => Err(self.foreign(at, module, class)),
        }
    }

    fn foreign_object(&self, at: &str, object: &Object) -> FormatError {
        match object {
            Object::Class { module_name, class_name } => self.foreign(at, module_name, class_name),
            Object::Reduce { callable, .. } | Object::Build { callable, .. } => self.foreign_object(at, callable),
            _ => self.refused(at, "is an object of no known class"),
        }
    }

    fn foreign(&self, at: &str, module: &str, class: &str) -> FormatError {
        let name: String = format!("{module}.{class}").chars().take(100).collect();
        self.refused(at, &format!("holds `{name}`, and only tensors and plain values are read: save its state_dict"))
    }

    fn refused(&self, at: &str, message: &str) -> FormatError {
        let at: String = at.chars().take(200).collect();
        FormatError::refused(self.file, if at.is_empty() { "data.pkl" } else { &at }, message)
    }
}
