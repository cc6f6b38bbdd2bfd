//! Licences of weights that do not allow every use. A model with such weights loads once its licence is accepted by name.

use thiserror::Error;

/// A licence that restricts the use of a family's weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestrictedLicence {
    /// Name of the licence in `engine.accept_licence`.
    pub name: &'static str,
    /// Name of the family; see [`Family::name`](super::family::Family::name).
    pub family: &'static str,
    /// Uses that it allows, as sentences.
    pub terms: &'static str,
}

/// Reason for which models are not loaded.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum LicenceError {
    /// The licence of the weights is not accepted.
    #[error(
        "{terms} If your use is such a one, accept them: --accept-licence {name}, or engine.accept_licence = [\"{name}\"]"
    )]
    NotAccepted {
        /// Name of the licence.
        name: &'static str,
        /// Uses that it allows.
        terms: &'static str,
    },
    /// The licence is not that of a model that is loaded.
    #[error("engine.accept_licence names {name:?}, which is not the licence of this model: {advice}")]
    OtherModel {
        /// Name of the licence, as given.
        name: String,
        /// The model's own licence, if it has one to accept.
        advice: String,
    },
}

/// Checks that the licences of these families are accepted, and no others. Random weights, with true beside the family's name, have
/// no licence.
///
/// # Errors
///
/// A licence is not accepted, or an accepted one is of no model that is loaded.
pub fn check<'a>(
    known: &[RestrictedLicence],
    families: impl IntoIterator<Item = (&'a str, bool)>,
    accepted: &[String],
) -> Result<(), LicenceError> {
    let of = |family: &str| known.iter().find(|licence| licence.family == family);
    let licences: Vec<_> = families.into_iter().filter_map(|(family, drawn)| Some((of(family)?, drawn))).collect();
    if let Some(name) = accepted.iter().find(|name| licences.iter().all(|(licence, _)| licence.name != **name)) {
        let advice = match licences.first() {
            Some((licence, _)) => format!("its own is {:?}", licence.name),
            None => "it has none to accept, so leave the setting out".to_owned(),
        };
        return Err(LicenceError::OtherModel { name: name.clone(), advice });
    }
    for &RestrictedLicence { name, terms, .. } in licences.iter().filter(|(_, drawn)| !drawn).map(|(it, _)| *it) {
        if !accepted.iter().any(|accepted| accepted == name) {
            return Err(LicenceError::NotAccepted { name, terms });
        }
        tracing::warn!(licence = name, "{terms}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LICENCES: [RestrictedLicence; 1] =
        [RestrictedLicence { name: "one", family: "One", terms: "For academic purposes only." }];

    fn error(families: &[(&str, bool)], accepted: &[&str]) -> Option<String> {
        let accepted: Vec<String> = accepted.iter().map(|name| (*name).to_owned()).collect();
        check(&LICENCES, families.iter().copied(), &accepted).err().map(|error| error.to_string())
    }

    #[test]
    fn a_restricted_licence_must_be_accepted() {
        let refused = error(&[("Other", false), ("One", false)], &[]).unwrap();
        assert!(refused.contains("academic") && refused.contains("--accept-licence one"), "{refused}");
        assert_eq!(error(&[("Other", false), ("One", false)], &["one"]), None);
        assert_eq!(error(&[("One", true)], &[]), None, "random weights");
        assert_eq!(error(&[("Other", false)], &[]), None);
    }

    #[test]
    fn licences_of_other_models_are_refused() {
        for (families, name, advice) in [
            (&[("Other", false)][..], "one", "leave the setting out"),
            (&[][..], "one", "leave the setting out"),
            (&[("One", false)][..], "two", "its own is \"one\""),
        ] {
            let refused = error(families, &[name]).unwrap();
            assert!(refused.contains(&format!("{name:?}")) && refused.contains(advice), "{refused}");
        }
    }
}
