//! Layers of a graph in the order of their computation.
//!
//! An exporter folds a norm into the convolution before it and numbers the weights that it has changed. So names do not
//! tell the weights of such a file, but their order does. A batch norm that was left behind its convolution is folded here.

use std::collections::{HashMap, HashSet};

use super::graph::{Node, OnnxGraph, OnnxTensor};

/// Most numbers of all layers of a file: 2 GiB.
const MAX_NUMBERS: usize = 1 << 29;
/// Epsilon of a batch norm without one.
const EPSILON: f32 = 1e-5;

/// Kind of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnnxLayerKind {
    /// Convolution; its weight is `[out, in, taps..]`.
    Convolution,
    /// Product with a matrix, which is `[out, in]`.
    Product,
    /// Numbers that scale and shift the channels, of a norm of any kind.
    Scale,
}

/// Layer with its constants.
#[derive(Debug, Clone, PartialEq)]
pub struct OnnxLayer {
    /// Kind of the layer.
    pub kind: OnnxLayerKind,
    /// Weight, with the axes that its kind names.
    pub weight: OnnxTensor,
    /// Numbers that it adds, one for each output.
    pub bias: Option<Vec<f32>>,
}

impl<'a> OnnxGraph<'a> {
    /// Returns the convolutions, products, batch norms and layer norms whose weights the file has, in the order of the
    /// graph; `None` if there are more numbers than 2^29.
    pub fn layers(&self) -> Option<Vec<OnnxLayer>> {
        let mut users: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|input| users.entry(input).or_default().push(at));
        }
        // The one node that takes the output of a node.
        let user = |node: &Node<'a>| match users.get(node.outputs.first()?)?[..] {
            [at] => Some((at, &self.nodes[at])),
            _ => None,
        };
        let (mut layers, mut joined, mut numbers) = (Vec::new(), HashSet::new(), 0);
        for (at, node) in self.nodes.iter().enumerate().filter(|(_, node)| !node.inputs.is_empty()) {
            if joined.contains(&at) {
                continue;
            }
            let after = user(node);
            let layer = match node.kind {
                "Conv" => self.convolution(node, after).map(|(layer, folds)| (layer, folds.then_some(after).flatten())),
                "MatMul" => self.weighted(node, after),
                "Mul" => self.scaled(node, after),
                "BatchNormalization" => {
                    self.batch_norm(node).map(|[scale, shift]| (OnnxLayer::scale(scale, shift), None))
                }
                "LayerNormalization" => self.layer_norm(node).map(|layer| (layer, None)),
                _ => None,
            };
            if let Some((layer, taken)) = layer {
                numbers += layer.weight.values.len();
                if numbers > MAX_NUMBERS {
                    return None;
                }
                joined.extend(taken.map(|(at, _)| at));
                layers.push(layer);
            }
        }
        Some(layers)
    }

    /// Numbers of a constant with one axis of at least two.
    fn vector(&self, name: &str) -> Option<Vec<f32>> {
        let tensor = self.tensor(name).filter(|tensor| tensor.shape.len() == 1)?;
        (tensor.values.len() > 1).then_some(tensor.values)
    }

    /// The constant vector among the two inputs of a node.
    fn other_vector(&self, node: &Node<'a>) -> Option<Vec<f32>> {
        let [first, second] = node.inputs[..] else { return None };
        self.vector(second).or_else(|| self.vector(first))
    }

    /// A convolution; true if a batch norm after it is folded.
    fn convolution(&self, node: &Node<'a>, after: Option<(usize, &Node<'a>)>) -> Option<(OnnxLayer, bool)> {
        let mut weight = self.tensor(node.inputs.get(1)?)?;
        let out = *weight.shape.first()?;
        let mut bias = node.inputs.get(2).and_then(|name| self.tensor(name)).map(|bias| bias.values);
        let norm = after.filter(|(_, after)| after.kind == "BatchNormalization" && after.inputs[0] == node.outputs[0]);
        let norm = norm.and_then(|(_, norm)| self.batch_norm(norm)).filter(|[scale, _]| scale.len() == out);
        let folds = norm.is_some();
        if let Some([scale, shift]) = norm {
            let before = bias.unwrap_or_else(|| vec![0.0; out]);
            let rest = weight.values.len() / out;
            let rows = weight.values.chunks_exact_mut(rest).zip(&scale);
            rows.for_each(|(row, by)| row.iter_mut().for_each(|value| *value *= by));
            bias = Some(before.iter().zip(scale.iter().zip(&shift)).map(|(b, (by, more))| b * by + more).collect());
        }
        Some((OnnxLayer { kind: OnnxLayerKind::Convolution, weight, bias }, folds))
    }

    /// A product, with the vector that the node after it adds.
    fn weighted<'n>(&self, node: &Node<'a>, after: Option<(usize, &'n Node<'a>)>) -> Option<Taken<'n, 'a>> {
        let weight = self.tensor(node.inputs.get(1)?)?.transposed()?;
        let sum = after.filter(|(_, after)| after.kind == "Add");
        let bias = sum.and_then(|(_, sum)| self.other_vector(sum)).filter(|bias| weight.shape[0] == bias.len());
        let taken = if bias.is_some() { sum } else { None };
        Some((OnnxLayer { kind: OnnxLayerKind::Product, weight, bias }, taken))
    }

    /// End of a layer norm that was exported as plain operations: a vector is multiplied, and the next one added.
    fn scaled<'n>(&self, node: &Node<'a>, after: Option<(usize, &'n Node<'a>)>) -> Option<Taken<'n, 'a>> {
        let scale = self.other_vector(node)?;
        let sum = after.filter(|(_, after)| after.kind == "Add")?;
        let shift = self.other_vector(sum.1).filter(|shift| shift.len() == scale.len())?;
        Some((OnnxLayer::scale(scale, shift), Some(sum)))
    }

    /// Factors and summands of the channels.
    fn batch_norm(&self, node: &Node<'a>) -> Option<[Vec<f32>; 2]> {
        let [_, names @ ..] = &node.inputs[..] else { return None };
        let parts: Option<Vec<Vec<f32>>> = names.iter().map(|name| Some(self.tensor(name)?.values)).collect();
        let [scale, shift, mean, variance] = &parts?[..] else { return None };
        if [shift, mean, variance].iter().any(|part| part.len() != scale.len()) {
            return None;
        }
        let epsilon = f64::from(node.epsilon.unwrap_or(EPSILON));
        let by = |(scale, variance): (&f32, &f32)| f64::from(*scale) / (f64::from(*variance) + epsilon).sqrt();
        let by: Vec<f64> = scale.iter().zip(variance).map(by).collect();
        let shifted = by.iter().zip(shift.iter().zip(mean));
        let shift = shifted.map(|(by, (shift, mean))| (f64::from(*shift) - f64::from(*mean) * by) as f32).collect();
        Some([by.iter().map(|by| *by as f32).collect(), shift])
    }

    fn layer_norm(&self, node: &Node<'a>) -> Option<OnnxLayer> {
        let [_, scale, shift] = node.inputs[..] else { return None };
        Some(OnnxLayer::scale(self.vector(scale)?, self.vector(shift)?))
    }
}

/// A layer, and the node after it that belongs to it.
type Taken<'n, 'a> = (OnnxLayer, Option<(usize, &'n Node<'a>)>);

impl OnnxLayer {
    fn scale(scale: Vec<f32>, shift: Vec<f32>) -> Self {
        let weight = OnnxTensor { shape: vec![scale.len()], values: scale };
        Self { kind: OnnxLayerKind::Scale, weight, bias: Some(shift) }
    }
}
