//! Calls out: a request for a call at the trunk, from its first message to the answer, the refusal or the cancellation.

use core::net::SocketAddr;
use std::time::Instant;

use ezk_sip_types::Method;
use repartee_sdp::phone::PhoneOffer;

use crate::agent::UserAgent;
use crate::call::{Call, CallKey, Phase};
use crate::dial::{Dial, DialError, DialPhase};
use crate::dialog::Dialog;
use crate::event::SipEvent;
use crate::hop::Hop;
use crate::message::Message;
use crate::sound::{CallMedia, LocalSound};

/// Calls out that were refused or given up, and linger for messages that come late.
const MAX_OVER: usize = 64;

impl UserAgent {
    /// Calls a number at the trunk; `sound` is our side of its sound. [`SipEvent::Answered`] or [`SipEvent::Failed`] follows,
    /// unless [`Self::hang_up`] comes before.
    ///
    /// # Errors
    ///
    /// See [`DialError`].
    pub fn call(&mut self, number: &str, sound: LocalSound, now: Instant) -> Result<CallKey, DialError> {
        let trunk = self.settings.trunk.clone().ok_or(DialError::NoTrunk)?;
        if !Dial::calls(number) {
            return Err(DialError::Number);
        }
        if self.calls_out() >= trunk.calls || self.dials.len() >= trunk.calls + MAX_OVER || !self.make_room() {
            return Err(DialError::Full(trunk.calls));
        }
        let key = CallKey(self.draw_number());
        let (call_id, tag, branch) = (self.draw(), self.draw(), self.branch());
        let local = self.local(trunk.address.transport);
        let ring_until = now + trunk.ring;
        let mut dial = Dial::new(trunk, number, (call_id, tag), (key.0 >> 1, 1), sound, ring_until);
        let bytes = dial.invite(branch, local, None, now);
        self.send(dial.trunk.address, bytes);
        self.dials.insert(key, dial);
        Ok(key)
    }

    /// Number of calls out that are not over.
    fn calls_out(&self) -> usize {
        let dialling = self.dials.values().filter(|dial| dial.phase != DialPhase::Over).count();
        let running = self.calls.values().filter(|call| call.confirmation.is_some() && call.phase != Phase::Over);
        dialling + running.count()
    }

    /// True for the address of the trunk.
    pub(crate) fn is_trunk(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.settings.trunk.as_ref().is_some_and(|trunk| trunk.address.address.ip().to_canonical() == ip)
    }

    /// Takes a response to a request of a call out; false if it is none.
    pub(crate) fn on_dial_response(&mut self, status: u16, message: &Message, from: Hop, now: Instant) -> bool {
        if !self.is_trunk(from.address) {
            return false;
        }
        let branch = message.branch();
        if self.on_answer_again(status, message, from) {
            return true;
        }
        let again = self.dials.values().find_map(|dial| dial.confirmed(branch)).filter(|_| status >= 300);
        if let Some(bytes) = again {
            self.send(from, bytes);
            return true;
        }
        let Some(key) = self.dials.iter().find_map(|(key, dial)| dial.has(message).then_some(*key)) else {
            return false;
        };
        if message.sequence.method == Method::CANCEL {
            if let Some(dial) = self.dials.get_mut(&key).filter(|_| status >= 200) {
                dial.cancelled();
            }
        } else {
            self.on_invite_response(key, status, message, from, now);
        }
        true
    }

    /// Takes an answer to a call that is answered already. The same one is confirmed again; another telephone's, which a proxy
    /// rang too, ends at once.
    fn on_answer_again(&mut self, status: u16, message: &Message, from: Hop) -> bool {
        let (first, second, local) = (self.branch(), self.branch(), self.local(from.transport));
        let is_of = |call: &&Call| call.confirmation.as_ref().is_some_and(|(of, _)| of == message.branch());
        let Some(call) = self.calls.values().find(is_of).filter(|_| (200..300).contains(&status)) else { return false };
        let Some((_, confirmation)) = &call.confirmation else { return false };
        if call.dialog.is_with(message) {
            let (to, bytes) = (call.dialog.hop, confirmation.clone());
            self.send(to, bytes);
        } else {
            let mut other = Dialog::of_answer(message, (from, None));
            for bytes in [other.acknowledge(&first, local), other.request("BYE", &second, local, &[])] {
                self.send(from, bytes);
            }
        }
        true
    }

