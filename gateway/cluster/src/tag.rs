//! Tags: the random name of one run of a node, which stands in every id that it gives out. A tag is only looked up in the
//! table, never read as an address.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use thiserror::Error;

/// Characters of a tag.
const TAG: usize = 8;
/// Characters of an id's random part.
const RANDOM: usize = 32;

/// Tag of one run of a node: eight lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeTag(u32);

/// Error of reading a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a tag is eight lower-case hex digits")]
pub struct TagError;

impl FromStr for NodeTag {
    type Err = TagError;

    fn from_str(text: &str) -> Result<Self, TagError> {
        let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != TAG || !text.bytes().all(hex) {
            return Err(TagError);
        }
        u32::from_str_radix(text, 16).map(Self).map_err(|_| TagError)
    }
}

impl fmt::Display for NodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl fmt::Debug for NodeTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NodeTag({self})")
    }
}

impl Serialize for NodeTag {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for NodeTag {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <std::borrow::Cow<'de, str>>::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

/// Tag in the id of a call or a session: `rtc_<tag>_<32 hex digits>`, likewise `sess_`. `None` for every other text: such an
/// id is of no node.
pub fn tag_of_id(id: &str) -> Option<NodeTag> {
    let rest = ["rtc_", "sess_"].into_iter().find_map(|prefix| id.strip_prefix(prefix))?;
    let (tag, random) = rest.split_once('_')?;
    let whole = random.len() == RANDOM && random.bytes().all(|byte| byte.is_ascii_hexdigit());
    tag.parse().ok().filter(|_| whole)
}

/// Tag at the beginning of an ICE user fragment; `None` if none is there.
pub fn tag_of_ufrag(ufrag: &str) -> Option<NodeTag> {
    ufrag.get(..TAG)?.parse().ok()
}
