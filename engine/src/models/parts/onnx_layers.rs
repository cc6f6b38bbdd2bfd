//! Weights of an ONNX file under the names of a model's layers, which come in the order of their computation.

use std::collections::VecDeque;

use repartee_checkpoint::onnx::{OnnxGraph, OnnxLayer, OnnxLayerKind};

/// Name, shape and numbers of a tensor.
pub type NamedTensor = (String, Vec<usize>, Vec<f32>);

/// Layers that have no name yet.
#[derive(Debug)]
pub struct LayerReader {
    rest: VecDeque<OnnxLayer>,
    named: Vec<NamedTensor>,
}

impl LayerReader {
    /// Opens a file; `None` if it is not an ONNX graph.
    pub fn open(file: &[u8]) -> Option<Self> {
        Some(Self { rest: OnnxGraph::read(file)?.layers()?.into(), named: Vec::new() })
    }

    /// Layer `ahead` places after the next one.
    pub fn peek(&self, ahead: usize) -> Option<&OnnxLayer> {
        self.rest.get(ahead)
    }

    /// True if the next layer is of this kind, with a weight of so many axes.
    pub fn follows(&self, kind: OnnxLayerKind, axes: usize) -> bool {
        self.peek(0).is_some_and(|layer| layer.kind == kind && layer.weight.shape.len() == axes)
    }

    /// Names the next layer: `NAME.weight` and `NAME.bias`, which is zero for a layer without one. `None` if it is of another
    /// kind.
    pub fn take(&mut self, name: &str, kind: OnnxLayerKind) -> Option<()> {
        let OnnxLayer { weight, bias, .. } = self.rest.pop_front().filter(|layer| layer.kind == kind)?;
        let out = *weight.shape.first()?;
        let bias = bias.unwrap_or_else(|| vec![0.0; out]);
        self.named.push((format!("{name}.bias"), vec![bias.len()], bias));
        self.named.push((format!("{name}.weight"), weight.shape, weight.values));
        Some(())
    }

    /// Changes the tensor that was named last.
    pub fn last(&mut self) -> Option<&mut NamedTensor> {
        self.named.last_mut()
    }

    /// Returns the tensors; `None` if a layer is left.
    pub fn finish(self) -> Option<Vec<NamedTensor>> {
        self.rest.is_empty().then_some(self.named)
    }
}
