use super::*;

const FRAME: u64 = 256;
/// A syllable.
const VOICE: Acoustics = Acoustics {
    level_db: -30.0,
    above_floor_db: 30.0,
    above_near_floor_db: 30.0,
    is_pitched: true,
    ..Acoustics::SILENCE
};

/// Frames until a voice of 60 frames with `acoustics` begins a turn, if it does.
fn begins(probability: f32, acoustics: impl Fn(u64) -> Option<Acoustics>) -> Option<u64> {
    let mut onset = TurnOnset::NONE;
    (0..60)
        .find(|frame| onset.push(probability, 0.5, acoustics(*frame), frame * FRAME, FRAME) && onset.begins(0.5))
        .map(|frame| frame + 1)
}

#[test]
fn clear_voice_begins_after_64_ms() {
    assert_eq!(begins(0.9, |_| Some(VOICE)), Some(4));
    assert_eq!(begins(0.9, |_| None), Some(4), "by probabilities alone");
    assert_eq!(begins(0.6, |_| None), None, "none is clear");
}

#[test]
fn sound_near_the_floor_begins_none() {
    let noise = Acoustics { above_floor_db: 8.0, ..VOICE };
    assert_eq!(begins(0.9, |_| Some(noise)), None);
    let begin_of_noise =
        |frame| Acoustics { is_pitched: false, above_near_floor_db: if frame < 24 { 30.0 } else { 0.0 }, ..VOICE };
    assert_eq!(begins(0.9, |frame| Some(begin_of_noise(frame))), None);
}

#[test]
fn tones_begin_none() {
    assert_eq!(begins(0.9, |_| Some(Acoustics { is_tone: true, ..VOICE })), None);
    let tone = |frame| Acoustics { may_be_tone: true, is_tone: frame >= 13, ..VOICE };
    assert_eq!(begins(0.9, |frame| Some(tone(frame))), None, "known after 208 ms");
    assert_eq!(begins(0.9, |_| Some(Acoustics { may_be_tone: true, ..VOICE })), Some(14));
}

#[test]
fn whispers_begin_after_400_ms() {
    let whisper = Acoustics { is_pitched: false, ..VOICE };
    assert_eq!(begins(0.9, |_| Some(whisper)), Some(25));
    let one = |frame| if frame == 0 { VOICE } else { whisper };
    assert_eq!(begins(0.9, |frame| Some(one(frame))), Some(25), "one frame with a pitch may be chance");
    let two = |frame| if frame < 2 { VOICE } else { whisper };
    assert_eq!(begins(0.9, |frame| Some(two(frame))), Some(4));
}

#[test]
fn strong_pitch_makes_up_for_low_probability() {
    assert_eq!(begins(0.35, |_| Some(VOICE)), Some(8));
    assert_eq!(begins(0.25, |_| Some(VOICE)), None);
    assert_eq!(begins(0.35, |_| Some(Acoustics { above_floor_db: 11.0, ..VOICE })), None);
    assert_eq!(begins(0.35, |_| Some(Acoustics { may_be_tone: true, ..VOICE })), None);
}
