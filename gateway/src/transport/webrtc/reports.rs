//! RTCP receiver reports of the peer: loss, jitter and round trip of our audio (RFC 3550, 6.4).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rtc::interceptor::{Attribute, Interceptor, Packet, Slot, StreamInfo, TaggedPacket};
use rtc::rtcp::payload_feedbacks::receiver_estimated_maximum_bitrate::ReceiverEstimatedMaximumBitrate;
use rtc::rtcp::receiver_report::ReceiverReport;
use rtc::rtcp::reception_report::ReceptionReport;
use rtc::rtcp::sender_report::SenderReport;
use rtc::rtcp::transport_feedbacks::transport_layer_nack::TransportLayerNack;
use rtc::sansio::Protocol;
use rtc::shared::error::Error;

use super::srtp_state::SrtpCounters;
use super::unbound_input::UnboundInput;

/// RTP clock rate; for Opus always 48 kHz.
const CLOCK: f64 = 48_000.0;
/// Number of our sender reports that are stored, because the peer may refer to them.
const MAX_SENT: usize = 16;

/// Reception of our audio at the peer. Each figure is `None` until it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LinkQuality {
    /// Round trip from us to the peer and back.
    pub round_trip: Option<Duration>,
    /// Share of packets that the peer missed between its last two reports, 0 to 1.
    pub loss: Option<f64>,
    /// Interarrival jitter at the peer (RFC 3550, A.8).
    pub jitter: Option<Duration>,
    /// The peer's estimate of the available bitrate (REMB), in bits a second with all headers.
    pub available_bitrate: Option<u32>,
    /// Number of reports received.
    pub reports: u64,
}

/// The peer's reports about one SSRC of ours.
#[derive(Debug)]
pub(super) struct ReceiverReports {
    ssrc: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    quality: LinkQuality,
    /// Send times of our reports, by the middle 32 bits of their NTP timestamps.
    sent: VecDeque<(u32, Instant)>,
}

impl ReceiverReports {
    pub fn new(ssrc: u32) -> Self {
        Self { ssrc, state: Mutex::default() }
    }

    pub fn quality(&self) -> LinkQuality {
        self.state().quality
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Plain numbers: a panic cannot leave them half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the time of a sender report that leaves.
    fn on_sender_report(&self, report: &SenderReport, now: Instant) {
        let mut state = self.state();
        if state.sent.len() == MAX_SENT {
            state.sent.pop_front();
        }
        state.sent.push_back(((report.ntp_time >> 16) as u32, now));
    }

    /// Stores the peer's estimate of the available bitrate, in bits a second.
    fn on_remb(&self, bitrate: f32) {
        // The cast saturates; infinity and NaN are left out.
        self.state().quality.available_bitrate = bitrate.is_finite().then_some(bitrate as u32);
    }

    /// Evaluates a receiver report of the peer.
    fn on_receiver_report(&self, report: &ReceptionReport, now: Instant) {
        if report.ssrc != self.ssrc {
            return;
        }
        let mut state = self.state();
        state.quality.reports += 1;
        state.quality.loss = Some(f64::from(report.fraction_lost) / 256.0);
        state.quality.jitter = Duration::try_from_secs_f64(f64::from(report.jitter) / CLOCK).ok();
        let referred = state.sent.iter().find(|(stamp, _)| *stamp == report.last_sender_report);
        if let Some((_, left)) = referred.filter(|_| report.last_sender_report != 0) {
            let held = Duration::from_secs_f64(f64::from(report.delay) / 65_536.0);
            state.quality.round_trip = Some(now.saturating_duration_since(*left).saturating_sub(held));
        }
    }
}

/// Maximum burst of retransmissions. Each sent packet adds one more: a validated peer may still not make us send the
/// same packets without end.
const MAX_RETRANSMITS: u32 = 32;

/// Interceptor that sees every packet, reads RTCP, drops NACKs beyond the retransmission limit, and takes the audio of SSRCs
/// that the library would drop.
pub(super) struct RtcpObserver {
    /// Retransmissions allowed now.
    retransmit_tokens: u32,
    reports: Arc<ReceiverReports>,
    /// Counts every received packet: packets that get here are authentic.
    srtp: Arc<SrtpCounters>,
    unbound: UnboundInput,
    incoming: VecDeque<TaggedPacket>,
    outgoing: VecDeque<TaggedPacket>,
}

impl RtcpObserver {
    /// Nearer to the network than the interceptor that writes our reports; otherwise this one would not see them.
    pub const SLOT: Slot = Slot::Custom(500);

    pub fn new(reports: Arc<ReceiverReports>, srtp: Arc<SrtpCounters>, unbound: UnboundInput) -> Self {
        let (incoming, outgoing) = (VecDeque::new(), VecDeque::new());
        Self { retransmit_tokens: MAX_RETRANSMITS, reports, srtp, unbound, incoming, outgoing }
    }

