//! The self-signed certificate for development. It is stored between starts if `tls.keep` is set, so that a browser's
//! exception lasts and a person compares the fingerprint once.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// Name of the file in the folder; it holds names, certificate and key.
const FILE: &str = "development-certificate.pem";
/// Prefix of the first line, before the names.
const NAMES: &str = "# names: ";
/// Maximum names of one certificate. Beyond it a new certificate holds the present names only.
const MAX_NAMES: usize = 64;

/// Error of the development certificate.
#[derive(Debug, Error)]
pub enum DevelopmentCertificateError {
    /// The certificate could not be generated.
    #[error("cannot generate the development certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The stored certificate could not be read or written.
    #[error("cannot store the development certificate as {path}: {error}; set tls.keep to a writable folder")]
    Keep {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// Certificate and private key, both in PEM.
#[derive(Clone)]
pub struct PemCertificate {
    /// Certificate in PEM.
    pub certificate: String,
    /// Private key in PEM.
    pub key: String,
}

impl std::fmt::Debug for PemCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Certificate")
    }
}

/// Generates a self-signed certificate for these names and addresses.
pub fn development_certificate(names: Vec<String>) -> Result<PemCertificate, DevelopmentCertificateError> {
    let made = rcgen::generate_simple_self_signed(names)?;
    Ok(PemCertificate { certificate: made.cert.pem(), key: made.signing_key.serialize_pem() })
}

/// Returns the certificate stored in `folder` if it covers all `names`; else generates one for the old and new names
/// and stores it.
pub(super) fn load_or_create(folder: &Path, names: Vec<String>) -> Result<PemCertificate, DevelopmentCertificateError> {
    let path = folder.join(FILE);
    let failed = |error| DevelopmentCertificateError::Keep { path: path.clone(), error };
    let before = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(failed(error)),
    };
    let known: BTreeSet<&str> = match before.lines().next().and_then(|line| line.strip_prefix(NAMES)) {
        Some(known) => known.split_whitespace().collect(),
        None => BTreeSet::new(),
    };
    if !known.is_empty() && names.iter().all(|name| known.contains(name.as_str())) {
        // One file holds both; a PEM reader takes the item that it needs.
        return Ok(PemCertificate { certificate: before.clone(), key: before });
    }
    let wanted: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    let all: BTreeSet<&str> = known.union(&wanted).copied().collect();
    let all = if all.len() > MAX_NAMES { wanted } else { all };
    let made = development_certificate(all.iter().map(|name| (*name).to_owned()).collect())?;
    let names: Vec<&str> = all.into_iter().collect();
    let text = format!("{NAMES}{}\n{}{}", names.join(" "), made.certificate, made.key);
    write(folder, &path, &text).map_err(failed)?;
    Ok(made)
}

/// Writes the file atomically and readable by this user only.
fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let draft: PathBuf = folder.join(format!("{FILE}.{}", std::process::id()));
    // A leftover draft of a dead process would keep its own mode.
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&draft, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Returns the base64 body of the certificate.
    fn body(certificate: &PemCertificate) -> &str {
        let begin = certificate.certificate.find("-----BEGIN CERTIFICATE").unwrap();
        let end = certificate.certificate.find("-----END CERTIFICATE").unwrap();
        &certificate.certificate[begin..end]
    }

    #[test]
    fn a_certificate_is_kept_while_its_names_suffice() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("state/repartee");
        let home = load_or_create(&folder, names(&["localhost", "192.0.2.5"])).unwrap();
        assert_eq!(body(&load_or_create(&folder, names(&["localhost"])).unwrap()), body(&home));
        // In another network it gets one more name, and is then valid for both.
        let away = load_or_create(&folder, names(&["localhost", "198.51.100.5"])).unwrap();
        assert_ne!(body(&away), body(&home));
        assert_eq!(body(&load_or_create(&folder, names(&["localhost", "192.0.2.5"])).unwrap()), body(&away));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.join(FILE)), mode(&folder)), (0o600, 0o700));
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn an_unusable_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = load_or_create(&file, names(&["localhost"])).unwrap_err().to_string();
        assert!(error.contains("file"), "{error}");
    }
}
