//! All calls of the user agent: commands, responses of other sides, and timers.

use std::collections::{HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Instant;

use bytes::Bytes;
use ipnet::IpNet;

use crate::call::{Call, CallKey, MAX_OPEN, OpenRequest, Phase, RequestKind};
use crate::dial::{Dial, TrunkSettings};
use crate::event::{EndReason, SipEvent, SipOutput};
use crate::hop::{Hop, SignalTransport};
use crate::message::{FirstLine, Message};
use crate::registration::{RegistrarSettings, Registration, RegistrationNews};
use crate::reply::{ALLOW, Refusal, Reply, reply};
use crate::resend::Resend;
use crate::sound::{CallMedia, LocalSound};

/// Settings of a user agent.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Addresses that other sides reach us at, at most one by each transport.
    pub local: Vec<Hop>,
    /// Networks of those who may call. Empty for nobody.
    pub peers: Vec<IpNet>,
    /// Maximum number of calls, those included that ring, and those that ended within 32 s if there is room.
    pub calls: usize,
    /// Random number, the source of tags.
    pub secret: u128,
    /// Exchange to register at; `None` for none.
    pub registrar: Option<RegistrarSettings>,
    /// Trunk of calls out; `None` for none.
    pub trunk: Option<TrunkSettings>,
}

/// Numbers of datagrams and requests since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AgentCounts {
    /// Datagrams that are no messages.
    pub unreadable: u64,
    /// Requests of those who may not call.
    pub forbidden: u64,
    /// Calls that found no room.
    pub full: u64,
}

/// Error of a command: the call has ended, or was answered already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("there is no such call, or it has been answered already")]
pub struct UnknownCall;

/// User agent of all calls.
#[derive(Debug)]
pub struct UserAgent {
    pub(crate) settings: AgentSettings,
    pub(crate) calls: HashMap<CallKey, Call>,
    /// Calls out that are not answered.
    pub(crate) dials: HashMap<CallKey, Dial>,
    /// Calls by `Call-ID` and the other side's tag.
    pub(crate) by_dialog: HashMap<(String, String), CallKey>,
    output: VecDeque<SipOutput>,
    drawn: u64,
    registration: Option<Registration>,
    pub(crate) counts: AgentCounts,
}

impl UserAgent {
    /// Creates a user agent without calls; it registers from `now` on, if it has a registrar.
    pub fn new(settings: AgentSettings, now: Instant) -> Self {
        let mut agent = Self {
            settings,
            calls: HashMap::new(),
            dials: HashMap::new(),
            by_dialog: HashMap::new(),
            output: VecDeque::new(),
            drawn: 0,
            registration: None,
            counts: AgentCounts::default(),
        };
        if let Some(registrar) = agent.settings.registrar.clone() {
            let (call_id, tag, local) = (agent.draw(), agent.draw(), agent.local(registrar.address.transport));
            agent.registration = Some(Registration::new(registrar, local, call_id, tag, now));
        }
        agent
    }

    /// Takes a datagram, or a message of a connection, that came from `from`.
    pub fn receive(&mut self, datagram: &Bytes, from: Hop, now: Instant) {
        // Such datagrams only keep the path open.
        if datagram.iter().all(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return;
        }
        let Ok(message) = Message::read(datagram) else {
            self.counts.unreadable += 1;
            return;
        };
        match message.first.clone() {
            FirstLine::Response(status) => self.on_response(status, &message, from, now),
            FirstLine::Request(method) => self.on_request(&method, message, from, now),
        }
    }

    /// Accepts a call that rings: `sound` is our side of its sound. Returns the sound that both sides agreed on.
    ///
    /// # Errors
    ///
    /// The call was cancelled meanwhile.
    pub fn accept(&mut self, key: CallKey, sound: LocalSound, now: Instant) -> Result<CallMedia, UnknownCall> {
        let from = self.calls.get(&key).and_then(|call| call.invite.as_ref()).ok_or(UnknownCall)?.from;
        let headers = vec![self.contact(from.transport), ("Allow", ALLOW.to_owned())];
        let call = self.calls.get_mut(&key).filter(|call| call.phase == Phase::Ringing).ok_or(UnknownCall)?;
        let invite = call.invite.as_mut().ok_or(UnknownCall)?;
        call.phase = Phase::Accepted;
        call.sound = Some(sound);
        let description = call.offer.answer(call.description, sound.address, sound.key);
        let parts = Reply { tag: Some(&call.dialog.tag), headers, description: Some(&description) };
        invite.response = reply(&invite.request, invite.from, 200, &parts);
        invite.resend = Some(Resend::new(now));
        let (media, to, response) = (CallMedia::of(&call.offer, sound.key), invite.to, invite.response.clone());
        self.send(to, response);
        Ok(media)
    }

