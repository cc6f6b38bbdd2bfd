//! Voices of the family: three fixed ones and those enrolled from recordings.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use repartee_engine::internals::{FrontEnd, Voices};
use repartee_engine_api::{EnrolError, Recording};
use repartee_kernels::random::uniform;

use super::front_end::WaveFrontEnd;
use super::sizes::HIDDEN;

/// Names of the fixed voices.
const OWN: [&str; 3] = ["low", "middle", "high"];
/// Length of the shortest recording, in windows of the encoder.
const LEAST_WINDOWS: usize = 2;

/// Voices enrolled from recordings, shared with the speaker: the row that each adds to a response's first row.
#[derive(Clone, Default)]
pub struct Recorded(Arc<Mutex<BTreeMap<String, Vec<f32>>>>);

impl Recorded {
    /// Row of a voice.
    pub fn row(&self, name: &str) -> Vec<f32> {
        let own = OWN
            .iter()
            .position(|own| *own == name)
            .map(|voice| (0..HIDDEN as u64).map(|i| 4.0 * uniform(1, voice as u64, i, 0) - 2.0).collect());
        let recorded = || self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        own.or_else(recorded).unwrap_or_else(|| vec![0.0; HIDDEN])
    }
}

impl Voices for Recorded {
    fn names(&self) -> Vec<String> {
        let recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        OWN.iter().map(|name| (*name).to_owned()).chain(recorded.keys().cloned()).collect()
    }

    fn recording_rate(&self) -> Option<u32> {
        Some(WaveFrontEnd.rate())
    }

    fn enrol(&mut self, name: &str, recording: &Recording) -> Result<(), EnrolError> {
        let Recording { samples, text } = recording;
        let (mut stream, mut windows) = (WaveFrontEnd.stream(), Vec::new());
        stream.push(samples, &mut windows);
        if windows.len() < LEAST_WINDOWS || text.is_empty() {
            return Err(EnrolError::Recording { reason: "it is too short, or its text is missing".to_owned() });
        }
        let mut row = vec![0.0; HIDDEN];
        for (i, feature) in windows.iter().flat_map(|window| &window.data).enumerate() {
            row[i % HIDDEN] += feature / windows.len() as f32;
        }
        let mut recorded = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recorded.insert(name.to_owned(), row);
        Ok(())
    }

    fn remove_voice(&mut self, name: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name).is_some()
    }
}
