//! One call out until it is answered: its request, the credentials, the cancellation.

use std::time::{Duration, Instant};

use bytes::Bytes;
use repartee_sdp::phone_offer;

use crate::digest::{DigestRequest, challenge};
use crate::hop::Hop;
use crate::message::Message;
use crate::reply::write_end;
use crate::resend::{Due, GIVE_UP, Resend};
use crate::sound::LocalSound;

/// Settings of calls out.
#[derive(Clone)]
pub struct TrunkSettings {
    /// Address of the trunk.
    pub address: Hop,
    /// Domain of the numbers, and of the account.
    pub domain: String,
    /// Number or name that calls come from.
    pub caller: String,
    /// Name and password of the account; `None` for a trunk that asks for none.
    pub account: Option<(String, String)>,
    /// True if the sound is offered encrypted alone.
    pub is_encrypted: bool,
    /// Longest time until the other side answers.
    pub ring: Duration,
    /// Maximum number of calls out at once.
    pub calls: usize,
}

impl std::fmt::Debug for TrunkSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrunkSettings").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Reason why a call out does not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialError {
    /// There is no trunk.
    #[error("no trunk is set (sip.trunk)")]
    NoTrunk,
    /// The number has other characters than those of a number.
    #[error("a number has 1 to 32 of the characters 0 to 9, * and #, and perhaps a + before them")]
    Number,
    /// There are as many calls out as allowed.
    #[error("there are {0} calls out already (sip.trunk_calls)")]
    Full(usize),
}

/// Longest number.
const MAX_NUMBER: usize = 32;

/// State of a call out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DialPhase {
    /// The other side has said nothing.
    Calling,
    /// The other side is there.
    Ringing,
    /// Nobody waits for the answer any more.
    GivenUp,
    /// It was refused. A refusal that comes again is confirmed again.
    Over,
}

/// Result of a dial's timers.
#[derive(Debug, Default)]
pub(crate) struct DialStep {
    /// Datagrams for the trunk.
    pub again: Vec<Bytes>,
    /// The other side did not answer in time.
    pub unanswered: bool,
    /// Nothing is left of it.
    pub is_done: bool,
}

/// One call out.
#[derive(Debug)]
pub(crate) struct Dial {
    pub trunk: TrunkSettings,
    pub phase: DialPhase,
    pub sound: LocalSound,
    /// Number and version of our session description.
    pub description: (u64, u64),
    /// Number of the request.
    pub sequence: u32,
    /// Branch of the request, which its cancellation and the confirmation of a refusal have, too.
    pub branch: String,
    /// URI that is called.
    target: String,
    call_id: String,
    tag: String,
    /// The request, until the other side says anything.
    invite: Option<(Bytes, Resend)>,
    has_credentials: bool,
    /// The cancellation, until it is answered; sent once.
    cancel: Option<(Bytes, Resend)>,
    is_cancelled: bool,
    /// Branch of the last refused request, with the refusal's confirmation.
    confirmation: Option<(String, Bytes)>,
    /// End of ringing; behind it, time when the dial is removed.
    end: Instant,
}

impl Dial {
    /// Prepares a call to `number`; `names` are its id and our tag. Nobody waits longer than until `end`.
    pub fn new(
        trunk: TrunkSettings,
        number: &str,
        names: (String, String),
        description: (u64, u64),
        sound: LocalSound,
        end: Instant,
    ) -> Self {
        let (call_id, tag) = names;
        Self {
            target: format!("sip:{}@{}", number.replace('#', "%23"), trunk.domain),
            trunk,
            phase: DialPhase::Calling,
            sound,
            description,
            sequence: 0,
            branch: String::new(),
            call_id,
            tag,
            invite: None,
            has_credentials: false,
            cancel: None,
            is_cancelled: false,
            confirmation: None,
            end,
        }
    }

    /// True for a number that can be called.
    pub fn calls(number: &str) -> bool {
        let digits = number.strip_prefix('+').unwrap_or(number);
        (1..=MAX_NUMBER).contains(&digits.len())
            && digits.bytes().all(|digit| digit.is_ascii_digit() || matches!(digit, b'*' | b'#'))
    }

    /// True for a response to a request of this dial.
    pub fn has(&self, message: &Message) -> bool {
        self.branch == message.branch() && self.call_id == message.call_id && self.sequence == message.sequence.cseq
    }

    /// Our session description.
    pub fn offer(&self) -> String {
        let key = self.trunk.is_encrypted.then_some(self.sound.key);
        phone_offer(self.description, self.sound.address, key)
    }

