//! Registration at an exchange (RFC 3261, 10), renewed before it ends.

use std::time::{Duration, Instant};

use bytes::Bytes;
use ezk_sip_types::Name;
use ezk_sip_types::header::typed::MinExpires;

use crate::digest::{DigestRequest, challenge};
use crate::hop::Hop;
use crate::message::Message;
use crate::reply::write_end;
use crate::resend::{Due, Resend};

/// Pause after a refusal, and after a registrar that does not answer.
const RETRY: Duration = Duration::from_secs(60);
/// Duration that is asked for first.
const EXPIRES: u32 = 300;
/// Longest and shortest duration that is taken over.
const BOUNDS: std::ops::RangeInclusive<u32> = 30..=7_200;

/// Settings of a registration.
#[derive(Clone)]
pub struct RegistrarSettings {
    /// Address of the exchange.
    pub address: Hop,
    /// Domain of the account.
    pub domain: String,
    /// Name of the account.
    pub user: String,
    /// Password of the account.
    pub password: String,
}

impl std::fmt::Debug for RegistrarSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegistrarSettings").field("address", &self.address).finish_non_exhaustive()
    }
}

/// News of a registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationNews {
    /// The exchange sends calls for this duration.
    Registered(Duration),
    /// The exchange refuses with this status; 408 if it does not answer.
    Refused(u16),
    /// The registration has ended, as we asked.
    Withdrawn,
}

/// Registration of one account.
#[derive(Debug)]
pub(crate) struct Registration {
    settings: RegistrarSettings,
    /// Our address.
    local: Hop,
    call_id: String,
    tag: String,
    sequence: u32,
    expires: u32,
    /// Request that is not answered: its branch, its text, its retransmission, and true if it has credentials.
    open: Option<(String, Bytes, Resend, bool)>,
    /// Time of the next request.
    next: Instant,
    /// True from the exchange's first grant on.
    is_granted: bool,
    /// True once it is withdrawn: there is no further request.
    is_withdrawn: bool,
}

impl Registration {
    /// Begins at `now`; `call_id` and `tag` are random.
    pub fn new(settings: RegistrarSettings, local: Hop, call_id: String, tag: String, now: Instant) -> Self {
        Self {
            settings,
            local,
            call_id,
            tag,
            sequence: 0,
            expires: EXPIRES,
            open: None,
            next: now,
            is_granted: false,
            is_withdrawn: false,
        }
    }

    /// Returns the time at which [`Self::advance`] has something to do; `None` behind the end.
    pub fn deadline(&self) -> Option<Instant> {
        let resend = self.open.as_ref().map(|(_, _, resend, _)| resend.at());
        resend.or((!self.is_withdrawn).then_some(self.next))
    }

    /// Ends the registration; returns the request for it, or `None` if the exchange knows none. `branch` is random.
    pub fn withdraw(&mut self, now: Instant, branch: String) -> Option<Bytes> {
        // What is on its way may be granted, too.
        let may_stand = self.is_granted || self.open.take().is_some();
        self.is_withdrawn = true;
        self.expires = 0;
        may_stand.then(|| self.request(branch, None, now))
    }

    /// Address of the exchange.
    pub fn address(&self) -> Hop {
        self.settings.address
    }

    /// Advances to `now`: returns a datagram for the exchange, and news. `branch` is random.
    pub fn advance(&mut self, now: Instant, branch: String) -> (Option<Bytes>, Option<RegistrationNews>) {
        match &mut self.open {
            Some((_, bytes, resend, _)) => match resend.step(now) {
                Due::Wait => (None, None),
                Due::Again => (Some(bytes.clone()), None),
                Due::GiveUp => (None, Some(self.refused(408, now))),
            },
            None if now >= self.next && !self.is_withdrawn => (Some(self.request(branch, None, now)), None),
            None => (None, None),
        }
    }

