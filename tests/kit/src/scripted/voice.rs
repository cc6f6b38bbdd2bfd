//! The scripted voice: a rising tone, so that its pitch says which part of it is heard. A recording of it is checked for what is
//! missing, doubled or out of order, also after a codec that leaves no sample as it was.

use std::f64::consts::TAU;

use super::{FRAME_SAMPLES, OUTPUT_RATE};

/// Pitch at the beginning of a sweep, in Hz.
const LOW_HZ: f64 = 400.0;
/// How fast the pitch rises, in Hz a second.
const RISE_HZ: f64 = 800.0;
/// Length of a sweep, after which the next one begins: as long as the longest answer that is judged. A whole number of periods, so
/// that there is no click between two sweeps.
const SWEEP_S: f64 = 4.0;
const SWEEP_MS: f64 = SWEEP_S * 1_000.0;
/// Samples of one stretch that is judged: half a packet, so that a packet by itself is noticed.
const STRETCH: usize = OUTPUT_RATE as usize / 100;
/// From one stretch to the next.
const STEP: usize = STRETCH / 4;
/// Above this root mean square it is the voice: it speaks at half of full scale.
const LOUD: f32 = 0.1;
/// Delays that differ by less are the same: what a codec does to the pitch of a stretch.
const SAME_MS: f64 = 6.0;
/// Stretches of which the middle one counts.
const MEDIAN: usize = 5;
/// How many times as long as the shortest period of a stretch the longest may be. They are evener, except where the stretch is cut.
const UNEVEN: f64 = 1.1;

/// Frame `index` of the voice, at half of full scale.
pub fn voice(index: u64) -> Vec<f32> {
    let start = index as usize * FRAME_SAMPLES;
    (start..start + FRAME_SAMPLES)
        .map(|sample| {
            let time = sample as f64 / f64::from(OUTPUT_RATE) % SWEEP_S;
            ((time * (LOW_HZ + time * RISE_HZ / 2.0) * TAU).sin() * 0.5) as f32
        })
        .collect()
}

/// Which part of the voice the middle of `stretch` is, in ms from the beginning of its sweep; `None` where nothing has one pitch.
fn position_ms(stretch: &[f32]) -> Option<f64> {
    let rises: Vec<f64> = (1..stretch.len())
        .filter(|&i| stretch[i - 1] < 0.0 && stretch[i] >= 0.0)
        .map(|i| i as f64 - f64::from(stretch[i] / (stretch[i] - stretch[i - 1])))
        .collect();
    let [first, _, .., last] = rises[..] else { return None };
    let periods = rises.windows(2).map(|pair| pair[1] - pair[0]);
    let (shortest, longest) =
        periods.fold((f64::MAX, 0.0_f64), |(low, high), period| (low.min(period), high.max(period)));
    if longest > shortest * UNEVEN {
        return None;
    }
    let rate = f64::from(OUTPUT_RATE);
    // The mean pitch between two moments is that of the moment in the middle.
    let pitch = (rises.len() - 1) as f64 * rate / (last - first);
    let off_middle = (stretch.len() as f64 - first - last) / 2.0 / rate;
    Some(((pitch - LOW_HZ) / RISE_HZ + off_middle) * 1_000.0)
}

/// What a recording holds of the voice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VoiceTrace {
    /// The part with which it begins, in ms.
    pub first_ms: f64,
    /// The part with which it ends, in ms.
    pub last_ms: f64,
    /// All that was skipped, in ms.
    pub missing_ms: f64,
    /// All that is more than the voice, in ms: said again, stretched, or a pause.
    pub added_ms: f64,
}

