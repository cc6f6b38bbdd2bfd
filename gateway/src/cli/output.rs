//! Text for the standard output. Its reader may be gone, as in `repartee check | head -1`: that is no error.

use std::io::{self, ErrorKind, Write as _};

/// Writes a text.
///
/// # Errors
///
/// The output fails for another reason than a closed pipe, such as a full disk.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