    /// Admits a NACK if all its packets may be sent again.
    fn admit(&mut self, request: &TransportLayerNack) -> bool {
        let asked = request.nacks.iter().map(|pair| 1 + pair.lost_packets.count_ones()).sum();
        let admitted = self.retransmit_tokens.checked_sub(asked);
        self.retransmit_tokens = admitted.unwrap_or(self.retransmit_tokens);
        admitted.is_some()
    }
}

impl Protocol<TaggedPacket, TaggedPacket, ()> for RtcpObserver {
    type Rout = TaggedPacket;
    type Wout = TaggedPacket;
    type Eout = ();
    type Error = Error;
    type Time = Instant;

    fn handle_read(&mut self, mut message: TaggedPacket) -> Result<(), Error> {
        let ssrc = if let Packet::Rtp(packet) = &message.message.packet { Some(packet.header.ssrc) } else { None };
        self.srtp.count_accepted(ssrc);
        if ssrc.is_some_and(|ssrc| !self.unbound.is_bound(ssrc)) {
            if let Packet::Rtp(packet) = message.message.packet {
                self.unbound.queue(packet);
            }
            return Ok(());
        }
        if let Packet::Rtcp(packets) = &mut message.message.packet {
            packets.retain(|packet| match packet.as_any().downcast_ref::<TransportLayerNack>() {
                Some(request) => self.admit(request),
                None => true,
            });
            for packet in packets {
                let packet = packet.as_any();
                if let Some(estimate) = packet.downcast_ref::<ReceiverEstimatedMaximumBitrate>() {
                    self.reports.on_remb(estimate.bitrate);
                }
                let sender = packet.downcast_ref::<SenderReport>().map(|report| &report.reports);
                let receiver = packet.downcast_ref::<ReceiverReport>().map(|report| &report.reports);
                for report in sender.or(receiver).into_iter().flatten() {
                    self.reports.on_receiver_report(report, message.now);
                }
            }
        }
        self.incoming.push_back(message);
        Ok(())
    }

    fn poll_read(&mut self) -> Option<TaggedPacket> {
        self.incoming.pop_front()
    }

    fn handle_write(&mut self, message: TaggedPacket) -> Result<(), Error> {
        if let Packet::Rtp(_) = &message.message.packet
            && !message.message.has(&Attribute::Retransmission)
        {
            self.retransmit_tokens = MAX_RETRANSMITS.min(self.retransmit_tokens + 1);
        }
        if let Packet::Rtcp(packets) = &message.message.packet {
            for packet in packets {
                if let Some(report) = packet.as_any().downcast_ref::<SenderReport>() {
                    self.reports.on_sender_report(report, message.now);
                }
            }
        }
        self.outgoing.push_back(message);
        Ok(())
    }

    fn poll_write(&mut self) -> Option<TaggedPacket> {
        self.outgoing.pop_front()
    }
}

impl Interceptor for RtcpObserver {
    fn bind_local_stream(&mut self, _: &StreamInfo) {}
    fn unbind_local_stream(&mut self, _: &StreamInfo) {}

    fn bind_remote_stream(&mut self, stream: &StreamInfo) {
        self.unbound.bind(stream.ssrc);
    }

