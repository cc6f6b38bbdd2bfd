//! Commands of calls and requests to the signalling.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use repartee_sip::{CallKey, CallMedia, DialError, Hop, LocalSound, Refusal, UnknownCall};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::ringing::NamedCalls;
use crate::transport::sip::{Line, PortRange};

/// Commands that may wait. A sender waits for room.
const QUEUE: usize = 256;
/// Longest wait for the end of a registration.
const WITHDRAW: Duration = Duration::from_secs(2);

/// Outcome of a call out: its sound and its line, or the status of SIP that refused it.
pub(super) type DialOutcome = Result<(CallMedia, Line), u16>;

/// Call out that began, with the receiver of its outcome.
pub(super) type Dialled = (CallKey, oneshot::Receiver<DialOutcome>);

/// Command to the signalling.
#[derive(Debug)]
pub(in crate::server) enum SipCommand {
    /// Accepts a call, with our side of its sound.
    Accept(CallKey, LocalSound, oneshot::Sender<Result<(CallMedia, Line), UnknownCall>>),
    /// Calls a number at the trunk, with our side of its sound.
    Call(String, LocalSound, oneshot::Sender<Result<Dialled, DialError>>),
    /// Refuses a call that rings.
    Reject(CallKey, Refusal),
    /// Asks the other side to call this address in our place.
    Refer(CallKey, String, oneshot::Sender<Result<(), UnknownCall>>),
    /// Withdraws the registration; the answer comes once the exchange has answered.
    Withdraw(oneshot::Sender<()>),
    /// Ends a call; the answer comes once the end is sent.
    HangUp(CallKey, oneshot::Sender<()>),
}

/// Signalling, as calls and requests see it.
#[derive(Debug)]
pub(crate) struct SipService {
    /// Addresses of the signalling, as others reach it; at least one.
    pub(super) addresses: Vec<Hop>,
    /// IP address that is announced.
    pub(super) announced: IpAddr,
    /// Address that sockets of sound bind to.
    pub(super) bind: IpAddr,
    pub(super) ports: PortRange,
    /// Calls that requests may name.
    pub(super) named: NamedCalls,
    commands: mpsc::Sender<SipCommand>,
}

impl SipService {
    pub(super) fn new(
        addresses: Vec<Hop>,
        announced: IpAddr,
        bind: IpAddr,
        ports: PortRange,
    ) -> (Self, mpsc::Receiver<SipCommand>) {
        let (commands, receiver) = mpsc::channel(QUEUE);
        (Self { addresses, announced, bind, ports, named: NamedCalls::default(), commands }, receiver)
    }

    /// First address of the signalling.
    pub(in crate::server) fn address(&self) -> Option<SocketAddr> {
        self.addresses.first().map(|hop| hop.address)
    }

    /// Accepts a call.
    pub(super) async fn accept(&self, key: CallKey, sound: LocalSound) -> Result<(CallMedia, Line), UnknownCall> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(SipCommand::Accept(key, sound, reply)).await.map_err(|_| UnknownCall)?;
        answer.await.map_err(|_| UnknownCall)?
    }

    /// Calls a number at the trunk.
    pub(super) async fn call(&self, number: String, sound: LocalSound) -> Result<Dialled, DialError> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(SipCommand::Call(number, sound, reply)).await.map_err(|_| DialError::NoTrunk)?;
        answer.await.map_err(|_| DialError::NoTrunk)?
    }

    /// Refuses a call.
    pub(super) async fn reject(&self, key: CallKey, refusal: Refusal) {
        // Without the signalling there is no call.
        let _ = self.commands.send(SipCommand::Reject(key, refusal)).await;
    }

    /// Asks the other side of a call to call `target` in our place.
    pub(super) async fn refer(&self, key: CallKey, target: String) -> Result<(), UnknownCall> {
        let (reply, answer) = oneshot::channel();
        self.commands.send(SipCommand::Refer(key, target, reply)).await.map_err(|_| UnknownCall)?;
        answer.await.map_err(|_| UnknownCall)?
    }

    /// Withdraws the registration at an exchange, and waits for its answer, but not long.
    pub(in crate::server) async fn withdraw(&self) {
        let (reply, withdrawn) = oneshot::channel();
        let withdraw = async {
            let _ = self.commands.send(SipCommand::Withdraw(reply)).await;
            let _ = withdrawn.await;
        };
        if timeout(WITHDRAW, withdraw).await.is_err() {
            tracing::warn!("sip.registrar does not answer the end of the registration");
        }
    }

    /// Ends a call, and waits until the end is sent.
    pub(super) async fn hang_up(&self, key: CallKey) {
        let (reply, sent) = oneshot::channel();
        let _ = self.commands.send(SipCommand::HangUp(key, reply)).await;
        let _ = sent.await;
    }
}
