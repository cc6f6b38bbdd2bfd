//! Requests that begin a call, cancel it, or probe.

use core::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ezk_sip_types::{Method, Name};
use repartee_sdp::phone::PhoneOffer;

use crate::agent::UserAgent;
use crate::call::{Call, CallKey, InviteReply, Phase};
use crate::dialog::Dialog;
use crate::event::{EndReason, Invitation, SipEvent};
use crate::hop::Hop;
use crate::message::Message;
use crate::reply::{ALLOW, Refusal, Reply, reply, reply_address};

/// `Retry-After` without room for a call.
const FULL_RETRY: Duration = Duration::from_secs(5);

impl UserAgent {
    pub(crate) fn on_request(&mut self, method: &Method, request: Message, from: Hop, now: Instant) {
        if *method == Method::ACK {
            return self.on_ack(&request, from, now);
        }
        // A call out has its end and its changes from the trunk.
        let is_within_ours = request.to.tag.is_some() && self.is_trunk(from.address);
        if !self.is_peer(from.address) && !is_within_ours {
            self.counts.forbidden += 1;
            let reason = "this address is not among those that may call (sip.peers)";
            return self.refuse_at_door(&request, from, &Refusal::new(403, reason));
        }
        if request.to.tag.is_some() {
            return self.on_request_within(method, request, from, now);
        }
        match *method {
            Method::INVITE => self.on_invite(request, from),
            Method::CANCEL => self.on_cancel(&request, from, now),
            Method::OPTIONS => {
                let headers = vec![
                    self.contact(from.transport),
                    ("Allow", ALLOW.to_owned()),
                    ("Accept", "application/sdp".to_owned()),
                ];
                self.answer(&request, from, 200, headers, None);
            }
            Method::BYE | Method::UPDATE | Method::INFO | Method::NOTIFY => {
                self.refuse_at_door(&request, from, &Refusal::new(481, ""));
            }
            _ => self.not_allowed(&request, from),
        }
    }

    /// Responds without keeping anything: a request that comes again is answered again.
    pub(crate) fn answer(
        &mut self,
        request: &Message,
        from: Hop,
        status: u16,
        headers: Vec<(&'static str, String)>,
        description: Option<&str>,
    ) {
        let tag = self.tag_of(&request.call_id, request.from.tag.as_deref().unwrap_or_default());
        let bytes = reply(request, from, status, &Reply { tag: Some(&tag), headers, description });
        self.send(reply_address(request, from), bytes);
    }

    /// Refuses without keeping anything.
    pub(crate) fn refuse_at_door(&mut self, request: &Message, from: Hop, refusal: &Refusal) {
        self.answer(request, from, refusal.status, refusal.headers(), None);
    }

    pub(crate) fn not_allowed(&mut self, request: &Message, from: Hop) {
        self.answer(request, from, 405, vec![("Allow", ALLOW.to_owned())], None);
    }

    fn on_invite(&mut self, request: Message, from: Hop) {
        let Some(remote_tag) = request.from.tag.clone() else {
            return self.refuse_at_door(&request, from, &Refusal::new(400, "From has no tag"));
        };
        let id = (request.call_id.clone(), remote_tag);
        if let Some(call) = self.by_dialog.get(&id).and_then(|key| self.calls.get(key)) {
            let is_again = |before: &&InviteReply| {
                before.request.sequence == request.sequence && before.request.branch() == request.branch()
            };
            if let Some(InviteReply { to, response, .. }) = call.invite.as_ref().filter(is_again) {
                let (to, response) = (*to, response.clone());
                return self.send(to, response);
            }
            return self.refuse_at_door(
                &request,
                from,
                &Refusal::new(482, "this call has come on another way already"),
            );
        }
        let offer = match self.read_invite(&request, from) {
            Ok(offer) => offer,
            Err(refusal) => return self.refuse_at_door(&request, from, &refusal),
        };
        if !self.make_room() {
            self.counts.full += 1;
            let refusal = Refusal::new(503, "too many calls").retry_after(Some(FULL_RETRY));
            return self.refuse_at_door(&request, from, &refusal);
        }
        let tag = self.tag_of(&id.0, &id.1);
        let Some(dialog) = Dialog::of_request(&request, tag.clone(), self.next_hop(&request, from)) else {
            return self.refuse_at_door(
                &request,
                from,
                &Refusal::new(400, "Contact is missing, or there are too many routes"),
            );
        };
        let key = CallKey(self.draw_number());
        let headers = vec![self.contact(from.transport)];
        let parts = Reply { tag: Some(&tag), headers, description: None };
        let (to, response) = (reply_address(&request, from), reply(&request, from, 180, &parts));
        let invitation = Invitation {
            from,
            is_encrypted: offer.crypto.is_some(),
            headers: request.headers().map(|(name, value)| (name.to_owned(), value.to_owned())).collect(),
        };
        let invite = Some(InviteReply { request, from, to, response: response.clone(), resend: None });
        let call = Call {
            phase: Phase::Ringing,
            dialog,
            invite,
            confirmation: None,
            offer,
            sound: None,
            description: (key.0 >> 1, 1),
            open: Vec::new(),
            hang_up: false,
            evict_at: None,
        };
        self.calls.insert(key, call);
        self.by_dialog.insert(id, key);
        self.send(to, response);
        self.event(key, SipEvent::Incoming(Box::new(invitation)));
    }

    /// Reads a request for a call, or says why there will be none.
    fn read_invite(&self, request: &Message, from: Hop) -> Result<PhoneOffer, Refusal> {
        let sent_by = &request.via.sent_by;
        let origin = sent_by.ip().map(|ip| SocketAddr::new(ip, sent_by.port.unwrap_or(from.transport.port())));
        let is_ours = |local: &Hop| {
            local.address == from.address
                || (Some(local.address) == origin && local.address.ip() == from.address.ip().to_canonical())
        };
        if self.settings.local.iter().any(is_ours) {
            return Err(Refusal::new(482, "the call comes from this server itself"));
        }
        if request.max_forwards() == Some(0) {
            return Err(Refusal::new(483, ""));
        }
        if let Some(extension) = request.raw(&Name::REQUIRE).next() {
            return Err(Refusal::new(420, format!("the extension {extension} is not supported")));
        }
        if request.body.is_empty() {
            return Err(Refusal::new(488, "a call without a session description is not served"));
        }
        if !request.has_description() {
            return Err(Refusal::new(415, "only application/sdp is served"));
        }
        read_offer(&request.body)
    }

    /// Next hop of our requests within a call that `message` begins or answers, and what may take its place.
    pub(crate) fn next_hop(&self, message: &Message, from: Hop) -> (Hop, Option<Hop>) {
        let host = message.contact().map(|contact| contact.host_port);
        let direct = host.and_then(|host| {
            let address = SocketAddr::new(host.ip()?, host.port.unwrap_or(from.transport.port()));
            Some(Hop { address, ..from })
        });
        let is_direct = message.routes().is_some_and(|routes| routes.is_empty());
        let direct = direct.filter(|hop| is_direct && self.may_connect(hop.address));
        // A connection is the way that is known to be open.
        if from.transport.is_reliable() { (from, direct) } else { (direct.unwrap_or(from), None) }
    }

    /// Makes room for a call; false if all are needed.
    pub(crate) fn make_room(&mut self) -> bool {
        if self.calls.len() < self.settings.calls {
            return true;
        }
        let over = self.calls.iter().filter(|(_, call)| matches!(call.phase, Phase::Over | Phase::Refused));
        let oldest = over.min_by_key(|(_, call)| (call.phase == Phase::Refused, call.evict_at)).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.evict(key);
        }
        oldest.is_some()
    }

