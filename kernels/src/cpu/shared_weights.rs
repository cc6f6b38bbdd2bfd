//! Weights that several models on one processor share: a model that is loaded more than once keeps its weights once.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::weight::WeightData;

/// Weights of the models that were loaded so far, without keeping them alive. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct SharedWeights(Arc<Mutex<WeightsByKind>>);

type WeightsByKind = HashMap<Discriminant<WeightData>, Vec<Weak<WeightData>>>;

impl SharedWeights {
    /// Number of different weights of the models that there are.
    pub fn weights(&self) -> usize {
        let weights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        weights.values().flatten().filter(|weight| weight.strong_count() > 0).count()
    }

    /// Returns an equal weight that a model has; otherwise keeps the new one.
    pub(super) fn keep(&self, new: Arc<WeightData>) -> Arc<WeightData> {
        let mut weights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let alike = weights.entry(discriminant(&*new)).or_default();
        // Weights differ in their sizes or in their first numbers, so a comparison is short, but for the equal one.
        if let Some(found) = alike.iter().filter_map(Weak::upgrade).find(|weight| *weight == new) {
            return found;
        }
        alike.push(Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vector(numbers: &[f32]) -> Arc<WeightData> {
        Arc::new(WeightData::Vector(numbers.to_vec()))
    }

    #[test]
    fn equal_weights_are_kept_once() {
        let shared = SharedWeights::default();
        let first = shared.keep(vector(&[1.0, 2.0]));
        let other = shared.keep(vector(&[1.0, 3.0]));
        assert!(!Arc::ptr_eq(&first, &other));
        assert!(Arc::ptr_eq(&first, &shared.clone().keep(vector(&[1.0, 2.0]))));
        assert!(Arc::ptr_eq(&other, &shared.keep(vector(&[1.0, 3.0]))));
    }

    #[test]
    fn weights_of_ended_models_are_gone() {
        let shared = SharedWeights::default();
        let weight = shared.keep(vector(&[1.0]));
        assert_eq!(shared.weights(), 1);
        drop(weight);
        assert_eq!(shared.weights(), 0);
    }
}