    /// Refuses a call that rings.
    ///
    /// # Errors
    ///
    /// The call was cancelled meanwhile.
    pub fn reject(&mut self, key: CallKey, refusal: &Refusal, now: Instant) -> Result<(), UnknownCall> {
        self.calls.get(&key).filter(|call| call.phase == Phase::Ringing).ok_or(UnknownCall)?;
        self.refuse(key, refusal, now);
        Ok(())
    }

    /// Ends a call, whatever its state. Does nothing if it is over.
    pub fn hang_up(&mut self, key: CallKey, now: Instant) {
        match self.calls.get_mut(&key).map(|call| call.phase) {
            Some(Phase::Ringing) => self.refuse(key, &Refusal::new(480, ""), now),
            // Only a confirmed call may be ended (RFC 3261, 15).
            Some(Phase::Accepted) => {
                if let Some(call) = self.calls.get_mut(&key) {
                    call.hang_up = true;
                }
            }
            Some(Phase::Confirmed) => self.say_bye(key, now),
            Some(Phase::Refused | Phase::Over) => {}
            None => self.cancel(key, now),
        }
    }

    /// Asks the other side to call `target` in our place; [`SipEvent::Transferred`] follows.
    ///
    /// # Errors
    ///
    /// The call is not confirmed, or too many requests are open.
    pub fn transfer(&mut self, key: CallKey, target: &str, now: Instant) -> Result<(), UnknownCall> {
        let transport = self.calls.get(&key).ok_or(UnknownCall)?.dialog.hop.transport;
        let headers = [self.contact(transport), ("Refer-To", format!("<{target}>"))];
        self.request(key, RequestKind::Refer, &headers, now)?;
        Ok(())
    }

    /// Withdraws the registration; false if there is none. [`RegistrationNews::Withdrawn`] follows.
    pub fn withdraw(&mut self, now: Instant) -> bool {
        let branch = self.branch();
        let Some(registration) = &mut self.registration else { return false };
        let bytes = registration.withdraw(now, branch);
        let is_asked = bytes.is_some();
        self.after_registration(bytes, None);
        is_asked
    }

    /// Returns the next output; call after each other method, until it returns `None`.
    pub fn poll(&mut self) -> Option<SipOutput> {
        self.output.pop_front()
    }