impl VoiceTrace {
    /// Follows the voice through `sound` at [`OUTPUT_RATE`]; `None` where there is no voice.
    pub fn of(sound: &[f32]) -> Option<Self> {
        let parts = parts(sound);
        let ((begin, _), (end, _)) = (*parts.first()?, *parts.last()?);
        let delays: Vec<f64> = parts.iter().map(|(time, part)| time - part).collect();
        let mut delay = median(delays.get(..MEDIAN)?);
        let mut trace = Self { first_ms: begin - delay, last_ms: 0.0, missing_ms: 0.0, added_ms: 0.0 };
        for window in delays.windows(MEDIAN) {
            let change = median(window) - delay;
            if change.abs() > SAME_MS {
                delay += change;
                trace.added_ms += change.max(0.0);
                trace.missing_ms += (-change).max(0.0);
            }
        }
        trace.last_ms = end - delay;
        Some(trace)
    }
}

/// The middle of each loud stretch, and the part of the voice that it is; both in ms.
fn parts(sound: &[f32]) -> Vec<(f64, f64)> {
    let mut parts = Vec::new();
    let mut delay = None;
    for (index, stretch) in sound.windows(STRETCH).step_by(STEP).enumerate() {
        if loudness(stretch) < LOUD {
            continue;
        }
        let Some(part) = position_ms(stretch) else { continue };
        let middle = (index * STEP + STRETCH / 2) as f64 * 1_000.0 / f64::from(OUTPUT_RATE);
        // Of all sweeps the one that is due.
        let due = middle - *delay.get_or_insert(middle - part);
        parts.push((middle, part + ((due - part) / SWEEP_MS).round() * SWEEP_MS));
    }
    parts
}

fn loudness(stretch: &[f32]) -> f32 {
    (stretch.iter().map(|sample| sample * sample).sum::<f32>() / stretch.len() as f32).sqrt()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: usize = OUTPUT_RATE as usize / 50;

    /// The voice in packets of 20 ms.
    fn packets(frames: u64) -> Vec<Vec<f32>> {
        let sound: Vec<f32> = (0..frames).flat_map(voice).collect();
        sound.chunks(PACKET).map(<[f32]>::to_vec).collect()
    }

    fn trace(packets: &[Vec<f32>]) -> VoiceTrace {
        let silence = vec![0.0; 4_800];
        VoiceTrace::of(&[&silence[..], &packets.concat(), &silence].concat()).unwrap()
    }

    #[test]
    fn whole_voice_has_nothing_missing_or_added() {
        // The second is longer than a sweep.
        for frames in [15, 60] {
            let trace = trace(&packets(frames));
            let length_ms = frames as f64 * 80.0;
            assert!(trace.first_ms.abs() < 10.0 && (trace.last_ms - length_ms).abs() < 10.0, "{trace:?}");
            assert_eq!((trace.missing_ms, trace.added_ms), (0.0, 0.0));
        }
    }

    #[test]
    fn missing_doubled_and_swapped_packets_are_noticed() {
        let whole = packets(15);
        let dropped: Vec<_> = whole.iter().enumerate().filter(|(i, _)| i % 10 != 5).map(|(_, p)| p.clone()).collect();
        let doubled: Vec<_> = whole[..8].iter().chain(&whole[7..]).cloned().collect();
        let paused: Vec<_> = [&whole[..8], &[vec![0.0; PACKET * 3]], &whole[8..]].concat();
        let mut swapped = whole.clone();
        swapped.swap(8, 9);
        let near = |found: f64, expected: f64| (found - expected).abs() < 5.0;
        let (dropped, doubled, paused) = (trace(&dropped), trace(&doubled), trace(&paused));
        assert!(near(dropped.missing_ms, 120.0) && dropped.added_ms == 0.0, "{dropped:?}");
        assert!(near(doubled.added_ms, 20.0) && doubled.missing_ms == 0.0, "{doubled:?}");
        assert!(near(paused.added_ms, 60.0) && paused.missing_ms == 0.0, "{paused:?}");
        let swapped = trace(&swapped);
        assert!(swapped.missing_ms > 30.0 && swapped.added_ms > 10.0, "{swapped:?}");
    }

    #[test]
    fn cut_ends_are_noticed() {
        let whole = packets(15);
        assert!(trace(&whole[1..]).first_ms > 10.0);
        assert!(trace(&whole[..59]).last_ms < 1_190.0);
        assert!(VoiceTrace::of(&[0.0; 9_600]).is_none());
    }
}
