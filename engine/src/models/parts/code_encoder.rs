//! Sound to codes: an audio encoder, each two of its rows joined, and a residual quantizer.

use repartee_kernels::{Activation, Ops, ReadBack, RowSpec, WeightLayout};

use super::audio_encoder::layer::{NORM_EPS, norm};
use super::audio_encoder::shape::EncoderShape;
use super::audio_encoder::tower::AudioTower;
use super::codebook::Codebook;
use super::rows::{HostRows, in_step};
use super::weights::Weights;
use crate::model::WindowInput;
use crate::models::load_error::LoadError;

/// Rows of the encoder that become a frame of codes.
pub const JOINED: usize = 2;

/// The encoder with its quantizer.
pub struct CodeEncoder<O: Ops> {
    tower: AudioTower<O>,
    join: O::Weight,
    norm: (O::Weight, O::Weight),
    codebooks: Vec<Codebook<O>>,
}

impl<O: Ops> CodeEncoder<O> {
    /// Loads the encoder below `w`, with codebooks of these numbers of entries.
    pub fn load(w: &Weights<'_, O>, shape: EncoderShape, entries: &[usize]) -> Result<Self, LoadError> {
        let width = shape.layer.width;
        let codebook = |(at, entries): (usize, &usize)| {
            let w = w.at("quantizer.vq.layers").at(at).at("_codebook");
            Codebook::new(&w, w.values("embed", &[*entries, width])?, width)
        };
        let sizes = [width, width, JOINED];
        let join = w.at("down_sample_layer.0");
        Ok(Self {
            join: join.swapped(
                "weight",
                WeightLayout::Linear,
                &sizes,
                (width, width, JOINED),
                &[width, JOINED * width],
            )?,
            norm: norm(w, "down_sample_norm", width)?,
            codebooks: entries.iter().enumerate().map(codebook).collect::<Result<_, _>>()?,
            tower: AudioTower::load(w, shape)?,
        })
    }

    /// Encoder of the rows that are joined.
    pub fn tower(&self) -> &AudioTower<O> {
        &self.tower
    }

    /// Returns the encoder with another bound of multiplications in a unit of its tower's work.
    #[must_use]
    pub fn with_units(self, most: usize) -> Self {
        Self { tower: self.tower.with_units(most), ..self }
    }

    /// Multiplications behind the tower for a frame of codes.
    pub fn frame_work(&self) -> usize {
        let width = self.tower.shape().layer.width;
        let codebooks: usize = self.codebooks.iter().map(Codebook::entries).sum();
        (JOINED * width + codebooks) * width
    }

    /// Encodes a window of mel frames as rows, one for a frame of codes.
    pub fn encode(&self, ops: &O, mel: &[f32], spec: &mut RowSpec, back: &mut ReadBack) -> HostRows {
        let encoded = self.tower.encode(ops, &[WindowInput { data: mel, index: 0 }], spec, back);
        self.join(ops, encoded.concat(), spec, back)
    }

    /// Joins rows of the tower, from an even one on.
    pub fn join(&self, ops: &O, mut data: Vec<f32>, spec: &mut RowSpec, back: &mut ReadBack) -> HostRows {
        let width = self.tower.shape().layer.width;
        // A last row without a pair is joined with zeros.
        data.resize((data.len() / width).next_multiple_of(JOINED) * width, 0.0);
        let pairs = HostRows { width: JOINED * width, data };
        in_step(ops, &pairs, ("joined", 0), (spec, back), |ops, x| {
            let x = ops.activation(ops.linear(&x, &self.join, None), Activation::Gelu);
            ops.layer_norm(&x, &self.norm.0, &self.norm.1, NORM_EPS)
        })
    }

    /// Quantizes such rows; returns the codes of each.
    pub fn quantize(&self, ops: &O, mut encoded: HostRows, spec: &mut RowSpec, back: &mut ReadBack) -> Vec<Vec<u32>> {
        let mut codes = vec![Vec::with_capacity(self.codebooks.len()); encoded.count()];
        for (at, codebook) in self.codebooks.iter().enumerate() {
            let key = ("codebook", at);
            let products = in_step(ops, &encoded, key, (spec, back), |ops, x| ops.linear(&x, codebook.product(), None));
            let nearest = codebook.nearest(&mut encoded, &products.data);
            codes.iter_mut().zip(nearest).for_each(|(codes, code)| codes.push(code));
        }
        codes
    }
}
