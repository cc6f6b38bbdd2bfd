//! Attacks within calls over WebRTC that are connected: events over the data channel, and sound faster than time.

use std::time::{Duration, Instant};

use anyhow::Result;
use bytes::Bytes;
use serde_json::json;

use super::victim::Victim;
use crate::speech::Frame;
use crate::target::{Target, TargetArguments};
use crate::transport::network::Impairment;
use crate::transport::webrtc::WebRtcTransport;

/// Time for a call to connect.
const CONNECTS: Duration = Duration::from_secs(10);
/// Time for which an attacker reads between two bursts.
const READS: Duration = Duration::from_millis(1);
/// Silence of 20 ms, as Opus.
const SILENCE: &[u8] = &[0xf8, 0xff, 0xfe];

/// Events of a few bytes over the data channel, each of them answered by an error.
pub fn channel_events(victim: &Victim) -> Result<()> {
    let event = json!({"type": "a"});
    flood(victim, |call| (0..50).try_for_each(|_| call.send_event(&event)))
}

/// Packets of sound in calls of their own, encrypted as they should be, and much faster than time.
pub fn rtp_rush(victim: &Victim) -> Result<()> {
    let frame = Frame { opus: Bytes::from_static(SILENCE), pcm: String::new(), mulaw: Bytes::new() };
    flood(victim, |call| (0..200).try_for_each(|_| call.send_frame(&frame)))
}

/// Makes four calls, and sends bursts over each to the end.
fn flood(victim: &Victim, send: impl Fn(&mut WebRtcTransport) -> Result<()> + Sync) -> Result<()> {
    let victim = victim.with_ephemeral_key()?;
    victim.repeat(4, |victim, caller| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let arguments = TargetArguments { key: Some(victim.key.clone()), ..TargetArguments::default() };
            let target = Target::resolve(&format!("http://{}", victim.address), &arguments).await?;
            let patience = Instant::now() + CONNECTS;
            let mut call = WebRtcTransport::call(&target, caller, &Impairment::default(), 1, patience).await?;
            while !victim.is_over() {
                // A full buffer means that the server reads slowly, as it may.
                let _ = send(&mut call);
                while call.next(Instant::now() + READS).await?.is_some() {}
            }
            Ok(())
        })
    });
    Ok(())
}
