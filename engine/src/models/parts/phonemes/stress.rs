//! Marks of stress in a reading.

/// Mark of the syllable with the main stress.
pub const PRIMARY: char = 'ˈ';
/// Mark of a syllable with a lesser one.
pub const SECONDARY: char = 'ˌ';
/// Phonemes that a mark stands before.
const VOWELS: &str = "AIOQWYaiuæɑɒɔəɛɜɪʊʌᵻ";
/// Vowels of double weight, and affricates.
const HEAVY: &str = "AIOQWYʤʧ";

/// True for a vowel.
pub fn is_vowel(phoneme: char) -> bool {
    VOWELS.contains(phoneme)
}

/// Weight of a reading among the parts of a word.
pub fn weight(reading: &str) -> usize {
    reading.chars().map(|phoneme| if HEAVY.contains(phoneme) { 2 } else { 1 }).sum()
}

/// Level of stress that a word gets from its letters or its neighbours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StressLevel {
    /// The primary stress becomes a secondary one.
    Lower,
    /// Like [`StressLevel::Lower`]; a reading without stress gets a secondary one.
    Low,
    /// A reading without stress gets a secondary one.
    Half,
    /// A reading without stress gets a primary one, and a secondary one becomes primary if it is alone.
    Full,
}

/// Changes the marks of a reading.
pub fn stressed(reading: &str, level: Option<StressLevel>) -> String {
    let (primary, secondary) = (reading.contains(PRIMARY), reading.contains(SECONDARY));
    let lowered = || {
        let kept = reading.chars().filter(|mark| *mark != SECONDARY);
        kept.map(|mark| if mark == PRIMARY { SECONDARY } else { mark }).collect()
    };
    match level {
        Some(StressLevel::Lower | StressLevel::Low) if primary => lowered(),
        Some(StressLevel::Low | StressLevel::Half) if !secondary && !primary => marked(reading, SECONDARY),
        Some(StressLevel::Full) if !primary && secondary => {
            reading.chars().map(|mark| if mark == SECONDARY { PRIMARY } else { mark }).collect()
        }
        Some(StressLevel::Full) if !primary && !secondary => marked(reading, PRIMARY),
        _ => reading.to_owned(),
    }
}

/// Marks the first vowel of a reading, if it has one.
pub fn marked(reading: &str, mark: char) -> String {
    match reading.find(is_vowel) {
        Some(at) => format!("{}{mark}{}", &reading[..at], &reading[at..]),
        None => reading.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_move_the_marks() {
        use StressLevel::{Full, Half, Low, Lower};
        for (reading, level, expected) in [
            ("kˈætˌAl", None, "kˈætˌAl"),
            ("kˈætˌAl", Some(Lower), "kˌætAl"),
            ("ænd", Some(Lower), "ænd"),
            ("ænd", Some(Low), "ˌænd"),
            ("stænd", Some(Half), "stˌænd"),
            ("stˈænd", Some(Half), "stˈænd"),
            ("stænd", Some(Full), "stˈænd"),
            ("ˌʌndəɹ", Some(Full), "ˈʌndəɹ"),
            ("s", Some(Full), "s"),
        ] {
            assert_eq!(stressed(reading, level), expected, "{reading} {level:?}");
        }
    }
}
