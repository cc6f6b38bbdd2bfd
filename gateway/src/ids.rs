//! Generates ids. Those of sessions and calls hold a random tag of the process, never an address.

/// Prefix of the ids of recorded voices.
pub const VOICE_PREFIX: &str = "voice_";

/// Id generator of one process.
#[derive(Debug, Clone)]
pub struct IdGenerator {
    tag: String,
}

impl IdGenerator {
    /// Draws the tag at random. Fails only if the operating system provides no random numbers.
    pub fn new() -> Result<Self, getrandom::Error> {
        let mut tag = [0; 4];
        getrandom::fill(&mut tag)?;
        Ok(Self { tag: hex(&tag) })
    }

    /// Returns the tag: eight hex digits.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// New session id: `sess_<tag>_<128 random bits>`.
    pub fn session(&self) -> Result<String, getrandom::Error> {
        self.id("sess")
    }

    /// New call id: `rtc_<tag>_<128 random bits>`.
    pub fn call(&self) -> Result<String, getrandom::Error> {
        self.id("rtc")
    }

    /// New completion id: `chatcmpl-<128 random bits>`, without the tag because no process owns a sent completion.
    pub fn completion(&self) -> Result<String, getrandom::Error> {
        Ok(format!("chatcmpl-{}", random()?))
    }

    /// New voice id: `voice_<128 random bits>`, without the tag because voices outlive the process. On a node of a cluster its
    /// home comes before the random bits.
    pub fn voice(&self, home: Option<&str>) -> Result<String, getrandom::Error> {
        Ok(format!("{VOICE_PREFIX}{}{}", at_home(home), random()?))
    }

    /// New consent id: `cons_<128 random bits>`, as [`Self::voice`].
    pub fn consent(&self, home: Option<&str>) -> Result<String, getrandom::Error> {
        Ok(format!("cons_{}{}", at_home(home), random()?))
    }

    /// New id of a speech request: `speech_<tag>_<128 random bits>`.
    pub fn speech(&self) -> Result<String, getrandom::Error> {
        self.id("speech")
    }

    /// New id of a transcript of a file: `transcript_<tag>_<128 random bits>`.
    pub fn transcript(&self) -> Result<String, getrandom::Error> {
        self.id("transcript")
    }

    fn id(&self, kind: &str) -> Result<String, getrandom::Error> {
        Ok(format!("{kind}_{}_{}", self.tag, random()?))
    }
}

/// New id of a request: `req_<128 random bits>`. A free function, because requests come before the server has its tag.
pub fn request() -> Result<String, getrandom::Error> {
    Ok(format!("req_{}", random()?))
}

fn at_home(home: Option<&str>) -> String {
    home.map(|home| format!("{home}_")).unwrap_or_default()
}

fn random() -> Result<String, getrandom::Error> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok(hex(&random))
}

/// Formats bytes as lower-case hex, two digits a byte.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_share_the_tag_alone() {
        let ids = IdGenerator::new().unwrap();
        let (a, b) = (ids.session().unwrap(), ids.call().unwrap());
        let parts = |name: &str| name.split('_').map(str::to_owned).collect::<Vec<_>>();
        let (a, b) = (parts(&a), parts(&b));
        assert_eq!((a[0].as_str(), b[0].as_str()), ("sess", "rtc"));
        assert_eq!(a[1], b[1]);
        assert_ne!(a[2], b[2]);
        assert_eq!(a[2].len(), 32);
    }
}
