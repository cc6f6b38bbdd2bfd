//! Inverse frequencies of rotary embeddings, computed once for a device.

use std::sync::{Arc, Mutex, PoisonError};

use super::memory::DeviceMemory;
use super::stream::DeviceStream;

/// Inverse frequencies by head width and base. Clones share them.
#[derive(Clone, Default)]
pub struct CachedFrequencies(Arc<Mutex<Vec<Frequencies>>>);

/// Inverse frequencies of one head width and base.
struct Frequencies {
    head_dim: usize,
    theta: f32,
    numbers: Arc<DeviceMemory>,
}

impl CachedFrequencies {
    /// Returns inverse frequencies `[head_dim / 2]`; the first call with these sizes computes them.
    pub(super) fn get(&self, queue: &DeviceStream, head_dim: usize, theta: f32) -> Arc<DeviceMemory> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = known.iter().find(|one| one.head_dim == head_dim && one.theta == theta) {
            return one.numbers.clone();
        }
        let frequency = |i: usize| 1.0 / theta.powf((2 * i) as f32 / head_dim as f32);
        let numbers: Vec<f32> = (0..head_dim / 2).map(frequency).collect();
        let numbers = Arc::new(queue.memory_of(&numbers));
        known.push(Frequencies { head_dim, theta, numbers: numbers.clone() });
        numbers
    }
}
