//! One call of the user agent: its transactions and its dialog.

use std::time::Instant;

use bytes::Bytes;
use repartee_sdp::phone::PhoneOffer;

use crate::dialog::Dialog;
use crate::hop::Hop;
use crate::message::Message;
use crate::resend::{Due, GIVE_UP, Resend};
use crate::sound::LocalSound;

/// Name of a call at the user agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallKey(pub(crate) u64);

/// Maximum number of our open requests within one call.
pub(crate) const MAX_OPEN: usize = 4;

/// State of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits to be accepted.
    Ringing,
    /// It is accepted, and the other side has not confirmed it.
    Accepted,
    /// Both sides speak.
    Confirmed,
    /// It was refused or cancelled, and the refusal has not been confirmed.
    Refused,
    /// It is over. Messages that come late are answered until it is removed.
    Over,
}

/// `INVITE` of the other side, with our last response to it.
#[derive(Debug)]
pub(crate) struct InviteReply {
    pub request: Message,
    /// Address that it came from, and that of its responses.
    pub from: Hop,
    pub to: Hop,
    pub response: Bytes,
    /// Retransmission of a final response until it is confirmed.
    pub resend: Option<Resend>,
}

/// Request of ours within the call, until it is answered.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    pub branch: String,
    pub kind: RequestKind,
    pub bytes: Bytes,
    pub resend: Resend,
}

/// Purpose of a request of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Bye,
    Refer,
}

/// One call.
#[derive(Debug)]
pub(crate) struct Call {
    pub phase: Phase,
    pub dialog: Dialog,
    /// Request of the other side that we answered last; `None` for a call of ours that it has not changed.
    pub invite: Option<InviteReply>,
    /// Branch of our request of a call out, with the confirmation of its answer.
    pub confirmation: Option<(String, Bytes)>,
    pub offer: PhoneOffer,
    /// Our side of the sound, once the call is accepted.
    pub sound: Option<LocalSound>,
    /// Number and version of our session description.
    pub description: (u64, u64),
    pub open: Vec<OpenRequest>,
    /// True if the call ends as soon as the other side has confirmed it.
    pub hang_up: bool,
    /// Time when a call that is over is removed.
    pub evict_at: Option<Instant>,
}

/// Result of a call's timers.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Messages to send again.
    pub again: Vec<(Hop, Bytes)>,
    /// The accepted call was never confirmed.
    pub unconfirmed: bool,
    /// Requests that nobody has answered.
    pub unanswered: Vec<RequestKind>,
    /// Nothing is left of the call.
    pub is_done: bool,
}

impl Call {
    /// Sends our last response no more: the other side has it.
    pub fn acknowledged(&mut self) {
        if let Some(invite) = &mut self.invite {
            invite.resend = None;
        }
    }

    /// True if the other side has our last response.
    pub fn is_confirmed(&self) -> bool {
        self.phase == Phase::Confirmed && self.invite.as_ref().is_none_or(|invite| invite.resend.is_none())
    }

    /// Request of the other side that we answered last.
    pub fn asked(&self) -> Option<&Message> {
        self.invite.as_ref().map(|invite| &invite.request)
    }

    /// Ends the call at `now`.
    pub fn finish(&mut self, now: Instant) {
        self.phase = Phase::Over;
        self.acknowledged();
        self.evict_at.get_or_insert(now + GIVE_UP);
    }

    /// Next time of [`Self::step`].
    pub fn due(&self) -> Option<Instant> {
        let open = self.open.iter().map(|request| request.resend.at());
        let resend = self.invite.as_ref().and_then(|invite| invite.resend);
        open.chain(resend.map(|resend| resend.at())).chain(self.evict_at).min()
    }

    /// Advances the timers to `now`.
    pub fn step(&mut self, now: Instant) -> Step {
        let mut step = Step { is_done: self.evict_at.is_some_and(|time| time <= now), ..Step::default() };
        if let Some(invite) = &mut self.invite {
            match invite.resend.as_mut().map(|resend| resend.step(now)) {
                Some(Due::Again) => step.again.push((invite.to, invite.response.clone())),
                Some(Due::GiveUp) => {
                    invite.resend = None;
                    step.unconfirmed = self.phase == Phase::Accepted;
                    step.is_done |= self.phase == Phase::Refused;
                }
                Some(Due::Wait) | None => {}
            }
        }
        let hop = self.dialog.hop;
        self.open.retain_mut(|request| match request.resend.step(now) {
            Due::Wait => true,
            Due::Again => {
                step.again.push((hop, request.bytes.clone()));
                true
            }
            Due::GiveUp => {
                step.unanswered.push(request.kind);
                false
            }
        });
        step
    }
}
