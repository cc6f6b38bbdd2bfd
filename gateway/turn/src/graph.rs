//! Weights of a published ONNX file.
//!
//! Exporters keep the names of biases and norms, and number all other weights. So a matrix is found by its use: it is
//! the factor of the product to which a named bias is added. 8-bit matrices are widened with their scales.

use std::collections::HashMap;
use std::path::PathBuf;

use thiserror::Error;

use super::protobuf::{FieldValue, fields, packed};

/// Error of loading a turn-detection model.
#[derive(Debug, Error)]
pub enum TurnModelError {
    /// The file cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause of the failure.
        error: std::io::Error,
    },
    /// The file is not an ONNX graph.
    #[error("this is not an ONNX file, or the file is truncated")]
    NotOnnx,
    /// The graph lacks a weight.
    #[error("the ONNX file is not a smart-turn v3 model: it has no {0}")]
    Missing(String),
    /// A weight has another shape or format than the model takes.
    #[error("the ONNX file is not a smart-turn v3 model: {name} has shape {shape:?}, expected {expected}")]
    Shape {
        /// Name of the weight.
        name: String,
        /// Its shape in the file.
        shape: Vec<usize>,
        /// Description of the expected shape.
        expected: String,
    },
    /// The device refused a weight.
    #[error(transparent)]
    Kernel(#[from] repartee_kernels::KernelError),
    /// The spectrogram cannot be computed.
    #[error("the spectrogram of {frames} frames cannot be set up")]
    Features {
        /// Number of its frames.
        frames: usize,
    },
}

/// Dense tensor, row-major.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tensor {
    pub shape: Vec<usize>,
    pub values: Vec<f32>,
}

/// Operation of the graph.
#[derive(Debug, Default)]
struct Node<'a> {
    kind: &'a str,
    inputs: Vec<&'a str>,
    outputs: Vec<&'a str>,
    axis: Option<i64>,
}

/// Graph of an ONNX file.
#[derive(Debug)]
pub(super) struct OnnxGraph<'a> {
    nodes: Vec<Node<'a>>,
    /// Index of the node that computes a value, by the value's name.
    producers: HashMap<&'a str, usize>,
    constants: HashMap<&'a str, Constant<'a>>,
}

#[derive(Debug, Default)]
struct Constant<'a> {
    name: &'a str,
    shape: Vec<usize>,
    kind: u64,
    raw: &'a [u8],
    numbers: Vec<u64>,
    floats: Vec<f32>,
}

// Field numbers of the published onnx.proto.
const MODEL_GRAPH: u64 = 7;
const GRAPH_NODE: u64 = 1;
const GRAPH_INITIALIZER: u64 = 5;
const NODE_INPUT: u64 = 1;
const NODE_OUTPUT: u64 = 2;
const NODE_KIND: u64 = 4;
const NODE_ATTRIBUTE: u64 = 5;
const ATTRIBUTE_NAME: u64 = 1;
const ATTRIBUTE_INTEGER: u64 = 3;
const TENSOR_SHAPE: u64 = 1;
const TENSOR_KIND: u64 = 2;
const TENSOR_FLOATS: u64 = 4;
const TENSOR_INTEGERS: u64 = 5;
const TENSOR_NAME: u64 = 8;
const TENSOR_RAW: u64 = 9;

// Data types of a tensor.
const FLOAT: u64 = 1;
const UINT8: u64 = 2;
const INT8: u64 = 3;
const INT32: u64 = 6;

/// Maximum numbers of one tensor: the largest weight of the model has 600 thousand.
const MAX_NUMBERS: usize = 1 << 24;

impl<'a> OnnxGraph<'a> {
    /// Reads the graph of a file.
    pub fn read(file: &'a [u8]) -> Result<Self, TurnModelError> {
        Self::parse(file).ok_or(TurnModelError::NotOnnx)
    }

