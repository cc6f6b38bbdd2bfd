use super::*;

const FRAME: u64 = 256;

fn frame(level_db: f32, is_pitched: bool) -> Acoustics {
    Acoustics { level_db, is_pitched, ..Acoustics::SILENCE }
}

/// Ends of the evidence found after each frame of sound that the network takes for a voice, in frames.
fn found(frames: &[Acoustics]) -> Vec<u64> {
    let mut evidence = TurnEvidence::default();
    let push = |(at, frame): (u64, &Acoustics)| evidence.push(*frame, true, (at + 1) * FRAME);
    (0..).zip(frames).filter_map(push).map(|end| end / FRAME).collect()
}

/// A peak of `frames` at `peak_db` after and before 20 frames of -60 dBFS.
fn peak(peak_db: f32, is_pitched: bool, frames: usize) -> Vec<Acoustics> {
    let low = vec![frame(-60.0, false); 20];
    [low.clone(), vec![frame(peak_db, is_pitched); frames], low].concat()
}

#[test]
fn peaks_with_a_pitch_are_evidence() {
    assert_eq!(found(&peak(-50.0, true, 10)), [30; 20]);
    assert_eq!(found(&peak(-52.0, true, 10)), [0; 0], "noise varies as much");
    assert_eq!(found(&peak(-50.0, false, 10)), [0; 0]);
    assert_eq!(found(&peak(-44.0, false, 10)), [30; 20], "a loud fricative");
}

#[test]
fn noise_that_begins_is_no_evidence() {
    let noise = [vec![frame(-90.0, false); 60], vec![frame(-40.0, true); 200]].concat();
    assert_eq!(found(&noise), [0; 0], "it does not fall");
    let ends = [vec![frame(-40.0, true); 200], vec![frame(-90.0, false); 60]].concat();
    assert_eq!(found(&ends), [0; 0], "it did not rise lately");
}

#[test]
fn tones_are_no_evidence() {
    let tone = |from: usize, tonal_frames: usize| {
        let mut frames = peak(-40.0, true, 16);
        frames[from..36].iter_mut().for_each(|frame| (frame.is_tone, frame.tonal_frames) = (true, tonal_frames));
        found(&frames)
    };
    assert_eq!(tone(24, 2), [0; 0], "known after four frames");
    assert_eq!(tone(26, 2), [22; 20], "what was before the tone counts");
    assert_eq!(tone(26, LASTING_TONE), [0; 0], "and belongs to one that lasts");
}

#[test]
fn evidence_needs_the_network() {
    let mut evidence = TurnEvidence::default();
    assert!(peak(-40.0, true, 10).iter().all(|frame| evidence.push(*frame, false, FRAME).is_none()));
}
