//! Parity of the features and the model with onnxruntime, on recorded questions; `data/parity.py` writes the expected
//! values.
#![allow(clippy::unwrap_used, reason = "a test ends where something is missing")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use repartee_media::wav;
use repartee_turn::TurnModel;
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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Path of the model, in a package that is installed for the conformance tests.
fn model(name: &str) -> Option<PathBuf> {
    let file = Path::new("site-packages/pipecat/audio/turn/smart_turn/data").join(name);
    let pythons = std::fs::read_dir(root().join("target/tools/clients/lib")).ok()?;
    pythons.flatten().map(|python| python.path().join(&file)).find(|path| path.exists())
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("data/parity.json")).unwrap()
}

impl Case {
    /// The first part of the question, followed by 200 ms of silence.
    fn sound(&self) -> Vec<f32> {
        let file = root().join(format!("tests/questions/{}.wav", self.question));
        let mut sound = wav::read(&std::fs::read(file).unwrap()[..], 16_000, Duration::from_secs(30)).unwrap();
        sound.truncate((sound.len() as f64 * self.share) as usize);
        sound.extend([0.0; 3_200]);
        sound
    }
}

#[test]
fn features_equal_the_reference() {
    for case in expected().cases {
        let found = repartee_turn::features(&case.sound());
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
