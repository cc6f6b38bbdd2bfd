//! Fields with one value.

/// Declares an enum with one variant, serialized as a fixed string.
macro_rules! literal {
    ($(#[$meta:meta])* $name:ident = $text:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            /// The only value, as in the enum's documentation.
            #[default]
            #[serde(rename = $text)]
            Value,
        }
    };
}
pub(crate) use literal;
