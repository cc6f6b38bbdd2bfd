//! Parity of the project's own turn-detection network with torch on the same weights, on recorded questions;
//! `turn_net/parity.py` writes the expected values.

use std::time::Duration;

use repartee_engine::TurnModel;
use repartee_engine::internals::turn_net::{FRAMES, TurnNet};
use repartee_engine_testkit::root;
use repartee_kernels::cpu::Cpu;
use repartee_media::sound_file;
use serde::Deserialize;

/// Tolerance for sums in another order.
const TOLERANCE: f32 = 2e-3;

#[derive(Deserialize)]
struct Expected {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    question: String,
    share: f64,
    probability: f32,
    features: Vec<(usize, usize, f32)>,
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("turn_net/parity.json")).unwrap()
}

impl Case {
    /// The first part of the question, followed by 200 ms of silence.
    fn sound(&self) -> Vec<f32> {
        let file = root().join(format!("tests/questions/{}.wav", self.question));
        let mut sound = sound_file::read(&std::fs::read(file).unwrap()[..], 16_000, Duration::from_secs(30)).unwrap();
        sound.truncate((sound.len() as f64 * self.share) as usize);
        sound.extend([0.0; 3_200]);
        sound
    }
}

#[test]
fn features_equal_torch() {
    let network = TurnNet::load(&Cpu::default()).unwrap();
    for case in expected().cases {
        let features = network.features(&case.sound());
        let channels = features.len() / FRAMES;
        for &(frame, channel, value) in &case.features {
            let ours = features[frame * channels + channel];
            let (question, share) = (&case.question, case.share);
            assert!((ours - value).abs() < TOLERANCE, "{question} {share} [{frame}, {channel}]: {ours} for {value}");
        }
    }
}

#[test]
fn probabilities_equal_torch() {
    let model = TurnModel::embedded().unwrap();
    for case in expected().cases {
        let ours = model.probability(&case.sound());
        let Case { question, share, probability, .. } = case;
        assert!((ours - probability).abs() < TOLERANCE, "{question} {share}: {ours} for {probability}");
    }
}

#[test]
fn any_sound_has_a_probability() {
    let model = TurnModel::embedded().unwrap();
    for sound in [vec![], vec![0.5], vec![0.0; 100_000], vec![1.0; 30_000], vec![-1.0; 51_200]] {
        let probability = model.probability(&sound);
        assert!((0.0..=1.0).contains(&probability), "{} samples: {probability}", sound.len());
    }
}
