//! Errors of forms.

use thiserror::Error;

/// Error of a schema, of a form, or of the vocabulary that has to write it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FormError {
    /// The text is not JSON.
    #[error("the schema is not JSON: {0}")]
    NotJson(String),
    /// A limit of a schema's size.
    #[error("{what} of a schema are over {limit}: leave descriptions out, or split it")]
    TooLarge {
        /// Counted things.
        what: &'static str,
        /// Most of them.
        limit: usize,
    },
    /// A keyword has a value of a wrong type or out of range.
    #[error("{at}: {message}")]
    Wrong {
        /// JSON pointer of the place; `#` for the schema itself.
        at: String,
        /// Sentence that says what is allowed.
        message: String,
    },
    /// A keyword that answers cannot be held to.
    #[error("{at}: models that run here are not held to `{keyword}`; leave it out, and check the answer for it")]
    Unsupported {
        /// JSON pointer of the schema that has it.
        at: String,
        /// The keyword.
        keyword: String,
    },
    /// No value fits.
    #[error("no value of at most {limit} levels fits the schema")]
    Unsatisfiable {
        /// Most levels.
        limit: usize,
    },
    /// The vocabulary has no token of a byte.
    #[error("the model's vocabulary has no token for the byte {byte:#04x}, which the form needs")]
    Unspellable {
        /// The byte.
        byte: u8,
    },
}