    fn on_cancel(&mut self, request: &Message, from: Hop, now: Instant) {
        let id = (request.call_id.clone(), request.from.tag.clone().unwrap_or_default());
        let found = self.by_dialog.get(&id).copied();
        let is_same = |call: &&Call| call.asked().is_some_and(|asked| asked.sequence.cseq == request.sequence.cseq);
        let Some(key) = found.filter(|key| self.calls.get(key).filter(is_same).is_some()) else {
            return self.refuse_at_door(request, from, &Refusal::new(481, ""));
        };
        self.answer(request, from, 200, Vec::new(), None);
        // A call that has been accepted goes on (RFC 3261, 9.2).
        if self.calls.get(&key).is_some_and(|call| call.phase == Phase::Ringing) {
            self.refuse(key, &Refusal::new(487, ""), now);
            self.event(key, SipEvent::Ended(EndReason::Cancelled));
        }
    }

    /// Takes the confirmation of a final response.
    fn on_ack(&mut self, request: &Message, from: Hop, now: Instant) {
        let id = (request.call_id.clone(), request.from.tag.clone().unwrap_or_default());
        let Some(key) =
            self.by_dialog.get(&id).copied().filter(|_| self.is_peer(from.address) || self.is_trunk(from.address))
        else {
            return;
        };
        let Some(call) = self.calls.get_mut(&key) else { return };
        if call.asked().is_none_or(|asked| asked.sequence.cseq != request.sequence.cseq) {
            return;
        }
        match call.phase {
            Phase::Accepted => {
                call.phase = Phase::Confirmed;
                call.acknowledged();
                let hang_up = call.hang_up;
                self.event(key, SipEvent::Confirmed);
                if hang_up {
                    self.say_bye(key, now);
                }
            }
            Phase::Confirmed => call.acknowledged(),
            Phase::Refused => call.finish(now),
            Phase::Ringing | Phase::Over => {}
        }
    }

    pub(crate) fn draw_number(&mut self) -> u64 {
        let text = self.draw();
        // The text has sixteen hexadecimal digits and more.
        u64::from_str_radix(&text[..16], 16).unwrap_or_default()
    }
}

/// Reads the session description of a request.
pub(crate) fn read_offer(body: &Bytes) -> Result<PhoneOffer, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::new(400, "the session description is not UTF-8"))?;
    PhoneOffer::read(text).map_err(|error| Refusal::new(488, error.to_string()))
}
