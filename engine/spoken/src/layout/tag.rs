//! HTML tags and character references.

use super::item::Pause;

/// Maximum length of a tag, in bytes.
pub const MAX_TAG: usize = 256;
/// Maximum length of a character reference, in bytes.
pub const MAX_REFERENCE: usize = 10;

/// Meaning of text between angle brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TagMeaning {
    /// Tag without a sound.
    Silent,
    /// Tag that separates text.
    Pause(Pause),
    /// Address of a page or a mailbox.
    Address,
    /// No tag: all of it has a sound.
    Text,
}

/// Tags that separate sentences.
const BLOCKS: [&str; 21] = [
    "p",
    "div",
    "ul",
    "ol",
    "li",
    "table",
    "tr",
    "hr",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "blockquote",
    "pre",
    "details",
    "summary",
    "section",
    "thead",
    "tbody",
];
/// Tags within text.
const INLINE: [&str; 24] = [
    "a", "abbr", "b", "center", "cite", "code", "del", "em", "font", "i", "img", "ins", "kbd", "mark", "q", "s",
    "small", "span", "strong", "sub", "sup", "tt", "u", "var",
];

/// Name of the tag that `inside`, the text behind an opening angle bracket, begins with.
fn name(inside: &str) -> &str {
    let inside = inside.strip_prefix('/').unwrap_or(inside);
    let end = inside.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(inside.len());
    &inside[..end]
}

fn tag(inside: &str) -> Option<TagMeaning> {
    let name = name(inside).to_ascii_lowercase();
    match name.as_str() {
        "br" => Some(TagMeaning::Pause(Pause::Comma)),
        "td" | "th" => Some(TagMeaning::Pause(Pause::Cell)),
        name if BLOCKS.contains(&name) => Some(TagMeaning::Pause(Pause::Sentence)),
        name if INLINE.contains(&name) => Some(TagMeaning::Silent),
        _ => None,
    }
}

/// True if `inside`, the text behind an opening angle bracket, may go on to be a tag or an address.
pub fn may_go_on(inside: &str) -> bool {
    let first = inside.chars().next();
    let begins = first.is_some_and(|c| c.is_ascii_alphabetic() || c == '/' || c == '!');
    // An address holds no white space, so behind white space the name is the name of a tag.
    let named = inside.starts_with("!--") || !inside.contains(char::is_whitespace) || tag(inside).is_some();
    begins && named && inside.len() <= MAX_TAG
}

/// Returns the meaning of the text between two angle brackets.
pub fn meaning(inside: &str) -> TagMeaning {
    if inside.starts_with("!--") {
        return TagMeaning::Silent;
    }
    let address = !inside.contains(char::is_whitespace) && (inside.contains("://") || inside.contains('@'));
    match tag(inside) {
        Some(tag) if !address => tag,
        _ if address => TagMeaning::Address,
        _ => TagMeaning::Text,
    }
}

/// Returns the character that a reference stands for: `amp` and `#39`, without the ampersand and the semicolon.
pub fn reference(name: &str) -> Option<char> {
    if let Some(number) = name.strip_prefix('#') {
        let code = match number.strip_prefix(['x', 'X']) {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => number.parse(),
        };
        return code.ok().and_then(char::from_u32);
    }
    let character = match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        "nbsp" => ' ',
        "mdash" => '—',
        "ndash" => '–',
        "hellip" => '…',
        "copy" => '©',
        "reg" => '®',
        "trade" => '™',
        "deg" => '°',
        "times" => '×',
        "divide" => '÷',
        "plusmn" => '±',
        "le" => '≤',
        "ge" => '≥',
        "ne" => '≠',
        "euro" => '€',
        "pound" => '£',
        "cent" => '¢',
        "yen" => '¥',
        "frac12" => '½',
        "frac14" => '¼',
        "frac34" => '¾',
        "rarr" => '→',
        "ldquo" => '“',
        "rdquo" => '”',
        "lsquo" => '‘',
        "rsquo" => '’',
        _ => return None,
    };
    Some(character)
}