    fn parse(file: &'a [u8]) -> Option<Self> {
        let mut graph = None;
        for field in fields(file) {
            if let (MODEL_GRAPH, value) = field? {
                graph = Some(value.bytes()?);
            }
        }
        let (mut nodes, mut constants) = (Vec::new(), HashMap::new());
        for field in fields(graph?) {
            match field? {
                (GRAPH_NODE, value) => nodes.push(Node::parse(value.bytes()?)?),
                (GRAPH_INITIALIZER, value) => {
                    let constant = Constant::parse(value.bytes()?)?;
                    constants.insert(constant.name, constant);
                }
                _ => {}
            }
        }
        let outputs =
            nodes.iter().enumerate().flat_map(|(index, node)| node.outputs.iter().map(move |name| (*name, index)));
        let made_by = outputs.collect();
        Some(Self { nodes, producers: made_by, constants })
    }

    /// Returns the weight of this name, widened if it is quantised.
    pub fn weight(&self, name: &str) -> Result<Tensor, TurnModelError> {
        self.find(name).ok_or_else(|| TurnModelError::Missing(name.to_owned()))
    }

    fn find(&self, name: &str) -> Option<Tensor> {
        if let Some(constant) = self.constants.get(name) {
            return constant.tensor();
        }
        let node = self.maker(name).filter(|node| node.kind == "DequantizeLinear")?;
        let [values, scale, rest @ ..] = &node.inputs[..] else { return None };
        let mut tensor = self.constants.get(values)?.tensor()?;
        let scales = self.constants.get(scale)?.tensor()?.values;
        let zeros = match rest.first() {
            Some(zeros) => self.constants.get(zeros)?.tensor()?.values,
            None => vec![0.0; scales.len()],
        };
        // One scale for all numbers, or one for each index of an axis.
        let axis = node.axis.unwrap_or(1);
        let axis = usize::try_from(if axis < 0 { axis + tensor.shape.len() as i64 } else { axis }).ok()?;
        let inner: usize = tensor.shape.iter().skip(axis + 1).product();
        let along = *tensor.shape.get(axis).filter(|_| scales.len() > 1).unwrap_or(&1);
        if scales.len() != along || zeros.len() != along || inner == 0 {
            return None;
        }
        for (index, value) in tensor.values.iter_mut().enumerate() {
            let at = index / inner % along;
            *value = (*value - zeros[at]) * scales[at];
        }
        Some(tensor)
    }

    fn maker(&self, name: &str) -> Option<&Node<'a>> {
        self.producers.get(name).map(|index| &self.nodes[*index])
    }

    /// Returns the matrix `[in, out]` of the product to which `bias` is added.
    pub fn matmul_weight(&self, bias: &str) -> Result<Tensor, TurnModelError> {
        let product = self.product(bias).ok_or_else(|| TurnModelError::Missing(format!("product with {bias}")))?;
        self.weight(product.inputs[1])
    }

    /// Returns the matrix `[in, out]` of the product without a bias that shares its input with those of `biases`.
    pub fn sibling_matmul_weight(&self, biases: [&str; 2]) -> Result<Tensor, TurnModelError> {
        let beside = || {
            let [first, second] = [self.product(biases[0])?, self.product(biases[1])?];
            let others = self.nodes.iter().filter(|node| {
                node.is_product()
                    && node.inputs[0] == first.inputs[0]
                    && ![first.inputs[1], second.inputs[1]].contains(&node.inputs[1])
            });
            others.map(|node| node.inputs[1]).next()
        };
        let name = beside().ok_or_else(|| TurnModelError::Missing(format!("product beside {biases:?}")))?;
        self.weight(name)
    }

    fn product(&self, bias: &str) -> Option<&Node<'a>> {
        let sum = self.nodes.iter().find(|node| node.kind == "Add" && node.inputs.contains(&bias))?;
        let mut name = sum.inputs.iter().find(|name| **name != bias)?;
        // Numbers may be quantised between the product and the sum. No path is longer than the graph.
        for _ in 0..self.nodes.len() {
            let node = self.maker(name)?;
            if node.is_product() {
                return Some(node);
            }
            if !["QuantizeLinear", "DequantizeLinear"].contains(&node.kind) {
                return None;
            }
            name = node.inputs.first()?;
        }
        None
    }

    /// Returns the weight of the convolution or linear layer with this bias, as stored: `[out, in, ..]`.
    pub fn layer_weight(&self, bias: &str) -> Result<Tensor, TurnModelError> {
        let layer =
            self.nodes.iter().find(|node| ["Conv", "Gemm"].contains(&node.kind) && node.inputs.get(2) == Some(&bias));
        let layer = layer.ok_or_else(|| TurnModelError::Missing(format!("layer with {bias}")))?;
        self.weight(layer.inputs[1])
    }
}

