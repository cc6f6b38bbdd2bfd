//! Errors of a checkpoint's files, for the person who set the folder: file, field and remedy in one sentence.

use std::io;

use thiserror::Error;

/// Error of a file that cannot be used.
#[derive(Debug, Error)]
pub enum FormatError {
    /// A folder, pipe, socket or device lies in a file's place.
    #[error("{file}: is {kind}, not a file: copy the checkpoint's own file there")]
    NotAFile {
        /// Path of the file.
        file: String,
        /// Kind of the thing, with its article.
        kind: &'static str,
    },
    /// The operating system could not read the file.
    #[error("{file}: cannot be read ({reason}): check its permissions and the disk")]
    Unreadable {
        /// Path of the file.
        file: String,
        /// Error of the operating system.
        reason: io::Error,
    },
    /// The file is a pointer that Git LFS replaces by the real one.
    #[error("{file}: this is a Git LFS pointer: run `git lfs pull` in its folder")]
    LfsPointer {
        /// Path of the file.
        file: String,
    },
    /// The file is larger than any file of its kind.
    #[error("{file}: has {found} bytes, and at most {most} are read: copy the file again")]
    TooLarge {
        /// Path of the file.
        file: String,
        /// Bytes of the file.
        found: u64,
        /// Bytes that are read at most.
        most: u64,
    },
    /// A part of the file is malformed, or of a kind that is not read.
    #[error("{file}: {field}: {message}")]
    Refused {
        /// Path of the file.
        file: String,
        /// Name of the part, such as a tensor or a metadata key.
        field: String,
        /// Reason and remedy.
        message: String,
    },
}

impl FormatError {
    /// Error of a part of a file; `message` has the reason and the remedy.
    pub(crate) fn refused(file: &str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Refused { file: file.to_owned(), field: field.into(), message: message.into() }
    }
}
