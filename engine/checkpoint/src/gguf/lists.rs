//! Lists in a GGUF file's metadata, with items of one kind.

use candle_core::quantized::gguf_file::Value;

use super::contents::Gguf;
use crate::error::FormatError;

impl Gguf {
    /// Texts of a list; `None` if the key is absent.
    ///
    /// # Errors
    /// The value is no list of texts.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<String>>, FormatError> {
        self.list(key, "texts", |item| if let Value::String(text) = item { Some(text.clone()) } else { None })
    }

    /// Numbers of single precision in a list; `None` if the key is absent.
    ///
    /// # Errors
    /// The value is no list of such numbers.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f32>>, FormatError> {
        self.list(key, "numbers", |item| if let Value::F32(number) = item { Some(*number) } else { None })
    }

    /// Integers of a list; `None` if the key is absent.
    ///
    /// # Errors
    /// The value is no list of integers of at most 32 bits.
    pub fn integers(&self, key: &str) -> Result<Option<Vec<i32>>, FormatError> {
        self.list(key, "integers", |item| match *item {
            Value::I32(integer) => Some(integer),
            Value::U32(integer) => integer.try_into().ok(),
            Value::U8(integer) => Some(integer.into()),
            _ => None,
        })
    }

    /// List under a metadata key, each item read by `read`.
    fn list<T>(
        &self,
        key: &str,
        kind: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>, FormatError> {
        let refused = || FormatError::refused(self.file(), key, format!("is no list of {kind}: copy the file again"));
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(items)) => {
                items.iter().map(read).collect::<Option<Vec<T>>>().map(Some).ok_or_else(refused)
            }
            Some(_) => Err(refused()),
        }
    }
}
