//! Text of a session description, read into sections and attributes (RFC 8866), within limits.

use std::str::FromStr;

use crate::error::{OfferError, OfferFault};

/// Maximum size of an offer, in bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Maximum number of lines.
pub const MAX_LINES: usize = 4_096;
/// Maximum number of media sections: more than any client sends.
pub const MAX_SECTIONS: usize = 16;
/// Maximum number of formats in a media section: RTP has no more payload types.
pub const MAX_FORMATS: usize = 128;
/// Maximum number of attributes in a media section or in the session.
pub const MAX_ATTRIBUTES: usize = 1_024;
/// Maximum number of candidates. None is used: the server sends only to addresses that have sent to it.
pub const MAX_CANDIDATES: usize = 1_024;

/// Types of lines in the session's part, and in a media section.
const SESSION_LINES: &str = "osiuepcbtrzkam";
const SECTION_LINES: &str = "icbkam";

/// Line `a=name:value`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attribute<'a> {
    pub line: usize,
    pub name: &'a str,
    /// Value without blanks around it; empty if there is none.
    pub value: &'a str,
}

/// One media section.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    /// Number of its line `m=`.
    pub line: usize,
    pub media: &'a str,
    pub port: u16,
    /// Number of ports; usually 1.
    pub ports: u16,
    pub protocol: &'a str,
    /// Value of its line `c=`.
    pub connection: Option<&'a str>,
    /// Formats; at least one.
    pub formats: Vec<&'a str>,
    pub attributes: Vec<Attribute<'a>>,
}

/// Session description in parts.
#[derive(Debug)]
pub(crate) struct Description<'a> {
    /// Value of the session's line `c=`.
    pub connection: Option<&'a str>,
    /// Attributes of the session.
    pub attributes: Vec<Attribute<'a>>,
    pub sections: Vec<Section<'a>>,
    /// Number of the last line.
    pub last_line: usize,
}

impl<'a> Description<'a> {
    /// Reads a description. Lines may end with a line feed alone, and blank lines may follow the last one.
    pub fn parse(text: &'a str) -> Result<Self, OfferError> {
        if text.len() > MAX_BYTES {
            return Err(OfferFault::TooMany("bytes", MAX_BYTES).at(1));
        }
        let mut description = Self { connection: None, attributes: Vec::new(), sections: Vec::new(), last_line: 1 };
        let mut candidates = 0;
        for (index, line) in text.trim_end_matches(['\r', '\n']).split('\n').enumerate() {
            description.last_line = index + 1;
            let line = line.trim_end_matches('\r');
            description.push(line, &mut candidates).map_err(|fault| fault.at(index + 1))?;
        }
        Ok(description)
    }

