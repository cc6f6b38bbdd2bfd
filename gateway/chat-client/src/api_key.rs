//! The key of a server, which is never printed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use hyper::header::HeaderValue;
use thiserror::Error;

/// Maximum length of a key, in bytes.
const MAX_KEY: usize = 8 << 10;

/// Error of a key. The text never holds the key.
#[derive(Debug, Error)]
pub enum ApiKeyError {
    /// The file cannot be read.
    #[error("cannot read the key from {path}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
    /// The environment does not have the variable.
    #[error("the environment has no variable {0}: set it to the key")]
    Variable(String),
    /// Nothing but white space.
    #[error("the key from {0} is empty")]
    Empty(String),
    /// Longer than 8 KiB.
    #[error("the key from {0} is longer than {MAX_KEY} bytes: give a file that holds the key alone")]
    TooLong(String),
    /// A space, a control character or a letter beyond ASCII.
    #[error("the key from {0} holds a space, a line break or another sign that no key has: give the key alone")]
    Character(String),
}

/// Key of a server. [`Debug`](fmt::Debug) does not print it.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Reads the key that a file holds alone; white space around it is left out.
    ///
    /// # Errors
    /// The file cannot be read, or does not hold a key.
    pub fn from_file(path: &Path) -> Result<Self, ApiKeyError> {
        let failed = |error| ApiKeyError::File { path: path.to_owned(), error };
        let mut bytes = Vec::new();
        File::open(path).map_err(failed)?.take(MAX_KEY as u64 + 2).read_to_end(&mut bytes).map_err(failed)?;
        Self::parse(&String::from_utf8_lossy(&bytes), &path.display().to_string())
    }

    /// Reads the key from an environment variable.
    ///
    /// # Errors
    /// The variable is missing, or does not hold a key.
    pub fn from_env(variable: &str) -> Result<Self, ApiKeyError> {
        let value = std::env::var_os(variable).ok_or_else(|| ApiKeyError::Variable(variable.to_owned()))?;
        Self::parse(&value.to_string_lossy(), variable)
    }

    /// Checks a key; `source` is its name in errors.
    ///
    /// # Errors
    /// The text is empty, too long, or no key.
    pub fn parse(text: &str, source: &str) -> Result<Self, ApiKeyError> {
        let key = text.trim();
        if key.is_empty() {
            return Err(ApiKeyError::Empty(source.to_owned()));
        }
        if key.len() > MAX_KEY {
            return Err(ApiKeyError::TooLong(source.to_owned()));
        }
        if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(ApiKeyError::Character(source.to_owned()));
        }
        Ok(Self(key.to_owned()))
    }

    /// Value of the `Authorization` header, marked as sensitive; `None` cannot occur for a checked key.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("Bearer {}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// The key itself, to find it in a server's message.
    pub(crate) fn secret(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_is_read_and_trimmed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, " sk-abc123\r\n").unwrap();
        let key = ApiKey::from_file(&path).unwrap();
        assert_eq!(key.secret(), "sk-abc123");
        assert_eq!(key.header().unwrap().to_str().unwrap(), "Bearer sk-abc123");
        assert!(key.header().unwrap().is_sensitive());
    }

    #[test]
    fn unusable_keys_are_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let error = ApiKey::from_file(&path).unwrap_err();
        assert!(matches!(&error, ApiKeyError::File { .. }) && error.to_string().contains("key"), "{error}");
        std::fs::write(&path, vec![b'k'; MAX_KEY + 100]).unwrap();
        assert!(matches!(ApiKey::from_file(&path).unwrap_err(), ApiKeyError::TooLong(_)));
        std::fs::write(&path, "\n \n").unwrap();
        assert!(matches!(ApiKey::from_file(&path).unwrap_err(), ApiKeyError::Empty(_)));
        for text in ["sk-secret and more", "sk-secret\nsk-other", "sk-sécret"] {
            let error = ApiKey::parse(text, "THINK_KEY").unwrap_err();
            assert!(matches!(error, ApiKeyError::Character(_)), "{error}");
            assert!(error.to_string().contains("THINK_KEY") && !error.to_string().contains("sk-"), "{error}");
        }
    }

    #[test]
    fn key_comes_from_the_environment() {
        // Cargo sets this variable for every test.
        assert_eq!(ApiKey::from_env("CARGO_PKG_NAME").unwrap().secret(), "repartee-chat-client");
        let error = ApiKey::from_env("REPARTEE_NO_SUCH_VARIABLE").unwrap_err();
        assert!(error.to_string().contains("REPARTEE_NO_SUCH_VARIABLE"), "{error}");
    }

    #[test]
    fn debug_hides_the_key() {
        assert_eq!(format!("{:?}", ApiKey::parse("sk-abc123", "test").unwrap()), "ApiKey");
    }
}
