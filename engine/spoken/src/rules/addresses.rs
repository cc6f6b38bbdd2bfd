//! Addresses of pages and mailboxes, and names of files.

use super::number::whole;
use crate::numbers::digits;

/// Ends of host names that are told without `https://`.
const DOMAINS: &[&str] = &[
    "com", "org", "net", "edu", "gov", "io", "ai", "app", "dev", "co", "info", "me", "tv", "uk", "us", "eu", "de",
    "fr", "es", "it", "nl", "ch", "at", "se", "no", "dk", "pl", "ca", "au", "jp", "cn", "in", "br",
];
/// Ends of names of files.
const FILES: &[&str] = &[
    "py", "rs", "js", "ts", "jsx", "tsx", "c", "h", "cpp", "hpp", "go", "rb", "java", "php", "sh", "sql", "html",
    "css", "json", "toml", "yaml", "yml", "xml", "csv", "tsv", "md", "txt", "log", "ini", "cfg", "conf", "lock", "pdf",
    "doc", "docx", "xls", "xlsx", "ppt", "pptx", "zip", "gz", "tar", "png", "jpg", "jpeg", "gif", "svg", "webp", "mp3",
    "mp4", "wav", "exe", "ipynb", "env",
];
/// Length of a path in bytes from which it is left out.
const LONG_PATH: usize = 25;

/// Returns the words of an address or of a file's name, which is all of `text`.
pub fn address(text: &str) -> Option<String> {
    page(text).or_else(|| mailbox(text)).or_else(|| file(text))
}

fn is_host(text: &str) -> bool {
    let fits = |label: &str| {
        !label.is_empty() && !label.starts_with('-') && label.chars().all(|c| c.is_alphanumeric() || c == '-')
    };
    text.contains('.') && text.split('.').all(fits)
}

fn page(text: &str) -> Option<String> {
    let lower = text.to_ascii_lowercase();
    let schemes = ["https://", "http://", "ftp://"];
    let scheme = schemes.into_iter().find(|scheme| lower.starts_with(scheme)).map_or(0, str::len);
    let www = if lower[scheme..].starts_with("www.") { 4 } else { 0 };
    let body = &text[scheme + www..];
    let end = body.find(['/', '?', '#']).unwrap_or(body.len());
    let (host, rest) = body.split_at(end);
    let (name, port) = host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port)));
    if port.is_some_and(|port| whole(port).is_none()) {
        return None;
    }
    let known = || name.rsplit('.').next().is_some_and(|end| DOMAINS.contains(&end));
    let named = is_host(name) && (scheme + www > 0 || known());
    if !named && (scheme == 0 || name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || "-.".contains(c))) {
        return None;
    }
    let path = rest.split(['?', '#']).next().unwrap_or_default().trim_end_matches('/');
    let mut words = spell(name);
    if let Some(port) = port {
        words.push_str(" colon ");
        words.push_str(&digits(port));
    }
    if path.len() < LONG_PATH {
        words.push_str(&spell(path));
    }
    Some(words)
}

fn mailbox(text: &str) -> Option<String> {
    let (name, host) = text.strip_prefix("mailto:").unwrap_or(text).split_once('@')?;
    let fits = |c: char| c.is_alphanumeric() || ".-_+%".contains(c);
    (!name.is_empty() && name.chars().all(fits) && is_host(host)).then(|| format!("{} at {}", spell(name), spell(host)))
}

fn file(text: &str) -> Option<String> {
    let (stem, end) = text.rsplit_once('.')?;
    let named = FILES.contains(&end) && stem.ends_with(char::is_alphanumeric);
    let fits = |c: char| c.is_alphanumeric() || "._-/~*".contains(c);
    (named && text.chars().all(fits)).then(|| spell(text))
}

/// Returns the text with names in place of its signs.
pub fn spell(text: &str) -> String {
    let mut words = String::new();
    for character in text.chars() {
        let name = match character {
            '.' => "dot",
            '/' => "slash",
            '-' => "dash",
            '_' => "underscore",
            '+' => "plus",
            '~' => "tilde",
            '*' => "star",
            '%' => "percent",
            ':' => "colon",
            _ => {
                words.push(character);
                continue;
            }
        };
        if !words.is_empty() && !words.ends_with(' ') {
            words.push(' ');
        }
        words.push_str(name);
        words.push(' ');
    }
    if words.ends_with(' ') {
        words.pop();
    }
    // A path follows the host.
    if text.starts_with('/') { format!(" {words}") } else { words }
}
