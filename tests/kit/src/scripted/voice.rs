//! The scripted voice: a rising tone whose pitch encodes the position. The check of a recording finds missing, doubled
//! and swapped parts, also after a lossy codec.

use std::f64::consts::TAU;

use super::script::{FRAME_SAMPLES, OUTPUT_RATE};

/// Pitch at the beginning of a sweep, in Hz.
const LOW_HZ: f64 = 400.0;
/// Rise of the pitch, in Hz per second.
const RISE_HZ: f64 = 800.0;
/// Duration of a sweep, after which the next one begins: that of the longest judged answer. It has a whole number of
/// periods, so there is no click between two sweeps.
const SWEEP_S: f64 = 4.0;
const SWEEP_MS: f64 = SWEEP_S * 1_000.0;
/// Samples of one analysed stretch: half a packet, so that a single packet is noticed.
const STRETCH: usize = OUTPUT_RATE as usize / 100;
/// Samples from one stretch to the next.
const STEP: usize = STRETCH / 4;
/// Root mean square above which a stretch is voice; the voice has half of full scale.
const LOUD: f32 = 0.1;
/// Largest change of the delay that a codec's effect on the pitch can cause, in ms.
const SAME_MS: f64 = 6.0;
/// Stretches of a median filter.
const MEDIAN: usize = 5;
/// Largest ratio of the longest period of a stretch to the shortest; beyond it the stretch contains a cut.
const UNEVEN: f64 = 1.1;

/// Returns frame `index` of the voice, at half of full scale.
pub fn voice(index: u64) -> Vec<f32> {
    voice_at(index, OUTPUT_RATE)
}

/// Returns frame `index` of the voice at a rate in Hz of which a frame has a whole number of samples.
pub fn voice_at(index: u64, rate: u32) -> Vec<f32> {
    let frame = FRAME_SAMPLES * rate as usize / OUTPUT_RATE as usize;
    let start = index as usize * frame;
    (start..start + frame)
        .map(|sample| {
            let time = sample as f64 / f64::from(rate) % SWEEP_S;
            ((time * (LOW_HZ + time * RISE_HZ / 2.0) * TAU).sin() * 0.5) as f32
        })
        .collect()
}

/// Returns the voice position at the middle of `stretch`, in ms from the beginning of its sweep; `None` without a
/// single pitch.
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
    // The mean pitch between two moments is the pitch at their middle.
    let pitch = (rises.len() - 1) as f64 * rate / (last - first);
    let off_middle = (stretch.len() as f64 - first - last) / 2.0 / rate;
    Some(((pitch - LOW_HZ) / RISE_HZ + off_middle) * 1_000.0)
}

/// Position of the voice in a recording, and its faults.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct VoiceTrace {
    /// Voice position at its beginning, in ms.
    pub first_ms: f64,
    /// Voice position at its end, in ms.
    pub last_ms: f64,
    /// Total skipped duration, in ms.
    pub missing_ms: f64,
    /// Total added duration, in ms: repetitions, stretches and pauses.
    pub added_ms: f64,
}

impl VoiceTrace {
    /// Traces the voice through `sound` at [`OUTPUT_RATE`]; `None` without a voice.
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

/// Returns the middle of each loud stretch and its voice position, both in ms.
fn parts(sound: &[f32]) -> Vec<(f64, f64)> {
    let mut parts = Vec::new();
    let mut delay = None;
    for (index, stretch) in sound.windows(STRETCH).step_by(STEP).enumerate() {
        if loudness(stretch) < LOUD {
            continue;
        }
        let Some(part) = position_ms(stretch) else { continue };
        let middle = (index * STEP + STRETCH / 2) as f64 * 1_000.0 / f64::from(OUTPUT_RATE);
        // Chooses the sweep that is due.
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

    /// Returns the voice in packets of 20 ms.
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
