//! Feed-forward block of a layer: one gated network, or experts.

use repartee_kernels::{Activation, Ops, RouterShape};

use super::shape::DecoderShape;
use crate::models::load_error::LoadError;
use crate::models::parts::weights::Weights;

/// Form of a layer's feed-forward block.
#[derive(Debug, Clone, Copy)]
pub enum FeedForward {
    /// One gated network of this inner width.
    Dense(usize),
    /// Experts chosen by a router.
    Experts {
        /// Number of experts.
        count: usize,
        /// Inner width of each expert.
        inner: usize,
        /// Rule by which experts are chosen.
        router: RouterShape,
        /// Inner width of the shared expert, which every row passes; `None` without one.
        shared: Option<usize>,
    },
}

/// A gated network.
pub struct Gated<O: Ops> {
    gate_up: O::Weight,
    down: O::Weight,
    /// Inner width if the gate is a GELU; `None` for a SiLU.
    gelu: Option<usize>,
}

impl<O: Ops> Gated<O> {
    fn load(w: &Weights<'_, O>, names: [&str; 3], hidden: usize, inner: usize) -> Result<Self, LoadError> {
        let [gate, up, down] = names.map(|name| format!("{name}.weight"));
        Ok(Self {
            gate_up: w.linears(&[(&gate, inner), (&up, inner)], hidden)?,
            down: w.linear(&down, hidden, inner)?,
            gelu: None,
        })
    }

    fn forward(&self, ops: &O, x: &O::T) -> O::T {
        let both = ops.linear(x, &self.gate_up, None);
        let inner = match self.gelu {
            None => ops.silu_mul(&both),
            Some(inner) => {
                let gate = ops.activation(ops.narrow(&both, 0, inner), Activation::GeluTanh);
                ops.mul(gate, &ops.narrow(&both, inner, inner))
            }
        };
        ops.linear(&inner, &self.down, None)
    }
}

/// Loaded feed-forward block of a layer.
pub enum FeedForwardBlock<O: Ops> {
    /// One gated network.
    Dense(Gated<O>),
    /// Experts chosen by a router.
    Experts {
        /// Matrix of the router.
        router: O::Weight,
        /// Gate and up matrices of all experts.
        gate_up: O::Weight,
        /// Down matrices of all experts.
        down: O::Weight,
        /// Rule by which experts are chosen.
        spec: RouterShape,
        /// Expert that every row passes, and its gate.
        shared: Option<(Gated<O>, O::Weight)>,
    },
}

impl<O: Ops> FeedForwardBlock<O> {
    /// Loads the block of a layer, whose prefix is that of `w`.
    pub fn load(w: &Weights<'_, O>, shape: &DecoderShape, form: FeedForward) -> Result<Self, LoadError> {
        let (hidden, mlp) = (shape.hidden, w.at("mlp"));
        Ok(match form {
            FeedForward::Dense(inner) => {
                let gelu = shape.style.gelu.then_some(inner);
                Self::Dense(Gated { gelu, ..Gated::load(w, shape.names.feed_forward, hidden, inner)? })
            }
            FeedForward::Experts { count, inner, router, shared } => Self::Experts {
                router: mlp.router("gate.weight", count, hidden)?,
                gate_up: mlp.experts(
                    &["experts.{}.gate_proj.weight", "experts.{}.up_proj.weight"],
                    count,
                    inner,
                    hidden,
                )?,
                down: mlp.experts(&["experts.{}.down_proj.weight"], count, hidden, inner)?,
                spec: router,
                shared: match shared {
                    Some(inner) => Some((
                        Gated::load(&mlp.at("shared_expert"), ["gate_proj", "up_proj", "down_proj"], hidden, inner)?,
                        mlp.router("shared_expert_gate.weight", 1, hidden)?,
                    )),
                    None => None,
                },
            },
        })
    }

    /// Runs rows through the block.
    pub fn forward(&self, ops: &O, x: &O::T) -> O::T {
        match self {
            Self::Dense(gated) => gated.forward(ops, x),
            Self::Experts { router, gate_up, down, spec, shared } => {
                let routed = ops.experts(x, router, gate_up, down, *spec);
                match shared {
                    None => routed,
                    Some((expert, gate)) => {
                        let shared = ops.sigmoid_gate(expert.forward(ops, x), &ops.linear(x, gate, None));
                        ops.add(routed, &shared)
                    }
                }
            }
        }
    }
}