    /// Takes a response; `branch` is random, for a further request. `None` if it is not of this registration.
    pub fn receive(
        &mut self,
        status: u16,
        response: &Message,
        branch: String,
        now: Instant,
    ) -> Option<(Option<Bytes>, Option<RegistrationNews>)> {
        let (_, _, _, has_credentials) = self.open.as_ref().filter(|(open, ..)| open == response.branch())?;
        let has_credentials = *has_credentials;
        Some(match status {
            100..200 => (None, None),
            200..300 if self.is_withdrawn => {
                self.open = None;
                (None, Some(RegistrationNews::Withdrawn))
            }
            200..300 => {
                self.is_granted = true;
                let granted = self.granted(response);
                self.open = None;
                // Before it ends, with time for a lost request.
                self.next = now + Duration::from_secs(u64::from(granted) * 3 / 4);
                (None, Some(RegistrationNews::Registered(Duration::from_secs(u64::from(granted)))))
            }
            401 | 407 if !has_credentials => match self.credentials(status, response, &branch) {
                Some(credentials) => (Some(self.request(branch, Some(credentials), now)), None),
                None => (None, Some(self.refused(status, now))),
            },
            423 => {
                let least = response.headers.get_named::<MinExpires>().map_or(EXPIRES, |least| least.0);
                self.expires = least.clamp(*BOUNDS.start(), *BOUNDS.end());
                // One more try each pause, so that a registrar that always says so gets no flood.
                (None, Some(self.refused(status, now)))
            }
            _ => (None, Some(self.refused(status, now))),
        })
    }

    /// Notes that the connection has ended; returns news if a request was not answered.
    pub fn lost(&mut self, status: u16, now: Instant) -> Option<RegistrationNews> {
        self.open.is_some().then(|| self.refused(status, now))
    }

    fn refused(&mut self, status: u16, now: Instant) -> RegistrationNews {
        self.open = None;
        self.next = now + RETRY;
        // Without an answer to the end the registration runs out by itself.
        if self.is_withdrawn { RegistrationNews::Withdrawn } else { RegistrationNews::Refused(status) }
    }

    /// Duration that the exchange grants, in seconds.
    fn granted(&self, response: &Message) -> u32 {
        let of_contact = |contact: &str| {
            let (_, expires) =
                contact.split_once(&self.local.address.to_string())?.1.split_once('>')?.1.split_once("expires=")?;
            expires.split([';', ',']).next()?.trim().parse().ok()
        };
        let contact = response.raw(&Name::CONTACT).find_map(of_contact);
        let granted = contact.or_else(|| response.raw(&Name::EXPIRES).next()?.parse().ok()).unwrap_or(self.expires);
        granted.clamp(*BOUNDS.start(), *BOUNDS.end())
    }

    fn credentials(&self, status: u16, response: &Message, cnonce: &str) -> Option<(&'static str, String)> {
        let (header, challenge) = challenge(status, response)?;
        let RegistrarSettings { domain, user, password, .. } = &self.settings;
        let request = DigestRequest { user, password, method: "REGISTER", uri: &format!("sip:{domain}"), cnonce };
        Some((header, request.answer(&challenge)?))
    }

    /// Writes the next request.
    fn request(&mut self, branch: String, credentials: Option<(&'static str, String)>, now: Instant) -> Bytes {
        self.sequence += 1;
        let Self { settings: RegistrarSettings { domain, user, .. }, local, call_id, tag, sequence, expires, .. } =
            self;
        let mut text = format!(
            "REGISTER sip:{domain} SIP/2.0\r\n{via}Max-Forwards: 70\r\n\
             From: <sip:{user}@{domain}>;tag={tag}\r\nTo: <sip:{user}@{domain}>\r\nCall-ID: {call_id}\r\n\
             CSeq: {sequence} REGISTER\r\nContact: {contact}\r\nExpires: {expires}\r\n",
            via = local.via(&branch),
            contact = local.contact(user),
        );
        let has_credentials = credentials.is_some();
        let headers: Vec<_> = credentials.into_iter().collect();
        write_end(&mut text, &headers, None);
        let bytes = Bytes::from(text);
        self.open = Some((branch, bytes.clone(), Resend::over(local.transport, now), has_credentials));
        bytes
    }
}