    /// Returns the time at which [`Self::advance`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        let registration = self.registration.as_ref().and_then(Registration::deadline);
        let dials = self.dials.values().map(Dial::due);
        self.calls.values().filter_map(Call::due).chain(dials).chain(registration).min()
    }

    /// Advances the timers to `now`.
    pub fn advance(&mut self, now: Instant) {
        if self.deadline().is_none_or(|next| now < next) {
            return;
        }
        let branch = self.branch();
        if let Some(registration) = &mut self.registration {
            let (bytes, news) = registration.advance(now, branch);
            self.after_registration(bytes, news);
        }
        let due: Vec<CallKey> = self
            .calls
            .iter()
            .filter(|(_, call)| call.due().is_some_and(|due| due <= now))
            .map(|(key, _)| *key)
            .collect();
        for key in due {
            let Some(call) = self.calls.get_mut(&key) else { continue };
            let step = call.step(now);
            for (to, bytes) in step.again {
                self.send(to, bytes);
            }
            if step.unconfirmed {
                self.say_bye(key, now);
                self.event(key, SipEvent::Ended(EndReason::Unconfirmed));
            }
            for kind in step.unanswered {
                self.answered(key, kind, 408);
            }
            if step.is_done {
                self.evict(key);
            }
        }
        self.advance_dials(now);
    }

    /// Number of calls that are not over, without those out that nobody has answered.
    pub fn active(&self) -> usize {
        self.calls.values().filter(|call| !matches!(call.phase, Phase::Over | Phase::Refused)).count()
    }

    /// Returns the numbers since the start.
    pub fn counts(&self) -> AgentCounts {
        self.counts
    }

    fn on_response(&mut self, status: u16, message: &Message, from: Hop, now: Instant) {
        let ours = self.branch();
        let registration = self.registration.as_mut().filter(|registration| registration.address() == from);
        if let Some((bytes, news)) =
            registration.and_then(|registration| registration.receive(status, message, ours, now))
        {
            return self.after_registration(bytes, news);
        }
        if self.on_dial_response(status, message, from, now) {
            return;
        }
        let branch = message.branch();
        let is_open = |call: &Call| call.open.iter().position(|request| request.branch == branch);
        let found = self.calls.iter().find_map(|(key, call)| is_open(call).map(|place| (*key, place)));
        let Some((key, place)) = found.filter(|_| self.may_connect(from.address)) else { return };
        // A provisional response says only that the other side is there.
        if status < 200 {
            return;
        }
        let Some(call) = self.calls.get_mut(&key) else { return };
        let kind = call.open.swap_remove(place).kind;
        self.answered(key, kind, status);
        if kind == RequestKind::Refer && status == 481 {
            self.end(key, EndReason::Bye, now);
        }
    }

    /// Notes the final status of a request of ours.
    fn answered(&mut self, key: CallKey, kind: RequestKind, status: u16) {
        match kind {
            RequestKind::Bye => {}
            // 202 means that the other side tries; its news follow.
            RequestKind::Refer if (200..300).contains(&status) => {}
            RequestKind::Refer => self.event(key, SipEvent::Transferred(status)),
        }
    }

    /// Sends the final refusal of a call that rings.
    pub(crate) fn refuse(&mut self, key: CallKey, refusal: &Refusal, now: Instant) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        let Some(invite) = &mut call.invite else { return };
        call.phase = Phase::Refused;
        let parts = Reply { tag: Some(&call.dialog.tag), headers: refusal.headers(), description: None };
        invite.response = reply(&invite.request, invite.from, refusal.status, &parts);
        invite.resend = Some(Resend::over(invite.to.transport, now));
        let (to, response) = (invite.to, invite.response.clone());
        self.send(to, response);
    }

    /// Ends a confirmed call from our side.
    pub(crate) fn say_bye(&mut self, key: CallKey, now: Instant) {
        // Without room for a request the other side learns of the end when it sends one.
        let _ = self.request(key, RequestKind::Bye, &[], now);
        if let Some(call) = self.calls.get_mut(&key) {
            call.finish(now);
        }
    }

    /// Ends a call by the other side.
    pub(crate) fn end(&mut self, key: CallKey, reason: EndReason, now: Instant) {
        let Some(call) = self.calls.get_mut(&key) else { return };
        if call.phase != Phase::Over {
            call.finish(now);
            self.event(key, SipEvent::Ended(reason));
        }
    }

    /// Sends a request within a call.
    fn request(
        &mut self,
        key: CallKey,
        kind: RequestKind,
        headers: &[(&'static str, String)],
        now: Instant,
    ) -> Result<(), UnknownCall> {
        let branch = self.branch();
        let local = self.local(self.calls.get(&key).ok_or(UnknownCall)?.dialog.hop.transport);
        let may_send =
            |call: &&mut Call| matches!(call.phase, Phase::Confirmed | Phase::Accepted) && call.open.len() < MAX_OPEN;
        let call = self.calls.get_mut(&key).filter(may_send).ok_or(UnknownCall)?;
        let method = match kind {
            RequestKind::Bye => "BYE",
            RequestKind::Refer => "REFER",
        };
        let bytes = call.dialog.request(method, &branch, local, headers);
        let hop = call.dialog.hop;
        let resend = Resend::over(hop.transport, now);
        call.open.push(OpenRequest { branch, kind, bytes: bytes.clone(), resend });
        self.send(hop, bytes);
        Ok(())
    }

    pub(crate) fn evict(&mut self, key: CallKey) {
        self.calls.remove(&key);
        self.by_dialog.retain(|_, of| *of != key);
    }

    pub(crate) fn send(&mut self, to: Hop, bytes: Bytes) {
        self.output.push_back(SipOutput::Message(to, bytes));
    }

    pub(crate) fn event(&mut self, key: CallKey, event: SipEvent) {
        self.output.push_back(SipOutput::Event(key, event));
    }

    /// Our agent's address by this transport, for the other side's requests.
    pub(crate) fn contact(&self, transport: SignalTransport) -> (&'static str, String) {
        ("Contact", self.local(transport).contact(""))
    }

    fn after_registration(&mut self, bytes: Option<Bytes>, news: Option<RegistrationNews>) {
        if let Some((bytes, registration)) = bytes.zip(self.registration.as_ref()) {
            let to = registration.address();
            self.send(to, bytes);
        }
        self.output.extend(news.map(SipOutput::Registration));
    }

    /// Notes that the exchange cannot be reached over the connection to `hop`.
    pub(crate) fn registration_lost(&mut self, hop: Hop, status: u16, now: Instant) {
        let registration = self.registration.as_mut().filter(|registration| registration.address() == hop);
        let news = registration.and_then(|registration| registration.lost(status, now));
        self.output.extend(news.map(SipOutput::Registration));
    }

    /// Draws the branch of a request of ours.
    pub(crate) fn branch(&mut self) -> String {
        format!("z9hG4bK{}", self.draw())
    }

    /// Draws a text that nobody can foresee.
    pub(crate) fn draw(&mut self) -> String {
        self.drawn += 1;
        self.tag_of(&self.drawn.to_string(), "")
    }

    /// Derives a tag from texts, always the same one.
    pub(crate) fn tag_of(&self, a: &str, b: &str) -> String {
        let hash = |half: u8| {
            let mut hasher = DefaultHasher::new();
            (self.settings.secret, half, a, b).hash(&mut hasher);
            hasher.finish()
        };
        format!("{:016x}{:016x}", hash(0), hash(1))
    }
}
