//! A stack of layers, and the norm after it.

use repartee_kernels::{Ops, StateSpec, WeightLayout};

use super::attention::{Attention, norm_weight};
use super::feed_forward::{FeedForward, FeedForwardBlock};
use super::shape::DecoderShape;
use super::short_conv::{ConvRows, ShortConv};
use crate::models::load_error::LoadError;
use crate::models::parts::rotary::RotaryScaling;
use crate::models::parts::weights::Weights;

/// Positions in a block of most caches: bytes kept once a block count as many for each of these.
const BLOCK: usize = 16;

/// Part of a layer in which rows see each other.
enum Mixer<O: Ops> {
    Attention(Attention<O>),
    Convolution(ShortConv<O>),
}

struct Layer<O: Ops> {
    input_norm: O::Weight,
    mixer: Mixer<O>,
    post_norm: O::Weight,
    mlp: FeedForwardBlock<O>,
    scales: Option<(O::Weight, O::Weight)>,
    result_norms: Option<(O::Weight, O::Weight)>,
}

/// Inverse frequencies of rotary positions.
struct Frequencies<O: Ops> {
    /// Of layers that attend to everything.
    all: O::Weight,
    /// Of [`DecoderShape::local`].
    local: Option<O::Weight>,
}

/// A stack of layers and the norm after it.
pub struct Decoder<O: Ops> {
    shape: DecoderShape,
    layers: Vec<Layer<O>>,
    /// `None` without positions.
    frequencies: Option<Frequencies<O>>,
    /// `None` if no norm follows.
    norm: Option<O::Weight>,
    /// Bytes of one number in keys and values.
    kv_number: usize,
}

impl<O: Ops> Decoder<O> {
    /// Loads the layers and the norm below `w`, by [`DecoderShape::names`]: in each of its layers the norms, the matrices of
    /// attention or of a short convolution, and those of the feed-forward block. `feed_forward` gives the block of each layer.
    pub fn load(
        w: &Weights<'_, O>,
        shape: DecoderShape,
        feed_forward: impl Fn(usize) -> FeedForward,
    ) -> Result<Self, LoadError> {
        let layers = (0..shape.layers)
            .map(|i| Layer::load(&w.at(shape.names.layers).at(i), (&shape, i), feed_forward(i)))
            .collect::<Result<_, _>>()?;
        let frequencies = shape.theta.map(|theta| Frequencies::load(w, &shape, theta)).transpose()?;
        let norm = |name: &str| norm_weight(w, &shape, &format!("{name}.weight"), shape.hidden);
        let norm = shape.names.last_norm.map(norm).transpose()?;
        Ok(Self { norm, layers, frequencies, shape, kv_number: w.ops().kv_number_bytes() })
    }

    /// Creates the cache of every layer, keys and values or the rows of a short convolution: `blocks` blocks of `block_len`
    /// positions.
    pub fn cache(&self, ops: &O, blocks: usize, block_len: usize) -> Vec<O::State> {
        let width = self.shape.attention.kv_heads * self.shape.attention.head_dim;
        let state = |layer: &Layer<O>| match &layer.mixer {
            Mixer::Attention(_) => ops.state(StateSpec::KeyValue { blocks, block_len, width }),
            Mixer::Convolution(conv) => conv.state(ops, blocks),
        };
        self.layers.iter().map(state).collect()
    }

    /// Rows that a short convolution sees, if some layers have one. Such layers need [`ConvRows`], and a cache that drops
    /// positions to the start of a block.
    pub fn conv_taps(&self) -> Option<usize> {
        self.shape.convolutions.map(|convolutions| convolutions.taps)
    }

    /// Bytes of one position in [`Decoder::cache`].
    pub fn position_bytes(&self) -> usize {
        let keys = 2 * self.shape.attention.kv_heads * self.shape.attention.head_dim * self.kv_number;
        let bytes = |layer: &Layer<O>| match &layer.mixer {
            Mixer::Attention(_) => keys,
            Mixer::Convolution(conv) => conv.block_bytes().div_ceil(BLOCK),
        };
        self.layers.iter().map(bytes).sum()
    }

    /// Runs all layers, none of which has a short convolution. Returns the rows before the last norm, and the rows that enter
    /// layer `tap`; `tap` equal to the number of layers means the rows after the last norm.
    pub fn forward(
        &self,
        ops: &O,
        x: O::T,
        cache: &mut [O::State],
        batch: &O::Batch,
        tap: Option<usize>,
    ) -> (O::T, Option<O::T>) {
        self.forward_with(ops, x, cache, (batch, None), tap)
    }

    /// [`Decoder::forward`] of layers with and without short convolutions.
    pub fn forward_with(
        &self,
        ops: &O,
        mut x: O::T,
        cache: &mut [O::State],
        (batch, rows): (&O::Batch, Option<&ConvRows<O>>),
        tap: Option<usize>,
    ) -> (O::T, Option<O::T>) {
        if let Some(factor) = self.shape.style.row_factor {
            x = ops.scale_all(x, factor);
        }
        let mut tapped = None;
        for (i, (layer, cache)) in self.layers.iter().zip(cache).enumerate() {
            if tap == Some(i) {
                tapped = Some(ops.copy(&x));
            }
            x = layer.forward(ops, x, &self.shape, |x| match &layer.mixer {
                Mixer::Attention(attention) => {
                    attention.forward(ops, x, cache, batch, (&self.shape, self.frequencies_of(attention)))
                }
                Mixer::Convolution(conv) => {
                    let rows = rows.expect("a step over short convolutions has their rows");
                    conv.forward(ops, x, cache, rows)
                }
            });
        }
        if tap == Some(self.layers.len()) {
            // The reference's last hidden state is the normed one.
            tapped = Some(self.norm(ops, &x));
        }
        (x, tapped)
    }