    fn unbind_remote_stream(&mut self, stream: &StreamInfo) {
        self.unbound.unbind(stream.ssrc);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use rtc::rtcp::transport_feedbacks::transport_layer_nack::NackPair;

    use super::super::call_state::CallState;
    use super::super::event::PeerEvent;
    use super::super::unbound_input::RtpInput;
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn report(ssrc: u32, last_sender_report: u32, held: Duration) -> ReceptionReport {
        ReceptionReport {
            ssrc,
            fraction_lost: 64,
            jitter: 480,
            last_sender_report,
            delay: (held.as_secs_f64() * 65_536.0) as u32,
            ..ReceptionReport::default()
        }
    }

    #[test]
    fn a_report_of_ours_gives_the_round_trip() {
        let reports = ReceiverReports::new(7);
        let begin = Instant::now();
        assert_eq!(reports.quality(), LinkQuality::default());
        let ours = SenderReport { ssrc: 7, ntp_time: 0x1234_5678_9abc_def0, ..SenderReport::default() };
        reports.on_sender_report(&ours, begin);
        reports.on_receiver_report(&report(7, 0x5678_9abc, 500 * MS), begin + 580 * MS);
        let quality = reports.quality();
        assert_eq!(quality.loss, Some(0.25));
        assert_eq!(quality.jitter, Some(10 * MS));
        assert_eq!(quality.round_trip.unwrap().as_millis(), 80);
    }

    #[test]
    fn unrelated_reports_measure_nothing() {
        let reports = ReceiverReports::new(7);
        let now = Instant::now();
        reports.on_receiver_report(&report(8, 0, MS), now);
        assert_eq!(reports.quality(), LinkQuality::default());
        reports.on_receiver_report(&report(7, 99, MS), now);
        assert_eq!(reports.quality().round_trip, None);
        // The peer has received no report of ours.
        reports.on_sender_report(&SenderReport::default(), now);
        reports.on_receiver_report(&report(7, 0, Duration::ZERO), now);
        assert_eq!(reports.quality().round_trip, None);
    }

    fn tagged(packet: Packet) -> TaggedPacket {
        TaggedPacket { now: Instant::now(), transport: Default::default(), message: packet.into() }
    }

    fn observer() -> RtcpObserver {
        let input = RtpInput { state: Arc::new(CallState::new().0), socket: None };
        RtcpObserver::new(Arc::new(ReceiverReports::new(7)), Arc::default(), UnboundInput::new(input))
    }

    #[test]
    fn unbound_ssrcs_go_past_the_library() {
        let (state, mut events) = CallState::new();
        let state = Arc::new(state);
        let input = UnboundInput::new(RtpInput { state: state.clone(), socket: None });
        let mut observer = RtcpObserver::new(Arc::new(ReceiverReports::new(7)), Arc::default(), input);
        let rtp = |ssrc| {
            let header = rtc::rtp::Header { ssrc, payload_type: 110, sequence_number: 9, ..Default::default() };
            tagged(Packet::Rtp(rtc::rtp::Packet { header, payload: Bytes::from_static(&[8]) }))
        };
        observer.bind_remote_stream(&StreamInfo { ssrc: 1, ..StreamInfo::default() });
        observer.handle_read(rtp(2)).unwrap();
        assert!(events.try_recv().is_none(), "the certificate is not checked yet");
        state.set_encrypted();
        state.set_connected();
        assert_eq!(events.try_recv(), Some(PeerEvent::Connected));
        for ssrc in [1, 2] {
            observer.handle_read(rtp(ssrc)).unwrap();
        }
        assert!(observer.poll_read().is_some() && observer.poll_read().is_none());
        let event = events.try_recv().unwrap();
        assert!(matches!(event, PeerEvent::Audio { ssrc: 2, payload_type: 110, sequence: 9, .. }), "{event:?}");
        assert!(events.try_recv().is_none());
    }

    #[test]
    fn requests_beyond_what_was_sent_are_dropped() {
        let mut observer = observer();
        // Each asks for 17 packets.
        let request = || {
            let nacks = vec![NackPair { packet_id: 1, lost_packets: u16::MAX }];
            tagged(Packet::Rtcp(vec![Box::new(TransportLayerNack { sender_ssrc: 1, media_ssrc: 7, nacks })]))
        };
        let passed = |observer: &mut RtcpObserver| {
            observer.handle_read(request()).unwrap();
            matches!(observer.poll_read().unwrap().message.packet, Packet::Rtcp(packets) if !packets.is_empty())
        };
        assert_eq!([passed(&mut observer), passed(&mut observer)], [true, false], "32 at once");
        for _ in 0..2 {
            let again = tagged(Packet::Rtp(rtc::rtp::Packet::default()));
            let again = TaggedPacket { message: again.message.with(Attribute::Retransmission), ..again };
            observer.handle_write(again).unwrap();
        }
        assert!(!passed(&mut observer), "what is sent again gives no credit");
        for _ in 0..2 {
            observer.handle_write(tagged(Packet::Rtp(rtc::rtp::Packet::default()))).unwrap();
        }
        assert_eq!([passed(&mut observer), passed(&mut observer)], [true, false], "one for each that was sent");
    }

    #[test]
    fn estimates_of_the_peer_are_kept() {
        let mut observer = observer();
        for (bitrate, available) in [(50_000.0, Some(50_000)), (1e30, Some(u32::MAX)), (f32::NAN, None)] {
            let estimate = ReceiverEstimatedMaximumBitrate { bitrate, ..Default::default() };
            observer.handle_read(tagged(Packet::Rtcp(vec![Box::new(estimate)]))).unwrap();
            assert_eq!(observer.reports.quality().available_bitrate, available);
        }
    }

    #[test]
    fn only_the_newest_sender_reports_are_kept() {
        let reports = ReceiverReports::new(7);
        let now = Instant::now();
        for stamp in 1..100_u64 {
            reports.on_sender_report(&SenderReport { ntp_time: stamp << 16, ..SenderReport::default() }, now);
        }
        assert_eq!(reports.state().sent.len(), MAX_SENT);
    }
}
