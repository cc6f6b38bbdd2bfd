//! One call's socket on the UDP mux.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use repartee_sdp::IceCredentials;

use super::connectivity::ConnectivityReport;
use super::credentials::random_credentials;
use super::demux::MuxEntry;
use super::ice::{IceOutput, LiteAgent};
use super::srtp_state::SrtpCounters;
use super::stun;
use super::udp_mux::{MuxShared, UdpMux};

/// One call's socket on the shared UDP socket. Dropping it removes the call from the mux.
pub(super) struct MuxedSocket {
    shared: Arc<MuxShared>,
    entry: Arc<MuxEntry>,
    ours: IceCredentials,
}

impl std::fmt::Debug for MuxedSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MuxedSocket").field("agent", &*self.entry.agent()).finish_non_exhaustive()
    }
}

impl MuxedSocket {
    /// Opens a socket for a call whose caller has the ICE credentials `theirs` and announces `ssrcs`.
    pub fn open(mux: &UdpMux, theirs: IceCredentials, ssrcs: Vec<u32>) -> Result<Self, getrandom::Error> {
        let (shared, ours) = (mux.shared(), random_credentials()?);
        let agent = LiteAgent::new(ours.clone(), theirs, ssrcs, shared.crypto());
        let entry = Arc::new(MuxEntry::new(ours.ufrag.clone(), agent));
        shared.demux().add(&entry);
        Ok(Self { shared, entry, ours })
    }

    /// Our ICE credentials, for the answer.
    pub fn credentials(&self) -> &IceCredentials {
        &self.ours
    }

    /// Counters of the call's SRTP packets.
    pub fn srtp(&self) -> Arc<SrtpCounters> {
        self.entry.srtp().clone()
    }

    /// Returns the progress of the connection so far.
    pub fn connectivity(&self) -> ConnectivityReport {
        self.entry.agent().connectivity()
    }

    /// Round trip to the caller, measured by STUN.
    pub fn round_trip(&self) -> Option<Duration> {
        self.entry.agent().round_trip()
    }

    /// Number of changes of the caller's address.
    pub fn address_changes(&self) -> u64 {
        self.entry.agent().address_changes()
    }

    /// Time since the caller's last datagram; `None` before the call has begun.
    pub fn silence(&self) -> Option<Duration> {
        self.entry.agent().silence(Instant::now())
    }

    /// Sends a connectivity check to a silent caller.
    pub fn check_liveness(&self) {
        let outputs = self.entry.agent().check_liveness(Instant::now());
        for output in outputs {
            if let IceOutput::Send(route, datagram) = output {
                self.shared.send(route, &datagram);
            }
        }
    }

    /// Sends a datagram of the call's connection to the caller's present address.
    pub fn send(&self, datagram: &[u8]) {
        if stun::is_stun(datagram) {
            // Keeps the agent locked, so that no datagram overtakes those that complete the pair.
            let mut agent = self.entry.agent();
            for reply in agent.on_library_stun(datagram) {
                self.shared.deliver(&self.entry, reply);
            }
            return;
        }
        let active = self.entry.agent().active();
        if let Some(route) = active {
            self.shared.send(route, datagram);
        }
    }

    /// Returns the arrival of an RTP packet at the socket; `None` if it is no longer stored.
    pub fn arrival(&self, ssrc: u32, sequence: u16) -> Option<Instant> {
        self.entry.arrival(ssrc, sequence)
    }

    /// Polls for the next datagram for the call's connection.
    pub fn poll_recv(&self, cx: &mut Context<'_>) -> Poll<Vec<u8>> {
        self.entry.poll_recv(cx)
    }
}

impl Drop for MuxedSocket {
    fn drop(&mut self) {
        self.shared.demux().remove(&self.entry);
        self.shared.count_refused(self.entry.srtp().refused());
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Waker;

    use super::super::ice::Route;
    use super::super::tests::bind_mux;
    use super::*;

    const TRIALS: usize = 300;

    #[tokio::test(flavor = "multi_thread")]
    async fn dtls_stays_behind_the_librarys_pair() {
        let mux = bind_mux();
        let shared = mux.shared();
        let crypto = shared.crypto();
        let theirs = IceCredentials { ufrag: "theirs".into(), password: "their-password-22-chars".into() };
        let check = stun::request([9; 12], "theirs:ours".into(), &theirs.password, crypto.crypto()).unwrap();
        let route = Route { remote: SocketAddr::from(([192, 0, 2, 1], 1)), local: None };
        for _ in 0..TRIALS {
            let socket = MuxedSocket::open(&mux, theirs.clone(), Vec::new()).unwrap();
            let (ours, now) = (socket.credentials(), Instant::now());
            let name = format!("{}:theirs", ours.ufrag);
            let nomination = stun::callers_request([1; 12], &name, &ours.password, true, crypto.crypto()).unwrap();
            mux.receive(route, &nomination, now);
            // The library's check is answered while the caller's DTLS arrives.
            let (together, answered) = (Barrier::new(2), AtomicBool::new(false));
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    together.wait();
                    socket.send(&check);
                    answered.store(true, Ordering::Release);
                });
                together.wait();
                while !answered.load(Ordering::Acquire) {
                    mux.receive(route, &[22, 254, 253], now);
                }
                mux.receive(route, &[22, 254, 253], now);
            });
            let mut cx = Context::from_waker(Waker::noop());
            let mut order = Vec::new();
            while let Poll::Ready(datagram) = socket.poll_recv(&mut cx) {
                order.push(stun::is_stun(&datagram));
            }
            let leading = order.iter().take_while(|is_stun| **is_stun).count();
            // The nomination, the answer to the check, and the nomination again.
            assert_eq!((leading, order.iter().filter(|is_stun| **is_stun).count()), (3, 3));
            assert!(order.len() > leading);
        }
    }
}