    /// Runs all layers, none of which has a short convolution, over rows that attend within consecutive segments, in both
    /// directions or causal; nothing is stored. `batch` has the rows' positions. Returns the rows after the last norm.
    pub fn forward_segments(&self, ops: &O, x: O::T, seen: (&O::Batch, &O::Index, bool)) -> O::T {
        let x = (0..self.layers.len()).fold(x, |x, at| self.segment_layer(ops, at, x, seen));
        self.norm(ops, &x)
    }

    /// Runs layer `at` of [`Decoder::forward_segments`].
    pub fn segment_layer(&self, ops: &O, at: usize, x: O::T, seen: (&O::Batch, &O::Index, bool)) -> O::T {
        let layer = &self.layers[at];
        layer.forward(ops, x, &self.shape, |x| match &layer.mixer {
            Mixer::Attention(attention) => {
                attention.forward_segments(ops, x, seen, (&self.shape, self.frequencies_of(attention)))
            }
            Mixer::Convolution(_) => unreachable!("short convolutions need a cache"),
        })
    }

    /// Frequencies that rotate the queries and keys of a layer.
    fn frequencies_of(&self, attention: &Attention<O>) -> Option<&O::Weight> {
        self.frequencies.as_ref().map(|frequencies| frequencies.of(attention.is_local))
    }

    /// Applies the norm after the last layer, if there is one.
    pub fn norm(&self, ops: &O, x: &O::T) -> O::T {
        match &self.norm {
            Some(norm) => ops.rms_norm(x, norm, self.shape.eps),
            None => ops.copy(x),
        }
    }
}

impl<O: Ops> Frequencies<O> {
    /// Computes the frequencies; a checkpoint may store their factors below `w`.
    fn load(w: &Weights<'_, O>, shape: &DecoderShape, theta: f32) -> Result<Self, LoadError> {
        let head_dim = shape.attention.head_dim;
        let pairs = head_dim / 2;
        let stored = match shape.scaling {
            RotaryScaling::Stored => w.values("rope_freqs.weight", &[pairs])?,
            _ => Vec::new(),
        };
        let made = |frequencies: &[f32]| w.made("rotary frequencies", WeightLayout::Vector, frequencies, &[pairs]);
        let local = shape.local.map(|local| made(&RotaryScaling::None.frequencies(head_dim, local.theta, &[])));
        Ok(Self { all: made(&shape.scaling.frequencies(head_dim, theta, &stored))?, local: local.transpose()? })
    }

    fn of(&self, is_local: bool) -> &O::Weight {
        self.local.as_ref().filter(|_| is_local).unwrap_or(&self.all)
    }
}

impl<O: Ops> Layer<O> {
    fn load(
        w: &Weights<'_, O>,
        (shape, at): (&DecoderShape, usize),
        feed_forward: FeedForward,
    ) -> Result<Self, LoadError> {
        let hidden = shape.hidden;
        let norm = |name: &str| norm_weight(w, shape, &format!("{name}.weight"), hidden);
        let [input, post] = shape.names.norms;
        // Gemma names the norm of attention's result as others name that before the feed-forward block.
        let (post_norm, result_norms) = if shape.style.result_norms {
            (norm("pre_feedforward_layernorm")?, Some((norm(post)?, norm("post_feedforward_layernorm")?)))
        } else {
            (norm(post)?, None)
        };
        let is_local = shape.local.is_some_and(|local| local.has(at));
        Ok(Self {
            input_norm: norm(input)?,
            mixer: match shape.convolutions.filter(|convolutions| convolutions.has(at)) {
                Some(convolutions) => Mixer::Convolution(ShortConv::load(w, hidden, convolutions.taps)?),
                None => Mixer::Attention(Attention::load(w, shape, is_local)?),
            },
            post_norm,
            result_norms,
            mlp: FeedForwardBlock::load(w, shape, feed_forward)?,
            scales: if shape.layer_scale {
                let scale = |name| w.vector(name, hidden);
                Some((scale("self_attn_layer_scale.scale")?, scale("mlp_layer_scale.scale")?))
            } else {
                None
            },
        })
    }

    fn forward(&self, ops: &O, x: O::T, shape: &DecoderShape, seen: impl FnOnce(&O::T) -> O::T) -> O::T {
        let mut h = seen(&ops.rms_norm(&x, &self.input_norm, shape.eps));
        if let Some((scale, _)) = &self.scales {
            h = ops.scale(h, scale);
        }
        if let Some((norm, _)) = &self.result_norms {
            h = ops.rms_norm(&h, norm, shape.eps);
        }
        let (x, normed) = ops.add_norm(h, &x, &self.post_norm, shape.eps);
        let mut h = self.mlp.forward(ops, &normed);
        if let Some((_, scale)) = &self.scales {
            h = ops.scale(h, scale);
        }
        if let Some((_, norm)) = &self.result_norms {
            h = ops.rms_norm(&h, norm, shape.eps);
        }
        ops.add(h, &x)
    }
}
