//! Parity of the turn-detection model and its features with onnxruntime, on recorded questions; `smart_turn/parity.py`
//! writes the expected values.

use std::path::{Path, PathBuf};
use std::time::Duration;

use repartee_engine::TurnModel;
use repartee_engine::internals::smart_turn::FeatureExtractor;
use repartee_engine_testkit::root;
use repartee_media::sound_file;
use serde::Deserialize;

/// Tolerance for sums in another order.
const TOLERANCE: f32 = 2e-3;

#[derive(Deserialize)]
struct Expected {
    model: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    question: String,
    share: f64,
    probability: f32,
    features: Vec<(usize, usize, f32)>,
}

/// Path of the model, in a package that is installed for the conformance tests.
fn model(name: &str) -> Option<PathBuf> {
    let file = Path::new("site-packages/pipecat/audio/turn/smart_turn/data").join(name);
    let pythons = std::fs::read_dir(root().join("target/tools/clients/lib")).ok()?;
    pythons.flatten().map(|python| python.path().join(&file)).find(|path| path.exists())
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("smart_turn/parity.json")).unwrap()
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
fn features_equal_the_reference() {
    let features = FeatureExtractor::new(800, 80).unwrap();
    for case in expected().cases {
        let found = features.extract(&case.sound());
        for (frame, bin, wanted) in &case.features {
            let found = found[frame * 80 + bin];
            let what = format!("{} of {}, frame {frame}, bin {bin}", case.share, case.question);
            assert!((found - wanted).abs() < TOLERANCE, "{what}: {found}, expected {wanted}");
        }
    }
}

#[test]
fn probabilities_equal_onnxruntime() {
    let expected = expected();
    let Some(path) = model(&expected.model) else {
        println!("skipped: there is no {}; `scripts/setup.sh tests` installs it", expected.model);
        return;
    };
    let model = TurnModel::load(&path).unwrap();
    for case in expected.cases {
        let (found, wanted) = (model.probability(&case.sound()), case.probability);
        println!("{:<20} {:.1} {found:.6} {wanted:.6}", case.question, case.share);
        assert!((found - wanted).abs() < TOLERANCE, "{} of {}: {found}, expected {wanted}", case.share, case.question);
    }
}
