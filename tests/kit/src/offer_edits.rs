//! Changes of offers, attribute by attribute.

use crate::random::Random;

/// A description in lines without their ends.
#[derive(Debug, Clone)]
pub struct Edit {
    /// Lines before the first section.
    pub head: Vec<String>,
    /// Lines of each section, the first of which is its `m=`.
    pub sections: Vec<Vec<String>>,
}

impl Edit {
    /// Cuts a description into lines.
    pub fn of(text: &str) -> Self {
        let (mut head, mut sections) = (Vec::new(), Vec::<Vec<String>>::new());
        for line in text.lines() {
            if line.starts_with("m=") {
                sections.push(Vec::new());
            }
            sections.last_mut().unwrap_or(&mut head).push(line.to_owned());
        }
        Self { head, sections }
    }

    /// Writes the description.
    pub fn text(&self) -> String {
        self.head.iter().chain(self.sections.iter().flatten()).flat_map(|line| [line, "\r\n"]).collect()
    }

    /// Index of the first section of this media.
    pub fn find(&self, media: &str) -> Option<usize> {
        self.sections.iter().position(|section| section[0].starts_with(&format!("m={media} ")))
    }

    /// Removes lines that begin with `prefix` everywhere.
    pub fn without(mut self, prefix: &str) -> Self {
        for lines in self.sections.iter_mut().chain([&mut self.head]) {
            lines.retain(|line| !line.starts_with(prefix));
        }
        self
    }

    /// Appends a line to the first section of this media.
    pub fn with(mut self, media: &str, line: &str) -> Self {
        if let Some(index) = self.find(media) {
            self.sections[index].push(line.to_owned());
        }
        self
    }

    /// Inserts a section.
    pub fn insert(mut self, index: usize, section: &[&str]) -> Self {
        self.sections.insert(index.min(self.sections.len()), section.iter().map(|line| (*line).to_owned()).collect());
        self
    }

    /// Adds a `mid` to the BUNDLE group, as its first or last member.
    pub fn bundle(mut self, mid: &str, first: bool) -> Self {
        for line in self.head.iter_mut().filter(|line| line.starts_with("a=group:BUNDLE")) {
            *line = if first {
                line.replace("a=group:BUNDLE", &format!("a=group:BUNDLE {mid}"))
            } else {
                format!("{line} {mid}")
            };
        }
        self
    }

    /// Replaces a field of the line `m=` of a section.
    pub fn field(mut self, index: usize, field: usize, value: &str) -> Self {
        if let Some(section) = self.sections.get_mut(index) {
            let mut fields: Vec<_> = section[0].split(' ').collect();
            if let Some(old) = fields.get_mut(field) {
                *old = value;
            }
            section[0] = fields.join(" ");
        }
        self
    }
}

/// A rejected section of video.
pub const REJECTED_VIDEO: &[&str] = &[
    "m=video 0 UDP/TLS/RTP/SAVPF 100 101",
    "c=IN IP4 0.0.0.0",
    "a=inactive",
    "a=mid:v",
    "a=rtpmap:100 VP8/90000",
    "a=ice-ufrag:OLD1",
    "a=ice-pwd:OLDOLDOLDOLDOLDOLDOLDOLD",
];
/// A live section of video.
pub const VIDEO: &[&str] = &[
    "m=video 9 UDP/TLS/RTP/SAVPF 100 101",
    "c=IN IP4 0.0.0.0",
    "a=sendrecv",
    "a=mid:w",
    "a=rtcp-mux",
    "a=rtpmap:100 VP8/90000",
    "a=setup:actpass",
];
/// A live section of text.
pub const TEXT: &[&str] =
    &["m=text 9 UDP/TLS/RTP/SAVPF 98", "c=IN IP4 0.0.0.0", "a=mid:t", "a=rtcp-mux", "a=rtpmap:98 t140/1000"];
/// A section of fax.
pub const IMAGE: &[&str] = &["m=image 9 udptl t38", "c=IN IP4 0.0.0.0", "a=mid:i"];
/// A section of messages.
pub const MESSAGE: &[&str] = &["m=message 9 TCP/MSRP *", "c=IN IP4 0.0.0.0", "a=mid:m"];
/// An audio section without Opus.
pub const PCMU: &[&str] = &[
    "m=audio 9 UDP/TLS/RTP/SAVPF 0",
    "c=IN IP4 0.0.0.0",
    "a=sendrecv",
    "a=mid:p",
    "a=rtcp-mux",
    "a=rtpmap:0 PCMU/8000",
    "a=setup:actpass",
];
/// An audio section that only receives.
pub const LISTENING_AUDIO: &[&str] = &[
    "m=audio 9 UDP/TLS/RTP/SAVPF 120",
    "c=IN IP4 0.0.0.0",
    "a=recvonly",
    "a=mid:q",
    "a=rtcp-mux",
    "a=rtpmap:120 opus/48000/2",
    "a=setup:actpass",
];