    fn on_invite_response(&mut self, key: CallKey, status: u16, message: &Message, from: Hop, now: Instant) {
        let (fresh, local) = (self.branch(), self.local(from.transport));
        let Some(dial) = self.dials.get_mut(&key) else { return };
        let trunk = dial.trunk.address;
        match status {
            100..200 => {
                let rings = status > 100 && dial.rings();
                if let Some(bytes) = dial.on_provisional(local, now) {
                    self.send(trunk, bytes);
                }
                if rings {
                    self.event(key, SipEvent::Ringing);
                }
            }
            200..300 => self.on_answer(key, message, from, now),
            _ => {
                let confirmation = dial.refused(message, local);
                let again = dial.credentials(status, message, &fresh);
                let bytes = again.map(|credentials| dial.invite(fresh, local, Some(credentials), now));
                let failed = bytes.is_none() && dial.finish(now);
                self.send(trunk, confirmation);
                if let Some(bytes) = bytes {
                    self.send(trunk, bytes);
                }
                if failed {
                    self.event(key, SipEvent::Failed(status));
                }
            }
        }
    }

    /// Takes the other side's answer: the call is confirmed, and ends at once if nobody waits for it any more, or its sound is
    /// not what was offered.
    fn on_answer(&mut self, key: CallKey, message: &Message, from: Hop, now: Instant) {
        let (branch, local) = (self.branch(), self.local(from.transport));
        let Some(mut dial) = self.dials.remove(&key) else { return };
        let waits = dial.give_up(now);
        let (hop, fallback) = self.next_hop(message, from);
        let mut dialog = Dialog::of_answer(message, (hop, fallback));
        let confirmation = dialog.acknowledge(&branch, local);
        self.send(hop, confirmation.clone());
        let answer = std::str::from_utf8(&message.body).ok().and_then(|text| PhoneOffer::read(text).ok());
        let answer = answer.filter(|answer| answer.answers(dial.trunk.is_encrypted));
        let is_served = answer.is_some();
        // The description of a call that ends at once is never read.
        let Some(offer) = answer.or_else(|| PhoneOffer::read(&dial.offer()).ok()) else { return };
        let media = CallMedia::of(&offer, dial.sound.key);
        let call = Call {
            phase: Phase::Confirmed,
            dialog,
            invite: None,
            confirmation: Some((dial.branch, confirmation)),
            offer,
            sound: Some(dial.sound),
            description: dial.description,
            open: Vec::new(),
            hang_up: false,
            evict_at: None,
        };
        self.by_dialog.insert((message.call_id.clone(), message.to.tag.clone().unwrap_or_default()), key);
        self.calls.insert(key, call);
        if waits && is_served {
            return self.event(key, SipEvent::Answered(media));
        }
        self.say_bye(key, now);
        if waits {
            self.event(key, SipEvent::Failed(488));
        }
    }

    /// Gives up a call that nobody has answered: cancels it as soon as the other side has said anything.
    pub(crate) fn cancel(&mut self, key: CallKey, now: Instant) {
        let Some(trunk) = self.dials.get(&key).map(|dial| dial.trunk.address) else { return };
        let local = self.local(trunk.transport);
        let Some(dial) = self.dials.get_mut(&key) else { return };
        dial.give_up(now);
        if let Some(bytes) = dial.cancel(local, now) {
            self.send(trunk, bytes);
        }
    }

    /// Advances the timers of calls out.
    pub(crate) fn advance_dials(&mut self, now: Instant) {
        let due: Vec<CallKey> = self.dials.iter().filter(|(_, dial)| dial.due() <= now).map(|(key, _)| *key).collect();
        for key in due {
            let Some(dial) = self.dials.get_mut(&key) else { continue };
            let trunk = dial.trunk.address;
            let step = dial.step(now);
            for bytes in step.again {
                self.send(trunk, bytes);
            }
            if step.unanswered {
                // Where nothing came, there is nothing to cancel.
                if !step.is_done {
                    self.cancel(key, now);
                }
                self.event(key, SipEvent::Failed(408));
            }
            if step.is_done {
                self.dials.remove(&key);
            }
        }
    }
}