impl<'a> Node<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let mut node = Self::default();
        for field in fields(message) {
            match field? {
                (NODE_INPUT, value) => node.inputs.push(value.text()?),
                (NODE_OUTPUT, value) => node.outputs.push(value.text()?),
                (NODE_KIND, value) => node.kind = value.text()?,
                (NODE_ATTRIBUTE, value) => {
                    let (mut name, mut integer) = ("", None);
                    for field in fields(value.bytes()?) {
                        match field? {
                            (ATTRIBUTE_NAME, value) => name = value.text()?,
                            (ATTRIBUTE_INTEGER, value) => integer = value.number(),
                            _ => {}
                        }
                    }
                    if name == "axis" {
                        // Two's complement, as the format says.
                        node.axis = integer.map(|axis| axis as i64);
                    }
                }
                _ => {}
            }
        }
        Some(node)
    }

    fn is_product(&self) -> bool {
        self.kind == "MatMul" && self.inputs.len() == 2
    }
}

impl<'a> Constant<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let mut constant = Self::default();
        let size = |number: u64| usize::try_from(number).ok();
        for field in fields(message) {
            match field? {
                (TENSOR_NAME, value) => constant.name = value.text()?,
                (TENSOR_KIND, value) => constant.kind = value.number()?,
                (TENSOR_RAW, value) => constant.raw = value.bytes()?,
                (TENSOR_SHAPE, FieldValue::Varint(number)) => constant.shape.push(size(number)?),
                (TENSOR_SHAPE, value) => {
                    constant.shape.extend(packed(value.bytes()?)?.into_iter().map(size).collect::<Option<Vec<_>>>()?);
                }
                (TENSOR_INTEGERS, FieldValue::Varint(number)) => constant.numbers.push(number),
                (TENSOR_INTEGERS, value) => constant.numbers.extend(packed(value.bytes()?)?),
                (TENSOR_FLOATS, FieldValue::Fixed32(bytes)) => constant.floats.push(f32::from_le_bytes(bytes)),
                (TENSOR_FLOATS, value) => {
                    constant.floats.extend(value.bytes()?.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
                }
                _ => {}
            }
        }
        Some(constant)
    }

    /// Converts the numbers to single precision; `None` if their format is unknown or their count is wrong.
    fn tensor(&self) -> Option<Tensor> {
        let count = self.shape.iter().try_fold(1usize, |product, size| product.checked_mul(*size))?;
        if count > MAX_NUMBERS {
            return None;
        }
        let integers = || self.numbers.iter();
        let values: Vec<f32> = match (self.kind, self.raw.is_empty()) {
            (FLOAT, true) => self.floats.clone(),
            (FLOAT, false) => self.raw.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            (UINT8, false) => self.raw.iter().map(|byte| f32::from(*byte)).collect(),
            (INT8, false) => self.raw.iter().map(|byte| f32::from(byte.cast_signed())).collect(),
            (INT32, false) => self.raw.as_chunks().0.iter().map(|bytes| i32::from_le_bytes(*bytes) as f32).collect(),
            // Negative numbers are 64 bits of two's complement.
            (UINT8 | INT8 | INT32, true) => integers().map(|number| *number as i64 as f32).collect(),
            _ => return None,
        };
        (values.len() == count).then(|| Tensor { shape: self.shape.clone(), values })
    }
}
