//! Source of a cascade's language model: a folder, or the URL of a server.

use std::path::PathBuf;

use repartee_chat_client::{BaseUrl, UrlError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Source of a cascade's language model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThinkSource {
    /// Folder of a checkpoint.
    Folder(PathBuf),
    /// URL of a chat-completions server.
    Server(BaseUrl),
}

impl TryFrom<PathBuf> for ThinkSource {
    type Error = UrlError;

    /// Reads a path, or a URL that begins with `http://` or `https://`.
    fn try_from(path: PathBuf) -> Result<Self, UrlError> {
        match path.to_str().filter(|text| text.starts_with("http://") || text.starts_with("https://")) {
            Some(url) => BaseUrl::parse(url).map(Self::Server),
            None => Ok(Self::Folder(path)),
        }
    }
}

impl Serialize for ThinkSource {
    /// Writes a URL without credentials and query.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Folder(path) => path.serialize(serializer),
            Self::Server(url) => serializer.collect_str(url),
        }
    }
}

impl<'de> Deserialize<'de> for ThinkSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_from(PathBuf::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_told_from_folders() {
        let source = |text: &str| ThinkSource::try_from(PathBuf::from(text));
        assert_eq!(source("/srv/models/m").unwrap(), ThinkSource::Folder("/srv/models/m".into()));
        assert!(matches!(source("https://a.example/v1").unwrap(), ThinkSource::Server(url) if url.is_secure()));
        assert_eq!(source("http://a:port/").unwrap_err(), UrlError::Port);
    }

    #[test]
    fn written_urls_hold_no_credentials() {
        let source = ThinkSource::try_from(PathBuf::from("http://ada:secret@a.example/v1?key=hidden")).unwrap();
        assert_eq!(serde_json::to_value(&source).unwrap(), "http://a.example/v1");
        assert!(!format!("{source:?}").contains("secret"));
    }
}