const SECTIONS: [&[&str]; 7] = [REJECTED_VIDEO, VIDEO, TEXT, IMAGE, MESSAGE, PCMU, LISTENING_AUDIO];
const LINES: [&str; 24] = [
    "a=sendonly",
    "a=recvonly",
    "a=inactive",
    "a=bundle-only",
    "a=rtcp-mux-only",
    "a=rtcp-rsize",
    "a=rtcp-fb:* nack",
    "a=rtcp-fb:111 nack pli",
    "a=setup:passive",
    "a=setup:active",
    "a=setup:holdconn",
    "a=ice-lite",
    "a=ice-options:ice2,trickle renomination",
    "a=fingerprint:sha-1 00:01:02:03:04:05:06:07:08:09:0a:0b:0c:0d:0e:0f:10:11:12:13",
    "a=fingerprint:md2 AB:CD",
    "a=rid:1 send",
    "a=simulcast:send 1",
    "a=extmap:15 urn:x:y",
    "a=extmap:4096 urn:x:y",
    "a=ssrc:1000 cname:x",
    "a=max-message-size:0",
    "a=sctp-port:0",
    "a=group:BUNDLE 0",
    "a=crypto:1 AES_CM_128_HMAC_SHA1_80 inline:WVNfX19zZW1jdGwgKCkgewkyMjA7fQp9CnVubGVz",
];
const PROTOCOLS: [&str; 6] =
    ["UDP/TLS/RTP/SAVP", "RTP/AVP", "RTP/SAVPF", "TCP/DTLS/RTP/SAVPF", "DTLS/SCTP", "UDP/DTLS/SCTP"];

/// Changes one to three things that clients differ in.
pub fn mutate(text: &str, random: &mut Random) -> String {
    let mut edit = Edit::of(text);
    for _ in 0..=random.below(3) {
        let index = random.below(edit.sections.len().max(1));
        edit = match random.below(12) {
            0 => {
                let section = *random.choose(&SECTIONS);
                let mid = section.iter().find_map(|line| line.strip_prefix("a=mid:")).unwrap_or_default();
                let edit = edit.insert(random.below(4), section);
                if random.below(2) == 0 { edit.bundle(mid, random.below(2) == 0) } else { edit }
            }
            1 => {
                let port = *random.choose(&["0", "9", "9/2", "70000", "-1"]);
                edit.field(index, 1, port)
            }
            2 => {
                let protocol = *random.choose(&PROTOCOLS);
                edit.field(index, 2, protocol)
            }
            3 => {
                let format = *random.choose(&["0", "96", "127", "128", "72", "63", "webrtc-datachannel"]);
                edit.field(index, 3, format)
            }
            4 => {
                let line = random.choose(&LINES).to_owned();
                let section = if random.below(4) == 0 { None } else { edit.sections.get_mut(index) };
                let lines = section.unwrap_or(&mut edit.head);
                let at = if random.below(2) == 0 { lines.len() } else { 1.min(lines.len()) };
                lines.insert(at, line.to_owned());
                edit
            }
            5 => {
                let prefixes = [
                    "a=mid",
                    "a=group",
                    "a=setup",
                    "a=ice-ufrag",
                    "a=fingerprint",
                    "a=rtcp-mux",
                    "a=ssrc",
                    "a=msid",
                    "a=sendrecv",
                    "a=sctp-port",
                    "a=max-message-size",
                    "a=rtpmap",
                    "c=",
                    "a=candidate",
                ];
                let prefix = *random.choose(&prefixes);
                edit.without(prefix)
            }
            6 => {
                // An attribute moves to the session, as some clients write it.
                let moved = *random.choose(&["a=setup", "a=ice-", "a=fingerprint", "a=sendrecv"]);
                let found: Vec<_> =
                    edit.sections.iter().flatten().filter(|line| line.starts_with(moved)).take(2).cloned().collect();
                edit = edit.without(moved);
                edit.head.extend(found);
                edit
            }
            7 => {
                random.shuffle(&mut edit.sections);
                edit
            }
            8 => {
                edit.sections.get_mut(index).into_iter().for_each(|section| random.shuffle(&mut section[1..]));
                edit
            }
            9 => {
                let copy = edit.sections.get(index).cloned();
                edit.sections.extend(copy);
                edit
            }
            10 => {
                let mids = ["audio-section-with-a-long-name", "a!#$%&'*+^_`{|}~.-", "0", "zz"];
                let mid = (*random.choose(&mids)).to_owned();
                edit.bundle(&mid, false).without("a=mid:0").with("audio", &format!("a=mid:{mid}"))
            }
            _ => {
                for lines in &mut edit.sections {
                    lines.retain(|_| random.below(12) != 0);
                }
                edit.sections.retain(|lines| lines.first().is_some_and(|line| line.starts_with("m=")));
                edit
            }
        };
    }
    edit.text()
}
