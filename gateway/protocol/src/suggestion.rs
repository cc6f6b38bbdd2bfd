//! Names that a person may have meant.

/// Least likeness, by Jaro and Winkler, of a name that is suggested.
const ALIKE: f64 = 0.88;
/// Longest name that is compared, in bytes: the time grows with its square.
const LONGEST: usize = 128;

/// Returns the known name that is most like `name`; `None` if none is.
pub fn closest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > LONGEST {
        return None;
    }
    let likeness = |known: &'a str| (strsim::jaro_winkler(name, known), known);
    let best = known.into_iter().map(likeness).max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(likeness, _)| *likeness >= ALIKE).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_lead_to_the_name() {
        let known = ["session.update", "response.create", "response.cancel", "input_audio_buffer.append"];
        for (name, meant) in [
            ("session.upate", Some("session.update")),
            ("sesion.update", Some("session.update")),
            ("response.creat", Some("response.create")),
            ("input_audio_buffer.apend", Some("input_audio_buffer.append")),
            ("party.start", None),
            ("", None),
        ] {
            assert_eq!(closest(name, known), meant, "{name}");
        }
        assert_eq!(closest(&"session.update".repeat(20), known), None);
        assert_eq!(closest("session.update", []), None);
    }
}
