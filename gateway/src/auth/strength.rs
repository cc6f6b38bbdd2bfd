//! Strength of API keys: a guess of how hard a key is to guess, and the keys that everybody has read.

/// Least strength of a key, in bits: 16 random digits have more, whatever the estimate takes away.
const LEAST_BITS: f64 = 40.0;
/// Words that guessed keys consist of, in lower case. Each counts as one letter.
const COMMON: [&str; 22] = [
    "password",
    "passwort",
    "passwd",
    "secret",
    "changeme",
    "letmein",
    "welcome",
    "qwertyuiop",
    "qwerty",
    "asdfgh",
    "admin",
    "apikey",
    "api-key",
    "token",
    "default",
    "example",
    "sample",
    "test",
    "demo",
    "repartee",
    "openai",
    "hello",
];
/// Hashes of the keys that the documentation shows.
const PUBLISHED: [&str; 2] = [
    "fb70c94a84fba4945c2e4fd7c5f85d66c2830cd62787e4992912e1eb0bd4152f",
    "c01d1ae90c235249020525f5862bd44996e204f745cde44f1e5453bdeed8f652",
];

/// True if a key is too easy to guess.
pub(super) fn is_weak(key: &str) -> bool {
    bits(key) < LEAST_BITS
}

/// True if this is the hash of a key that the documentation shows.
pub(super) fn is_published(hash: &[u8]) -> bool {
    let hash = crate::ids::hex(hash);
    PUBLISHED.contains(&hash.as_str())
}

/// Estimated strength in bits: the letters that do not follow from those before, times the bits of one of them.
fn bits(key: &str) -> f64 {
    let hex = key.chars().all(|letter| letter.is_ascii_hexdigit());
    let has = |kind: fn(&char) -> bool| key.chars().any(|letter| kind(&letter));
    let classes = [
        (26.0, has(char::is_ascii_lowercase)),
        (26.0, has(char::is_ascii_uppercase)),
        (10.0, has(char::is_ascii_digit)),
        (33.0, has(|letter| !letter.is_ascii_alphanumeric())),
    ];
    let all: f64 = classes.iter().filter(|(_, used)| *used).map(|(letters, _)| letters).sum();
    let each = if hex { all.min(16.0) } else { all }.max(2.0).log2();
    let mut plain = key.to_ascii_lowercase();
    for word in COMMON {
        plain = plain.replace(word, "*");
    }
    let letters: Vec<u32> = plain.chars().map(u32::from).collect();
    unforeseen(&letters[..period(&letters)]) as f64 * each
}

/// Number of letters that continue neither a repetition of one letter nor a sequence such as `abc` or `321`.
fn unforeseen(letters: &[u32]) -> usize {
    let foreseen = letters.windows(3).filter(|last| {
        let [first, second, third] = [last[0], last[1], last[2]];
        let step = second.wrapping_sub(first);
        third.wrapping_sub(second) == step && step.wrapping_add(1) <= 2
    });
    letters.len() - foreseen.count()
}

/// Length of the piece that the letters repeat; all of them if they repeat none.
fn period(letters: &[u32]) -> usize {
    let repeats = |&length: &usize| letters.iter().skip(length).zip(letters).all(|(later, earlier)| later == earlier);
    (1..=letters.len() / 2).find(repeats).unwrap_or(letters.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_are_easy_to_guess_are_weak() {
        for key in [
            "aaaaaaaaaaaaaaaa",
            "abcdefghijklmnopqrst",
            "0123456789012345",
            "9876543210987654",
            "password12345678",
            "Password-Password",
            "changeme-changeme-changeme",
            "abababababababababab",
            "my-secret-api-key",
        ] {
            assert!(is_weak(key), "{key}: {} bits", bits(key));
        }
    }

    #[test]
    fn random_keys_are_strong() {
        let mut state = 7u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        for _ in 0..10_000 {
            let hex: String = (0..16).map(|_| char::from(b"0123456789abcdef"[(next() % 16) as usize])).collect();
            assert!(!is_weak(&hex), "{hex}: {} bits", bits(&hex));
        }
        for key in ["the-key-of-the-house", "correct horse battery staple", "tenant-one-key-0123456789abcdef"] {
            assert!(!is_weak(key), "{key}: {} bits", bits(key));
        }
    }
}
