//! Requests of the other side within a call: its end, hold, keys, and news of a transfer.

use std::time::{Duration, Instant};

use ezk_sip_types::{Method, Name};

use crate::agent::UserAgent;
use crate::call::{Call, CallKey, InviteReply, Phase};
use crate::event::{EndReason, SipEvent};
use crate::hop::Hop;
use crate::incoming::read_offer;
use crate::message::Message;
use crate::reply::{ALLOW, Refusal, Reply, reply, reply_address};
use crate::resend::Resend;
use crate::sound::CallMedia;

impl UserAgent {
    pub(crate) fn on_request_within(&mut self, method: &Method, request: Message, from: Hop, now: Instant) {
        let id = (request.call_id.clone(), request.from.tag.clone().unwrap_or_default());
        let is_known = |call: &&Call| Some(&call.dialog.tag) == request.to.tag.as_ref();
        let found = self.by_dialog.get(&id).copied();
        let known = found.and_then(|key| self.calls.get(&key).filter(is_known).map(|call| (key, call)));
        let Some((key, call)) = known.filter(|(_, call)| call.phase != Phase::Over || *method == Method::BYE) else {
            return self.refuse_at_door(&request, from, &Refusal::new(481, ""));
        };
        if request.sequence.cseq < call.dialog.remote_sequence {
            return self.refuse_at_door(&request, from, &Refusal::new(500, "an older request of the call"));
        }
        let is_again = call.asked().is_some_and(|asked| asked.sequence == request.sequence);
        if let Some(call) = self.calls.get_mut(&key) {
            call.dialog.remote_sequence = request.sequence.cseq;
        }
        match *method {
            Method::INVITE if is_again => {
                if let Some(InviteReply { to, response, .. }) =
                    self.calls.get(&key).and_then(|call| call.invite.as_ref())
                {
                    let (to, response) = (*to, response.clone());
                    self.send(to, response);
                }
            }
            Method::INVITE => self.on_new_offer(key, request, from, now),
            Method::UPDATE => self.on_update(key, &request, from),
            Method::BYE => {
                self.answer(&request, from, 200, Vec::new(), None);
                self.end(key, EndReason::Bye, now);
            }
            Method::INFO => {
                self.answer(&request, from, 200, Vec::new(), None);
                if let Some(pressed) = key_of(&request) {
                    self.event(key, SipEvent::Key(pressed));
                }
            }
            Method::NOTIFY => {
                self.answer(&request, from, 200, Vec::new(), None);
                if let Some(status) = transfer_status(&request).filter(|status| *status >= 200) {
                    self.event(key, SipEvent::Transferred(status));
                }
            }
            Method::OPTIONS => {
                let headers = vec![self.contact(from.transport), ("Allow", ALLOW.to_owned())];
                self.answer(&request, from, 200, headers, None);
            }
            Method::REFER => {
                self.refuse_at_door(&request, from, &Refusal::new(603, "this side is not transferred"));
            }
            _ => self.not_allowed(&request, from),
        }
    }

    /// Takes a changed offer: hold, its end, or another address of sound.
    fn on_new_offer(&mut self, key: CallKey, request: Message, from: Hop, now: Instant) {
        let contact = self.contact(from.transport);
        let Some(call) = self.calls.get_mut(&key) else { return };
        let Some(sound) = call.sound.filter(|_| call.is_confirmed()) else {
            let refusal = Refusal::new(491, "").retry_after(Some(Duration::from_secs(1)));
            return self.refuse_at_door(&request, from, &refusal);
        };
        // Without a description the other side asks for ours.
        let offer = if request.body.is_empty() { Ok(call.offer.clone()) } else { read_offer(&request.body) };
        let offer = match offer {
            Ok(offer) => offer,
            // The call goes on as before.
            Err(refusal) => return self.refuse_at_door(&request, from, &refusal),
        };
        call.dialog.refresh(&request);
        call.description.1 += 1;
        let description = offer.answer(call.description, sound.address, sound.key);
        let headers = vec![contact, ("Allow", ALLOW.to_owned())];
        let parts = Reply { tag: None, headers, description: Some(&description) };
        let (to, response) = (reply_address(&request, from), reply(&request, from, 200, &parts));
        let resend = Some(Resend::new(now));
        call.invite = Some(InviteReply { request, from, to, response: response.clone(), resend });
        let changed = CallMedia::of(&offer, sound.key) != CallMedia::of(&call.offer, sound.key);
        call.offer = offer;
        let media = CallMedia::of(&call.offer, sound.key);
        self.send(to, response);
        if changed {
            self.event(key, SipEvent::Media(media));
        }
    }

    /// Takes an update, with or without a changed offer.
    fn on_update(&mut self, key: CallKey, request: &Message, from: Hop) {
        let contact = self.contact(from.transport);
        let Some(call) = self.calls.get_mut(&key) else { return };
        if request.body.is_empty() {
            call.dialog.refresh(request);
            return self.answer(request, from, 200, vec![contact], None);
        }
        let Some(sound) = call.sound else {
            return self.refuse_at_door(request, from, &Refusal::new(491, ""));
        };
        match read_offer(&request.body) {
            Ok(offer) => {
                call.dialog.refresh(request);
                call.description.1 += 1;
                let description = offer.answer(call.description, sound.address, sound.key);
                let media = CallMedia::of(&offer, sound.key);
                call.offer = offer;
                self.answer(request, from, 200, vec![contact], Some(&description));
                self.event(key, SipEvent::Media(media));
            }
            Err(refusal) => self.refuse_at_door(request, from, &refusal),
        }
    }
}

/// Reads the key of an `INFO` request: `Signal=5` (`application/dtmf-relay`), or the key alone (`application/dtmf`).
fn key_of(request: &Message) -> Option<char> {
    let kind = request.raw(&Name::CONTENT_TYPE).next()?.to_ascii_lowercase();
    let text = std::str::from_utf8(&request.body).ok()?;
    let key = match kind.as_str() {
        "application/dtmf-relay" => text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            name.trim().eq_ignore_ascii_case("signal").then(|| value.trim())
        })?,
        "application/dtmf" => text.trim(),
        _ => return None,
    };
    let mut letters = key.chars();
    let key = letters.next().filter(|_| letters.next().is_none())?.to_ascii_uppercase();
    matches!(key, '0'..='9' | '*' | '#' | 'A'..='D').then_some(key)
}

/// Reads the status in the news of a transfer (RFC 3515, 2.4.5).
fn transfer_status(request: &Message) -> Option<u16> {
    let text = std::str::from_utf8(&request.body).ok()?;
    text.strip_prefix("SIP/2.0 ")?.split(' ').next()?.trim().parse().ok()
}
