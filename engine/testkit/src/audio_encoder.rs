//! Audio encoders with random weights.

use std::collections::BTreeMap;
use std::path::Path;

use repartee_engine::internals::Checkpoint;
use repartee_engine::internals::audio_encoder::layer::AudioLayerShape;
use repartee_engine::internals::audio_encoder::shape::{Convolutions, EncoderShape, Positions};
use repartee_engine::internals::audio_encoder::tower::AudioTower;
use repartee_engine::internals::weights::Weights;
use repartee_kernels::Ops;
use repartee_kernels::random::uniform;

/// Weights of an encoder by name: shape and numbers.
pub struct Tensors(pub BTreeMap<String, (Vec<usize>, Vec<f32>)>);

impl Tensors {
    /// Random weights of an encoder of this shape.
    pub fn random(shape: &EncoderShape) -> Self {
        let AudioLayerShape { width: d, inner, key_bias, .. } = shape.layer;
        let mut tensors = Self(BTreeMap::new());
        match shape.convolutions {
            Convolutions::Conv1d => {
                tensors.add_layer("conv1", &[d, shape.bins, 3], true);
                tensors.add_layer("conv2", &[d, d, 3], true);
            }
            Convolutions::Conv2d { channels: c } => {
                for (name, input) in [("conv2d1", 1), ("conv2d2", c), ("conv2d3", c)] {
                    tensors.add_layer(name, &[c, input, 3, 3], true);
                }
                tensors.add_layer("conv_out", &[d, c * shape.bins.div_ceil(8)], false);
            }
        }
        if let Positions::Table(name) = shape.positions {
            tensors.add(name, &[shape.convolutions.rows(shape.chunk), d], 0.0);
        }
        for layer in 0..shape.layers {
            let name = |part: &str| format!("layers.{layer}.{part}");
            for part in ["q_proj", "k_proj", "v_proj", "out_proj"] {
                tensors.add_layer(&name(&format!("self_attn.{part}")), &[d, d], part != "k_proj" || key_bias);
            }
            tensors.add_layer(&name("fc1"), &[inner, d], true);
            tensors.add_layer(&name("fc2"), &[d, inner], true);
            tensors.add_norm(&name("self_attn_layer_norm"), d);
            tensors.add_norm(&name("final_layer_norm"), d);
        }
        tensors.add_norm(shape.norm, d);
        let mut input = d;
        for &(name, out) in &shape.projection {
            tensors.add_layer(name, &[out, input], true);
            input = out;
        }
        tensors
    }

    fn add(&mut self, name: &str, shape: &[usize], around: f32) {
        let seed = self.0.len() as u64;
        let number = |i: usize| around + 0.6 * (uniform(seed, 0, i as u64, 0) - 0.5);
        self.0.insert(name.to_owned(), (shape.to_vec(), (0..shape.iter().product()).map(number).collect()));
    }

    fn add_layer(&mut self, name: &str, shape: &[usize], bias: bool) {
        self.add(&format!("{name}.weight"), shape, 0.0);
        if bias {
            self.add(&format!("{name}.bias"), &shape[..1], 0.0);
        }
    }

    fn add_norm(&mut self, name: &str, width: usize) {
        self.add(&format!("{name}.weight"), &[width], 1.0);
        self.add(&format!("{name}.bias"), &[width], 0.0);
    }

    /// Loads the encoder with these weights.
    pub fn load<O: Ops>(&self, ops: &O, shape: EncoderShape) -> AudioTower<O> {
        let tensors = self.0.iter().map(|(name, (shape, numbers))| (name.clone(), shape.clone(), numbers.clone()));
        AudioTower::load(&Weights::new(ops, &Checkpoint::converted(Path::new("random"), tensors)), shape).unwrap()
    }
}