    /// Writes the request, with credentials the second time.
    pub fn invite(
        &mut self,
        branch: String,
        local: Hop,
        credentials: Option<(&'static str, String)>,
        now: Instant,
    ) -> Bytes {
        (self.branch, self.sequence) = (branch, self.sequence + 1);
        self.has_credentials = credentials.is_some();
        let mut headers = vec![("Contact", local.contact("")), ("Allow", crate::reply::ALLOW.to_owned())];
        headers.extend(credentials);
        let mut text = self.head("INVITE", local, "");
        let offer = self.offer();
        write_end(&mut text, &headers, Some(&offer));
        let bytes = Bytes::from(text);
        self.invite = Some((bytes.clone(), Resend::over(local.transport, now)));
        bytes
    }

    /// Writes what all of its requests begin with; `tag` is the other side's, as `;tag=…`.
    fn head(&self, method: &str, local: Hop, tag: &str) -> String {
        let Self { target, branch, call_id, sequence, trunk: TrunkSettings { caller, domain, .. }, .. } = self;
        format!(
            "{method} {target} SIP/2.0\r\n{via}Max-Forwards: 70\r\n\
             From: <sip:{caller}@{domain}>;tag={own}\r\nTo: <{target}>{tag}\r\nCall-ID: {call_id}\r\n\
             CSeq: {sequence} {method}\r\n",
            own = self.tag,
            via = local.via(branch),
        )
    }

    /// Notes that the other side rings; true the first time.
    pub fn rings(&mut self) -> bool {
        let is_first = self.phase == DialPhase::Calling;
        if is_first {
            self.phase = DialPhase::Ringing;
        }
        is_first
    }

    /// True if the connection to `hop` took it along: the other side has said nothing.
    pub fn is_lost_with(&self, hop: Hop) -> bool {
        self.trunk.address == hop && self.invite.is_some()
    }

    /// Takes a provisional response; returns a cancellation that waited for it.
    pub fn on_provisional(&mut self, local: Hop, now: Instant) -> Option<Bytes> {
        self.invite = None;
        if self.phase == DialPhase::GivenUp { self.cancel(local, now) } else { None }
    }

    /// Gives it up at `now`; true if somebody waited for an answer.
    pub fn give_up(&mut self, now: Instant) -> bool {
        let waited = matches!(self.phase, DialPhase::Calling | DialPhase::Ringing);
        if waited {
            (self.phase, self.end) = (DialPhase::GivenUp, now + GIVE_UP);
        }
        waited
    }

    /// Writes the cancellation, once, and not before a provisional response (RFC 3261, 9.1).
    pub fn cancel(&mut self, local: Hop, now: Instant) -> Option<Bytes> {
        if self.is_cancelled || self.invite.is_some() || self.phase == DialPhase::Over {
            return None;
        }
        self.is_cancelled = true;
        let mut text = self.head("CANCEL", local, "");
        write_end(&mut text, &[], None);
        let bytes = Bytes::from(text);
        self.cancel = Some((bytes.clone(), Resend::over(local.transport, now)));
        Some(bytes)
    }

    /// Takes the answer to the cancellation.
    pub fn cancelled(&mut self) {
        self.cancel = None;
    }

    /// Takes a refusal; returns its confirmation.
    pub fn refused(&mut self, message: &Message, local: Hop) -> Bytes {
        let tag = message.to.tag.as_ref().map_or_else(String::new, |tag| format!(";tag={tag}"));
        let mut text = self.head("ACK", local, &tag);
        write_end(&mut text, &[], None);
        (self.invite, self.cancel) = (None, None);
        let bytes = Bytes::from(text);
        self.confirmation = Some((self.branch.clone(), bytes.clone()));
        bytes
    }

    /// Confirmation of a refusal that comes again.
    pub fn confirmed(&self, branch: &str) -> Option<Bytes> {
        self.confirmation.as_ref().filter(|(of, _)| of == branch).map(|(_, bytes)| bytes.clone())
    }

    /// Ends it after a refusal at `now`; true if somebody waited for an answer.
    pub fn finish(&mut self, now: Instant) -> bool {
        let waited = self.give_up(now);
        (self.phase, self.end) = (DialPhase::Over, now + GIVE_UP);
        waited
    }

    /// Credentials that a refusal asks for, if there are any and they were not refused.
    pub fn credentials(&self, status: u16, message: &Message, cnonce: &str) -> Option<(&'static str, String)> {
        let is_wanted = matches!(status, 401 | 407)
            && !self.has_credentials
            && matches!(self.phase, DialPhase::Calling | DialPhase::Ringing);
        let (user, password) = self.trunk.account.as_ref().filter(|_| is_wanted)?;
        let (header, challenge) = challenge(status, message)?;
        let request = DigestRequest { user, password, method: "INVITE", uri: &self.target, cnonce };
        Some((header, request.answer(&challenge)?))
    }

    /// Next time of [`Self::step`].
    pub fn due(&self) -> Instant {
        let resends = [&self.invite, &self.cancel].into_iter().flatten().map(|(_, resend)| resend.at());
        resends.chain([self.end]).min().unwrap_or(self.end)
    }

    /// Advances the timers to `now`.
    pub fn step(&mut self, now: Instant) -> DialStep {
        let mut step = DialStep::default();
        for open in [&mut self.invite, &mut self.cancel] {
            let Some((bytes, resend)) = open else { continue };
            match resend.step(now) {
                Due::Wait => {}
                Due::Again => step.again.push(bytes.clone()),
                Due::GiveUp => {
                    *open = None;
                    // Without any response there is nothing to cancel.
                    step.is_done = true;
                }
            }
        }
        if now >= self.end {
            step.is_done |= matches!(self.phase, DialPhase::GivenUp | DialPhase::Over);
        }
        let is_late = step.is_done || now >= self.end;
        if is_late {
            step.unanswered = self.give_up(now);
        }
        step
    }
}