    /// Members of the BUNDLE groups, with blanks between.
    pub fn groups(&self) -> impl Iterator<Item = &'a str> {
        let groups = self.attributes.iter().filter(|attribute| attribute.name == "group");
        groups.filter_map(|group| group.value.strip_prefix("BUNDLE "))
    }

    /// Returns for each section true if the caller wants it. Port 0 disables one, unless it shares the port of its group
    /// (RFC 8843, 6).
    pub fn live_sections(&self) -> Vec<bool> {
        let is_live = |section: &Section<'_>| {
            let shares = section.port == 0 && section.first("bundle-only").is_some();
            let mid = section.first("mid").map(|mid| mid.value).filter(|_| shares);
            section.port != 0
                || mid.is_some_and(|mid| self.groups().any(|group| group.split(' ').any(|member| member == mid)))
        };
        self.sections.iter().map(is_live).collect()
    }

    /// Adds the next line.
    fn push(&mut self, text: &'a str, candidates: &mut usize) -> Result<(), OfferFault> {
        let line = self.last_line;
        if line == 1 {
            return if text == "v=0" { Ok(()) } else { Err(OfferFault::NotSdp) };
        }
        if line > MAX_LINES {
            return Err(OfferFault::TooMany("lines", MAX_LINES));
        }
        let mut letters = text.chars();
        let (Some(kind @ 'a'..='z'), Some('='), false) = (letters.next(), letters.next(), text.contains(['\0', '\r']))
        else {
            return Err(OfferFault::Syntax("<letter>=<text>, without control characters"));
        };
        let allowed = if self.sections.is_empty() { SESSION_LINES } else { SECTION_LINES };
        match kind {
            _ if !allowed.contains(kind) => return Err(OfferFault::Misplaced(kind)),
            'm' if self.sections.len() == MAX_SECTIONS => {
                return Err(OfferFault::TooMany("media sections", MAX_SECTIONS));
            }
            'm' => self.sections.push(Section::parse(line, letters.as_str())?),
            'a' => {
                let attribute = Attribute::parse(line, letters.as_str())?;
                *candidates += usize::from(attribute.name == "candidate");
                if *candidates > MAX_CANDIDATES {
                    return Err(OfferFault::TooMany("candidates", MAX_CANDIDATES));
                }
                let section = self.sections.last_mut();
                let attributes = section.map_or(&mut self.attributes, |section| &mut section.attributes);
                if attributes.len() == MAX_ATTRIBUTES {
                    return Err(OfferFault::TooMany("attributes in a section", MAX_ATTRIBUTES));
                }
                attributes.push(attribute);
            }
            'c' => {
                let section = self.sections.last_mut();
                let connection = section.map_or(&mut self.connection, |section| &mut section.connection);
                connection.get_or_insert(letters.as_str());
            }
            _ => {}
        }
        Ok(())
    }
}

impl<'a> Section<'a> {
    /// Reads the value of a line `m=`.
    fn parse(line: usize, value: &'a str) -> Result<Self, OfferFault> {
        let syntax = OfferFault::Syntax("m=<media> <port> <protocol> <formats>");
        let mut fields = value.split(' ').filter(|field| !field.is_empty());
        let media = fields.next().filter(|media| is_token(media)).ok_or(syntax)?;
        let (port, ports) = fields.next().map(|ports| ports.split_once('/').unwrap_or((ports, "1"))).ok_or(syntax)?;
        let (port, ports) = (read_number(port).ok_or(syntax)?, read_number(ports).ok_or(syntax)?);
        let protocol = fields.next().filter(|protocol| protocol.split('/').all(is_token)).ok_or(syntax)?;
        let formats: Vec<_> = fields.take(MAX_FORMATS + 1).collect();
        if formats.len() > MAX_FORMATS {
            return Err(OfferFault::TooMany("formats in a section", MAX_FORMATS));
        }
        if formats.is_empty() || !formats.iter().all(|format| is_token(format)) {
            return Err(syntax);
        }
        Ok(Self { line, media, port, ports, protocol, connection: None, formats, attributes: Vec::new() })
    }

    /// Returns the attributes of this name.
    pub fn all<'s>(&'s self, name: &'s str) -> impl Iterator<Item = Attribute<'a>> + Clone + 's {
        self.attributes.iter().filter(move |attribute| attribute.name == name).copied()
    }

    /// Returns the first attribute of this name.
    pub fn first(&self, name: &str) -> Option<Attribute<'a>> {
        find(&self.attributes, name)
    }
}

impl<'a> Attribute<'a> {
    /// Reads the value of a line `a=`.
    fn parse(line: usize, text: &'a str) -> Result<Self, OfferFault> {
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        if is_token(name) {
            Ok(Self { line, name, value: value.trim_matches(' ') })
        } else {
            Err(OfferFault::Syntax("a=<name> or a=<name>:<value>"))
        }
    }
}

/// Returns the first attribute of this name.
pub(crate) fn find<'a>(attributes: &[Attribute<'a>], name: &str) -> Option<Attribute<'a>> {
    attributes.iter().find(|attribute| attribute.name == name).copied()
}

/// Reads a number of decimal digits alone, the first of which is not 0.
pub(crate) fn read_number<T: FromStr>(text: &str) -> Option<T> {
    let is_number = text == "0" || (!text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit()));
    is_number.then(|| text.parse().ok())?
}

/// True for a token (RFC 8866, 9).
pub(crate) fn is_token(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\"(),/:;<=>?@[\\]".contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}
